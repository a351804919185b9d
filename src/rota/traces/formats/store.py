"""An imported trace on disk: a folder of three tables and a description, read back equal.

| File | Content |
| --- | --- |
| `jobs.parquet` | what was asked, and how long it ran (`schema.JOBS`) |
| `observed.parquet` | what happened (`observed`); no policy ever sees it |
| `events.parquet` | what happened to the cluster (`schema.EVENTS`) |
| `trace.json` | schema version, name, source, origin, machines, quality, notes |
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.core.errors import OutputError, TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.store_check import (
    event_problem,
    job_problem,
    node_problem,
    observed_problem,
)
from rota.traces.imported import Imported
from rota.traces.observed import Observed
from rota.traces.parquet import read_parquet
from rota.traces.schema import ADDED, EVENTS, JOBS, VERSION, complete, kinds
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
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir()
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
    return Imported(
        whole,
        observed=Observed(seen.drop("attempt")),
        events=events,
        cluster=about.cluster,
        quality=about.quality,
        name=about.name,
        origin=about.origin,
        notes=about.notes,
    )


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
    if cluster:  # what no node is called binds nobody
        anywhere |= ~own.is_in(sorted({label for node in cluster for label in node.labels}))
    jobs = jobs.with_columns(
        labels=pl.when(own.is_in(kept))
        .then(pl.concat_list(own).list.concat(others))
        .when(anywhere)
        .then(others)
        .otherwise("labels")
    )
    quality = msgspec.structs.replace(imported.quality, repaired=dict(imported.quality.repaired))
    return Imported(
        known_types(jobs, cluster, quality),
        observed=imported.observed,
        events=imported.events,
        cluster=cluster,
        quality=quality,
        name=imported.name,
        origin=imported.origin,
        notes=imported.notes,
    )


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
