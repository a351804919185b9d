"""From records of Slurm's accounting to jobs, whichever form the records had.

- *When a job comes.* `since=eligible` (default): when it could have started. Before that it was
  held, or waited for another job or its time; that is no queueing. `since=submit`: when it was
  submitted.
- *Attempts.* Records with the same number are attempts of one job (`sacct --duplicates`): it was
  requeued. All are in the observed schedule. The run time is that of the `last` one (default): a
  job without checkpoints starts over. With checkpoints it is the `sum`; `longest` helps where the
  last one was cut short; `span` is from the first start to the last end (`runtime=`). The report
  says what the choice changes.
- *Numbers that come again.* A record that was submitted after another with its number had come to a
  final end is another job, called `123#2`.
- *Records that are there twice*, as in exports that overlap, count once: the one that tells more.
- *Heterogeneous jobs.* Components are one job, which asks for their sum, in the partition of the
  component with most GPUs.
- *Several nodes.* A job without GPUs has a task for each of its nodes, with its share of the CPUs
  and memory, on nodes of their own; others have a task per GPU, wherever there is room.
- *Where.* Of a job on several nodes the sum of its GPUs is known; how many on each, often, too (see
  below). The report counts jobs of which it is not.
- *What never ran* (pending, or cancelled before its start) has no run time and is left out.
- *What still runs* is cut at the latest time in the log (`unfinished=censor`) or left out (`drop`).
- *Who it belongs to.* The tenant is the account (`tenant=account`), partition, qos or user.
- *Partitions* become labels that the nodes of a job must have: with `partitions=auto` (default) if
  the nodes are known (`nodes=FILE`) and there are several partitions, with `label` always, with
  `ignore` never.
- *Priorities.* Account, partition and QOS of a job are kept under these names. Its priority is the
  number in the column Priority, if there is one (`priority=recorded`). Slurm writes it at the start
  of a job, so that it contains its age and its owner's fair share then; `priority=none` leaves it
  out. With `classes=low/normal/high` the priority is the place of the job's QOS in this list,
  counted from 0.
- *Dependencies* come from the submit line, if it is there, and only with `since=submit`: otherwise
  they are over when a job comes.

**GPUs on each node.** For a whole job it tells only the sum. The share of a node is known

- if there is one node only;
- if the job asked for GPUs per node (`--gres=gpu:4`, `--gpus-per-node=4` in the submit line, or the
  field ReqGRES of older versions), and the sum agrees;
- if it held all GPUs of its nodes (their sizes are known from `nodes=FILE`);
- from its batch step (`123.batch`), which holds what the job has on its first node: of two nodes
  the other has the rest, and if the first has just the average, all are taken to have it.

Everything else stays open. A replay then guesses: evenly if that is possible, else the first nodes
full and at least one GPU on each, as Slurm deals them out; and it says for how many jobs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rota.core.errors import TraceError
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.formats.slurm.fields import (
    FINAL,
    PENDING,
    STATES,
    Amounts,
    dependencies,
    observed_state,
)
from rota.traces.formats.slurm.outages import Outages
from rota.traces.imported import Imported
from rota.traces.observed import DONE, PREEMPTED, RUNNING, UNKNOWN, Seen
from rota.traces.schema import kinds
from rota.traces.tidy import (
    Common,
    Rest,
    Runtime,
    attempts_frame,
    import_rows,
    open_jobs,
    run_s,
    told_of_attempts,
)

if TYPE_CHECKING:
    import polars as pl

STEP = "step of a job"
ATTEMPT = "further attempt of a job (if it ran, it is in the observed schedule)"
TWICE = "record of what another record tells, too"
COMPONENT = "component of a heterogeneous job, counted with the first"
WAITING = "pending at the end of the log"
UNSTARTED = "cancelled before it started"
NO_START = "without a start"
HELD = "held or dependent: counted from the time when it could start"
OPEN = "jobs on several nodes: how many GPUs they held on each is not told, a replay guesses it"
RECORDED = (
    "priorities are Slurm's numbers at the start of a job, with its age and fair share then: "
    "classes=low/normal/high takes them from the QOS, priority=none leaves them out"
)
NO_TYPE = "GPU type that no node has: any type will do"


Partitions = Literal["auto", "label", "ignore"]


class SlurmParams(Common, frozen=True):
    """Options of the format; the common ones and these."""

    nodes: str = ""
    tz: str = ""
    fields: tuple[str, ...] = ()
    delimiter: str = "|"
    since: Literal["eligible", "submit"] = "eligible"
    runtime: Runtime = "last"
    failures: Literal["recorded", "none"] = "recorded"
    outage: float = 3_600.0
    tenant: Literal["account", "partition", "qos", "user"] = "account"
    partitions: Partitions = "auto"
    priority: Literal["recorded", "none"] = "recorded"
    classes: tuple[str, ...] = ()
    shards: float = 0.0
    mig: Literal["share", "whole"] = "share"


class SlurmRecord(msgspec.Struct, kw_only=True):
    """One record of the accounting; times in seconds since 1970, None: not known."""

    id: str  # as people write it: 123, 123_4, 123+0
    raw: str  # number of the record: an array task has one of its own
    leader: str = ""  # raw number of the heterogeneous job that it belongs to
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    priority: int | None = None
    name: str = ""
    state: str = ""  # Slurm's word
    submit_s: float | None = None
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    elapsed_s: float | None = None
    limit_s: float | None = None
    asked: Amounts = Amounts()
    nodes: tuple[str, ...] = ()
    line: str = ""  # how it was submitted
    each: float | None = None  # GPUs that it asked for on every node
    batch: tuple[str, float] | None = None  # a node, and its GPUs there
    place: int = 0  # in the file

    @property
    def began(self) -> bool:
        """Slurm gives a start even to jobs that were cancelled while they waited."""
        if self.start_s is None or self.state in PENDING:
            return False
        took_time = self.elapsed_s or (self.end_s or 0.0) > self.start_s
        return bool(self.nodes or took_time or observed_state(self.state) in (RUNNING, DONE))

    @property
    def over_s(self) -> float | None:
        """When it ended; None: it goes on."""
        return None if observed_state(self.state) == RUNNING else self.end_s


class _Job(msgspec.Struct):
    """All records of one job, in order of submission."""

    id: str
    records: list[SlurmRecord]

    @property
    def last(self) -> SlurmRecord:
        return self.records[-1]


def import_records(
    path: Path,
    records: Sequence[SlurmRecord],
    params: SlurmParams,
    quality: Quality,
    cluster: Sequence[NodeSpec],
    plain: "pl.DataFrame | None" = None,
) -> Imported:
    """Jobs, attempts and machines; `plain`: more records, which are a job each (`plain_ones`)."""
    import polars as pl

    jobs = _jobs(records, quality)
    latest_s = max((_latest_s(record) for record in records), default=0.0)
    used = {record.partition for record in records if record.partition and record.nodes}
    if plain is not None:
        latest_s = max(latest_s, _plain_latest_s(plain))
        used |= set(plain.filter(pl.col("nodes").list.len() > 0)["partition"].unique()) - {""}
    kept = labelled(used, params.partitions, cluster)
    known = _ids(jobs)
    rows: list[tuple[Any, ...]] = []
    attempts: dict[str, list[Seen]] = {}
    sizes = {node.name: node.gpus for node in cluster}
    for job in jobs:
        seen = _attempts(job, sizes)
        if seen is None or not seen[0]:
            _drop_unstarted(job, quality)
            continue
        attempts[job.id] = seen[0]
        for part in {record.asked.part for record in job.records} - {""}:
            quality.repair(part)
        rows.append((*_row(job, seen, latest_s, params, kept, known), job.records[0].place))
    frame, seen_at = pl.DataFrame(rows, schema=_schema(), orient="row"), attempts_frame(attempts)
    if plain is not None:
        more, also = _plain_jobs(plain, latest_s, params, kept, quality)
        frame = pl.concat([frame, more]).sort("_place", maintain_order=True)
        seen_at = pl.concat([seen_at, also])
    _refuse_empty(path, frame, quality)
    _unranked(path, frame, params.classes)
    frame = known_types(frame, cluster, quality)
    held = int((frame["submit_s"] > frame["_submit_s"]).sum())
    if held:
        quality.repaired[HELD] = held
    failed = Outages(
        seen_at if params.failures == "recorded" else seen_at.clear(),
        params.outage,
        lossless=params.runtime in ("sum", "span"),
    )
    imported = import_rows(
        path,
        frame,
        params,
        quality,
        rest=Rest(dated=True, cluster=tuple(cluster)),
        events=failed.events,
        attempts=seen_at,
    )
    imported.notes += told_of_attempts(imported, attempts, latest_s, params.runtime)
    imported.notes += failed.notes
    if not params.classes and (imported.jobs["priority"] != 0).any():
        imported.notes.append(RECORDED)
    unknown = open_jobs(imported)
    if unknown:
        imported.notes.append(f"{unknown:,} {OPEN}")
    return imported


def _refuse_empty(path: Path, frame: "pl.DataFrame", quality: Quality) -> None:
    if frame.height:
        return
    dropped = ", ".join(f"{many:,} {why}" for why, many in quality.dropped.items())
    remedy = "ask sacct for a longer time"
    if set(quality.dropped) == {STEP}:
        remedy = "give the lines of the jobs too, not only those of their steps"
    raise TraceError(f"{path}: no job is left ({dropped}): {remedy}")


def _schema() -> dict[str, Any]:
    import polars as pl

    return {
        "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
        "duration_s": pl.Float64, "vc": pl.String, "user": pl.String, "name": pl.String,
        "gpu_type": pl.List(pl.String), "labels": pl.List(pl.String), "cpus": pl.Float64,
        "mem_gib": pl.Float64, "estimate_s": pl.Float64, "depends_on": pl.List(pl.String),
        "roles": kinds()["roles"], "apart": pl.Boolean,
        "account": pl.String, "partition": pl.String, "qos": pl.String, "priority": pl.Int64,
        "_status": pl.String, "_cut": pl.Boolean, "_submit_s": pl.Float64, "_place": pl.Int64,
    }  # fmt: skip


# --- which records are one job -------------------------------------------------------------------


def _jobs(records: Sequence[SlurmRecord], quality: Quality) -> list[_Job]:
    """Records that belong together, in the order of the file."""
    by_number: dict[str, list[SlurmRecord]] = {}
    for record in _once(records, quality):
        by_number.setdefault(record.leader or record.raw, []).append(record)
    jobs: list[_Job] = []
    turns: dict[str, int] = {}
    for number, mine in by_number.items():
        ordered = sorted(mine, key=lambda record: (record.submit_s or 0.0, record.raw != number))
        for life in _lives(ordered):
            first = life[0]
            name = first.id.partition("+")[0] if first.leader else first.id
            turn = turns[name] = turns.get(name, 0) + 1
            jobs.append(_Job(name if turn == 1 else f"{name}#{turn}", life))
            components = len({record.raw for record in life}) - 1
            quality.drop(COMPONENT, components)
            quality.drop(ATTEMPT, len(life) - 1 - components)
    return jobs


def _once(records: Sequence[SlurmRecord], quality: Quality) -> list[SlurmRecord]:
    """Without records of what another record tells, too: later, or as far as it knew then.

    Slurm's accounting has one record for a number and a time of submission.
    """
    known: dict[tuple[str, float | None], list[SlurmRecord]] = {}
    for record in records:
        mine = known.setdefault((record.raw, record.submit_s), [])
        for number, other in enumerate(mine):
            if not other.began or not record.began or other.start_s == record.start_s:
                quality.drop(TWICE, 1)
                mine[number] = max(other, record, key=lambda one: (one.began, _over(one)))
                break
        else:
            mine.append(record)
    return [record for mine in known.values() for record in mine]


def _over(record: SlurmRecord) -> tuple[bool, float, int]:
    """How much a record tells of the end; of those that tell the same, the later counts."""
    return record.over_s is not None, record.elapsed_s or 0.0, record.place


def _lives(records: list[SlurmRecord]) -> list[list[SlurmRecord]]:
    """Cut where a number was given out anew: after a final end, with a later submission."""
    lives: list[list[SlurmRecord]] = []
    ends_s: dict[str, float] = {}
    for record in records:
        end_s = ends_s.get(record.raw)
        if not lives or (end_s is not None and (record.submit_s or 0.0) > end_s):
            lives.append([])
            ends_s = {}
        lives[-1].append(record)
        if observed_state(record.state) in FINAL and record.end_s is not None:
            ends_s[record.raw] = record.end_s
    return lives


def _drop_unstarted(job: _Job, quality: Quality) -> None:
    quality.drop(why_unstarted(job.last.state), 1)


def why_unstarted(state: str) -> str:
    """Why a job that did not run is left out."""
    if state in PENDING:
        return WAITING
    return UNSTARTED if state == "CANCELLED" else NO_START


def _ids(jobs: Iterable[_Job]) -> dict[str, list[str]]:
    """Names of jobs by what a dependency may call them: also the whole array."""
    known: dict[str, list[str]] = {}
    for job in jobs:
        whole = job.id.partition("_")[0]
        for name in {job.id, job.records[0].raw, whole}:
            known.setdefault(name, []).append(job.id)
    return known


# --- what a job was ------------------------------------------------------------------------------


def _latest_s(record: SlurmRecord) -> float:
    times = (record.submit_s, record.start_s, record.end_s)
    latest = max((time_s for time_s in times if time_s is not None), default=0.0)
    if record.start_s is not None and record.elapsed_s and record.over_s is None:
        latest = max(latest, record.start_s + record.elapsed_s)
    return latest


def _attempts(job: _Job, sizes: Mapping[str, int]) -> tuple[list[Seen], bool] | None:
    """Attempts, and whether the last one goes on."""
    by_start: dict[float, list[SlurmRecord]] = {}
    for record in job.records:
        if record.began and record.start_s is not None:
            by_start.setdefault(record.start_s, []).append(record)
    if not by_start:
        return None
    latest = {record.raw: record for record in job.records}.values()
    usual = ordered_sum(record.asked.gpus for record in latest)  # what the job is taken to hold
    seen = [
        _summed(
            _seen(start_s, parts, sizes), ordered_sum(record.asked.gpus for record in parts), usual
        )
        for start_s, parts in sorted(by_start.items())
    ]
    for number, attempt in enumerate(seen[:-1]):  # an earlier one that was never closed
        if attempt.end_s is None or attempt.end_s > seen[number + 1].start_s:
            seen[number] = msgspec.structs.replace(
                attempt, end_s=seen[number + 1].start_s, state=PREEMPTED
            )
    return seen, seen[-1].end_s is None or job.last.state in PENDING


def _seen(start_s: float, parts: Sequence[SlurmRecord], sizes: Mapping[str, int]) -> Seen:
    """One attempt, of all components that started then."""
    ends_s = [record.over_s for record in parts]
    known_s = [end_s for end_s in ends_s if end_s is not None]
    nodes = tuple(name for record in parts for name in record.nodes)
    held = [_shares(record, sizes) for record in parts]
    known = all(held)  # else only their sum is known
    return Seen(
        job=0,
        start_s=start_s,
        end_s=max(known_s) if len(known_s) == len(ends_s) else None,
        nodes=nodes,
        gpus=tuple(share for mine in held for share in mine) if known else (),
        state=observed_state(parts[0].state),
    )


def _summed(seen: Seen, gpus: float, usual: float) -> Seen:
    """An attempt with another number of GPUs than the last one has that number in any case.

    Where they were is not told; as evenly as possible is the best guess.
    """
    if seen.gpus or not seen.nodes or gpus == usual:
        return seen
    each, over = divmod(gpus, len(seen.nodes))
    held = tuple(each + min(1.0, max(0.0, over - place)) for place in range(len(seen.nodes)))
    return msgspec.structs.replace(seen, gpus=held)


def _shares(record: SlurmRecord, sizes: Mapping[str, int]) -> tuple[float, ...]:
    each = asked_each(record.line) if record.each is None else record.each
    return shares(record.asked.gpus, record.nodes, each=each, batch=record.batch, sizes=sizes)


def _row(
    job: _Job,
    seen: tuple[list[Seen], bool],
    latest_s: float,
    params: SlurmParams,
    kept: frozenset[str],
    known: dict[str, list[str]],
) -> tuple[Any, ...]:
    attempts, goes_on = seen
    first, last = job.records[0], job.last
    parts = list({record.raw: record for record in job.records}.values())  # the latest of each
    submit_s = attempts[0].start_s if first.submit_s is None else first.submit_s
    eligible_s = submit_s
    if params.since == "eligible" and first.eligible_s is not None:
        eligible_s = max(submit_s, min(first.eligible_s, attempts[0].start_s))
    where = max(parts, key=lambda record: record.asked.gpus).partition
    types = {record.asked.gpu_type for record in parts if record.asked.gpus}
    roles = _roles(parts)
    named = dependencies(first.line) if params.since == "submit" else ()
    others = dict.fromkeys(other for name in named for other in known.get(name, ()))
    return (
        job.id,
        eligible_s,
        ordered_sum(record.asked.gpus for record in parts),
        run_s(attempts, latest_s, params.runtime),
        getattr(last, params.tenant) or last.account or last.partition,
        last.user,
        last.name,
        sorted(types) if len(types) == 1 and "" not in types else [],
        [where] if where in kept else [],
        ordered_sum(record.asked.cpus for record in parts),
        ordered_sum(record.asked.mem_gib for record in parts),
        last.limit_s,
        list(others),
        roles,
        roles is not None,
        last.account,
        where,
        last.qos,
        _priority(last, params),
        last.state,
        goes_on,
        submit_s,
    )


def _priority(record: SlurmRecord, params: SlurmParams) -> int | None:
    if params.classes:
        return params.classes.index(record.qos) if record.qos in params.classes else 0
    return record.priority if params.priority == "recorded" else 0


def _unranked(path: Path, frame: "pl.DataFrame", classes: Sequence[str]) -> None:
    """Every QOS has a place among the classes, or there are none."""
    if not classes:
        return
    lost = sorted(set(frame["qos"].unique()) - {"", *classes})
    if lost:
        raise TraceError(
            f"{path}: classes={'/'.join(classes)} does not name the QOS {', '.join(lost)}: give it "
            f"a place in this list, from the least important to the most important"
        )


def _roles(parts: Sequence[SlurmRecord]) -> list[dict[str, Any]] | None:
    """Tasks of a job without GPUs on several nodes: one per node, or no node could hold it."""
    nodes = sum(record.asked.nodes for record in parts)
    if nodes < 2 or any(record.asked.gpus for record in parts):  # noqa: PLR2004 - several nodes
        return None
    task = {
        "role": "worker",
        "count": nodes,
        "gpus": 0.0,
        "cpus": ordered_sum(record.asked.cpus for record in parts) / nodes,
        "mem_gib": ordered_sum(record.asked.mem_gib for record in parts) / nodes,
        "min_count": 0,
        "max_count": 0,
    }
    return [task]


def labelled(
    used: AbstractSet[str], how: Partitions, cluster: Sequence[NodeSpec]
) -> frozenset[str]:
    """Partitions that jobs keep to, of those in which one ran."""
    if how == "ignore" or len(used) < 2:  # noqa: PLR2004 - with one nothing is bound
        return frozenset()
    if cluster:
        return frozenset(used & {label for node in cluster for label in node.labels})
    return frozenset(used) if how == "label" else frozenset()


def known_types(
    frame: "pl.DataFrame", cluster: Sequence[NodeSpec], quality: Quality
) -> "pl.DataFrame":
    """Without GPU types that the nodes do not have under this name."""
    import polars as pl

    if not cluster:
        return frame
    types = pl.Series([node.gpu_type for node in cluster], dtype=pl.String)
    known = pl.col("gpu_type").list.eval(pl.element().is_in(types.implode())).list.all()
    lost = int(frame.select((~known).sum()).item())
    if not lost:
        return frame
    quality.repaired[NO_TYPE] = lost
    return frame.with_columns(gpu_type=pl.when(known).then(pl.col("gpu_type")).otherwise([]))


MOST_GPUS = 1_000_000.0
"""Of one job: what is more is a mistake."""


# --- records that are a job of their own, column by column ---------------------------------------


def plain_ones(typed: "pl.DataFrame") -> "pl.Series":
    """Which records are a job of their own and can be taken as they are."""
    import polars as pl

    base = pl.col("id").str.replace(r"\+.*$", "")
    parts = pl.col("id").str.contains("+", literal=True)
    number = pl.when(parts).then(base).otherwise("raw")
    jobs = typed.filter(~typed["step"]).select(base=base, number=number)
    twice = [jobs[name].filter(jobs[name].is_duplicated()).unique() for name in jobs.columns]
    shared = base.is_in(twice[0].implode()) | number.is_in(twice[1].implode())
    spread = (pl.col("nodes").list.len() > 1) & (pl.col("gpus") > 0)
    nonsense = (pl.col("gpus") > MOST_GPUS) | (pl.col("asked_nodes") > MOST_GPUS)
    odd = pl.col("odd") | pl.col("step") | parts | shared | spread | nonsense
    return typed.select((~odd).fill_null(value=False).alias("plain")).to_series()


def _plain_latest_s(plain: "pl.DataFrame") -> float:
    """The latest time that the records tell."""
    import polars as pl

    goes_on = _observed_state() == RUNNING
    ran = pl.when(goes_on | pl.col("end_s").is_null()).then(pl.col("start_s") + pl.col("elapsed_s"))
    times = plain.select(pl.max_horizontal("submit_s", "start_s", "end_s", ran).max()).item()
    return 0.0 if times is None else float(times)


def _plain_jobs(
    plain: "pl.DataFrame",
    end_s: float,
    params: SlurmParams,
    labelled: frozenset[str],
    quality: Quality,
) -> "tuple[pl.DataFrame, pl.DataFrame]":
    """Rows of jobs, with `_place`, and their attempts by `job_id`; `end_s`: that of the log."""
    import polars as pl

    start, state = pl.col("start_s"), _observed_state()
    took_time = (pl.col("elapsed_s").fill_null(0.0) > 0) | (pl.col("end_s").fill_null(0.0) > start)
    ran = pl.col("nodes").list.len() > 0
    began = start.is_not_null() & ~pl.col("state").is_in(PENDING)
    began &= ran | took_time | state.is_in([RUNNING, DONE])
    marked = plain.with_columns(began=began.fill_null(value=False), observed=state)
    _count_unstarted(marked.filter(~pl.col("began"))["state"], quality)
    mine = marked.filter("began")
    for part, many in mine["part"].value_counts().iter_rows():
        if part:
            quality.repair(part, many)
    over = pl.when(pl.col("observed") != RUNNING).then("end_s")
    attempts = mine.select(
        pl.col("id").alias("job_id"),
        "start_s",
        over.alias("end_s"),
        "nodes",
        pl.col("gpus").repeat_by(pl.col("nodes").list.len()).alias("gpus"),
        pl.col("observed").alias("state"),
    )
    return mine.select(_plain_row(over, end_s, params, labelled)), attempts


def _observed_state() -> "pl.Expr":
    import polars as pl

    return pl.col("state").replace_strict(STATES, default=UNKNOWN, return_dtype=pl.String)


def _count_unstarted(states: "pl.Series", quality: Quality) -> None:
    for state, many in states.value_counts().iter_rows():
        why = why_unstarted(state)
        quality.drop(why, many)


def _plain_row(
    over: "pl.Expr", end_s: float, params: SlurmParams, labelled: frozenset[str]
) -> "list[pl.Expr]":
    import polars as pl

    start, gpus = pl.col("start_s"), pl.col("gpus")
    submit = pl.coalesce("submit_s", "start_s")
    since = submit
    if params.since == "eligible":
        known = pl.max_horizontal(submit, pl.min_horizontal("eligible_s", "start_s"))
        since = pl.when(pl.col("eligible_s").is_not_null()).then(known).otherwise(submit)
    run = pl.when(over.is_null()).then(pl.lit(end_s) - start).otherwise(over - start)
    owner = pl.col(params.tenant)
    tenant = pl.when(owner != "").then(owner).when(pl.col("account") != "").then("account")
    none = pl.lit([], pl.List(pl.String))
    typed = (gpus > 0) & (pl.col("gpu_type") != "")
    spread = (pl.col("asked_nodes") >= 2) & (gpus == 0)  # noqa: PLR2004 - several nodes
    return [
        pl.col("id").alias("job_id"),
        since.alias("submit_s"),
        gpus.alias("num_gpus"),
        pl.max_horizontal(run, pl.lit(0.0)).alias("duration_s"),
        tenant.otherwise("partition").alias("vc"),
        pl.col("user"),
        pl.col("name"),
        pl.when(typed).then(pl.concat_list("gpu_type")).otherwise(none).alias("gpu_type"),
        pl.when(pl.col("partition").is_in(sorted(labelled)))
        .then(pl.concat_list("partition"))
        .otherwise(none)
        .alias("labels"),
        pl.col("cpus"),
        pl.col("mem_gib"),
        pl.col("limit_s").alias("estimate_s"),
        none.alias("depends_on"),
        pl.when(spread).then(pl.concat_list(_task())).cast(kinds()["roles"]).alias("roles"),
        spread.alias("apart"),
        *(pl.col(name) for name in ("account", "partition", "qos")),
        _plain_priority(params).alias("priority"),
        pl.col("state").alias("_status"),
        over.is_null().alias("_cut"),
        submit.alias("_submit_s"),
        pl.col("_place"),
    ]


def _plain_priority(params: SlurmParams) -> "pl.Expr":
    import polars as pl

    if params.classes:
        ranks = {name: rank for rank, name in enumerate(params.classes)}
        return pl.col("qos").replace_strict(ranks, default=0, return_dtype=pl.Int64)
    return pl.col("priority") if params.priority == "recorded" else pl.lit(0, pl.Int64)


def _task() -> "pl.Expr":
    """One per node, with its share."""
    import polars as pl

    nodes = pl.col("asked_nodes")
    return pl.struct(
        pl.lit("worker").alias("role"),
        nodes.cast(pl.Int64).alias("count"),
        pl.lit(0.0).alias("gpus"),
        (pl.col("cpus") / nodes).alias("cpus"),
        (pl.col("mem_gib") / nodes).alias("mem_gib"),
        pl.lit(0, pl.Int64).alias("min_count"),
        pl.lit(0, pl.Int64).alias("max_count"),
    )


_EACH = re.compile(
    r"--(?:gres[=\s]+(?:\S*,)?gpu(?::[a-z]\w*)?(?::(?P<gres>\d+))?(?=[,\s]|$)"
    r"|gpus-per-node[=\s]+(?:[a-z]\w*:)?(?P<each>\d+)(?=\s|$))",
    re.IGNORECASE,
)


# --- GPUs on each node ---------------------------------------------------------------------------


def asked_each(line: str) -> float | None:
    """GPUs on every node, from how a job was submitted; None: it does not say."""
    found = _EACH.search(line)
    if found is None:
        return None
    return float((found["gres"] or found["each"] or "1")[:6])


def shares(
    gpus: float,
    nodes: Sequence[str],
    *,
    each: float | None = None,
    batch: tuple[str, float] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> tuple[float, ...]:
    """GPUs on each node; empty: it is not known.

    Args:
        gpus: Of the whole job.
        nodes: Where it ran.
        each: What it asked for on every node.
        batch: A node, and what the job held there.
        sizes: GPUs of nodes.
    """
    count = len(nodes)
    if count == 1 or not gpus:
        return (gpus,) * count
    if each is not None and each * count == gpus:
        return (each,) * count
    full = tuple(float((sizes or {}).get(node, 0)) for node in nodes)
    if ordered_sum(full) == gpus:
        return full
    if batch is None or batch[0] not in nodes:
        return ()
    return _from_batch(gpus, nodes, batch)


def _from_batch(gpus: float, nodes: Sequence[str], batch: tuple[str, float]) -> tuple[float, ...]:
    node, here = batch
    count = len(nodes)
    rest = (gpus - here) / (count - 1)
    if not 0 <= here <= gpus or (count > 2 and rest != here):  # noqa: PLR2004 - the other of two
        return ()
    return tuple(here if name == node else rest for name in nodes)
