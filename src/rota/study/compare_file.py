"""What a comparison found: the file `compare.json`, as values that can be written and read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota.core.errors import InputError
from rota.core.unfinished import write_whole
from rota.metrics.vocabulary import Measure
from rota.study.output import dump

COMPARE = "compare.json"

Verdict = Literal["better", "worse", "unclear"]


class Measured(msgspec.Struct, frozen=True):
    """One measure of one policy.

    `mean` is over the runs; `ratio` is to the baseline, with its interval from `low` to `high`;
    None: there is no such number. The verdict is `better` or `worse` only if the interval excludes
    1, and None where nothing can be said at all: of the baseline, and from one run alone.
    The ratio is the geometric mean of the ratios of the replications; `of_means`: it is the ratio
    of the means, because the measure is 0 in some run of some policy, and has no interval.
    """

    mean: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict | None = None
    of_means: bool = False


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy: means over its runs (None: there is no such number).

    `ratio` and `interval` are those of the mean JCT; `measures` has all of them by key; `delay` is
    seconds of waiting per completed job, by reason.
    """

    policy: str
    knowledge: str
    runs: int = 1
    avg_jct_s: float | None = None
    p50_jct_s: float | None = None
    p95_jct_s: float | None = None
    p99_jct_s: float | None = None
    avg_wait_s: float | None = None
    makespan_s: float | None = None
    gpu_utilisation: float | None = None
    preemptions: float | None = None
    completed: float | None = None
    censored: float | None = None
    jobs: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    measures: dict[str, Measured] = msgspec.field(default_factory=dict)
    delay: dict[str, float] = msgspec.field(default_factory=dict)


class Assumption(msgspec.Struct, frozen=True):
    """What the policies assume about one thing."""

    key: str
    values: Mapping[str, str]

    @property
    def common(self) -> str | None:
        """What all assume; None when they differ."""
        texts = set(self.values.values())
        return texts.pop() if len(texts) == 1 else None


class RunOf(msgspec.Struct, frozen=True):
    """One run: its folder (beside compare.json) and its summary.

    `window`: its number from 1; None when the trace was not cut.
    """

    policy: str
    folder: str
    seed: int
    window: int | None
    warnings: list[str]
    summary: dict[str, Any]


class PolicyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that compare.json holds. `method`: where the intervals come from; `notes`: footnotes."""

    trace: str
    cluster: str
    baseline: str
    seeds: list[int]
    windows: list[int]
    level: float
    method: str
    measures: list[Measure]
    rows: list[PolicyRow]
    assumptions: list[Assumption]
    runs: list[RunOf]
    notes: list[str]

    def run_of(self, policy: str) -> RunOf:
        """The first run of a policy."""
        return next(run for run in self.runs if run.policy == policy)


def write_comparison(comparison: PolicyComparison, folder: Path) -> None:
    """Write compare.json, in one step."""
    write_whole(folder / COMPARE, dump(msgspec.to_builtins(comparison)))


def read_comparison(folder: Path) -> PolicyComparison:
    """The comparison of a folder that `rota compare` made."""
    path = folder / COMPARE
    try:
        return msgspec.json.decode(path.read_bytes(), type=PolicyComparison)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `rota compare` made"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(
            f"{path}: is not a comparison of this Rota ({error}): make it again with `rota compare`"
        ) from error
