"""The jobs of Gavel's generator for continuous arrivals, drawn as it draws them.

One stream draws size (also where all jobs have one GPU), duration and kind of every job, another
one the time between two jobs; the first job comes twice. The jobs of trace A of `gavel-artifact`
come out, to the last step: so published results for a seed are results for these very jobs.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from rota.core.errors import InputError
from rota.models.throughputs import Kind, load_throughputs

_KINDS, _GAPS = 2, 3  # added to the seed
_SHORT = 0.8  # part of the jobs that are
_LATE = "A3C"  # last but one in the generator's list, unlike in the table
_REFERENCE = "v100"


def draw_trace(table: Path, *, jobs: int, gap_s: float, seed: int) -> str:
    """So many single-GPU jobs as a trace of the simulator.

    Args:
        table: Its throughputs.
        jobs: How many.
        gap_s: Mean time between two jobs.
        seed: Of its command line.
    """
    alone = load_throughputs(str(table)).alone
    kinds = _kinds(alone)
    kind_draws, gap_draws = Random(seed + _KINDS), Random(seed + _GAPS)  # noqa: S311 - no secret
    lines: list[str] = []
    at_s = 0.0
    while len(lines) < jobs:
        kind_draws.random()  # of the size
        duration_s = _duration_s(kind_draws)
        model = kind_draws.choice(kinds)
        steps = int(duration_s * alone[model, 1][_REFERENCE])
        line = f"{model}\t\t\t\t0\t{steps}\t1\t1\t-1\t{at_s:f}"
        lines += [line] * (1 if lines else 2)
        at_s -= math.log(1 - gap_draws.random()) * gap_s
    return "\n".join([*lines[:jobs], ""])


def _kinds(alone: Mapping[Kind, Mapping[str, float]]) -> Sequence[str]:
    """Models for one GPU in the order of the generator's list."""
    models = [model for model, gpus in alone if gpus == 1]
    if not models or any(_REFERENCE not in alone[model, 1] for model in models):
        raise InputError(
            f"the table of throughputs names no jobs of one GPU on {_REFERENCE}: give Gavel's"
        )
    late = [model for model in models if model == _LATE]
    others = [model for model in models if model != _LATE]
    return [*others[:-1], *late, *others[-1:]]


def _duration_s(draws: Random) -> float:
    if draws.random() >= _SHORT:
        return 60 * 10 ** draws.uniform(3, 4)
    return 60 * 10 ** draws.uniform(1.5, 3)
