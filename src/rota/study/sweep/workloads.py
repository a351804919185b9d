"""The jobs of each cell: a file, a file with another load, or a generator fed by the seed.

A file whose load is changed is written once to `workloads/`, as plain csv, under a name that tells
how it was made and what it holds: if it was changed by hand, that is noticed and it is made again.

The load of a file is the factor by which its jobs arrive faster: the time from the first submission
to each other one is divided by it. Deadlines keep their distance from the submission.
"""

from hashlib import sha256
from pathlib import Path

import msgspec

from rota.core.errors import InputError, OutputError
from rota.core.events import INF
from rota.core.version import VERSION
from rota.core.workload import Workload
from rota.study.config import RunConfig
from rota.study.inputs import find_inputs, hash_file, with_names
from rota.study.sweep.matrix import MatrixCell
from rota.study.sweep.spec import GENERATED_LOAD, WorkloadEntry
from rota.study.workloads import GENERATE, load_workload
from rota.traces.read import read_workload
from rota.traces.synth.sampling import split_kind
from rota.traces.write import write_workload

_SHORT = 12


class Trace(msgspec.Struct, frozen=True):
    """Jobs as the configuration of a run names them."""

    path: str
    format: str | None = None
    limit: int | None = None


class Workloads:
    """Gives every cell its file.

    Args:
        base: Where relative paths start.
        folder: Where files are made.
    """

    def __init__(self, base: Path, folder: Path) -> None:
        self._base = base
        self._folder = folder
        self._read: dict[WorkloadEntry, Workload] = {}
        self._hashes: dict[WorkloadEntry, str] = {}
        self._made: dict[str, Trace] = {}
        self._drawn: set[tuple[str, str]] = set()
        self.warnings: dict[str, None] = {}

    def of(self, cell: MatrixCell, cluster: str) -> Trace:
        """The jobs of a cell; `cluster` is its cluster with paths made absolute."""
        if cell.workload.generate:
            return self._generator(cell, cluster)
        whole = self._whole(cell.workload)
        path = self._path(cell.workload)
        if cell.load in (None, 1.0):
            return Trace(str(path), self._format(cell.workload), cell.workload.limit)
        recipe = f"{self._content(cell.workload)} {cell.workload.limit} {cell.load}"
        if recipe not in self._made:
            stem = sha256(f"{VERSION} {recipe}".encode()).hexdigest()[:_SHORT]
            made = self._find(stem) or self._make(stem, whole, cell)
            self._made[recipe] = Trace(str(made), "csv")
            self._warn(cell.workload)
        return self._made[recipe]

    def _content(self, entry: WorkloadEntry) -> str:
        """The trace and its format, with hashes in place of files."""
        if entry not in self._hashes:
            text = self._format(entry)
            config = RunConfig(trace=str(self._path(entry)), cluster="", policy="", format=text)
            files = find_inputs(config)
            named = with_names(config, [(file, file.sha256) for file in files])
            beside = [file.sha256 for file in files if not file.given]
            self._hashes[entry] = f"{named.trace} {named.format} {' '.join(beside)}"
        return self._hashes[entry]

    def _path(self, entry: WorkloadEntry) -> Path:
        return (self._base / str(entry.file)).resolve()

    def _format(self, entry: WorkloadEntry) -> str | None:
        return anchored(entry.format, self._base) if entry.format else None

    def _whole(self, entry: WorkloadEntry) -> Workload:
        """Read it, also if nothing is to be changed: a bad file is found before the first run."""
        if entry not in self._read:
            self._read[entry] = read_workload(
                self._path(entry), self._format(entry), limit=entry.limit
            )
        return self._read[entry]

    def _warn(self, entry: WorkloadEntry) -> None:
        """Of what reading did to the file: runs see only the clean file that was made of it."""
        for text in self._read[entry].quality.told:
            self.warnings[f"{entry.name}: {text}"] = None

    def _generator(self, cell: MatrixCell, cluster: str) -> Trace:
        """It is tried once per cluster, so that a bad option is found before the first run."""
        entry = cell.workload
        kind, options = split_kind(str(entry.generate))
        if "file" in options:
            options["file"] = str((self._base / options["file"]).resolve())
        offered = cell.load or entry.load or GENERATED_LOAD
        said = {"jobs": entry.jobs, "load": offered, **options}
        trace = f"{GENERATE}{kind}:" + ",".join(f"{key}={value}" for key, value in said.items())
        if (trace, cluster) not in self._drawn:
            seed = int(cell.options["seed"])
            load_workload(RunConfig(trace=trace, cluster=cluster, policy="", seed=seed))
            self._drawn.add((trace, cluster))
        return Trace(trace)

    def _find(self, stem: str) -> Path | None:
        for path in sorted(self._folder.glob(f"{stem}-*.csv")):
            if path.stem == f"{stem}-{hash_file(path)[:_SHORT]}":
                return path.resolve()
            path.unlink()
        return None

    def _make(self, stem: str, whole: Workload, cell: MatrixCell) -> Path:
        workload = faster(whole, cell.load or 1.0)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            fresh = write_workload(workload, self._folder / f".{stem}.part", force=True)
        except OutputError as error:
            if "as csv" not in str(error):
                raise
            raise InputError(
                f"{cell.describe()}: the load of this workload cannot be changed: {error}"
            ) from error
        return fresh.replace(self._folder / f"{stem}-{hash_file(fresh)[:_SHORT]}.csv").resolve()


def faster(workload: Workload, factor: float) -> Workload:
    """The same jobs, arriving this many times as fast."""
    first_s = min((spec.submit_s for spec in workload.specs), default=0.0)
    specs = []
    for spec in workload.specs:
        submit_s = first_s + (spec.submit_s - first_s) / factor
        deadline_s = spec.deadline_s
        if deadline_s < INF:
            deadline_s = submit_s + (deadline_s - spec.submit_s)
        specs.append(msgspec.structs.replace(spec, submit_s=submit_s, deadline_s=deadline_s))
    return Workload(specs, workload.behaviours, name=workload.name, quality=workload.quality)


def anchored(text: str, base: Path) -> str:
    """An option with the files that it names (itself, or as values) given by their full paths."""
    head, colon, rest = text.partition(":")
    parts = [_anchored(head, base)]
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        parts.append(key + equals + _anchored(value, base))
    return parts[0] + colon + ",".join(parts[1:])


def _anchored(token: str, base: Path) -> str:
    """Only what looks like a file: a policy stays a policy if a file happens to have its name."""
    if not ("." in token or "/" in token):
        return token
    path = base / token.strip()
    return str(path.resolve()) if path.is_file() else token
