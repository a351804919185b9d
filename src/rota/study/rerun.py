"""Making a run again from its folder, to prove that the same comes out."""

import io
from itertools import zip_longest
from pathlib import Path

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.core.version import VERSION
from rota.metrics import write_jobs
from rota.study.inputs import changed, located
from rota.study.output import EVENTS, JOBS, hash_log, read_manifest
from rota.study.run import Progress, simulate


class RerunVerdict(msgspec.Struct, frozen=True):
    """What became of a folder: `problems` is empty if everything is the same."""

    problems: list[str]
    notes: list[str]

    @property
    def same(self) -> bool:
        """The log and the table of jobs came out the same."""
        return not self.problems


def rerun(folder: Path, progress: Progress | None = None) -> RerunVerdict:
    """Run again what made the folder and compare the log and the table of jobs."""
    manifest = read_manifest(folder)
    notes = []
    if manifest.rota != VERSION:
        notes.append(f"made by Rota {manifest.rota}, this is {VERSION}")
    problems = changed(manifest.inputs)
    if problems:
        return RerunVerdict(problems, notes)
    result = simulate(located(manifest.config, manifest.inputs), progress)
    log_hash = hash_log(result.log)
    if log_hash != manifest.log["sha256"]:
        problems.append(f"event log: {result.log.height} rows, not as the manifest says")
    if log_hash != hash_log(_read_log(folder / EVENTS)):
        problems.append(f"{EVENTS}: holds another log")
    again = io.BytesIO()
    write_jobs(result.jobs, again)
    difference = _difference(_read(folder / JOBS), again.getvalue())
    if difference:
        problems.append(f"{JOBS}: {difference}")
    return RerunVerdict(problems, notes)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): run it again") from error


def _read_log(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(io.BytesIO(_read(path)))
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: is not an event log ({error}): run it again") from error


def _difference(before: bytes, after: bytes) -> str:
    if before == after:
        return ""
    lines = zip_longest(before.decode(errors="replace").splitlines(), after.decode().splitlines())
    for number, (old, new) in enumerate(lines, start=1):
        if old != new:
            return f"line {number} was {old!r} and is {new!r}"
    return "differs in its line ends"
