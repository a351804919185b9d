"""What is learnt from jobs, and what is made of draws."""

from collections import Counter
from itertools import pairwise
from random import Random
from statistics import fmean, stdev

import pytest

from rota.core.events import INF
from rota.core.jobs import DONE, RUNNING, Behaviour, Job, JobSpec, Request, Shape
from rota.sim.foresight import GUESS_S, Durations, Lengths, spread_of


def dice(seed=0):
    return Random(seed)  # noqa: S311 - not a secret


def drawn(lengths, beyond=0.0, count=4000):
    rolled = dice(1)
    found = Counter(lengths.draw(beyond, rolled) for _ in range(count))
    return {value: seen / count for value, seen in found.items()}


def test_every_length_that_is_over_counts_the_same():
    assert drawn(Lengths([3, 1, 2, 4])) == pytest.approx(
        dict.fromkeys([1, 2, 3, 4], 0.25), abs=0.03
    )


def test_those_that_go_on_count_for_what_may_become_of_them():
    # worked out by hand: 1/4 ends at 1; then one leaves unseen; 3/4 * 1/2 at 3, the rest at 4
    found = drawn(Lengths([1, 3, 4], unended=[2]))
    assert found == pytest.approx({1: 0.25, 3: 0.375, 4: 0.375}, abs=0.03)


def test_one_that_has_lasted_longer_is_drawn_among_the_longer_ones():
    assert drawn(Lengths([1, 2, 3, 4]), beyond=2) == pytest.approx({3: 0.5, 4: 0.5}, abs=0.03)
    assert Lengths([1, 2]).draw(2, dice()) is None
    assert Lengths([]).draw(0, dice()) is None


def test_what_nobody_saw_end_lasts_longer():
    assert drawn(Lengths([1], unended=[2])) == pytest.approx({1: 0.5, 4: 0.5}, abs=0.03)


def test_few_teach_little():
    few, many = Lengths([1, 2]), Lengths([1, 2] * 200)
    shares = [
        [drawn(known.doubted(dice(seed)), count=300).get(1, 0.0) for seed in range(40)]
        for known in (few, many)
    ]
    assert stdev(shares[0]) > 3 * stdev(shares[1])
    assert fmean(shares[0]) == pytest.approx(0.5, abs=0.15)


def a_job(run_s, estimate_s=INF, phase=DONE):
    spec = JobSpec("x", 0.0, Request.of(1), estimate_s=estimate_s)
    job = Job(spec, Behaviour(INF), 0, Shape(0, spec.request))
    job.phase, job.run_s = phase, run_s
    return job


def test_estimates_are_corrected_by_what_became_of_others():
    durations = Durations([a_job(50, 100), a_job(5, 10), a_job(1, 2)])
    assert durations.draw(a_job(0, 60), 0.0, dice()) == 30
    assert durations.draw(a_job(0, 60), 40.0, dice()) == 80  # it has outlived them all
    assert durations.draw(a_job(0), 0.0, dice()) in (50, 5, 1)


def test_where_little_is_known():
    durations = Durations([])
    assert durations.draw(a_job(0, 60), 0.0, dice()) == 60
    assert durations.draw(a_job(0), 0.0, dice()) == GUESS_S
    assert durations.draw(a_job(0), GUESS_S, dice()) == 2 * GUESS_S
    assert durations.describe()["without_any"] == "3600 s"


def test_running_jobs_are_learnt_from():
    running = a_job(0, phase=RUNNING)
    running.since_s = 10.0
    over = [a_job(5), a_job(20), a_job(40)]
    assert Durations(over, [running], 20.0).run_s.count == 3
    with_it = drawn(Durations(over, [running], 20.0).run_s)
    assert with_it[5] == pytest.approx(1 / 4, abs=0.03)  # one of four


def test_the_interval_holds_one_more_draw_as_often_as_it_says():
    rolled = dice(5)
    held = 0
    for _ in range(2000):
        *draws, truth = (rolled.random() for _ in range(21))
        spread = spread_of(draws)
        held += spread.earliest_s <= truth <= spread.latest_s
    assert held / 2000 == pytest.approx(17 / 21, abs=0.03)  # the 2nd and the 19th of 20


def test_the_spread_of_few_draws():
    assert spread_of([7.0]) == (7.0, 7.0, 7.0)
    assert spread_of([3.0, 1.0, INF]) == (3.0, 1.0, INF)
    widths = [spread_of(range(n)) for n in (1, 2, 5, 9, 19)]
    assert all(a.latest_s <= b.latest_s for a, b in pairwise(widths))
