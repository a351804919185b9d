"""Every interval that is printed holds the truth as often as it says: known truth, 200 worlds.

`rota when` has worlds of its own (test_forecast.py). `rota replay` and `rota reproduce` print none.
"""

import math

import numpy as np
import polars as pl
import pytest

from forecast_worlds import Kind, draw_jobs
from rota.notebook.experiment import _curve
from rota.study.build import build
from rota.study.calibration.fit import fit
from rota.study.calibration.replay import compare, predict
from rota.study.calibration.samples import ObservedCosts, Timings
from rota.study.config import RunConfig
from rota.study.replay.sizing import LEVEL as PLAN_LEVEL
from rota.study.replay.sizing import ServiceTarget
from rota.study.statistics import LEVEL, jobs_interval, jobs_spread, ratio_interval
from rota.study.sweep.table import make_means
from thinning import first, thinned

WORLDS = 200
MEAN_OF_LOGNORMAL = math.exp(0.3**2 / 2)


def as_meant(held, worlds=WORLDS, level=LEVEL, more=0.0):
    """Within 2.5 binomial standard errors of what was promised, or a little `more`."""
    error = math.sqrt(level * (1 - level) / worlds)
    return level - 2.5 * error <= held / worlds <= level + 2.5 * error + more


def worlds(*key, count=WORLDS):
    return (np.random.default_rng([*key, number]) for number in range(count))


# --- compare, sweep, robust: replications ---------------------------------------------------------


NOISE = {
    "symmetric": lambda rng, count: rng.normal(0, 0.2, count),
    "skewed": lambda rng, count: 0.1 * (rng.gamma(4, 1, count) - 4),
    "very-skewed": lambda rng, count: 0.2 * (rng.exponential(1, count) - 1),
}


@pytest.mark.parametrize(
    ("noise", "count"),
    first(
        3,
        [
            ("symmetric", 3),
            ("skewed", 5),
            ("very-skewed", 8),
            ("symmetric", 5),
            ("symmetric", 8),
            ("symmetric", 20),
            ("skewed", 3),
            ("skewed", 8),
            ("skewed", 20),
            ("very-skewed", 5),
            ("very-skewed", 20),
        ],
    ),
)
def test_ratios_of_replications(noise, count):
    # the wider of two intervals is taken on either side, hence `more`;
    # of three very skewed ratios nobody can see that they are: 88 %
    held = 0
    for rng in worlds(1, count, count=600):
        base = rng.lognormal(5, 0.5, count)
        found = ratio_interval(base, 0.8 * base * np.exp(NOISE[noise](rng, count)))
        held += found.low <= 0.8 <= found.high
    assert as_meant(held, 600, more=0.01)


@pytest.mark.parametrize("count", first(1, [3, 8]))
def test_ratios_of_replications_that_are_not_paired(count):
    held = 0
    for rng in worlds(2, count):
        base, values = rng.lognormal(0, 0.3, (2, count))
        found = ratio_interval(base, 0.8 * values, paired=False)
        held += found.low <= 0.8 <= found.high
    assert as_meant(held)


def test_zeros_have_no_interval():
    for rng in worlds(3, count=20):
        base = np.append(rng.poisson(1.0, 10), [0, 1])
        found = ratio_interval(base, rng.poisson(1.0, 12))
        assert (found.low, found.high) == (None, None)


def test_the_means_of_a_sweep():
    held = 0
    for rng in worlds(4):
        base = rng.lognormal(5, 0.5, 5)
        rows = [
            {"policy": policy, "seed": seed, "avg_jct_s": base[seed] * factor}
            for policy, factors in (
                ("a", np.ones(5)),
                ("b", 1.2 * np.exp(NOISE["skewed"](rng, 5))),
            )
            for seed, factor in enumerate(factors)
        ]
        found = make_means(["policy", "seed"], rows, "a")[1].ratio
        held += found.low <= 1.2 <= found.high
    assert as_meant(held)


def test_policies_in_real_simulations():
    # the truth is that of all 240 workloads, the worlds are 60 comparisons of four each
    jct = {policy: [] for policy in ("fifo", "srtf")}
    for rng in worlds(5, count=240):
        workload = draw_jobs(Kind(lengths="heavy"), 30, rng)
        for policy, found in jct.items():
            engine = build(RunConfig(trace="-", cluster="2x4", policy=policy), workload).engine
            engine.run()
            found.append(np.mean([job.end_s - job.submit_s for job in engine.jobs.values()]))
    base, values = np.array(jct["fifo"]), np.array(jct["srtf"])
    truth = math.exp(np.log(values / base).mean())
    assert truth < 0.9
    groups = np.arange(240).reshape(60, 4)
    ratios = [ratio_interval(base[some], values[some]) for some in groups]
    assert as_meant(sum(found.low <= truth <= found.high for found in ratios), 60)


# --- compare: the jobs of one run -----------------------------------------------------------------


def queue(rng, count, memory):
    """Differences that go on like waiting times in a queue."""
    noise = rng.normal(0, math.sqrt(1 - memory**2), count)
    noise[0] /= math.sqrt(1 - memory**2)
    for i in range(1, count):
        noise[i] += memory * noise[i - 1]
    return 0.8 * noise


