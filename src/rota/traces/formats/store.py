"""An imported trace on disk: a folder of three tables and a description, read back equal.

| File | Content |
| --- | --- |
| `jobs.parquet` | what was asked, and how long it ran (`schema.JOBS`) |
| `observed.parquet` | what happened (`observed`); no policy ever sees it |
| `events.parquet` | what happened to the cluster (`schema.EVENTS`) |
| `trace.json` | schema version, name, source, origin, machines, queues, quality, notes |

Tables may have been damaged: they are checked before they are used.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from graphlib import CycleError, TopologicalSorter
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.core.errors import InputError, OutputError, TraceError
from rota.core.sensitivity import Sensitivity
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import NodeSpec
from rota.core.unfinished import claim, clear_abandoned, release, unfinished
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported, SiteQueues
from rota.traces.observed import STATES, Observed
from rota.traces.schema import ADDED, DEPENDENCIES, EVENTS, JOBS, VERSION, complete, kinds
from rota.traces.sources import read_bytes

if TYPE_CHECKING:
    import polars as pl

DESCRIPTION = "trace.json"
_SEEN = {
    "job": "int", "attempt": "int", "start_s": "float", "end_s": "float", "nodes": "texts",
    "gpus": "floats", "state": "text",
}  # fmt: skip
FILES = (DESCRIPTION, "jobs.parquet", "observed.parquet", "events.parquet")


class Description(msgspec.Struct):
    """The content of `trace.json`."""

    rota_trace: int
    name: str = ""
    source: str = ""
    origin: str = ""
    quality: Quality = msgspec.field(default_factory=Quality)
    notes: list[str] = []
    cluster: list[NodeSpec] = []
    tenants: list[dict[str, str | float]] = []
    policy: str = ""  # that keeps the quotas of these


class StoredParams(msgspec.Struct, frozen=True):
    """Options of the format: machines and partitions, as for a log of Slurm (`slurm.records`)."""

    nodes: str = ""
    partitions: Literal["auto", "label", "ignore"] = "auto"


def save(imported: Imported, folder: str | Path, *, source: str = "", force: bool = False) -> Path:
    """Write the folder; it appears whole or not at all.

    Args:
        imported: The trace.
        folder: The folder to make.
        source: Where the trace came from: file, format and options.
        force: Replace a folder that holds a trace.

    Raises:
        OutputError: Something else is there, or it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not (force and (folder / DESCRIPTION).is_file()):
        raise OutputError(
            f"{folder}: is there already: choose another name"
            + ("; it holds no trace, so --force does not replace it" if force else " or --force")
        )
    clear_abandoned(folder)
    part, held = unfinished(folder), -1
    try:
        part.mkdir()
        held = claim(part)
        imported.jobs.write_parquet(part / "jobs.parquet")
        imported.observed.frame.write_parquet(part / "observed.parquet")
        imported.events.write_parquet(part / "events.parquet")
        (part / DESCRIPTION).write_bytes(_description(imported, source))
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be written ({error.strerror}): its folder must be writable"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        release(held)
    return folder


def restore(folder: Path) -> Imported:
    """Read the folder.

    Raises:
        TraceError: It is not a trace, of a newer version, or damaged.
    """
    about = _described(folder)
    known = {name: kind for name, (kind, _) in JOBS.items()}
    if about.rota_trace < VERSION:
        known = {name: known[name] for name in known if ADDED.get(name, 1) <= about.rota_trace}
    jobs = _table(folder / "jobs.parquet", known)
    whole = complete(jobs)
    _refuse(folder / "jobs.parquet", job_problem(whole, about.quality))
    events = _table(folder / "events.parquet", EVENTS)
    _refuse(folder / "events.parquet", event_problem(events))
    seen = _table(folder / "observed.parquet", _SEEN)
    _refuse(folder / "observed.parquet", observed_problem(seen, jobs.height))
    imported = Imported(
        whole,
        observed=Observed(seen.drop("attempt")),
        events=events,
        cluster=about.cluster,
        quality=about.quality,
        name=about.name,
        origin=about.origin,
        notes=about.notes,
    )
    imported.queues = _queues(folder / DESCRIPTION, about)
    return imported


