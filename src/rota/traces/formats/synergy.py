"""The trace of the Synergy simulator (Mohan et al., OSDI 2022): models and numbers of iterations.

A file without a header; a row has the job's number, its model, its submission in seconds, its
iterations and its GPUs. How long an iteration takes, and how many CPUs and how much memory the
model wants for each GPU, is in the profiles (`profiles=FILE`; without it the file
`synergy_profiles.json` beside the trace). A job asks for what its model wants, and its work is
counted in seconds with that.
"""

import csv
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NoReturn

import msgspec

from rota.core.errors import TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.models.sensitivity import SensitivityProfile, read_profiles
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.sources import decode, exists, read_bytes

PROFILES = "synergy_profiles.json"
COLUMNS = ("job number", "model", "submission", "iterations", "GPUs")


class SynergyReaderParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    profiles: str = ""


class SynergyReader(Reader):
    """Reads the simulator's replay trace."""

    name = "synergy"
    description = "replay trace of the Synergy simulator, with profiles of its models"
    verified = True
    params = SynergyReaderParams

    def beside(self, path: Path, params: SynergyReaderParams) -> Sequence[Path]:
        """The profiles beside the trace."""
        file = path.with_name(PROFILES)
        return (file,) if not params.profiles and exists(file) else ()

    def import_file(self, path: Path, params: SynergyReaderParams) -> Imported:
        """All rows, in the order of the file."""
        file = Path(params.profiles) if params.profiles else path.with_name(PROFILES)
        if not file.exists():
            raise TraceError(
                f"{path}: the profiles {file} are not there: "
                f"name them with --format synergy:profiles=FILE"
            )
        profiles = read_profiles(file)
        text = decode(read_bytes(path, TraceError), path, TraceError)
        jobs = [
            _job(path, line, row, profiles)
            for line, row in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), 1)
            if row
        ]
        specs, truths = [spec for spec, _ in jobs], [truth for _, truth in jobs]
        return Imported(Workload(specs, truths, name=path.stem))


def _job(
    path: Path, line: int, row: Sequence[str], profiles: Mapping[str, SensitivityProfile]
) -> tuple[JobSpec, Behaviour]:
    if len(row) != len(COLUMNS):
        _refuse(path, line, f"has {len(row)} cells: give {', '.join(COLUMNS)}")
    number, model, *_ = (cell.strip() for cell in row)
    submit_s, iterations, gpus = (
        _number(path, line, column, row[column]) for column in range(2, len(COLUMNS))
    )
    if submit_s < 0 or iterations < 1 or gpus < 1 or gpus != int(gpus):
        _refuse(path, line, f"{','.join(row)}: give a submission of 0 or more, whole GPUs and work")
    profile = profiles.get(model)
    if profile is None:
        _refuse(path, line, f"model {model!r} has no profile: known are {', '.join(profiles)}")
    table = profile.sensitivity
    if not table.step_s:
        _refuse(path, line, f"the profile of {model!r} has no iter_time: add it, in seconds")
    request = Request.of(int(gpus), cpus=gpus * profile.cpus, mem_gib=gpus * profile.mem_gib)
    work = iterations * table.step_s / table.at(profile.cpus, profile.mem_gib)
    spec = JobSpec(number, submit_s, request, model=model)
    return spec, Behaviour(work, sensitivity=table)


def _number(path: Path, line: int, column: int, text: str) -> float:
    if not _is_number(text):
        _refuse(path, line, f"{COLUMNS[column]}: {text!r} is not a number: give one")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < inf
    except ValueError:
        return False


def _refuse(path: Path, line: int, problem: str) -> NoReturn:
    raise TraceError(f"{path}, line {line}: {problem}")


FORMAT = SynergyReader()
