"""What happened, and what would have: a history under its recorded starts and under policies.

The recorded schedule is simulated first (see `replay_recorded`). Then every policy runs on the
machines as recorded and, if anything is to be different, on the changed ones. Quotas are limits of
tenants in front of the policy (the admission `quota`): what a tenant's jobs inside ask for stays
within it; others are held in the order of their submission.

Jobs that still ran at the end of the log are taken to be over there; jobs that never ran are not in
the workload, because nobody knows how long they would take.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import OptionError, TraceError
from rota.core.registry import FORMATS, load, split
from rota.core.topology import NodeSpec
from rota.experiments.config import RunConfig
from rota.experiments.output import dump, write_run
from rota.experiments.replay_changes import Changes, changed, level_names
from rota.experiments.replay_cluster import seen_cluster, write_cluster
from rota.experiments.replay_recorded import NAME, UNLISTED, Replayed, replay_recorded
from rota.experiments.replay_tables import Schedule, log_end_s, tabulate
from rota.experiments.run import RunResult, simulate
from rota.metrics import write_jobs
from rota.traces.cluster import parse_cluster
from rota.traces.imported import Imported
from rota.traces.read import read_trace, recognise
from rota.traces.slurm_records import OPEN

DEFAULT_POLICY = "easy"
START_OVER = "custom:checkpoint_s=inf"
"""A job loses all work since it was started when its node fails; nothing else costs anything."""
MOST_GPUS = 100_000
"""Of a job: a larger one can only be an error, and machines of that size take for ever."""
JSON, TABLE, REPORT = "replay.json", "replay.csv", "report.html"
CLUSTER, CHANGED = "cluster.yaml", "cluster-changed.yaml"
VERSION = 1

Told = Callable[[str, int, int], object]
"""Told (what is done next, its number from 0, how many there are)."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to know."""

    log: str
    format: str | None = None
    nodes: str | None = None
    cluster: str | None = None
    policies: tuple[str, ...] = (DEFAULT_POLICY,)
    placement: str | None = None
    changes: Changes = Changes()
    limit: int | None = None
    seed: int = 0


class Answer(msgspec.Struct):
    """The schedules side by side; `table` as `replay_tables.tabulate` makes it."""

    asked: Asked
    imported: Imported
    nodes: tuple[NodeSpec, ...]
    other_nodes: tuple[NodeSpec, ...]
    seen: bool  # the nodes are only those that jobs were seen on
    recorded: Replayed
    schedules: list[Schedule]
    table: pl.DataFrame
    warnings: list[str]

    def facts(self) -> dict[str, Any]:
        """Everything but the table, as plain data."""
        quality = self.imported.quality
        return {
            "replay": VERSION,
            "log": self.asked.log,
            "format": self.asked.format,
            "changes": self.asked.changes.describe() or None,
            "origin": self.imported.origin,
            "log_end_s": log_end_s(self.imported),
            "jobs": len(self.imported),
            "ran": len(self.recorded.jobs),
            "censored": int(self.imported.observed.per_job()["end_s"].null_count()),
            "rows": {
                "read": quality.rows,
                "kept": quality.kept,
                "dropped": quality.dropped,
                "repaired": quality.repaired,
            },
            "cluster": {
                "from": "what jobs were seen on" if self.seen else "a list of nodes",
                "nodes": len(self.nodes),
                "gpus": sum(node.gpus for node in self.nodes),
                "changed_nodes": len(self.other_nodes),
                "changed_gpus": sum(node.gpus for node in self.other_nodes),
            },
            "recorded": {
                "exact": self.recorded.exact,
                "worst_s": self.recorded.worst_s,
                "counted": self.recorded.counted,
                "guessed_splits": self.recorded.guessed,
                "contradictions": self.recorded.contradictions,
            },
            "warnings": self.warnings,
        }


