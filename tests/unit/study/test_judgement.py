"""The whole way from simulations to a verdict: no winner among equals, a real difference is found.

Workloads are small and drawn anew for every seed, and simulated for real.
"""

import pytest

from rota.core.jobs import Behaviour
from rota.core.workload import Workload
from rota.metrics.vocabulary import MEASURES
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.measures import judge
from rota.study.statistics import ratio_interval
from rota.study.workloads import load_workload
from thinning import first

RUNS = 8  # of each arm

MEAN_JCT = MEASURES[0]


def mean_jct_s(seed, longer=1.0):
    """Return the mean JCT of a small workload of this seed, with all jobs longer by a factor."""
    config = RunConfig(
        trace="generate:poisson:jobs=60,load=0.8", cluster="1x8", policy="fifo-skip", seed=seed
    )
    drawn = load_workload(config)
    works = [Behaviour(behaviour.work * longer) for behaviour in drawn.behaviours]
    engine = build(config, Workload(drawn.specs, works)).engine
    while engine.advance():
        pass
    jobs = engine.jobs.values()
    return sum(job.end_s - job.submit_s for job in jobs) / len(jobs)


def winners(trials, *, paired):
    verdicts = [
        judge(ratio_interval(base, values, paired=paired), MEAN_JCT) for base, values in trials
    ]
    return sum(verdict in ("better", "worse") for verdict in verdicts)


@pytest.mark.parametrize(
    ("number", "least", "most"), first(1, [(20, 0, 4), (40, 0, 6), (200, 2, 18)])
)
def test_the_same_policy_twice_wins_as_rarely_as_the_level_says(number, least, most):
    jct_s = [mean_jct_s(seed) for seed in range(2 * RUNS * number)]
    chunks = [jct_s[at : at + RUNS] for at in range(0, len(jct_s), RUNS)]
    trials = list(zip(chunks[::2], chunks[1::2], strict=True))

    assert len(trials) == number
    assert least <= winners(trials, paired=False) <= most
    few = [(base[:4], values[:4]) for base, values in trials]  # by Student's t, not the bootstrap
    assert least <= winners(few, paired=False) <= most


@pytest.mark.parametrize("number", first(1, [15, 40]))
def test_a_planted_difference_of_ten_percent_is_found(number):
    """Common random numbers: both arms meet the same jobs, in one they are 10 % longer."""
    trials = []
    for trial in range(number):
        seeds = range(trial * 4, trial * 4 + 4)
        trials.append(
            ([mean_jct_s(seed) for seed in seeds], [mean_jct_s(seed, 1.1) for seed in seeds])
        )

    assert winners(trials, paired=True) >= 0.9 * len(trials)
