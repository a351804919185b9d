"""Goodput: throughput times statistical efficiency (Qiao et al., Pollux, OSDI 2021).

A step of a data-parallel job is predicted from seven parameters. With R replicas on N nodes, m
samples per replica and pass, and s passes that only accumulate gradients:

    T_accum = alpha_c + beta_c m
    T_net   = alpha_n + beta_n max(R - 2, 0)     on several nodes
            = alpha_r + beta_r max(R - 2, 0)     on one node, with several replicas
    T_optim = (T_accum^gamma + T_net^gamma)^(1/gamma)
    T_step  = s T_accum + T_optim

A step of M = R m (s + 1) samples is worth (var + sqr) / (var M0/M + sqr) steps of the initial batch
M0, where `sqr` is the squared norm of the gradient and `var` its variance at M0: that is the
gradient noise scale. `fit_steps` finds the parameters from what a job has measured, by L-BFGS-B as
the paper does; what was never measured is taken to be free, so that a job is tried with more.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, inf, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from rota.core.hints import StepTime, TimedShape
from rota.core.sums import ordered_sum
from rota.models.bounded import Stops, least

if TYPE_CHECKING:
    import numpy as np

    BySize = tuple[np.ndarray, np.ndarray, np.ndarray]

TINY = 1e-8  # what stands for nothing: logarithms are taken
CANDIDATES = 50  # batch sizes that are looked at
SLOWER_FAR = 1.1  # what is not known of the network is as inside a node, and a bit more
MOST_GAMMA = 10.0


class PerfParams(NamedTuple):
    """Of the throughput model: seconds, seconds per sample, and how much the two overlap."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float


class BatchLimits(NamedTuple):
    """Samples: of a step at first and at most, and per replica and pass.

    `least` of a step is that at first unless it is given: as much as `most` fixes the batch.
    """

    init: int
    most: int
    local_least: int
    local_most: int
    least: int = 0


class Gradients(NamedTuple):
    """Squared norm of the gradient and its variance, at the initial batch."""

    sqr: float
    var: float


class BatchChoice(NamedTuple):
    """The best batch with some number of replicas: samples and passes, and steps of M0 a second."""

    goodput: float  # samples of M0's worth per second
    batch: int  # per replica and pass
    accumulation: int


# --- prediction -----------------------------------------------------------------------------------


def accumulate_s(theta: PerfParams, batch: float) -> float:
    """Seconds of a pass."""
    return theta.alpha_c + theta.beta_c * batch


def network_s(theta: PerfParams, nodes: int, replicas: float) -> float:
    """Seconds of an exchange of gradients."""
    more = max(replicas - 2, TINY)
    if nodes > 1:
        return theta.alpha_n + theta.beta_n * more
    return theta.alpha_r + theta.beta_r * more if replicas > 1 else TINY + TINY * more


def step_s(
    theta: PerfParams, nodes: int, replicas: float, batch: float, accumulation: int = 0
) -> float:
    """Seconds of a step."""
    alone, gamma = accumulate_s(theta, batch), theta.gamma
    network = network_s(theta, nodes, replicas)
    both: float = (alone**gamma + network**gamma) ** (1 / gamma)
    return accumulation * alone + both


def gain(gradients: Gradients, scale: float) -> float:
    """Steps of the initial batch that a step of `scale` times as many samples is worth."""
    below = gradients.var / scale + gradients.sqr
    return (gradients.var + gradients.sqr) / below if below > 0 else 1.0


# --- the best batch -------------------------------------------------------------------------------