def replay(asked: Asked, folder: Path, final: Path, told: Told | None = None) -> Answer:
    """Answer and write all files but the page.

    Args:
        asked: The question.
        folder: An existing folder for the files.
        final: Where the folder will be: the runs name their cluster there.
        told: Called before each schedule.
    """
    changes = asked.changes
    total = 1 + len(asked.policies) * (1 + bool(changes))
    tell = told or (lambda *_: None)
    tell("reading", 0, total)
    imported, text = read_history_of(asked)
    asked = msgspec.structs.replace(asked, format=text)
    _refuse_nonsense(asked, imported)
    machines = _machines(asked, imported)
    nodes = machines.nodes
    others = changed(nodes, changes, partitions_of(imported), machines.levels) if changes else nodes
    tell(NAME, 0, total)
    recorded = replay_recorded(imported, nodes)
    gpus = sum(node.gpus for node in recorded.nodes)
    first = Schedule(NAME, recorded.result.jobs, recorded.result.log, gpus, recorded.jobs)
    _write_recorded(recorded.result, folder / NAME)
    plans = _plans(asked, machines, others, folder, _failing(asked, imported))
    schedules, warnings = [first], _told_of(asked, imported, recorded)
    for number, plan in enumerate(plans, 1):
        tell(plan.name, number, total)
        result = simulate(plan.config, workload=imported.workload)
        warnings += [f"{plan.name}: {text}" for text in result.warnings if _matters(text)]
        result.config = msgspec.structs.replace(result.config, cluster=str(final / plan.file))
        (folder / plan.folder).mkdir()
        write_run(result, folder / plan.folder)
        schedules.append(Schedule(plan.name, result.jobs, result.log, plan.gpus))
    table = tabulate(imported, schedules)
    answer = Answer(
        asked, imported, nodes, others, machines.seen, recorded, schedules, table, warnings
    )
    table.write_csv(folder / TABLE)
    rows = table.with_columns(pl.col(pl.Float64).round(6)).to_dicts()
    (folder / JSON).write_text(dump({**answer.facts(), "rows_by_group": rows}), encoding="utf-8")
    return answer


def read_history_of(asked: Asked) -> tuple[Imported, str]:
    """The trace, and its format with the options that a replay needs."""
    path = Path(asked.log)
    name, given = split(asked.format or "")
    name = name or recognise(path).name
    fields = getattr(getattr(load(FORMATS, name), "params", None), "__struct_fields__", ())
    if asked.nodes is not None:
        if "nodes" not in fields:
            raise OptionError(f"format {name!r} has no list of nodes: give --cluster instead")
        given["nodes"] = asked.nodes
    if "partitions" in fields and (asked.cluster is None or _labelled(asked.cluster)):
        given.setdefault("partitions", "label")
    text = name + ":" * bool(given) + ",".join(f"{key}={value}" for key, value in given.items())
    imported = read_trace(path, text, limit=asked.limit)
    if not len(imported.observed):
        raise TraceError(
            f"{path}: does not say when jobs started: a replay needs a history, "
            f"use `rota compare` for jobs alone"
        )
    largest = imported.jobs.select(pl.col("job_id", "num_gpus").top_k_by("num_gpus", 1)).row(0)
    if largest[1] > MOST_GPUS:
        raise TraceError(
            f"{path}: job {largest[0]} asks for {largest[1]:,.0f} GPUs, more than "
            f"{MOST_GPUS:,}: correct it or take it out of the log"
        )
    return imported, text


def _labelled(cluster: str) -> bool:
    return any(node.labels for node in parse_cluster(cluster)[0].specs)


def _refuse_nonsense(asked: Asked, imported: Imported) -> None:
    """Questions that can only be typing errors."""
    if len(set(asked.policies)) < len(asked.policies):
        raise OptionError(f"--policy {' --policy '.join(asked.policies)}: the same one twice")
    limited = [tenant for tenant, _ in asked.changes.quotas]
    tenants = set(imported.jobs["vc"].to_list())
    for tenant in limited:
        if limited.count(tenant) > 1:
            raise OptionError(f"--quota {tenant}=...: given more than once, give one number")
        if tenant not in tenants:
            known = ", ".join(sorted(filter(None, tenants))) or "none"
            raise OptionError(f"--quota {tenant}=...: no job is of this tenant; there are: {known}")


def partitions_of(imported: Imported) -> list[str]:
    """Labels that jobs ask for, sorted."""
    return sorted(imported.jobs["labels"].explode().drop_nulls().unique().to_list())


class _Machines(msgspec.Struct):
    nodes: tuple[NodeSpec, ...]
    levels: tuple[str, ...] = ()
    seen: bool = False  # they are only what jobs were seen on


