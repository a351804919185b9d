"""Profiles of a user's own jobs: run a command at a few sizes, and keep how long its steps take.

The command reports with `rota.job.report` (`step_s`, `sync_s`, `batch`, or `throughput`): here the
reports of each run are collected from a file, as under a daemon. The result has the layout of
`rota.models.profiles`.
"""

import csv
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.core.errors import InputError, OutputError
from rota.core.hints import Hints, StepTime
from rota.core.unfinished import write_whole

PLACE = "{n}"
MOST = 9  # GPUs of one node: a digit in the profile
WARM_UP = 1  # reports that are left out, if there are more
GRACE_S = 10.0


class MeasuredSize(NamedTuple):
    """What one size gave."""

    gpus: int
    batch: float
    time: StepTime


def measure(
    command: Sequence[str],
    sizes: Sequence[int],
    *,
    seconds: float,
    told: Callable[[MeasuredSize], None] = lambda _: None,
) -> list[MeasuredSize]:
    """Run the command with each number of GPUs, for so many seconds at most.

    Raises:
        InputError: It has no place for the number, cannot be started, fails, or reports nothing.
    """
    if not any(PLACE in part for part in command):
        raise InputError(
            f"the command has no {PLACE} for the number of GPUs: write e.g. "
            "rota profile -- python train.py --gpus {n}"
        )
    wrong = [size for size in sizes if not 1 <= size <= MOST]
    if wrong or not sizes:
        raise InputError(f"sizes {wrong or 'none'}: give numbers of GPUs from 1 to {MOST}")
    found = []
    for gpus in sizes:
        found += _one([part.replace(PLACE, str(gpus)) for part in command], gpus, seconds, told)
    return found


class PairMeasures(NamedTuple):
    """Samples per second of applications, each alone and beside each other on the same GPUs."""

    alone: dict[str, float]
    pairs: dict[tuple[str, str], tuple[float, float]]


def read_commands(file: Path) -> dict[str, list[str]]:
    """Applications of a file with a line `name: command` for each.

    Raises:
        InputError: It cannot be read, or a line is something else.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--pairs {file}: cannot be read ({error}): check the path") from error
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, command = line.partition(":")
        if not colon or not command.strip() or name.strip() in found:
            raise InputError(
                f"{file}: line {number}: write NAME: COMMAND, each name once "
                "(resnet: python train.py)"
            )
        found[name.strip()] = shlex.split(command)
    if not found:
        raise InputError(f"{file}: names no application: write lines NAME: COMMAND")
    return found


def measure_pairs(
    commands: Mapping[str, Sequence[str]],
    *,
    gpus: int,
    seconds: float,
    told: Callable[[str], None] = lambda _: None,
) -> PairMeasures:
    """Run each command alone, then every two of them (and two of each) at the same time.

    Commands should run for longer than `seconds`: who is alone at the end is faster then.
    """
    alone = {name: _speed(command, gpus, seconds) for name, command in commands.items()}
    for name, speed in alone.items():
        told(f"{name} alone: {speed:.4g} samples/s")
    pairs = {}
    with ThreadPoolExecutor(2) as threads:
        for one, other in combinations_with_replacement(commands, 2):
            runs = [threads.submit(_speed, commands[name], gpus, seconds) for name in (one, other)]
            pairs[one, other] = (runs[0].result(), runs[1].result())
            own, others = (
                speed / alone[n] for speed, n in zip(pairs[one, other], (one, other), strict=True)
            )
            told(f"{one} beside {other}: {own:.2f} and {others:.2f} of their speeds alone")
    return PairMeasures(alone, pairs)


def _speed(command: Sequence[str], gpus: int, seconds: float) -> float:
    sizes = _one(
        [part.replace(PLACE, str(gpus)) for part in command], gpus, seconds, lambda _: None
    )
    return max(size.gpus * size.batch / size.time.step_s for size in sizes)


def write_pairs(found: PairMeasures, file: Path, *, gpus: int, gpu_type: str, force: bool) -> Path:
    """A table of throughputs, as `--rates pairs:table=FILE` reads it."""
    if file.exists() and not force:
        raise OutputError(f"{file} exists: name another folder, or give --force")
    kind = {name: str((name, gpus)) for name in found.alone}
    jobs: dict[str, dict[str, object]] = {
        kind[name]: {"null": speed} for name, speed in found.alone.items()
    }
    for (one, other), speeds in found.pairs.items():
        jobs[kind[one]][kind[other]] = list(speeds)
    file.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(file, msgspec.json.format(msgspec.json.encode({gpu_type: jobs}), indent=2))


def _one(
    command: Sequence[str], gpus: int, seconds: float, told: Callable[[MeasuredSize], None]
) -> list[MeasuredSize]:
    with tempfile.TemporaryDirectory() as folder:
        reports = Path(folder) / "reports"
        environment = {
            **os.environ, "ROTA_REPORT_FILE": str(reports), "ROTA_GPUS": str(gpus),
            "CUDA_VISIBLE_DEVICES": os.environ.get(
                "CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))
            ),
        }  # fmt: skip
        code = _run(command, environment, seconds)
        lines = reports.read_bytes().splitlines() if reports.exists() else []
    if code not in (0, None):
        raise InputError(f"with {gpus} GPUs the command ended with code {code}: {command[0]} ...")
    hints = Hints()
    many = len(lines)
    for number, line in enumerate(lines):
        try:
            values = msgspec.json.decode(line, type=dict[str, float])
        except msgspec.DecodeError:
            continue  # the last line of a run that was ended
        if number >= WARM_UP or many <= WARM_UP:
            hints.take(values, 1, gpus, "")
    if not hints.timings:
        raise InputError(
            f"with {gpus} GPUs the command reported no times: call rota.job.report(step_s=..., "
            "batch=...) or report(throughput=...) while it trains, or give it more --seconds"
        )
    found = [MeasuredSize(gpus, shape.batch, time) for shape, time in hints.timings.items()]
    for size in found:
        told(size)
    return found


def _run(command: Sequence[str], environment: dict[str, str], seconds: float) -> int | None:
    """The exit code; None: it was ended when its time was over."""
    try:
        process = subprocess.Popen(command, env=environment, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be started ({error.strerror}): check it") from error
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def write_profile(found: Sequence[MeasuredSize], folder: Path, *, force: bool) -> Path:
    """`placements.csv` in the folder of the application."""
    file = folder / "placements.csv"
    if file.exists() and not force:
        raise OutputError(f"{file} exists: name another folder, or give --force")
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as text:
        rows = csv.writer(text)
        rows.writerow(("placement", "local_bsz", "step_time", "sync_time"))
        for size in found:
            rows.writerow(
                (size.gpus, f"{size.batch:g}", repr(size.time.step_s), repr(size.time.sync_s))
            )
    part.replace(file)
    return file
