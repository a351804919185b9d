"""What happened, and what would have: a history under its recorded starts and under policies.

The recorded schedule is simulated first (see `replay_recorded`). Then policies run the same jobs on
the machines as recorded: the closest is the model of today (see `replay_model`). If anything is to
be different, the model and the policies that were asked for run with the changes, too. Quotas are
limits of tenants in front of the policy (the admission `quota`): what a tenant's jobs inside ask
for stays within it; others are held in the order of their submission.

Jobs that still ran at the end of the log are taken to be over there; jobs that never ran are not in
the workload, because it is unknown how long they would take.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import OptionError, TraceError
from rota.core.registry import nearest, split
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.parts import make_policy
from rota.metrics import write_jobs
from rota.study.build import read_windows
from rota.study.config import RunConfig
from rota.study.fidelity import FAR, LEAST_S, LIMITS, Fidelity, as_close, closest, rank
from rota.study.output import dump, write_run
from rota.study.pool import cores, each, report
from rota.study.replay.changes import Enlarged, ReplayChanges, changed, enlarged, level_names
from rota.study.replay.cluster import seen_cluster, write_cluster
from rota.study.replay.model import SLURM, candidates, judge, lacking, passed
from rota.study.replay.recorded import NAME, UNLISTED, Replayed, replay_recorded
from rota.study.replay.tables import (
    MODEL,
    OBSERVED,
    POLICY,
    WHAT_IF,
    Schedule,
    gpus_by_label,
    log_end_s,
    tabulate,
)
from rota.study.run import RunResult, simulate
from rota.traces.cluster import parse_cluster, parse_counts, refuse_windows
from rota.traces.formats.slurm.records import OPEN
from rota.traces.formats.store import FILES as TRACE_FILES
from rota.traces.formats.store import save
from rota.traces.imported import Imported
from rota.traces.read import load_format, read_trace, recognise

START_OVER = "custom:checkpoint_s=inf"
"""A job loses all work since it was started when its node fails; nothing else costs anything."""
REQUEUED = f"{START_OVER},lost_work_s=inf"
"""A job also starts over when it is preempted."""
MOST_GPUS = 100_000
"""Of a job: a larger one can only be an error, and machines of that size take for ever."""
JSON, TABLE, FIDELITY, REPORT = "replay.json", "replay.csv", "fidelity.csv", "report.html"
WORTH = 50_000  # jobs of all runs: for fewer, other processes would not be ready in time
CLUSTER, CHANGED, WORKLOAD = "cluster.yaml", "cluster-changed.yaml", "workload-changed"
VERSION = 1

Told = Callable[[str, int, int], object]
"""Told (what is being done, how much of it is done, of how much)."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to know."""

    log: str
    format: str | None = None
    nodes: str | None = None
    cluster: str | None = None
    policies: tuple[str, ...] = ()
    model: str | None = None  # None: the closest of those tried
    slurm: str = SLURM  # what `slurm` means: with the files of the site
    placement: str | None = None
    changes: ReplayChanges = ReplayChanges()
    limit: int | None = None
    seed: int = 0

    def spelled(self, policy: str) -> str:
        """The policy with its parameters."""
        return self.slurm if policy == SLURM else policy