def _machines(asked: Asked, imported: Imported) -> _Machines:
    if asked.cluster is not None:
        topology = parse_cluster(asked.cluster)[0]
        return _Machines(topology.specs, level_names(topology.specs, topology.levels))
    if imported.cluster:
        return _Machines(imported.cluster, level_names(imported.cluster))
    nodes = seen_cluster(imported)
    if not any(node.gpus for node in nodes):
        raise OptionError(
            f"{asked.log}: does not tell the nodes of jobs: give the machines with --nodes or "
            f"--cluster"
        )
    return _Machines(nodes, seen=True)


class _Plan(msgspec.Struct):
    name: str
    folder: str
    file: str
    gpus: int
    config: RunConfig


def _plans(
    asked: Asked,
    machines: _Machines,
    others: Sequence[NodeSpec],
    folder: Path,
    failing: Mapping[str, Any],
) -> list[_Plan]:
    """All runs: the policies on the machines as they are, then on the changed ones."""
    changes = asked.changes
    write_cluster(machines.nodes, machines.levels, {}, folder / CLUSTER)
    variants: list[tuple[str, Sequence[NodeSpec], str]] = [(CLUSTER, machines.nodes, "")]
    if changes:
        write_cluster(others, machines.levels, dict(changes.quotas), folder / CHANGED)
        variants.append((CHANGED, others, changes.describe()))
    plans: list[_Plan] = []
    for file, nodes, what in variants:
        for policy in asked.policies:
            name = f"{policy} ({what})" if what else policy
            config = RunConfig(
                trace=asked.log,
                format=asked.format,
                cluster=str(folder / file),
                policy=policy,
                placement=asked.placement,
                admission="quota" if what and changes.quotas else None,
                limit=asked.limit,
                seed=asked.seed,
                **failing,
            )
            gpus = sum(node.gpus for node in nodes)
            plans.append(_Plan(name, _folder(policy, bool(what), plans), file, gpus, config))
    return plans


def _folder(policy: str, changed_too: bool, plans: Sequence[_Plan]) -> str:  # noqa: FBT001 - private
    base = re.sub(r"[^\w.-]+", "-", policy).strip("-.") or "policy"
    base += "-changed" * changed_too
    taken = {plan.folder for plan in plans} | {NAME}
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def own_files(folder: Path) -> list[str]:
    """Files that an earlier replay wrote into a folder, relative to it."""
    names = [JSON, TABLE, REPORT, CLUSTER, CHANGED]
    runs = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    files = ("jobs.csv", "summary.json", "events.parquet", "manifest.json")
    return names + [f"{run}/{file}" for run in runs for file in files]


def _write_recorded(result: RunResult, folder: Path) -> None:
    """As a run, but without a manifest: nothing can make it again but a replay."""
    folder.mkdir()
    write_jobs(result.jobs, folder / "jobs.csv")
    result.log.write_parquet(folder / "events.parquet", compression="zstd")
    (folder / "summary.json").write_text(dump(result.summary), encoding="utf-8")


def _failing(asked: Asked, imported: Imported) -> dict[str, Any]:
    """How nodes fail: as in the log. What a job loses must not be in its run time as well."""
    if not imported.failures:
        return {}
    kept = _options(asked.format).get("runtime") in ("sum", "span")
    return {"failures": "recorded"} if kept else {"failures": "recorded", "costs": START_OVER}


def _told_of(asked: Asked, imported: Imported, recorded: Replayed) -> list[str]:
    contradictions = dict(recorded.contradictions)
    found = [note for note in imported.notes if not note.endswith(OPEN)]
    if asked.cluster is not None and contradictions.pop(UNLISTED, 0):
        found.append("the nodes of the log are not all among those of --cluster")
    found += [f"contradiction: {what}: {many:,} times" for what, many in contradictions.items()]
    if asked.cluster is not None and _options(asked.format).get("partitions") != "label":
        found.append(
            "partitions are not kept: with this --cluster every job may run on every node; name "
            "them as labels in a YAML file, or give --nodes"
        )
    if recorded.counted:
        found.append("the recorded schedule was replayed by counting GPUs, not by nodes")
    elif recorded.guessed:
        found.append(f"{recorded.guessed:,} {OPEN}")
    return found


def _options(text: str | None) -> dict[str, str]:
    return split(text or "")[1]


def _matters(text: str) -> bool:
    """Not what the import has told, nor what a log without CPUs of nodes cannot know."""
    return not text.startswith("jobs ask for ") and " jobs of the trace " not in text
