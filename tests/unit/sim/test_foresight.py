"""What is learnt from jobs, and what is made of draws."""

from itertools import pairwise

import numpy as np
import pytest

from rota.core.events import INF
from rota.core.jobs import CANCELLED, DONE, FAILED, RUNNING, Behaviour, Job, JobSpec, Request, Shape
from rota.sim import durations as model
from rota.sim import foresight
from rota.sim.durations import GUESS_S, Durations
from rota.sim.foresight import backtest, spread_of


def dice(seed=0):
    return np.random.default_rng(seed)


def a_job(run_s, estimate_s=INF, phase=DONE):
    spec = JobSpec("x", 0.0, Request.of(1), estimate_s=estimate_s)
    job = Job(spec, Behaviour(INF), 0, Shape(0, spec.request))
    job.phase, job.run_s = phase, run_s
    return job


def running(run_s, estimate_s=INF):
    """A job that has run for so long at second 0."""
    job = a_job(run_s, estimate_s, RUNNING)
    job.since_s = 0.0
    return job


def drawn(durations, job, done=0.0, count=200):
    """Lengths of a job in many simulations, sorted."""
    return np.sort([durations.draw([job], [done], dice(seed))[0] for seed in range(count)])


def noisy(count, sigma, *, seed=1, spread=1.0):
    """Run times, and estimates that are these times some noise."""
    rng = dice(seed)
    lengths = 1000 * rng.lognormal(0.0, spread, count)
    return lengths, lengths * rng.lognormal(0.0, sigma, count)


def test_an_estimate_that_was_always_wrong_by_the_same_factor_is_corrected():
    durations = Durations([a_job(50, 100), a_job(5, 10), a_job(1, 2)], 0.0)
    assert drawn(durations, a_job(0, 60), count=3).tolist() == pytest.approx([30] * 3)
    assert drawn(durations, a_job(0, 60), 40.0, count=3).min() > 40  # it has outlived them all


def test_estimates_made_from_the_truth_do_not_inflate_the_work():
    # truth times noise: estimate times another job's ratio would be exp(0.36) = 1.43 times too long
    lengths, told = noisy(300, 0.6)
    durations = Durations([a_job(*row) for row in zip(lengths, told, strict=True)], 0.0)
    others, said = noisy(400, 0.6, seed=2)
    jobs = [a_job(0, estimate) for estimate in said]
    totals = [sum(durations.draw(jobs, [0.0] * 400, dice(seed))) for seed in range(40)]
    assert np.median(totals) == pytest.approx(others.sum(), rel=0.15)
    assert np.median(totals) < 0.8 * 1.43 * others.sum()


def test_run_times_that_are_noise_around_the_estimate_keep_their_mean():
    told, lengths = noisy(300, 0.6)
    durations = Durations([a_job(*row) for row in zip(lengths, told, strict=True)], 0.0)
    said, others = noisy(400, 0.6, seed=2)
    totals = [
        sum(durations.draw([a_job(0, one) for one in said], [0.0] * 400, dice(seed)))
        for seed in range(40)
    ]
    assert np.median(totals) == pytest.approx(others.sum(), rel=0.15)


def test_what_estimates_mean_may_differ_from_one_to_the_other():
    # whoever says an hour needs five minutes; whoever says a day needs it
    short = [a_job(300 * factor, 3600) for factor in np.linspace(0.5, 1.5, 30)]
    long = [a_job(80_000 * factor, 86_400) for factor in np.linspace(0.95, 1.05, 30)]
    durations = Durations(short + long, 0.0)
    assert 200 < np.median(drawn(durations, a_job(0, 3600))) < 400
    assert 75_000 < np.median(drawn(durations, a_job(0, 86_400))) < 86_400
    assert drawn(durations, a_job(0, 3600)).max() <= 3600  # nobody ever took longer than told
    assert durations.describe()["estimates"].endswith("never longer than told")


def test_jobs_that_are_ended_by_their_limits_run_exactly_as_long():
    limits = dice(1).choice([300.0, 1200.0, 3600.0], 200)
    lengths = np.minimum(limits, limits * dice(2).exponential(1.0 / np.log(2), 200))  # every second
    durations = Durations([a_job(*row) for row in zip(lengths, limits, strict=True)], 0.0)
    found = drawn(durations, a_job(0, 1200), count=400)
    reached = np.isclose(found, 1200).mean()
    assert reached == pytest.approx(np.isclose(lengths, limits).mean(), abs=0.1)
    assert found.max() <= 1200 * (1 + 1e-9)