class Answer(msgspec.Struct):
    """The schedules side by side; `table` as `replay_tables.tabulate` makes it."""

    asked: Asked
    imported: Imported
    nodes: tuple[NodeSpec, ...]
    other_nodes: tuple[NodeSpec, ...]
    levels: tuple[str, ...]  # names of the levels above nodes
    site: TenantTree  # the queues as they are
    seen: bool  # the nodes are only those that jobs were seen on
    recorded: Replayed
    schedules: list[Schedule]
    table: pl.DataFrame
    model: Fidelity  # of today
    fidelity: list[Fidelity]  # of all policies that were tried, the closest first
    lacks: list[str]  # what the log would have to tell for a closer model
    warnings: list[str]

    @property
    def far(self) -> bool:
        """No policy comes close to what happened."""
        return self.model.verdict == FAR

    @property
    def undecided(self) -> str:
        """That others come as close as the model, if the choice between them is ours."""
        others = as_close(self.model, self.fidelity) if self.asked.model is None else []
        idle = (self.model.whole.observed_mean_wait_s or 0.0) < LEAST_S  # which is warned of
        if idle or not others:
            return ""
        *most, last = others
        names = f"{', '.join(most)} and {last} come" if most else f"{last} comes"
        return (
            f"{names} as close: this log does not tell them from {self.model.policy}, but what "
            f"would happen otherwise may differ between them. If your cluster runs another one, "
            f"name it: --model {others[0]}"
        )

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
                "gpus": ordered_sum(node.gpus for node in self.nodes),
                "changed_nodes": len(self.other_nodes),
                "changed_gpus": ordered_sum(node.gpus for node in self.other_nodes),
            },
            "recorded": {
                "exact": self.recorded.exact,
                "worst_s": self.recorded.worst_s,
                "counted": self.recorded.counted,
                "guessed_splits": self.recorded.guessed,
                "contradictions": self.recorded.contradictions,
            },
            "warnings": self.warnings,
            "model": {
                "policy": self.model.policy,
                "named": self.asked.model is not None,
                "verdict": self.model.verdict,
                "sentence": self.model.sentence,
                "as_close": as_close(self.model, self.fidelity),
            },
            "fidelity": [found.facts() for found in self.fidelity],
            "limits": msgspec.to_builtins(LIMITS),
            "lacks": self.lacks,
        }


def replay(
    asked: Asked,
    folder: Path,
    final: Path,
    told: Told | None = None,
    *,
    workers: int | None = 1,
) -> Answer:
    """Answer and write all files but the page.

    Args:
        asked: The question.
        folder: An existing folder for the files.
        final: Where the folder will be: the runs name their cluster there.
        told: Called from time to time.
        workers: Processes for the policies; 1: this one; None: all cores if there is enough to do.
    """
    tell = told or (lambda *_: None)
    ruled = asked.slurm != SLURM
    names = candidates(asked.model, asked.policies, ruled=ruled)
    for name in names:
        make_policy(asked.spelled(name))  # a typing error is found before a long import
    tell("reading", 0, 1)
    imported, text = read_history_of(asked)
    asked = msgspec.structs.replace(asked, format=text)
    changes, partitions = asked.changes, partitions_of(imported)
    machines = _machines(asked, imported)
    if asked.model is None and imported.queues.policy:  # what the site itself keeps to
        names = list(dict.fromkeys([*names, imported.queues.policy]))
    changes = changes.resolved(machines.nodes, partitions, imported.jobs["vc"].to_list())
    asked = msgspec.structs.replace(asked, changes=changes)
    others = changed(machines.nodes, changes, partitions, machines.levels)
    more = enlarged(imported, changes.also, partitions) if changes.also else None
    _refuse_nonsense(asked, more.imported if more else imported)
    tenants = (more.imported if more else imported).jobs["vc"].unique().to_list()
    topology = Topology(others, machines.levels)  # what is wrong is said before anything runs
    read_windows(changes.maintenance, changes.reserve, topology, machines.site, tenants)
    _write_inputs(asked, machines, others, more, folder, tenants)
    tell(NAME, 0, 1)
    recorded = replay_recorded(imported, machines.nodes)
    _write_recorded(recorded.result, folder / NAME)

    runs = _Runs(asked, machines.nodes, others, imported, more, folder, tell, workers)
    tried = runs.try_all(names)
    fidelity = [judge(name, run, recorded, imported) for name, run in tried.items()]
    model = next((f for f in fidelity if f.policy == asked.model), None) or closest(fidelity)
    fidelity.sort(key=lambda found: (rank(found), found is not model))

    schedules = [_observed(recorded, machines.nodes)]
    shown = list(asked.policies) if asked.policies or changes else [f.policy for f in fidelity]
    shown = list(dict.fromkeys([*([] if model.policy in shown else [model.policy]), *shown]))
    warnings = _told_of(asked, imported, recorded, model, machines)
    made = [(MODEL if name == model.policy else POLICY, name, tried[name]) for name in shown]
    if changes:
        made += [(WHAT_IF, name, run) for name, run in runs.try_changed(shown).items()]
    for role, policy, run in made:
        schedule = runs.schedule(policy, run, role)
        warnings += [f"{schedule.name}: {text}" for text in run.warnings if _matters(text)]
        file = CHANGED if role == WHAT_IF else CLUSTER
        _write_run(run, folder / _folder(policy, file, folder), final / file)
        schedules.append(schedule)
    by_others = passed(imported, recorded, model.policy, tried[model.policy])
    lacks = lacking(imported, seen=machines.seen, slurm=_of_slurm(text), ruled=ruled)
    lacks = [*filter(None, [by_others]), *lacks]
    if more is not None:
        warnings += more.warnings
    added = more.added if more else None
    table = tabulate(imported, schedules, added, trusted=model.verdict != FAR)
    answer = Answer(
        asked, imported, machines.nodes, others, machines.levels, machines.site, machines.seen,
        recorded, schedules, table, model, fidelity, lacks, warnings,
    )  # fmt: skip
    _write_answer(answer, folder)
    return answer


