"""A run folder from a daemon: its event log, and everything that the log was made with.

The Parquet file of the log carries the rest in its metadata (`rota_run`): policy, machines, queues
and what each job asked for. So one download is one consistent picture, and from the file alone
everything else can be written. What a job executes, and its environment, is not in it.
"""

import hashlib
import io
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import SCHEMA_VERSION
from rota.core.tenants import PriorityClass
from rota.core.topology import NodeSpec
from rota.core.version import VERSION
from rota.core.words import counted, moment
from rota.core.workload import Workload
from rota.daemon.logtable import LogTable
from rota.daemon.settings import Scheduling
from rota.jobfile.convert import estimate_s, to_spec
from rota.jobfile.model import JobFile
from rota.jobfile.plain import DEPENDENCIES
from rota.live.inputs import Reconfigured
from rota.live.nodes import extended

if TYPE_CHECKING:
    import polars as pl

    from rota.core.eventlog import Floats
    from rota.daemon.loop import DaemonLoop
    from rota.daemon.recovery import StateSnapshot
    from rota.daemon.store import Store, StoredJob
    from rota.metrics.basis import Basis
    from rota.metrics.history import History

EVENTS, JOBS, SUMMARY = "events.parquet", "jobs.csv", "summary.json"
MANIFEST, WORKLOAD, CLUSTER = "manifest.json", "workload.csv", "cluster.yaml"
FILES = (EVENTS, JOBS, SUMMARY, MANIFEST, WORKLOAD, CLUSTER)
STORE = "rota.db"
SCHEMA, RUN = "rota_schema", "rota_run"
NOT_TOLD = "-"  # in place of what a job executes
MANIFEST_VERSION = 1


class ExportedJob(msgspec.Struct, frozen=True, array_like=True):
    """What a job asked for."""

    number: int
    user: str
    file: JobFile
    estimate_s: float | None = None  # as a policy was told it; None: nothing was said


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a log was made with; `scheduling` is what was configured last."""

    rota: str
    backend: str
    epoch_unix: float
    scheduling: Scheduling
    levels: list[str]
    nodes: list[NodeSpec]
    jobs: list[ExportedJob]
    since_s: float = 0.0  # jobs that ended before may be missing: they were forgotten


class Export(msgspec.Struct, frozen=True):
    """A log and what it was made with."""

    log: "pl.DataFrame"
    made: Made

    def parquet(self) -> bytes:
        """All of it as one file."""
        buffer = io.BytesIO()
        notes = {SCHEMA: str(SCHEMA_VERSION), RUN: msgspec.json.encode(self.made).decode()}
        self.log.write_parquet(buffer, compression="zstd", metadata=notes)
        return buffer.getvalue()

    @classmethod
    def from_parquet(cls, data: bytes, where: str) -> "Export":
        """From what `parquet` made."""
        import polars as pl

        try:
            notes = pl.read_parquet_metadata(io.BytesIO(data))
            made = msgspec.json.decode(notes[RUN], type=Made)
            return cls(pl.read_parquet(io.BytesIO(data)), made)
        except (pl.exceptions.PolarsError, OSError, KeyError, msgspec.DecodeError) as error:
            raise InputError(
                f"{where}: is not the event log of a daemon of this version ({error})"
            ) from error


# --- where it comes from ------------------------------------------------------------------------


class ExportCut(msgspec.Struct, frozen=True):
    """Where the log of a daemon that runs is cut off; made in the engine's thread."""

    made: Made
    now_s: float
    counts: tuple[int, int]
    last_job: int

    @classmethod
    def of(cls, loop: "DaemonLoop") -> "ExportCut":
        """Now; everything that was logged is in the store then."""
        loop.flush()
        state, store = loop.state, loop.store
        made = Made(
            rota=VERSION,
            backend=loop.driver.name,
            epoch_unix=store.epoch_unix,
            scheduling=state.scheduling,
            levels=state.levels,
            nodes=[spec for group in state.growth for spec in group],
            jobs=[],
            since_s=state.forgotten.since_s,
        )
        counts = (state.engine.events, state.engine.decisions)
        return cls(made, state.cluster.now_s, counts, store.job_number)

    def export(self, store: "Store") -> Export:
        """What is in the store up to there; in any thread."""
        jobs = _asked(store.jobs(1, self.last_job))
        log = LogTable(store).frame(self.now_s, self.counts)
        return Export(log, msgspec.structs.replace(self.made, jobs=jobs))


def export_stored(folder: Path) -> Export:
    """From the state folder of a daemon that does not run: everything up to its last commit."""
    from rota.daemon.recovery import unpack
    from rota.daemon.store import Store

    path = folder / STORE
    if not path.is_file():
        raise InputError(f"{folder}: is not the state folder of a daemon: there is no {STORE}")
    store = Store(path)
    try:
        found = store.last_snapshot()
        if found is None:
            raise InputError(f"{path}: its daemon never ran")
        saved = unpack(found[1], store)
        scheduling, growth, since_s = _followed(store, found[0], saved)
        made = Made(
            rota=VERSION,
            backend="",
            epoch_unix=store.epoch_unix,
            scheduling=scheduling,
            levels=saved.levels,
            nodes=[spec for group in growth for spec in group],
            jobs=_asked(store.jobs(1, store.job_number)),
            since_s=since_s,
        )
        counts = (int(saved.engine["events"]), int(saved.engine["decisions"]))
        return Export(LogTable(store).frame(store.last_time_s(), counts), made)
    finally:
        store.close()