def _queues(file: Path, about: Description) -> SiteQueues:
    try:
        tenants = msgspec.convert(about.tenants, tuple[Tenant, ...])
        TenantTree(tenants)
    except (msgspec.ValidationError, InputError) as error:
        raise TraceError(
            f"{file}: has tenants that cannot be used ({error}): import the trace again"
        ) from error
    return SiteQueues(tenants, about.policy)


class Stored(Reader):
    """Reads what `save` wrote."""

    name = "rota"
    description = "a trace that Rota imported: folder with trace.json and Parquet tables"
    verified = True
    params = StoredParams

    def beside(self, path: Path, params: StoredParams) -> Sequence[Path]:  # noqa: ARG002 - always
        """The files of the folder."""
        folder = _folder(path)
        return [folder / name for name in FILES if folder / name != path]

    def import_file(self, path: Path, params: StoredParams) -> Imported:
        """Everything in the folder; the path may also be that of its description."""
        imported = restore(_folder(path))
        return imported if params == StoredParams() else _bound(imported, params)


FORMAT = Stored()


def _bound(imported: Imported, params: StoredParams) -> Imported:
    """With these machines, and jobs that keep to the partitions that they ran in."""
    import polars as pl

    from rota.traces.formats.slurm.nodes import read_nodes_file
    from rota.traces.formats.slurm.records import known_types, labelled

    cluster = read_nodes_file(Path(params.nodes)) if params.nodes else imported.cluster
    jobs = imported.jobs
    seen = imported.observed.frame.filter(pl.col("nodes").list.len() > 0)["job"].unique()
    used = set(jobs["partition"].gather(seen.cast(pl.UInt32)).unique()) - {""}
    kept = sorted(labelled(used, params.partitions, cluster))
    own = pl.col("partition")
    others = pl.col("labels").list.set_difference(pl.concat_list(own))
    anywhere = pl.lit(params.partitions == "ignore")
    if cluster:  # a name that no node has binds no job
        anywhere |= ~own.is_in(sorted({label for node in cluster for label in node.labels}))
    jobs = jobs.with_columns(
        labels=pl.when(own.is_in(kept))
        .then(pl.concat_list(own).list.concat(others))
        .when(anywhere)
        .then(others)
        .otherwise("labels")
    )
    quality = msgspec.structs.replace(imported.quality, repaired=dict(imported.quality.repaired))
    bound = Imported(
        known_types(jobs, cluster, quality),
        observed=imported.observed,
        events=imported.events,
        cluster=cluster,
        quality=quality,
        name=imported.name,
        origin=imported.origin,
        notes=imported.notes,
    )
    bound.queues = imported.queues
    return bound


def _folder(path: Path) -> Path:
    return path.parent if path.name == DESCRIPTION else path


def _description(imported: Imported, source: str) -> bytes:
    about = Description(
        VERSION,
        imported.name,
        source,
        imported.origin,
        imported.quality,
        imported.notes,
        list(imported.cluster),
        [tenant.entry() for tenant in imported.queues.tenants],
        imported.queues.policy,
    )
    return msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n"


def _described(folder: Path) -> Description:
    file = folder / DESCRIPTION
    try:
        about = msgspec.json.decode(read_bytes(file, TraceError), type=Description)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{file}: is not the description of a trace ({error}): import the trace again"
        ) from error
    if about.rota_trace > VERSION:
        raise TraceError(
            f"{file}: has schema version {about.rota_trace}, this Rota knows {VERSION}: "
            f"use a newer Rota"
        )
    _refuse(file, node_problem(about.cluster))
    return about


def _refuse(path: Path, problem: str) -> None:
    if problem:
        raise TraceError(f"{path}: {problem}: import the trace again")


