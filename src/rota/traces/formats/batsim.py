"""A workload of Batsim: JSON with `jobs` (id, subtime, res, profile, walltime) and `profiles`.

A job's run time comes from its profile: `delay` is seconds; `parallel_homogeneous` computes `cpu`
operations on every resource and `parallel_homogeneous_total` shares them, at `speed` operations per
second (default 1e9); `parallel` takes the largest entry; `composed` repeats a sequence of profiles.
Communication is not counted. Jobs of other profiles are dropped. Resources become GPUs
(`unit=gpu`, the default) or CPUs.
"""

from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.sums import ordered_sum
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.sources import decode, read_bytes
from rota.traces.table import MAX
from rota.traces.tidy import Common, Rest, import_rows

_MOST_PROFILES = 1_000_000
_MOST_RES = 10**9


class BatsimParams(Common, frozen=True):
    """Options of the format."""

    speed: float = 1e9
    unit: Literal["gpu", "cpu"] = "gpu"


class _BatsimJob(msgspec.Struct):
    id: str | int
    subtime: float
    res: int
    profile: str
    walltime: float | None = None


class _BatsimFile(msgspec.Struct):
    jobs: list[dict[str, Any]]
    profiles: dict[str, dict[str, Any]]
    nb_res: int = 0


class _Times:
    """Run times of profiles by number of resources; None: it has none."""

    def __init__(self, profiles: dict[str, dict[str, Any]], speed: float) -> None:
        self._profiles = profiles
        self._speed = speed
        self._known: dict[tuple[str, int], float | None] = {}

    def of(self, name: str, res: int) -> float | None:
        """The run time of a profile; sequences may nest, but not in a circle."""
        key = (name, res)
        if key not in self._known:
            self._known[key] = None  # coming back here means a cycle
            if len(self._known) < _MOST_PROFILES:
                self._known[key] = self._computed(self._profiles.get(name, {}), res)
        return self._known[key]

    def _computed(self, profile: dict[str, Any], res: int) -> float | None:
        try:
            match profile.get("type"):
                case "delay":
                    seconds = float(profile["delay"])
                case "parallel_homogeneous" | "msg_par_hg":
                    seconds = float(profile["cpu"]) / self._speed
                case "parallel_homogeneous_total":
                    seconds = float(profile["cpu"]) / self._speed / max(res, 1)
                case "parallel" | "msg_par":
                    seconds = max(map(float, profile["cpu"])) / self._speed
                case "composed" | "sequence":
                    parts = [self.of(name, res) for name in profile["seq"]]
                    if None in parts:
                        return None
                    seconds = ordered_sum(filter(None, parts)) * float(profile.get("repeat", 1))
                case _:
                    return None
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        return seconds if isfinite(seconds) else None


class Batsim(Reader):
    """Reads a Batsim workload."""

    name = "batsim"
    description = "workload of Batsim (JSON: jobs and profiles)"
    params = BatsimParams

    def import_file(self, path: Path, params: BatsimParams) -> Imported:
        """All jobs."""
        import polars as pl

        if not 0 < params.speed < inf:
            raise OptionError(f"format batsim: speed={params.speed:g}: give more than 0")
        file = _decode(path)
        quality = Quality(rows=len(file.jobs))
        times = _Times(file.profiles, params.speed)
        rows = [row for job in file.jobs if (row := _row(path, job, times, params, quality))]
        if not rows:
            raise TraceError(f"{path}: no job is left: {quality.dropped or 'there are none'}")
        schema = {
            "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
            "cpus": pl.Float64, "duration_s": pl.Float64, "estimate_s": pl.Float64,
            "name": pl.String,
        }  # fmt: skip
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        notes = (f"the platform has {file.nb_res:,} resources",) * bool(file.nb_res)
        return import_rows(path, frame, params, quality, rest=Rest(name=path.stem, notes=notes))


FORMAT = Batsim()


def _decode(path: Path) -> _BatsimFile:
    data = read_bytes(path, TraceError)
    decode(data, path, TraceError)
    try:
        return msgspec.json.decode(data, type=_BatsimFile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: is not a workload of Batsim ({error}): give JSON with jobs and profiles"
        ) from error


def _row(
    path: Path, cells: dict[str, Any], times: _Times, params: BatsimParams, quality: Quality
) -> tuple[Any, ...] | None:
    try:
        job = msgspec.convert(cells, _BatsimJob, strict=False)
        _check(job)
    except (msgspec.ValidationError, OverflowError) as error:
        if params.bad == "refuse":
            raise TraceError(
                f"{path}: job {str(cells.get('id'))[:40]!r}: {error}: correct it, or drop such "
                f"rows with the option bad=drop"
            ) from error
        quality.drop("not a job")
        return None
    duration_s = times.of(job.profile, job.res)
    if duration_s is None:
        quality.drop("its profile has no run time")
        return None
    size = float(max(job.res, 0))
    estimate = job.walltime if job.walltime and job.walltime > 0 else None
    whole = (size, 0.0) if params.unit == "gpu" else (0.0, size)
    return (str(job.id), job.subtime, *whole, max(0.0, duration_s), estimate, job.profile)


def _check(job: _BatsimJob) -> None:
    if not abs(job.subtime) <= MAX:
        raise msgspec.ValidationError(f"subtime {job.subtime:g} is not a finite number")
    if job.res > _MOST_RES:
        raise msgspec.ValidationError(f"res is more than {_MOST_RES:,}")
    if job.walltime is not None and not isfinite(job.walltime):
        raise msgspec.ValidationError(f"walltime {job.walltime:g} is not a finite number")