def _followed(
    store: "Store", number: int, saved: "StateSnapshot"
) -> tuple[Scheduling, list[list[NodeSpec]], float]:
    """What became of the configuration since the snapshot, and where the history begins."""
    scheduling, growth, since_s = saved.scheduling, saved.growth, saved.forgotten.since_s
    for batch in store.batches(number):
        for item in batch.inputs:
            if isinstance(item, Reconfigured):
                if item.config is not None:
                    scheduling = msgspec.convert(item.config, Scheduling)
                if item.nodes:
                    growth = extended(growth, item.nodes).growth
                since_s = max(since_s, item.since_s)
    return scheduling, growth, since_s


def _asked(stored: "Sequence[StoredJob]") -> list[ExportedJob]:
    """Without commands and environment, and whom to tell: the address of a webhook is a secret."""
    return [
        ExportedJob(
            job.number,
            job.user,
            _without_secrets(job.file),
            None if (said := estimate_s(job.file)) == INF else said,
        )
        for job in stored
    ]


def _without_secrets(file: JobFile) -> JobFile:
    checkpoint = msgspec.structs.replace(file.checkpoint, pre_stop="")
    return msgspec.structs.replace(
        file, run=NOT_TOLD, setup="", workdir="", envs={}, notify=(), checkpoint=checkpoint
    )


# --- the folder ---------------------------------------------------------------------------------