def _table(path: Path, columns: Mapping[str, str]) -> "pl.DataFrame":
    import polars as pl

    def problem(why: str) -> TraceError:
        return TraceError(
            f"{path}: cannot be read as a table of a trace ({why}): import the trace again"
        )

    types = {**kinds(), "floats": pl.List(pl.Float64())}
    wanted = [pl.col(name).cast(types[kind]) for name, kind in columns.items()]
    return read_parquet(read_bytes(path, TraceError), wanted, problem)[0]


_AMOUNTS = (
    "num_gpus", "cpus", "mem_gib", "min_gpus", "max_gpus", "gpu_mem_gib", "gpu_mem_step_gib",
)  # fmt: skip
_MOST_GPUS = 1e9


# --- checks --------------------------------------------------------------------------------------


def job_problem(jobs: "pl.DataFrame", quality: Quality) -> str:
    """What is wrong with the jobs; empty: nothing."""
    if not jobs.height:
        return "holds no jobs"
    if quality.kept != jobs.height:
        return f"has {jobs.height:,} jobs, but trace.json says that {quality.kept:,} were kept"
    if quality.rows != quality.kept + sum(quality.dropped.values()):
        return "has rows that trace.json counts neither as kept nor as dropped"
    return _first_of(jobs, _wrong_cells()) or _wrong_json(jobs) or _wrong_dependency(jobs)


def _wrong_cells() -> "list[tuple[str, pl.Expr]]":
    import polars as pl

    ident, submit, duration = pl.col("job_id"), pl.col("submit_s"), pl.col("duration_s")
    asked = [pl.col(name) for name in _AMOUNTS]
    later = [pl.col(name) for name in ("deadline_s", "estimate_s", "fails_at_s")]
    must = [name for name, (_, default) in JOBS.items() if default is not None]
    role = pl.element().struct
    wrong_role = (role["count"] < 1) | pl.any_horizontal(
        ~role[name].is_between(0, _MOST_GPUS) for name in ("gpus", "cpus", "mem_gib")
    )
    roles = pl.col("roles").list.eval(wrong_role.fill_null(value=True)).list.any()
    roles = roles.fill_null(value=False)
    return [
        ("has a job without a job_id", ident.is_null() | (ident == "")),
        ("has a job_id twice", ident.is_duplicated()),
        ("has an empty cell where none may be", pl.any_horizontal(pl.col(must).is_null())),
        ("has a submit_s that is not a number, at least 0", ~submit.is_between(0, 1e300)),
        ("has a duration_s that is not above 0", duration.is_nan() | (duration <= 0)),
        (
            "has an amount that is not a number, at least 0",
            pl.any_horizontal(~amount.is_between(0, 1e300) for amount in asked),
        ),
        (
            "has a job that asks for nothing",
            pl.all_horizontal(amount == 0 for amount in asked[:3]) & pl.col("roles").is_null(),
        ),
        (
            "has a time that is not a number",
            pl.any_horizontal(time.is_nan().fill_null(value=False) for time in later),
        ),
        ("has a role that asks for less than nothing", roles),
    ]


def _wrong_json(jobs: "pl.DataFrame") -> str:
    """Texts that are not the JSON that they should be."""
    shapes = {
        "speeds": dict[str, float],
        "scaling": list[tuple[float, float]],
        "course": list[tuple[float, float]],
        "sizes": list[float],
        "resources": dict[str, float],
        "demand": dict[str, float],
        "sensitivity": Sensitivity,
    }
    for name, shape in shapes.items():
        for text in jobs[name].drop_nulls().unique():
            try:
                value: object = msgspec.json.decode(text, type=shape)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                return f"has {name} that cannot be used ({str(error)[:80]})"
            numbers: Iterable[float] = ()
            if isinstance(value, dict):
                numbers = value.values()
            elif isinstance(value, list):
                numbers = (number for pair in value for number in pair)
            if not all(0 <= number < inf for number in numbers):
                return f"has {name} that are below 0 ({text[:40]})"
    return ""