def test_few_teach_little():
    widths = []
    for count in (0, 4, 40, 400):
        lengths, told = noisy(count, 0.3)
        durations = Durations([a_job(*row) for row in zip(lengths, told, strict=True)], 0.0)
        found = drawn(durations, a_job(0, 1000))
        widths.append(found[180] / found[20])
    assert widths[0] > widths[1] > widths[3]
    assert widths[2] == pytest.approx(np.exp(2 * 1.28 * 0.3), rel=0.5)  # what the noise is
    assert durations.doubt == ""


def test_what_nobody_has_seen_yet_may_happen():
    """The next of four random lengths is outside all of them in two of five cases."""
    outside = {}
    for count in (4, 60):
        lengths, _ = noisy(count, 0.3)
        durations = Durations([a_job(length) for length in lengths], 0.0)
        found = drawn(durations, a_job(0), count=400)
        for factor in (1.05, 2):  # near what was seen: smoothed; farther: those who are unlike it
            apart = (found > factor * lengths.max()) | (found < lengths.min() / factor)
            outside[count, factor] = apart.mean()
    assert 0.3 < outside[4, 1.05] < 0.5
    assert 0.14 < outside[4, 2] < 0.3
    assert 0 < outside[60, 1.05] < 0.05
    assert outside[60, 2] < 0.01


def test_without_any_history_answers_are_wide_and_said_to_be_guesses():
    durations = Durations([], 0.0)
    for job, middle in ((a_job(0, 60), 60), (a_job(0), GUESS_S)):
        found = drawn(durations, job)
        assert found[100] == pytest.approx(middle, rel=0.5)
        assert found[180] > 9 * found[20]
    assert durations.doubt.startswith("a guess: ")
    assert drawn(Durations([], 0.0, sure=True), a_job(0, 60), count=2) == pytest.approx([60, 60])


def test_one_that_has_run_for_long_goes_on_for_longer():
    durations = Durations([a_job(length) for length in np.linspace(1, 100, 60)], 0.0)
    assert drawn(durations, a_job(0), 80.0).min() > 80
    assert np.median(drawn(durations, a_job(0), 80.0)) > 85 > np.median(drawn(durations, a_job(0)))
    assert drawn(durations, a_job(0), 5000.0).min() > 5000


def test_jobs_that_still_run_count_for_what_may_become_of_them():
    ended = [a_job(length) for length in (5, 10, 20, 40) * 10]
    alone = Durations(ended, 0.0)
    beside = Durations(ended + [running(30) for _ in range(20)], 0.0)
    assert beside.all.count == 40
    assert np.median(drawn(beside, a_job(0))) > 1.3 * np.median(drawn(alone, a_job(0)))
    # half of those that are over ended by 10; one in three of all
    assert (drawn(beside, a_job(0)) < 12).mean() == pytest.approx(1 / 3, abs=0.1)


def test_whoever_failed_or_was_cancelled_has_freed_its_gpus_too():
    ended = [a_job(10, phase=phase) for phase in (DONE, FAILED, CANCELLED)]
    assert Durations([*ended, a_job(0, phase=CANCELLED)], 0.0).all.count == 3


def test_lengths_of_simulated_jobs_are_work():
    job = a_job(50, phase=DONE)
    job.true_work, job.true_left = 100.0, 0.0  # on GPUs of twice the speed
    assert np.median(drawn(Durations([job] * 20, 0.0), a_job(0))) == pytest.approx(100)


def test_the_interval_holds_one_more_draw_as_often_as_it_says():
    rolled = dice(5)
    held = 0
    for _ in range(2000):
        *draws, truth = rolled.random(21).tolist()
        spread = spread_of(draws)
        held += spread.earliest_s <= truth <= spread.latest_s
    assert held / 2000 == pytest.approx(17 / 21, abs=0.03)  # the 2nd and the 19th of 20


def test_the_spread_of_few_draws():
    assert spread_of([7.0]) == (7.0, 7.0, 7.0, 0.0)
    assert spread_of([3.0, 1.0, INF]) == (3.0, 1.0, INF, 0.5)
    assert spread_of(range(9)).share == spread_of(range(20)).share == 0.8
    widths = [spread_of(range(n)) for n in (1, 2, 5, 9, 19)]
    assert all(a.latest_s <= b.latest_s for a, b in pairwise(widths))


# --- back-test ------------------------------------------------------------------------------------