def write_export(export: Export, folder: Path) -> list[str]:
    """Write a run folder; what a reader must know."""
    from rota.metrics import fold_jobs, fold_summary, read_history, write_jobs
    from rota.metrics.fragments import fold_fragments
    from rota.traces.write import write_workload

    (folder / EVENTS).write_bytes(export.parquet())
    history = read_history(export.log)
    deadlines_s = _deadlines_s(export.made, history)
    jobs = fold_jobs(history, deadlines_s)
    write_jobs(jobs, folder / JOBS)
    basis = _basis(export.made)
    summary = fold_summary(
        history, jobs=jobs, deadlines_s=deadlines_s, fragments=fold_fragments(history, basis)
    )
    notes = [*history_notes(export.made)]
    workload = observed_workload(export, notes)
    write_workload(workload, folder / WORKLOAD)
    cluster = _write_cluster(export.made, folder)
    manifest = _manifest(export, folder, cluster, notes) | {"fragments": basis}
    for name, content in ((SUMMARY, summary), (MANIFEST, manifest)):
        (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    return notes


def history_notes(made: Made) -> list[str]:
    """Where the history begins, if it does not reach back to the first job."""
    if not made.since_s:
        return []
    since = moment(made.epoch_unix + made.since_s)
    note = (
        f"the history reaches back to {since}: of the jobs that ended before, some or all are "
        "forgotten, so that sums over earlier times are too small"
    )
    return [note]


def _deadlines_s(made: Made, history: "History") -> "Floats":
    """Of all jobs of the log, on its clock."""
    import numpy as np

    asked = {str(job.number): job for job in made.jobs}
    submits_s = history.time_s[history.entry_row[history.is_job]].tolist()
    found = []
    for name, submit_s in zip(history.ids, submits_s, strict=True):
        job = asked.get(name)
        spec = None if job is None else to_spec(job.file, name, submit_s, job.user)
        found.append(INF if spec is None else spec.deadline_s)
    return np.array(found)


def _basis(made: Made) -> "Basis | None":
    """What fragments are measured by: all that was asked for, whether it ran or not."""
    from rota.metrics.basis import make_basis

    asked = [to_spec(job.file, str(job.number), 0.0, job.user).request for job in made.jobs]
    return make_basis(made.nodes, [(request, 1) for request in asked])


def observed_workload(export: Export, notes: list[str]) -> Workload:
    """The jobs that ran, with the time in which they made progress as their duration."""
    import numpy as np

    from rota.metrics import fold_jobs, read_history
    from rota.metrics.history import RUNS

    history = read_history(export.log)
    asked = {str(job.number): job for job in export.made.jobs}
    run_s = history.per_job(np.where(history.state == RUNS, history.length_s, 0.0))
    rows = zip(
        fold_jobs(history).select("job_id", "submit_s", "state").iter_rows(),
        run_s[history.is_job].tolist(),
        strict=True,
    )
    feared = {name for job in export.made.jobs for name in job.file.after_fail}
    specs, behaviours, unfinished, left_out = [], [], 0, 0
    for (name, submit_s, state), seconds in rows:
        job = asked.get(name)
        if job is None or not seconds > 0:
            left_out += 1
            continue
        unfinished += state != "done"
        spec = to_spec(job.file, name, submit_s, job.user)
        behaviour = Behaviour(seconds)
        if state == "timeout" and spec.limit_s < INF:  # it would have run on
            behaviour = Behaviour(max(seconds, spec.limit_s) + 1.0)
        elif (
            state in ("failed", "cancelled") and name in feared
        ):  # else who waits for it never runs
            behaviour = Behaviour(seconds + 1.0, fails_at=seconds)
            spec = msgspec.structs.replace(spec, retries=0)  # all its tries are in these seconds
        specs.append(spec)
        behaviours.append(behaviour)
    if left_out:
        notes.append(f"{counted(left_out, 'job')} never ran: left out of {WORKLOAD}")
    if unfinished:
        notes.append(
            f"{counted(unfinished, 'job')} did not finish: {WORKLOAD} has how long they ran"
        )
    return Workload(_writable(specs, notes), behaviours, name="observed")


def _writable(specs: list[JobSpec], notes: list[str]) -> list[JobSpec]:
    """As far as a csv file can hold them."""
    known = {spec.id for spec in specs}
    simpler = 0
    out = []
    for spec in specs:
        request = _plain(spec.request)
        simpler += request != spec.request
        needs = {
            key: tuple(other for other in getattr(spec, key) if other in known)
            for key in DEPENDENCIES
        }
        out.append(msgspec.structs.replace(spec, request=request, **needs))
    if simpler:
        notes.append(f"{simpler} jobs asked for several nodes: {WORKLOAD} has only how many GPUs")
    return out


def _plain(request: Request) -> Request:
    """The same resources, for tasks that may be anywhere."""
    group = request.groups[0]
    plain = Request.of(
        group.count * group.gpus,
        gpu_types=request.gpu_types,
        cpus=group.count * group.cpus,
        mem_gib=group.count * group.mem_gib,
        min_gpus=group.min_count,
        max_gpus=group.max_count,
    )
    if not group.resources:
        return plain
    (one,) = plain.groups
    each = tuple((kind, amount * group.count / one.count) for kind, amount in group.resources)
    return msgspec.structs.replace(plain, groups=(msgspec.structs.replace(one, resources=each),))


def _write_cluster(made: Made, folder: Path) -> str:
    """The machines as text if that says it all, else as a file; how a manifest names them."""
    import yaml

    from rota.traces.cluster import parse_counts

    short = counts_of(made.nodes)
    asked = made.scheduling.resources
    shared = made.scheduling.queues or made.scheduling.priority_classes or asked
    if short and not shared and parse_counts(short) == made.nodes:
        return short
    content: dict[str, Any] = {"levels": list(made.levels)} if made.levels else {}
    content["nodes"] = [_without_defaults(node, NodeSpec("", -1)) for node in made.nodes]
    if made.scheduling.queues:
        content["tenants"] = msgspec.to_builtins(made.scheduling.queues)
    if made.scheduling.priority_classes:
        classes = made.scheduling.priority_classes
        content["priority_classes"] = [
            _without_defaults(each, PriorityClass("")) for each in classes
        ]
    if asked:
        content["resources"] = {
            kind.name: {k: v for k, v in msgspec.to_builtins(kind).items() if k != "name"}
            for kind in asked
        }
    (folder / CLUSTER).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return CLUSTER


def _without_defaults(value: msgspec.Struct, empty: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    unset: dict[str, Any] = msgspec.to_builtins(empty)
    return {key: given for key, given in plain.items() if given != unset[key]}


def counts_of(nodes: Sequence[NodeSpec]) -> str:
    """`4x8:v100+2x4`; empty if there is a node without GPUs, or none at all."""
    groups: list[list[Any]] = []
    for node in nodes:
        kind = f"{node.gpus}:{node.gpu_type}" if node.gpu_type else str(node.gpus)
        if not node.gpus:
            return ""
        if groups and groups[-1][1] == kind:
            groups[-1][0] += 1
        else:
            groups.append([1, kind])
    return "+".join(f"{count}x{kind}" for count, kind in groups)


def _manifest(export: Export, folder: Path, cluster: str, notes: list[str]) -> dict[str, Any]:
    made = export.made
    scheduling = made.scheduling
    return {
        "manifest": MANIFEST_VERSION,
        "rota": made.rota,
        "live": {
            "backend": made.backend,
            "epoch_unix": made.epoch_unix,
            "since_s": made.since_s,
            "notes": notes,
        },
        "config": {
            "trace": WORKLOAD,
            "cluster": cluster,
            "policy": scheduling.policy,
            "placement": scheduling.placement,
            "admission": scheduling.admission,
            "seed": scheduling.seed,
        },
        "outputs": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in (JOBS, EVENTS, WORKLOAD)
        },
        "log": {"schema": SCHEMA_VERSION, "rows": export.log.height},
        "platform": {"system": platform.platform(), "python": platform.python_version()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }
