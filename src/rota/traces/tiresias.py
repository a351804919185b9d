"""The job file of the Tiresias simulator (Gu et al., NSDI 2019): one row per job, times in seconds.

`submit_time` and `duration` are the submission and the run time on the GPUs asked for, `model_name`
the network (placement `skew` reads it). `iterations` and `interval` are not used by any schedule.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.formats import Head, share_of
from rota.traces.plain import NOT_NEGATIVE, POSITIVE
from rota.traces.table import Rule, Schema, read_table

SCHEMA = Schema(
    required=("job_id", "num_gpu", "submit_time", "duration"),
    optional=("iterations", "model_name", "interval"),
    remedy="ignore unknown columns with --format tiresias:ignore=yes",
)

_CHRONUS = "expect_time_list"
_GPUS = Rule(least=1, whole=True)


class TiresiasParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    ignore: bool = False


class Tiresias:
    """Reads the simulator's job file."""

    name = "tiresias"
    description = "job file of the Tiresias simulator"
    verified = True

    def recognises(self, head: Head) -> float:
        """By the required columns, which Chronus has too."""
        return share_of(SCHEMA.required, head) * (0.9 if _CHRONUS in head.columns else 1.0)

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All rows, in the order of the file."""
        params: TiresiasParams = parse_params("format tiresias", TiresiasParams, options)
        table = read_table(path, SCHEMA, ignore=params.ignore)
        ids = table.keys("job_id")
        submits_s = table.numbers("submit_time", NOT_NEGATIVE)
        requests = map(Request.of, table.numbers("num_gpu", _GPUS))
        durations_s = table.numbers("duration", POSITIVE)
        models = table.texts("model_name")
        specs = [
            JobSpec(job, submit_s, request, model=model)
            for job, submit_s, request, model in zip(ids, submits_s, requests, models, strict=True)
        ]
        return Workload(specs, list(map(Behaviour, durations_s)), name=path.stem)


FORMAT = Tiresias()