def _wrong_dependency(jobs: "pl.DataFrame") -> str:
    waits: dict[str, list[str]] = {}
    for column in DEPENDENCIES:
        some = jobs.filter(jobs[column].list.len() > 0).select("job_id", column)
        for name, others in some.iter_rows():
            waits.setdefault(name, []).extend(others)
    known = set(jobs["job_id"]) if waits else set()
    for name, others in waits.items():
        for other in others:
            if other not in known:
                return f"has job {name!r}, which waits for {other!r}, and that is no job"
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return "has jobs that wait for each other"
    return ""


def observed_problem(frame: "pl.DataFrame", jobs: int) -> str:
    """What is wrong with the observed schedule of so many jobs; empty: nothing."""
    import polars as pl

    start, end = pl.col("start_s"), pl.col("end_s")
    open_end = end.is_null()
    held, nodes = pl.col("gpus").list.len(), pl.col("nodes").list.len()
    impossible = pl.col("gpus").list.eval(~pl.element().is_between(0, 1e300).fill_null(value=False))
    checks = [
        ("has an attempt of no job", ~pl.col("job").is_between(0, jobs - 1)),
        ("has a start_s that is not a number", ~start.is_finite()),
        ("has an end_s that is not a number", ~end.is_finite() & ~open_end),
        ("has a state that is not known", ~pl.col("state").is_in(STATES)),
        ("has not as many GPUs as nodes", (held > 0) & (held != nodes)),
        ("has a number of GPUs below 0", impossible.list.any()),
    ]
    return _first_of(frame, checks)


def event_problem(events: "pl.DataFrame") -> str:
    """What is wrong with the cluster events; empty: nothing."""
    import polars as pl

    checks = [
        ("has an empty cell", pl.any_horizontal(pl.all().is_null())),
        ("has a number that is not finite", ~pl.col("time_s").is_finite()),
        ("has a value that is not finite", ~pl.col("value").is_finite()),
    ]
    return _first_of(events, checks)


def node_problem(nodes: Iterable[NodeSpec]) -> str:
    """What is wrong with the machines; empty: nothing."""
    seen: set[str] = set()
    for node in nodes:
        amounts = (node.gpus, node.cpus, node.mem_gib)
        if not node.name or node.name in seen:
            return f"a node is called {node.name!r}, which is empty or there twice"
        if not all(isfinite(amount) and 0 <= amount <= _MOST_GPUS for amount in amounts):
            return f"node {node.name!r} has an amount below 0, or far too much"
        seen.add(node.name)
    return ""


def _first_of(frame: "pl.DataFrame", checks: "list[tuple[str, pl.Expr]]") -> str:
    """The first check that a row fails; a row of which it cannot be said fails it, too."""
    for what, wrong in checks:  # one after the other: less memory
        if frame.select(wrong.fill_null(value=True).any()).item():
            return what
    return ""


_STDERR = 2
_MOST_LETTERS = 120


# --- Parquet -------------------------------------------------------------------------------------


def read_parquet(
    data: bytes, select: "list[pl.Expr]", problem: Callable[[str], InputError]
) -> "tuple[pl.DataFrame, dict[str, str]]":
    """These columns of a table, and what it says of itself; `problem` makes the error."""
    import polars as pl

    try:
        with _no_backtrace():
            frame = pl.read_parquet(io.BytesIO(data)).select(select)
            return frame, pl.read_parquet_metadata(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError, ValueError, MemoryError, OverflowError) as error:
        raise problem(str(error)[:_MOST_LETTERS]) from error
    except pl.exceptions.PanicException as error:
        raise problem("its bytes are damaged") from error


@contextmanager
def _no_backtrace() -> Iterator[None]:
    """Polars stops with a backtrace on stderr when bytes are damaged; an error tells it better."""
    kept = -1
    with suppress(OSError):
        kept = os.dup(_STDERR)
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
            os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        if kept >= 0:
            os.dup2(kept, _STDERR)
            os.close(kept)
