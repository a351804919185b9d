"""What a log was made with: policy, placement, machines and jobs.

A folder of `rota simulate` says it in its manifest. So does one that was exported from a daemon;
there the file that the manifest calls the trace lies in the folder. What nobody says is taken from
the log itself as far as it is there.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import InputError, OptionError, RotaError
from rota.core.eventlog import EventLog, Floats
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.log import Record
from rota.core.workload import Workload
from rota.engine.wiring import DEFAULT_ADMISSION, DEFAULT_PLACEMENT
from rota.study.calibration.samples import ObservedCosts
from rota.study.inputs import InputFile
from rota.traces.read import read_workload

EVENTS, MANIFEST, JOBS = "events.parquet", "manifest.json", "workload.csv"
SCHEMA = "rota_schema"
FILES = ("cluster", "policy", "trace")
SHORTEST_S = 1e-3  # a job has to have some work

_SHAPE = re.compile(
    r"(?P<gpus>[\d.e+-]+) GPUs?(?: on (?P<nodes>\d+) nodes)?(?: of type (?P<types>[^,]+))?"
    r"(?:, (?P<cpus>[\d.e+-]+) CPUs)?(?:, (?P<mem>[\d.e+-]+) GiB)?"
    r"(?:, on nodes labelled (?P<labels>.+))?"
)


class Setting(msgspec.Struct, frozen=True):
    """How a run was made. `trace` is None if it is unknown which jobs were submitted."""

    policy: str
    cluster: str
    placement: str = DEFAULT_PLACEMENT
    admission: str = DEFAULT_ADMISSION
    round: str | None = None
    seed: int = 0
    trace: str | None = None
    format: str | None = None
    limit: int | None = None
    notes: tuple[str, ...] = ()


class _Manifest(msgspec.Struct):
    config: dict[str, Any] = {}
    inputs: list[InputFile] = []


def read_log(folder: Path) -> pl.DataFrame:
    """The event log of a folder."""
    path = folder / EVENTS
    try:
        return pl.read_parquet(path, glob=False)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}): name a folder with an event log"
        ) from error
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: is not an event log ({error})") from error


def find_setting(
    folder: Path,
    log: pl.DataFrame,
    *,
    policy: str | None = None,
    cluster: str | None = None,
    trace: str | None = None,
) -> Setting:
    """What is said by the caller, else by the manifest, else by the log."""
    manifest = _read_manifest(folder / MANIFEST)
    said = {
        key: value
        for key, value in manifest.config.items()
        if value is not None and key in Setting.__struct_fields__
    }
    for key in FILES:
        if key in said:
            said[key] = _found(folder, key, str(said[key]), manifest.inputs)
    given = {"policy": policy, "cluster": cluster, "trace": trace}
    said |= {key: value for key, value in given.items() if value is not None}
    if trace is not None:
        said = {key: value for key, value in said.items() if key not in ("format", "limit")}
    if manifest.config.get("like"):
        raise OptionError(
            f"{folder}: was made like another simulator (--like): there is nothing to calibrate"
        )
    if "policy" not in said:
        raise OptionError(
            f"{folder}: does not say which policy it ran under: say it with --run-policy"
        )
    notes = [
        f"the run was made with {key} {manifest.config[key]}: not simulated"
        for key in ("rates", "estimate_error")
        if manifest.config.get(key)
    ]
    if "cluster" not in said:
        said["cluster"] = _cluster_of(log)
        notes.append(f"the machines are taken from the log: {said['cluster']}, without types")
    if "trace" not in said and (folder / JOBS).is_file():
        said["trace"] = str(folder / JOBS)
    if "trace" in said and not Path(said["trace"]).is_file():
        notes.append(f"the workload {said['trace']} is not there: the log has to do")
        del said["trace"]
    return msgspec.convert({**said, "notes": notes}, Setting)


def _read_manifest(path: Path) -> _Manifest:
    if not path.is_file():
        return _Manifest()
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _found(folder: Path, key: str, text: str, inputs: Sequence[InputFile]) -> str:
    """A file by a name that works here: where the run found it, or beside the log."""
    paths = [file.path for file in inputs if file.option == key and file.given == text]
    if paths:
        return paths[0]
    beside = folder / text
    return str(beside) if beside.is_file() else text


def _cluster_of(log: pl.DataFrame) -> str:
    nodes = EventLog(log).nodes.gpus.tolist()
    sizes = [(len(list(same)), int(gpus)) for gpus, same in groupby(g for g in nodes if g)]
    if not sizes:
        raise InputError("the log names no nodes with GPUs: say the machines with --cluster")
    return "+".join(f"{count}x{gpus}" for count, gpus in sizes)


# --- jobs -----------------------------------------------------------------------------------------


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a log that can be simulated again.

    `rows` are their numbers in the table of jobs, `declared_s` is NaN where nothing was declared.
    """

    specs: list[JobSpec]
    rows: list[int]
    declared_s: Floats
    notes: list[str]

    def workload(self, work_s: Sequence[float]) -> Workload:
        """With these durations."""
        behaviours = [Behaviour(max(SHORTEST_S, float(work))) for work in work_s]
        return Workload(self.specs, behaviours, name="observed")


