"""Profiles of a user's own jobs: run a command at a few sizes, and keep how long its steps take.

The command reports with `rota.job.report` (`step_s`, `sync_s`, `batch`, or `throughput`): here the
reports of each run are collected from a file, as under a daemon. The result has the layout of
`rota.models.profiles`.
"""

import csv
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.core.errors import InputError, OutputError
from rota.core.hints import Hints, StepTime

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