def read_history_of(asked: Asked) -> tuple[Imported, str]:
    """The trace, and its format with the options that a replay needs."""
    path, text = Path(asked.log), history_format(asked)
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


def history_format(asked: Asked) -> str:
    """The format of a log, with the options that tell its machines."""
    path = Path(asked.log)
    name, given = split(asked.format or "")
    format_ = load_format(name) if name else recognise(path)
    name = name or format_.name
    if asked.nodes is not None:
        if "nodes" not in format_.options:
            raise OptionError(f"format {name!r} has no list of nodes: give --cluster instead")
        given["nodes"] = asked.nodes
    if "partitions" in format_.options and (asked.cluster is None or _labelled(asked.cluster)):
        given.setdefault("partitions", "label")
    return name + ":" * bool(given) + ",".join(f"{key}={value}" for key, value in given.items())


def _labelled(cluster: str) -> bool:
    return any(node.labels for node in parse_cluster(cluster)[0].specs)


def _refuse_nonsense(asked: Asked, imported: Imported) -> None:
    """Questions that can only be typing errors."""
    if len(set(asked.policies)) < len(asked.policies):
        raise OptionError(f"--policy {' --policy '.join(asked.policies)}: the same one twice")
    limited = [tenant for tenant, _ in (*asked.changes.quotas, *asked.changes.guarantees)]
    tenants = set(imported.jobs["vc"].to_list())
    for tenant in limited:
        if limited.count(tenant) > 1:
            raise OptionError(f"--quota {tenant}=...: given more than once, give one number")
        if tenant not in tenants:
            known = sorted(filter(None, tenants))
            near = nearest(tenant, known)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise OptionError(
                f"--quota {tenant}=...: no job is of this tenant{hint}; there are: "
                f"{', '.join(known) or 'none'}"
            )


def partitions_of(imported: Imported) -> list[str]:
    """Labels that jobs ask for, sorted."""
    return sorted(imported.jobs["labels"].explode().drop_nulls().unique().to_list())


class _Machines(msgspec.Struct):
    nodes: tuple[NodeSpec, ...]
    site: TenantTree  # who shares them
    levels: tuple[str, ...] = ()
    seen: bool = False  # they are only what jobs were seen on


def _machines(asked: Asked, imported: Imported) -> _Machines:
    site = TenantTree(imported.queues.tenants)
    if asked.cluster is not None:
        topology, told = parse_cluster(asked.cluster)
        refuse_windows(
            topology, "a replay has the machines as they were", "give --maintenance and --reserve"
        )
        if len(told) or told.classes:
            site = told
        return _Machines(topology.specs, site, level_names(topology.specs, topology.levels))
    if imported.cluster:
        return _Machines(imported.cluster, site, level_names(imported.cluster))
    nodes = seen_cluster(imported)
    if not any(node.gpus for node in nodes):
        raise OptionError(
            f"{asked.log}: does not tell the nodes of jobs: give the machines with --nodes or "
            f"--cluster"
        )
    return _Machines(nodes, site, seen=True)