def history(lengths, told, servers=8, now_s=INF):
    """Jobs one after the other on some servers, seen when the last one starts, or earlier."""
    free_s, starts = [0.0] * servers, []
    for length in lengths:
        at_s = min(free_s)
        free_s[free_s.index(at_s)] = at_s + float(length)
        starts.append(at_s)
    now_s = min(now_s, max(starts))
    jobs = []
    for start_s, length, said in zip(starts, lengths, told, strict=True):
        end_s = start_s + float(length)
        if start_s > now_s:
            continue
        job = a_job(float(length), said) if end_s <= now_s else running(now_s - start_s, said)
        job.first_start_s = start_s
        if job.terminal:
            job.end_s = end_s
        else:
            job.since_s = now_s
        jobs.append(job)
    return Durations(jobs, now_s)


@pytest.mark.parametrize("estimates", [False, True])
def test_the_back_test_of_a_model_that_is_right_finds_the_share_that_is_meant(estimates):
    held = tested = 0
    for seed in range(5):
        lengths, told = noisy(80, 0.5, seed=seed)
        found = backtest(history(lengths, told if estimates else [INF] * 80))
        assert found.jobs >= 50
        held += found.share_inside * found.jobs
        tested += found.jobs
    assert held / tested == pytest.approx(0.8, abs=0.07)  # three standard errors of 275 jobs


@pytest.mark.parametrize("estimates", [False, True])
def test_the_back_test_shows_that_the_past_is_no_guide(estimates):
    rng = dice(3)
    lengths = 100 * np.exp(0.05 * np.arange(150) + 0.2 * rng.standard_normal(150))  # ever longer
    found = backtest(history(lengths, [100.0 if estimates else INF] * 150))
    assert (found.jobs, found.nominal) == (60, 0.8)
    assert found.share_inside < 0.4
    assert str(found).endswith("trust the answer less")


def test_the_back_test_shows_estimates_that_have_become_worse():
    lengths, told = noisy(300, 0.05)
    told[220:] = lengths[220:] * dice(4).lognormal(0.0, 1.0, 80)
    bad, good = backtest(history(lengths, told)), backtest(history(lengths[:220], told[:220]))
    assert bad.share_inside < 0.65 < good.share_inside
    assert "trust" in str(bad)
    assert "trust" not in str(good)


def test_a_back_test_needs_some_history():
    few = backtest(history([10.0] * 9, [INF] * 9, servers=1))
    assert (few.jobs, few.share_inside) == (3, None)
    assert str(few).startswith("not possible yet: 3 finished jobs")
    assert backtest(Durations([], 0.0)).jobs == 0


def test_what_is_known_exactly_is_always_inside():
    lengths, _ = noisy(60, 0.0)
    found = backtest(history(lengths, (2 * lengths).tolist()))
    assert found.share_inside == 1.0


def test_a_back_test_uses_nothing_of_what_came_later():
    lengths, told = noisy(120, 0.5)
    whole = history(lengths, told)
    for moment_s in (500.0, 4000.0, 9000.0):
        then, past = history(lengths, told, now_s=moment_s), whole.as_of(moment_s)
        assert 0 < past.told.count == then.told.count < whole.told.count
        for done in (0.0, 700.0):
            jobs = [a_job(0, 300), a_job(0, 3000), a_job(0)]
            found = [one.draw(jobs, [done] * 3, dice(6)) for one in (then, past)]
            assert found[0] == pytest.approx(found[1])


def test_the_effort_of_a_back_test_is_bounded(monkeypatch):
    lengths, told = noisy(150, 0.5)
    past = history(lengths, told)
    moments = []
    as_of = Durations.as_of
    monkeypatch.setattr(Durations, "as_of", lambda *args: moments.append(args[1]) or as_of(*args))
    assert backtest(past).jobs == foresight.TESTED
    assert len(moments) == foresight.TESTED // foresight.TOGETHER
    moments.clear()
    monkeypatch.setattr(foresight, "_COST", 1.0)
    assert backtest(past).jobs == foresight.TESTED
    assert len(moments) == 1


def test_where_very_many_run_some_stand_for_all(monkeypatch):
    monkeypatch.setattr(model, "CROWD", 50)
    ended = [a_job(length) for length in (5, 10, 20, 40) * 25]
    for number, job in enumerate(ended):
        job.end_s = float(number)
    found = Durations(ended + [running(30) for _ in range(200)], 0.0)
    assert (found.all.count, len(found.all.told)) == (25, 75)  # every fourth