@pytest.mark.parametrize("memory", first(1, [0.9, 0.0]))
def test_jobs_of_one_run(memory, monkeypatch):
    monkeypatch.setattr("rota.study.statistics.RESAMPLES", 400)
    held = 0
    for rng in worlds(6):
        both = queue(rng, 400, memory)
        base, values = (np.exp(both + 0.5 * queue(rng, 400, memory)) for _ in range(2))
        found = jobs_interval(base, values, lambda jobs: jobs.mean(axis=1))
        held += found.low <= 1 <= found.high
    assert as_meant(held)


def test_few_jobs_of_one_run_have_no_interval():
    base = np.random.default_rng(0).exponential(1, 150)
    found = jobs_interval(base, 2 * base[::-1], lambda jobs: jobs.mean(axis=1))
    assert (found.low, found.high) == (None, None)
    assert found.ratio == pytest.approx(2)


# --- lab: curves ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("spread", "count"), thinned([0.3, 1.0], [3, 10, 30]))
def test_means_along_a_curve(count, spread):
    held = 0
    for rng in worlds(7, count):
        table = pl.DataFrame({"x": [1] * count, "y": rng.lognormal(0, spread, count)})
        row = _curve(table, "x", "y").row(0, named=True)
        held += row["low"] <= math.exp(spread**2 / 2) <= row["high"]
    assert as_meant(held)


# --- calibrate ------------------------------------------------------------------------------------


NOTHING = Timings(np.zeros(0), np.zeros(0, dtype=np.int64))


def observed(first, again=NOTHING):
    return ObservedCosts(
        live=True, first=first, again=again, stop=NOTHING, abort=NOTHING, lost=NOTHING,
        jobs=pl.DataFrame(), index=np.zeros(0), run_s=np.zeros(0), restarts=np.zeros(0),
        has_tasks=None, notes=[],
    )  # fmt: skip


@pytest.mark.parametrize("jobs", first(1, [4, 8, 40]))
def test_costs(jobs, monkeypatch):
    monkeypatch.setattr("rota.study.calibration.fit.DRAWS", 2)
    held = 0
    for rng in worlds(8, jobs):
        job = np.repeat(np.arange(jobs), rng.integers(1, 5, jobs))  # times of a job are alike
        seconds = rng.lognormal(0, 0.3, jobs)[job] * rng.gamma(4, 1 / 4, len(job))
        found = fit(observed(NOTHING, Timings(seconds, job)), NOTHING, 0).again
        held += found.low <= MEAN_OF_LOGNORMAL <= found.high
    assert as_meant(held)


def test_the_cost_of_one_job_has_no_interval():
    one = Timings(np.array([1.0, 1.1]), np.array([3, 3]))
    found = fit(observed(one), NOTHING, 0).first
    assert (found.value, found.low, found.high) == (pytest.approx(1.05), None, None)


def run_of(rng, lengths, cost=1.0):
    """(JCT, wait, submission, end) of jobs with drawn costs."""
    wait = cost * rng.gamma(4, 5.0, len(lengths))
    submit = np.arange(len(lengths)) * 50.0
    return np.stack([lengths + wait, wait, submit, submit + lengths + wait], axis=1)


@pytest.mark.parametrize("runs", first(1, [4, 10, 40]))
def test_predictions(runs):
    held = np.zeros(4)
    for rng in worlds(9, runs):
        lengths = rng.lognormal(4, 1, 40)
        *simulated, real = (run_of(rng, lengths) for _ in range(runs + 1))
        truth = (real[:, 0].mean(), np.percentile(real[:, 0], 95), real[:, 1].mean(),
                 real[:, 3].max())  # fmt: skip
        held += [p.low <= t <= p.high for p, t in zip(predict(simulated), truth, strict=True)]
    assert all(as_meant(one) for one in held), held


def test_one_simulation_predicts_no_interval():
    rng = np.random.default_rng(0)
    assert {(p.low, p.high) for p in predict([run_of(rng, np.ones(5))])} == {(None, None)}


def test_errors_of_a_calibration_that_is_right():
    held = np.zeros(4)
    for rng in worlds(10):
        lengths = rng.lognormal(4, 1, 40)
        *simulated, live = (run_of(rng, lengths) for _ in range(11))
        held += [error.low <= 0 <= error.high for error in compare(live, simulated)]
    assert all(as_meant(one) for one in held), held


# --- plan: what another log like this one might give ----------------------------------------------


def waits_of_a_queue(rng, jobs, load, warm=5_000):
    """Waits of a queue with one server and skewed run times, after it has settled."""
    runs = rng.lognormal(-0.5, 1.0, jobs + warm)
    gains = np.cumsum(runs - rng.exponential(1 / load, jobs + warm))
    sums = np.concatenate([[0.0], gains[:-1]])
    return (sums - np.minimum.accumulate(sums))[warm:]


@pytest.mark.parametrize(
    ("target", "load"), first(1, [("p95", 0.7), ("mean", 0.7), ("mean", 0.5), ("p95", 0.5)])
)
def test_sizes_of_a_plan(target, load):
    statistic = ServiceTarget(target, "wait", 3600.0).of()
    truth = statistic(waits_of_a_queue(np.random.default_rng(0), 1_000_000, load)[None, :])[0]
    held = 0
    for rng in worlds(9, count=100):
        low, high = jobs_spread(waits_of_a_queue(rng, 4_000, load), statistic, level=PLAN_LEVEL)
        held += low <= truth <= high
    assert as_meant(held, 100, level=PLAN_LEVEL)