class BatchGrid:
    """The candidate batches for every number of replicas: constants of a job's limits."""

    def __init__(self, limits: BatchLimits, most_replicas: int) -> None:
        import numpy as np

        replicas = np.arange(1, most_replicas + 1)
        least = np.maximum(limits.least or limits.init, limits.local_least * replicas)
        sizes = np.geomspace(np.minimum(least, limits.most), limits.most, CANDIDATES)
        local = sizes / replicas
        passes = np.ceil(local / limits.local_most - TINY) - 1
        alone = (replicas == 1) & (local > limits.init + TINY)
        self.passes = np.where(alone, np.maximum(passes, 1), passes).astype(int)
        self.batch = np.ceil(local / (self.passes + 1) - TINY).astype(int)
        self.valid = (
            (limits.local_least <= self.batch)
            & (self.batch <= limits.local_most)
            & (least <= limits.most)
        )
        self.replicas = replicas
        self.samples = replicas * self.batch * (self.passes + 1)
        self.scale = self.samples / limits.init
        self._columns = np.arange(most_replicas)

    def choose(self, theta: PerfParams, gradients: Gradients) -> "tuple[BySize, BySize]":
        """Best goodputs, batches and passes by replicas: on one node, and on several."""
        import numpy as np

        below = gradients.var / self.scale + gradients.sqr
        worth = np.where(below > 0, (gradients.var + gradients.sqr) / below, 1.0) / self.scale
        alone = theta.alpha_c + theta.beta_c * self.batch
        powered = alone**theta.gamma
        more = np.maximum(self.replicas - 2, TINY)
        near = np.where(self.replicas > 1, theta.alpha_r + theta.beta_r * more, TINY + TINY * TINY)
        far = theta.alpha_n + theta.beta_n * more
        found = []
        for network in (near, far):
            optim = (powered + network**theta.gamma) ** (1 / theta.gamma)
            good = self.samples / (self.passes * alone + optim) * worth
            good = np.where(self.valid, good, 0.0)
            best = np.argmax(good, axis=0)
            at = (best, self._columns)
            found.append((good[at], self.batch[at], self.passes[at]))
        return found[0], found[1]


@lru_cache(maxsize=256)
def batch_grid(limits: BatchLimits, most_replicas: int) -> BatchGrid:
    """Made once for all jobs with the same limits."""
    return BatchGrid(limits, most_replicas)


class GoodputTable:
    """The best batch and its goodput for every number of replicas, as one model predicts it."""

    def __init__(
        self, theta: PerfParams, gradients: Gradients, limits: BatchLimits, most_replicas: int
    ) -> None:
        grid = batch_grid(limits, most_replicas)
        self._near, self._far = grid.choose(theta, gradients)
        self.near, self.far = self._near[0], self._far[0]
        """Goodputs with 1, 2, ... replicas: on one node, and on several."""

    def best(self, nodes: int, replicas: int) -> BatchChoice:
        """With so many replicas on so many nodes."""
        goodput, batch, passes = self._far if nodes > 1 else self._near
        at = replicas - 1
        return BatchChoice(float(goodput[at]), int(batch[at]), int(passes[at]))


@lru_cache(maxsize=4096)
def goodput_table(
    theta: PerfParams, gradients: Gradients, limits: BatchLimits, most_replicas: int
) -> GoodputTable:
    """The same for all who ask for the same: jobs themselves, and policies."""
    return GoodputTable(theta, gradients, limits, most_replicas)


# --- the fit --------------------------------------------------------------------------------------

Measured = tuple[int, float, float, float, float]
"""Nodes, replicas, batch, seconds of a pass, seconds of a step."""


def measured(timings: Mapping[TimedShape, StepTime]) -> tuple[Measured, ...]:
    """What `fit_steps` takes, in the order in which it was measured."""
    return tuple(
        (shape.nodes, shape.gpus, shape.batch, time.step_s - time.sync_s, time.step_s)
        for shape, time in timings.items()
    )


def fit_steps(
    points: tuple[Measured, ...], *, warm: bool = False, tolerance: float | None = None
) -> PerfParams:
    """The parameters that predict these best; `warm`: begin where the fit without the last ended.

    Without it every fit begins, and ends, where that of the paper's code does; with it one that is
    stuck begins again elsewhere. `tolerance` (of value and gradient)
    is the optimiser's own unless it is given. Jobs of one application measure the same, so results
    are kept.
    """
    return _fitted(points, warm, tolerance)


