"""How close a simulated schedule comes to what happened: the waits of the same jobs, side by side.

For all jobs, for each partition and for each class of sizes:

- `bias_s`: the mean of simulated minus observed waits, and its share of the observed mean;
- `mae_s`: the mean absolute error of a job's wait;
- `rank_correlation`: Spearman's, of the waits: do the same jobs wait long?
- `ks`: the largest difference between the two distributions (Kolmogorov-Smirnov);
- `wasserstein_s`: the mean distance between the two distributions: who waited is not asked.

Always |bias| <= Wasserstein <= mean absolute error. Waits below a minute are alike for ranks and
`ks`: a real scheduler takes seconds to look, which is no queueing. A mean wait below a minute
counts as one minute where a share of it is taken.

The *distance* of a policy is the Wasserstein distance within partitions, averaged over all jobs. A
policy is a *close* model of what happened if the bias of all jobs and of every partition with
enough jobs, its distance (as a share of the observed mean wait), the rank correlation and the jobs
that it cannot run are within the first of the `LIMITS`, a *rough* one within the second, and else
*far* from it. (`ks` decides nothing: where all wait for hours, a shift by minutes makes it large.)
The closest is the one with the best of these verdicts; among equals, the one with the least
distance.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import Floats
from rota.core.sums import ordered_sum
from rota.core.words import duration

Verdict = Literal["close", "rough", "far"]
CLOSE: Verdict = "close"
ROUGH: Verdict = "rough"
FAR: Verdict = "far"


class Bounds(msgspec.Struct, frozen=True):
    """What a verdict allows: shares, except the rank correlation, which is the least."""

    bias: float
    distance: float
    rank_correlation: float
    refused: float


LIMITS: dict[Verdict, Bounds] = {
    CLOSE: Bounds(bias=0.15, distance=0.25, rank_correlation=0.7, refused=0.01),
    ROUGH: Bounds(bias=0.4, distance=0.5, rank_correlation=0.4, refused=0.05),
}
LEAST_S = 60.0
"""Shorter waits are alike."""
LEAST_JOBS = 30
"""A partition with fewer jobs is shown, but does not decide."""
SAME = 0.01
"""Policies whose distances differ by no more, as a share of the observed mean wait, are alike."""
ALL = "all"
PARTITION, SIZE = "partition", "size"


class GroupFidelity(msgspec.Struct, frozen=True):
    """How close the waits of a group are; times in seconds, None where no job can be compared."""

    by: str
    group: str
    jobs: int
    refused: int  # that ran in the log, and that the policy cannot run
    observed_mean_wait_s: float | None
    mean_wait_s: float | None
    bias_s: float | None
    bias: float | None  # as a share of the observed mean
    mae_s: float | None
    rank_correlation: float | None  # None also where all waits are alike
    ks: float | None
    wasserstein_s: float | None
    ran_mean_wait_s: float | None = None  # observed, of all jobs: those that are refused, too

    @property
    def told(self) -> str:
        """`partition debug`, `jobs of 9-32 GPUs`, `jobs of 33 GPUs or more`."""
        if self.by != SIZE:
            return f"{self.by} {self.group}"
        most = f"{self.group[:-1]} GPUs or more" if self.group.endswith("-") else ""
        return f"jobs of {most or self.group + ' GPU' + 's' * (self.group != '1')}"


class Fidelity(msgspec.Struct, frozen=True):
    """How close a policy is, and what that means."""

    policy: str
    groups: tuple[GroupFidelity, ...]  # the first: all jobs
    distance_s: float | None
    verdict: Verdict
    refusal: str = ""  # why it cannot run jobs that ran
    open_ended: int = 0  # jobs that still ran when the log was taken

    @property
    def whole(self) -> GroupFidelity:
        """Of all jobs."""
        return self.groups[0]

    @property
    def worst(self) -> GroupFidelity | None:
        """The group with the largest bias, as a share, if it is beyond what is close."""
        many = [
            group
            for group in self.groups[1:]
            if group.bias is not None and group.jobs >= LEAST_JOBS
        ]
        worst = max(many, key=lambda group: abs(group.bias or 0.0), default=None)
        return worst if worst and abs(worst.bias or 0.0) > LIMITS[CLOSE].bias else None

    @property
    def misses(self) -> list[str]:
        """What keeps it from being close."""
        limit, whole = LIMITS[CLOSE], self.whole
        found = []
        wrong = [g for g in self.groups if g.by != SIZE and abs(g.bias or 0.0) > limit.bias]
        deciding = [g for g in wrong if g.by == ALL or g.jobs >= LEAST_JOBS]
        if deciding:
            most = max(deciding, key=lambda group: abs(group.bias or 0.0))
            where = "" if most.by == ALL else f" in {most.told}"
            found.append(f"its bias is {most.bias:+.0%}{where}, not within {limit.bias:.0%}")
        if (share := _share(self.distance_s, whole)) > limit.distance:
            found.append(
                f"the distance of waits is {share:.0%} of their mean, not within "
                f"{limit.distance:.0%}"
            )
        rank = whole.rank_correlation
        if rank is not None and rank < limit.rank_correlation:
            found.append(
                f"the rank correlation is {rank:.2f}, not at least {limit.rank_correlation:g}"
            )
        if whole.refused > limit.refused * whole.jobs:
            found.append(f"it cannot run {whole.refused / whole.jobs:.0%} of the jobs")
        return found

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        whole, worst = self.whole, self.worst
        if whole.mean_wait_s is None or whole.mae_s is None or whole.bias is None:
            why = f" ({self.refusal})" if self.refusal else ""
            return f"{self.policy} is no model of today: it runs none of the jobs that ran{why}"
        name = {
            CLOSE: "is a close model of today",
            ROUGH: "is only a rough model of today: trust the direction of a change, not its size",
            FAR: "is not a model of today: do not act on its numbers",
        }[self.verdict]
        runs = whole.jobs - whole.refused
        whose = (
            f"Of the {runs:,} jobs that it can run, the mean wait"
            if whole.refused
            else ("Its mean wait")
        )
        told = (
            f"{self.policy} {name}. {whose} is {duration(whole.mean_wait_s)}, "
            f"{duration(whole.observed_mean_wait_s or 0.0)} were observed ({whole.bias:+.0%}); the "
            f"wait of a job is off by {duration(whole.mae_s)} on average"
        )
        if self.open_ended:
            told += (
                f"; these are waits of all {runs:,} jobs, also of the {self.open_ended:,} that "
                f"still ran when the log was taken, whose waits are not in the means by schedule"
            )
        if whole.refused:
            why = f" ({self.refusal})" if self.refusal else ""
            told += (
                f". It cannot run {whole.refused:,} of the {whole.jobs:,} jobs that ran{why}; in "
                f"the log, all {whole.jobs:,} waited {duration(whole.ran_mean_wait_s)} on average"
            )
        if whole.jobs < LEAST_JOBS:
            told += f". {whole.jobs:,} jobs are few: it may be chance"
        if self.misses:
            told += f". It is not close because {' and '.join(self.misses)}"
        if worst is not None:
            told += (
                f". Least true: {worst.told} ({duration(worst.mean_wait_s or 0.0)} simulated, "
                f"{duration(worst.observed_mean_wait_s or 0.0)} observed)"
            )
        return told

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "distance_s": self.distance_s,
            "by_group": [msgspec.to_builtins(group) for group in self.groups],
        }


def compare_waits(
    policy: str, waits: pl.DataFrame, *, refusal: str = "", open_ended: int = 0
) -> Fidelity:
    """How close a schedule is.

    Args:
        policy: Its name.
        waits: A row per job that ran: `observed_s`, `simulated_s` (null: refused), `partition`,
            `size`.
        refusal: Why it cannot run some of them.
        open_ended: How many of those that it can run still ran when the log was taken.
    """
    groups = [_group(ALL, ALL, waits)]
    for by in (PARTITION, SIZE):
        if waits[by].n_unique() > 1:
            parts = waits.partition_by(by, maintain_order=True, as_dict=True)
            groups += [_group(by, str(key[0]), part) for key, part in sorted(parts.items())]
    parts_of = [group for group in groups if group.by == PARTITION] or groups[:1]
    distances = [
        (group.wasserstein_s, group.jobs) for group in parts_of if group.wasserstein_s is not None
    ]
    jobs = sum(many for _, many in distances)
    distance_s = ordered_sum(far * many for far, many in distances) / jobs if jobs else None
    verdict = _judged(groups, distance_s)
    return Fidelity(policy, tuple(groups), distance_s, verdict, refusal, open_ended)


def closest(found: Iterable[Fidelity]) -> Fidelity:
    """The best model; of equals the first."""
    return min(found, key=rank)


def as_close(model: Fidelity, found: Iterable[Fidelity]) -> list[str]:
    """Other policies that come as close as this one: what happened does not tell them apart."""
    if model.verdict == FAR:
        return []
    distance = _share(model.distance_s, model.whole)
    return [
        one.policy
        for one in found
        if one.policy != model.policy
        and one.verdict == model.verdict
        and _share(one.distance_s, one.whole) <= distance + SAME
    ]


def rank(one: Fidelity) -> tuple[int, float, float]:
    """Less is closer: the verdict, the distance, the error of a job."""
    never = float("inf")
    return (
        (CLOSE, ROUGH, FAR).index(one.verdict),
        never if one.distance_s is None else one.distance_s,
        never if one.whole.mae_s is None else one.whole.mae_s,
    )


def overtaken(jobs: pl.DataFrame, starts: str, submits: str, kinds: Sequence[str]) -> float | None:
    """Of the jobs that waited, the share that an equal job passed that came later.

    Args:
        jobs: A row per job.
        starts: Column with the time of the first start.
        submits: Column with the time of the submission.
        kinds: Columns in which equal jobs are equal.
    """
    later = (
        jobs.filter(pl.col(starts).is_not_null())
        .sort(submits, maintain_order=True)
        .with_columns(
            pl.col(starts).reverse().cum_min().reverse().shift(-1).over(list(kinds)).alias("_next")
        )
        .filter(pl.col(starts) - pl.col(submits) > LEAST_S)
    )
    if not later.height:
        return None
    passed = (pl.col("_next") < pl.col(starts) - LEAST_S).fill_null(value=False)
    return float(later.select(passed.mean()).item())


def _group(by: str, group: str, waits: pl.DataFrame) -> GroupFidelity:
    both = waits.drop_nulls(["observed_s", "simulated_s"])
    refused = waits.height - both.height
    everyone = waits["observed_s"].drop_nulls().to_numpy().astype(float)
    ran_s = float(everyone.mean()) if len(everyone) else None
    if not both.height:
        none = (None,) * 8
        return GroupFidelity(by, group, waits.height, refused, *none, ran_mean_wait_s=ran_s)
    observed = both["observed_s"].to_numpy().astype(float)
    simulated = both["simulated_s"].to_numpy().astype(float)
    mean_s, model_s = float(observed.mean()), float(simulated.mean())
    coarse = np.maximum(observed, LEAST_S), np.maximum(simulated, LEAST_S)
    return GroupFidelity(
        by,
        group,
        waits.height,
        refused,
        mean_s,
        model_s,
        model_s - mean_s,
        (model_s - mean_s) / max(mean_s, LEAST_S),
        float(np.abs(simulated - observed).mean()),
        _spearman(*coarse),
        _kolmogorov(*coarse),
        float(np.abs(np.sort(simulated) - np.sort(observed)).mean()),
        ran_s,
    )


def _spearman(first: Floats, second: Floats) -> float | None:
    """The correlation of ranks; equal values share their mean rank. None: all are equal."""
    ranks = [pl.Series(values).rank("average").to_numpy() for values in (first, second)]
    spread = [float(rank.std()) for rank in ranks]
    if not all(spread):
        return None
    product = ((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean()
    return float(product / (spread[0] * spread[1]))


def _kolmogorov(first: Floats, second: Floats) -> float:
    """The largest difference between two distributions."""
    first, second = np.sort(first), np.sort(second)
    at = np.concatenate([first, second])
    share = np.searchsorted(first, at, "right") / len(first)
    return float(np.abs(share - np.searchsorted(second, at, "right") / len(second)).max())


def _share(distance_s: float | None, whole: GroupFidelity) -> float:
    """A distance as a share of the observed mean wait."""
    return (distance_s or 0.0) / max(whole.observed_mean_wait_s or 0.0, LEAST_S)


def _judged(groups: Sequence[GroupFidelity], distance_s: float | None) -> Verdict:
    whole = groups[0]
    deciding = [g for g in groups if g.by == PARTITION and g.jobs >= LEAST_JOBS]
    if whole.bias is None or distance_s is None:
        return FAR
    bias = max(abs(g.bias) if g.bias is not None else float("inf") for g in [whole, *deciding])
    rank = 1.0 if whole.rank_correlation is None else whole.rank_correlation
    refused = whole.refused / whole.jobs
    distance = _share(distance_s, whole)
    for verdict, limit in LIMITS.items():
        if (
            bias <= limit.bias
            and distance <= limit.distance
            and rank >= limit.rank_correlation
            and refused <= limit.refused
        ):
            return verdict
    return FAR