def find_jobs(setting: Setting, observed: ObservedCosts, log: pl.DataFrame) -> Jobs:
    """Who was submitted, as far as it ran; the wishes come from the workload if there is one."""
    notes: list[str] = []
    submitted, declared = _submitted(setting, observed, notes)
    shapes = _shapes(log)
    specs, rows = [], []
    left_out = 0
    for row, entry in enumerate(observed.jobs.iter_rows(named=True)):
        if not observed.run_s[row] > 0:
            left_out += 1
            continue
        spec = submitted.get(entry["job_id"])
        request = shapes[int(observed.index[row])]
        if spec is not None and request.apart:  # which a csv file cannot say
            spec = msgspec.structs.replace(spec, request=request)
        elif spec is None:
            if observed.has_tasks[row]:
                request = msgspec.structs.replace(request, gang=False)
            spec = JobSpec(entry["job_id"], 0.0, request, entry["tenant"])
        specs.append(msgspec.structs.replace(spec, submit_s=float(entry["submit_s"])))
        rows.append(row)
    if left_out:
        notes.append(f"{left_out} jobs never ran: they are left out")
    known = {spec.id for spec in specs}
    specs = [_without(spec, known) for spec in specs]
    declared_s = np.array([declared.get(spec.id, np.nan) for spec in specs])
    return Jobs(specs, rows, declared_s, notes)


def _without(spec: JobSpec, known: set[str]) -> JobSpec:
    """No job waits for one that is left out."""
    others = tuple(other for other in spec.depends_on if other in known)
    return msgspec.structs.replace(spec, depends_on=others)


def _submitted(
    setting: Setting, observed: ObservedCosts, notes: list[str]
) -> tuple[dict[str, JobSpec], dict[str, float]]:
    """Specs and declared durations of the workload, by id."""
    if setting.trace is None:
        notes.append("without a workload only the GPUs and queues of jobs are known")
        return {}, {}
    workload = read_workload(setting.trace, setting.format, limit=setting.limit)
    specs = {spec.id: spec for spec in workload.specs}
    missing = sum(job not in specs for job in observed.jobs["job_id"])
    if missing:
        notes.append(f"{missing} jobs of the log are not in {Path(setting.trace).name}")
    estimates = {spec.id: spec.estimate_s for spec in workload.specs if spec.estimate_s < INF}
    if observed.live and estimates:  # all that a living cluster knows
        return specs, estimates
    return specs, {spec.id: behaviour.work for spec, behaviour in workload}


def _shapes(log: pl.DataFrame) -> dict[int, Request]:
    """What each job asked for, as the log describes it, by its number."""
    events = EventLog(log)
    requests = {number: _request(text) for number, text in events.shapes.items()}
    rows = events.rows_of(Record.SUBMIT)
    pairs = zip(events.job[rows].tolist(), events.ref[rows].tolist(), strict=True)
    return {job: requests[shape] for job, shape in pairs}


def _request(text: str) -> Request:
    match = _SHAPE.fullmatch(text)
    if not match:
        raise RotaError(f"the log describes a request that is not understood: {text!r}")
    gpus, cpus, mem_gib = (float(match[key] or 0) for key in ("gpus", "cpus", "mem"))
    gpu_types = tuple(match["types"].split("|")) if match["types"] else ()
    labels = tuple(match["labels"].split(", ")) if match["labels"] else ()
    if match["nodes"]:
        nodes = int(match["nodes"])
        task = TaskGroup("worker", nodes, int(gpus / nodes), cpus / nodes, mem_gib / nodes)
        return Request((task,), gpu_types, labels, apart=True)
    return Request.of(
        int(gpus) if gpus == int(gpus) else gpus,
        gpu_types=gpu_types,
        cpus=cpus,
        mem_gib=mem_gib,
        labels=labels,
    )