class _Runs:
    """The policies at work: on the jobs and machines as they were, and with the changes."""

    def __init__(
        self,
        asked: Asked,
        nodes: Sequence[NodeSpec],
        others: Sequence[NodeSpec],
        imported: Imported,
        more: Enlarged | None,
        folder: Path,
        tell: Told,
        workers: int | None,
    ) -> None:
        self._asked = asked
        self._nodes = {False: nodes, True: others}
        self._workload = imported.workload
        self._imported = imported
        self._more = more
        self._folder = folder
        self._tell = tell
        self._workers = workers
        self._steps = 0
        self._total = 0

    def try_all(self, policies: Sequence[str]) -> dict[str, RunResult]:
        """Without any change."""
        changes = self._asked.changes
        self._total = len(policies) + bool(changes) * max(1, len(self._asked.policies))
        return self._run_all({policy: self._config(policy) for policy in policies})

    def try_changed(self, policies: Sequence[str]) -> dict[str, RunResult]:
        """With all changes."""
        if self._more is None:  # the same jobs, which other processes can read for themselves
            found = self._run_all({policy: self._changed(policy) for policy in policies})
        else:
            workload = self._more.imported.workload
            found = {
                policy: self._run(policy, self._changed(policy), workload) for policy in policies
            }
        for result in found.values():
            # whom the quotas do not name was not forgotten: nobody wrote that file
            result.notes = [note for note in result.notes if CHANGED not in note]
        return found

    def _changed(self, policy: str) -> RunConfig:
        config = self._config(policy)
        bound = self._asked.changes.quotas or self._asked.changes.guarantees
        quota = "quota" if bound else None
        config = msgspec.structs.replace(
            config, cluster=str(self._folder / CHANGED), admission=quota,
            maintenance=self._asked.changes.maintenance, reserve=self._asked.changes.reserve,
        )  # fmt: skip
        if self._more is not None:
            trace = str(self._folder / WORKLOAD)
            config = msgspec.structs.replace(config, trace=trace, format=None, limit=None)
        return config

    def schedule(self, policy: str, run: RunResult, role: str) -> Schedule:
        """A run as it stands beside the others."""
        what = self._asked.changes.describe() if role == WHAT_IF else ""
        numbers = self._more.numbers if what and self._more is not None else None
        name = f"{policy} ({what})" if what else policy
        nodes = self._nodes[bool(what)]
        gpus = sum(node.gpus for node in nodes)
        return Schedule(name, run.jobs, run.log, gpus, numbers, role, gpus_by_label(nodes))

    def _config(self, policy: str) -> RunConfig:
        return run_config(self._asked, self._imported, policy, self._folder / CLUSTER)

    def _run_all(self, configs: Mapping[str, RunConfig]) -> dict[str, RunResult]:
        """The policies on the recorded jobs, in processes of their own where that is faster."""
        count = self._workers
        if count is None:
            count = cores() if len(self._workload) * len(configs) >= WORTH else 1
        if min(count, len(configs)) < 2:  # noqa: PLR2004 - alone
            return {policy: self._run(policy, config) for policy, config in configs.items()}
        title = f"{len(configs)} policies"
        self._steps += len(configs)

        def told(done: float) -> None:
            self._tell(title, int(done * len(self._workload)), len(configs) * len(self._workload))

        names = list(configs)
        found: dict[str, RunResult] = {}
        with closing(each(_one, list(configs.values()), count, told=told)) as answers:
            for number, answer in answers:
                if isinstance(answer, Exception):
                    raise answer
                result, used_s = answer
                result.begun_cpu_s = process_time() - used_s  # the clock of this process
                found[names[number]] = result
        return {policy: found[policy] for policy in configs}

    def _run(self, policy: str, config: RunConfig, workload: Workload | None = None) -> RunResult:
        self._steps += 1
        what = " with the changes" if config.cluster.endswith(CHANGED) else ""
        title = f"{self._steps}/{max(self._steps, self._total)} {policy}{what}"
        workload = workload or self._workload
        self._tell(title, 0, len(workload))

        def progress(done: int, total: int, _: float) -> None:
            self._tell(title, done, total)

        return simulate(config, progress, workload=workload)


def run_config(asked: Asked, imported: Imported, policy: str, cluster: Path) -> RunConfig:
    """A policy on the recorded jobs and the machines of a file."""
    options: dict[str, Any] = _failing(imported)
    if split(policy)[0] == SLURM and _options(asked.format).get("runtime") not in ("sum", "span"):
        options["costs"] = REQUEUED  # what Slurm preempts starts over; others are taken to save
    return RunConfig(
        trace=asked.log,
        format=asked.format,
        cluster=str(cluster),
        policy=asked.spelled(policy),
        placement=asked.placement,
        limit=asked.limit,
        seed=asked.seed,
        **options,
    )


def _one(config: RunConfig) -> tuple[RunResult, float]:
    """A run in another process, and the CPU time that it took there."""
    workload = recorded_jobs(config.trace, config.format, config.limit)
    result = simulate(config, report, workload=workload)
    return result, process_time() - result.begun_cpu_s


@lru_cache(maxsize=1)
def recorded_jobs(trace: str, format_text: str | None, limit: int | None) -> Workload:
    """The jobs of the log, read once in each process."""
    return read_trace(trace, format_text, limit=limit).workload


def _observed(recorded: Replayed, nodes: Sequence[NodeSpec]) -> Schedule:
    gpus = sum(node.gpus for node in recorded.nodes)
    result = recorded.result
    of_label = gpus_by_label(nodes)
    return Schedule(NAME, result.jobs, result.log, gpus, recorded.jobs, OBSERVED, of_label)


def _write_inputs(
    asked: Asked,
    machines: _Machines,
    others: Sequence[NodeSpec],
    more: Enlarged | None,
    folder: Path,
    tenants: Sequence[str],
) -> None:
    """What the runs are made from, so that they can be made again."""
    site, names = machines.site, [*filter(None, tenants)]
    if asked.changes.guarantees and len(site):
        raise OptionError(
            "--guarantee and --more of a queue: the queues of this site have quotas of their own: "
            "write them down in a cluster file as they should be (--cluster), and replay with it"
        )
    write_cluster(machines.nodes, machines.levels, {}, folder / CLUSTER, site=site)
    if asked.changes:
        write_cluster(
            others, machines.levels, dict(asked.changes.quotas), folder / CHANGED,
            guarantees=dict(asked.changes.guarantees), tenants=names, site=site,
        )  # fmt: skip
    if more is not None:
        save(more.imported, folder / WORKLOAD, source=" ".join([asked.log, *asked.changes.also]))


def _write_run(result: RunResult, folder: Path, cluster: Path) -> None:
    config = msgspec.structs.replace(result.config, cluster=str(cluster))
    if Path(config.trace).name == WORKLOAD:
        config = msgspec.structs.replace(config, trace=str(cluster.with_name(WORKLOAD)))
    result.config = config
    folder.mkdir()
    write_run(result, folder)


def _write_answer(answer: Answer, folder: Path) -> None:
    answer.table.write_csv(folder / TABLE)
    rows = answer.table.with_columns(pl.col(pl.Float64).round(6)).to_dicts()
    (folder / JSON).write_text(dump({**answer.facts(), "rows_by_group": rows}), encoding="utf-8")
    found = [
        {"policy": one.policy, "verdict": one.verdict, **msgspec.structs.asdict(group)}
        for one in answer.fidelity
        for group in one.groups
    ]
    pl.DataFrame(found, infer_schema_length=None).write_csv(folder / FIDELITY)


def _folder(policy: str, file: str, folder: Path) -> str:
    base = re.sub(r"[^\w.-]+", "-", policy).strip("-.") or "policy"
    base += "-changed" * (file == CHANGED)
    name, number = base, 2
    while (folder / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name


def _of_slurm(format_text: str) -> bool:
    return format_text.startswith("sacct")


def own_files(folder: Path) -> list[str]:
    """Files that an earlier replay wrote into a folder, relative to it."""
    names = [JSON, TABLE, FIDELITY, REPORT, CLUSTER, CHANGED]
    names += [f"{WORKLOAD}/{file}" for file in TRACE_FILES]
    runs = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    files = ("jobs.csv", "summary.json", "events.parquet", "manifest.json")
    return names + [f"{run}/{file}" for run in runs for file in files]


def _write_recorded(result: RunResult, folder: Path) -> None:
    """As a run, but without a manifest: nothing can make it again but a replay."""
    folder.mkdir()
    write_jobs(result.jobs, folder / "jobs.csv")
    result.log.write_parquet(folder / "events.parquet", compression="zstd")
    (folder / "summary.json").write_text(dump(result.summary), encoding="utf-8")


def _failing(imported: Imported) -> dict[str, Any]:
    """How nodes fail: as in the log. What a job loses must not be in its run time as well."""
    if not imported.failures:
        return {}
    costs = {} if imported.lossless else {"costs": START_OVER}
    return {"outages": "recorded", **costs}


def _told_of(
    asked: Asked, imported: Imported, recorded: Replayed, model: Fidelity, machines: _Machines
) -> list[str]:
    contradictions = dict(recorded.contradictions)
    found = [note for note in imported.notes if not note.endswith(OPEN)]
    if (model.whole.ran_mean_wait_s or 0.0) < LEAST_S:
        found.append(
            "hardly anybody waited in this log: it cannot tell policies apart, and there is "
            "nothing to gain"
        )
    found += _new_types(asked, machines)
    if asked.cluster is not None and contradictions.pop(UNLISTED, 0):
        found.append("the nodes of the log are not all among those of --cluster")
    found += [f"contradiction: {what}: {many:,} times" for what, many in contradictions.items()]
    found += _unbound(asked, imported)
    if recorded.counted:
        found.append("the recorded schedule was replayed by counting GPUs, not by nodes")
    elif recorded.guessed:
        found.append(f"{recorded.guessed:,} {OPEN}")
    return found


def _unbound(asked: Asked, imported: Imported) -> list[str]:
    """Partitions whose jobs may run on any node, although the log tells where they ran."""
    jobs = imported.jobs.filter(pl.col("partition") != "")
    if asked.cluster is not None and jobs.height and not _labelled(asked.cluster):
        return [
            (
                "partitions are not kept: with this --cluster every job may run on every node; "
                "name them as labels in a YAML file, or give --nodes"
            )
        ]
    free = jobs.filter(~pl.col("labels").list.contains(pl.col("partition")))
    names = sorted(free["partition"].unique().to_list())
    if not names or jobs["partition"].n_unique() < 2:  # noqa: PLR2004 - one binds nobody
        return []
    why = "the log was read with partitions=ignore"
    if _options(asked.format).get("partitions") != "ignore":
        why = "no node is in them"
    return [
        (
            f"partitions are not kept: {free.height:,} jobs of {', '.join(names)} may run on every "
            f"node: {why}"
        )
    ]


def _new_types(asked: Asked, machines: _Machines) -> list[str]:
    """GPU types of new nodes that no node has: most likely a typing error."""
    known = {node.gpu_type for node in machines.nodes if node.gpu_type}
    asks = {
        node.gpu_type for text in asked.changes.add for node in parse_counts(text.split("@")[0])
    }
    return [
        f"--add-nodes: no node has GPUs of type {name!r} now (there are: "
        f"{', '.join(sorted(known))}): jobs that ask for a type will not use the new ones"
        for name in sorted(asks - known - {""})
        if known
    ]


def _options(text: str | None) -> dict[str, str]:
    return split(text or "")[1]


def _matters(text: str) -> bool:
    """Not what the import has told, nor what a log without CPUs of nodes cannot know."""
    return not text.startswith("jobs ask for ") and " of the trace " not in text