@lru_cache(maxsize=16384)
def _fitted(
    points: tuple[Measured, ...],
    warm: bool,  # noqa: FBT001 - a key of the cache
    tolerance: float | None,
) -> PerfParams:
    if warm and len(points) > 1:
        start = _fitted(points[:-1], warm, tolerance)
        if _explained(start, points):
            return start
        found = _fit(points, start, tolerance, warm=True)
        if StepError(points)(found)[0] <= WORSE + StepError(points[:-1])(start)[0]:
            return found  # else it is stuck where the objective is not smooth
    return _fit(points, None, tolerance, warm=warm)


STUCK = 0.25  # of the objective: larger than measured times ever leave
WORSE = 0.02  # of the objective: what one more point may cost
KNOWN = 0.02  # logarithm: what is predicted so well needs no new fit
ENOUGH = 1e-7  # of the objective: a warm fit that gains less by a step ends, far below `KNOWN`


def _explained(theta: PerfParams, points: tuple[Measured, ...]) -> bool:
    """Does the model know the latest point already, and its kind of place?"""
    nodes, replicas, batch, alone, step = points[-1]
    if _place(nodes, replicas) not in {_place(n, r) for n, r, *_ in points[:-1]}:
        return False
    if replicas > 2 and all(r <= 2 for _, r, *_ in points[:-1]):  # noqa: PLR2004 - see the model
        return False
    if len({m for _, _, m, *_ in points[:-1]}) == 1 and batch != points[0][2]:
        return False
    wrong = abs(log(accumulate_s(theta, batch) / alone))
    return max(wrong, abs(log(step_s(theta, nodes, replicas, batch) / step))) < KNOWN


def _place(nodes: int, replicas: float) -> int:
    return 2 if nodes > 1 else int(replicas > 1)


START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)


def _bounds(points: Sequence[Measured]) -> tuple[list[float], list[float], list[float]]:
    """Where to begin and between what: priors hold what was never measured."""
    start, low, high = list(START), [TINY] * 6 + [1.0], [inf] * 6 + [MOST_GAMMA]

    def fix(place: int, value: float) -> None:
        start[place] = low[place] = high[place] = value

    if len({batch for _, _, batch, *_ in points}) == 1:
        fix(0, ordered_sum(alone for *_, alone, _ in points) / len(points) / 2)
    if not any(nodes > 1 for nodes, *_ in points):
        fix(2, TINY)
        fix(3, TINY)
    if not any(nodes == 1 and replicas > 1 for nodes, replicas, *_ in points):
        fix(4, TINY)
        fix(5, TINY)
    if not any(replicas > 2 for _, replicas, *_ in points):  # noqa: PLR2004 - see the model
        fix(3, TINY)
        fix(5, TINY)
    return start, low, high


def _fit(
    points: tuple[Measured, ...],
    start: PerfParams | None,
    tolerance: float | None,
    *,
    warm: bool,
) -> PerfParams:
    begin, low, high = _bounds(points)
    if start is not None:
        begin = [
            fresh if lowest == highest else min(max(old, lowest), highest)
            for fresh, old, lowest, highest in zip(begin, _unprior(start), low, high, strict=True)
        ]
    stops = Stops() if tolerance is None else Stops(tolerance, tolerance)
    if warm:  # there are no published results to meet
        stops = stops._replace(value=tolerance or ENOUGH, memory=None)
    error = StepError(points)
    found, value = least(error, begin, low, high, stops)
    if value > STUCK and warm and start is None:
        # exact data: where one error is 0 the slope has a jump
        again = [
            min(max(guess, lowest), highest)
            for guess, lowest, highest in zip(_guess(points), low, high, strict=True)
        ]
        other, better = least(error, again, low, high, stops)
        found = other if better < value / 4 else found  # else both are as good as it gets
    theta = PerfParams(*found)
    if any(nodes > 1 for nodes, *_ in points):
        return theta
    return theta._replace(
        alpha_n=max(theta.alpha_n, theta.alpha_r * SLOWER_FAR),
        beta_n=max(theta.beta_n, theta.beta_r * SLOWER_FAR),
    )


def _guess(points: Sequence[Measured]) -> list[float]:
    """Where to begin instead: as if computing and exchanging never overlapped."""
    guess = list(START)
    batches = ordered_sum(batch for _, _, batch, *_ in points)
    guess[1] = ordered_sum(alone for *_, alone, _ in points) / batches / 2
    guess[0] = guess[1] * batches / len(points)
    for place, at in ((2, 2), (1, 4)):
        extra = [step - alone for n, r, _, alone, step in points if _place(n, r) == place]
        if extra:
            guess[at] = max(ordered_sum(extra) / len(extra), TINY)
            guess[at + 1] = guess[at] * 1e-3
    return guess


def _unprior(theta: PerfParams) -> list[float]:
    """A model as a place to begin: what was held at nothing begins where it usually does."""
    return [
        usual if value <= TINY * SLOWER_FAR * (1 + TINY) else value
        for value, usual in zip(theta, START, strict=True)
    ]


class StepError:
    """The objective of the fit and its gradient, in plain numbers: there are few points."""

    def __init__(self, points: Sequence[Measured]) -> None:
        self._points = [
            (_place(nodes, replicas), max(replicas - 2, TINY), batch, log(alone), log(step))
            for nodes, replicas, batch, alone, step in points
        ]

    def __call__(self, x: Sequence[float]) -> tuple[float, list[float]]:
        """RMSEs of the logarithms of both times, with a preference for small gamma and beta."""
        alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = x
        count = len(self._points)
        first = second = 0.0
        rows = []
        for place, more, batch, log_alone, log_step in self._points:
            alone = alpha_c + beta_c * batch
            if place:
                near = place == 1
                network = alpha_r + beta_r * more if near else alpha_n + beta_n * more
            else:
                network = TINY + TINY * more
            log_a, log_n = log(alone), log(network)
            # (alone^gamma + network^gamma)^(1/gamma), as logarithms: the larger one is drawn out
            top = max(log_a, log_n)
            weight_a, weight_n = exp(gamma * (log_a - top)), exp(gamma * (log_n - top))
            both = weight_a + weight_n
            log_both = log(both)
            error_1, error_2 = log_a - log_alone, top + log_both / gamma - log_step
            first += error_1 * error_1
            second += error_2 * error_2
            weight_a /= both
            weight_n /= both
            slope = (weight_a * (log_a - top) + weight_n * (log_n - top)) / gamma
            slope -= log_both / (gamma * gamma)
            rows.append((place, more, batch, alone, network, error_1, error_2, weight_a, weight_n,
                         slope))  # fmt: skip
        first, second = sqrt(first / count), sqrt(second / count)
        by_1 = 1 / (count * first) if first else 0.0
        by_2 = 1 / (count * second) if second else 0.0
        found = [0.0] * 7
        for place, more, batch, alone, network, error_1, error_2, weight_a, weight_n, slope in rows:
            pull = error_2 * by_2
            by_alone = (error_1 * by_1 + pull * weight_a) / alone
            found[0] += by_alone
            found[1] += by_alone * batch
            if place:
                at = 4 if place == 1 else 2
                by_network = pull * weight_n / network
                found[at] += by_network
                found[at + 1] += by_network * more
            found[6] += pull * slope
        far, near_ = beta_n / alpha_n, beta_r / alpha_r
        value = first + second + 1e-3 * (gamma - 1) ** 2 + 1e-2 * (far * far + near_ * near_)
        found[2] -= 2e-2 * far * far / alpha_n
        found[3] += 2e-2 * far / alpha_n
        found[4] -= 2e-2 * near_ * near_ / alpha_r
        found[5] += 2e-2 * near_ / alpha_r
        found[6] += 2e-3 * (gamma - 1)
        return value, found
