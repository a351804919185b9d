"""Each policy of the family on small examples, and the known bugs of the originals."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from gavel_family import made
from mixed_runs import done, engine, job, kinds, named, run
from rota.core.errors import OptionError
from rota.core.jobs import DONE
from rota.core.tenants import Tenant
from rota.engine.parts import make_policy
from rota.policies.gavel.basics import alike, isolated, throughputs
from rota.policies.gavel.durations import finish_time_fairness, ideal_times, makespan
from rota.policies.gavel.fairness import strategy_proof, water_filling
from rota.policies.gavel_max_sum import Prices
from rota.policies.rounds.problem import problem
from rota.traces.synth.generate import generate
from thinning import first

ROUND = 360.0
THREE = "3x1:a100+3x1:t4+3x1:l4"  # none of the types that the originals know


def mean_jct(finished):
    jobs = finished.jobs.values()
    return sum(one.end_s - one.submit_s for one in jobs) / len(jobs)


def mixed_jobs(seed, count=40):
    """Jobs of which half gain much from the fast type, and half do not."""
    rng = np.random.default_rng(seed)
    speeds = ({"fast": 1.0, "slow": 0.9}, {"fast": 1.0, "slow": 0.2})
    return [
        job(
            f"j{number}",
            int(rng.choice([1, 1, 2])),
            float(rng.integers(300, 9000)),
            at=float(rng.integers(0, 9000)),
            speeds=speeds[number % 2],
        )
        for number in range(count)
    ]


# --- rounds ---------------------------------------------------------------------------------------


def test_two_jobs_take_turns_on_one_gpu():
    jobs = [job("a", 1, 1440), job("b", 1, 1440)]
    running = engine(made("gavel-max-min"), jobs, "1x1")
    for rounds in range(1, 7):
        running.run(rounds * ROUND)
        shares = done(running)
        assert abs(shares["a"] - shares["b"]) <= ROUND
        assert sum(shares.values()) == pytest.approx(rounds * ROUND)


def test_alone_there_are_no_rounds():
    """One type, room for everyone: nothing but arrivals and ends is looked at."""
    jobs = [job(f"j{number}", 1, 100_000) for number in range(4)]
    finished = run(made("gavel-max-min"), jobs, "1x4")
    assert finished.decisions <= 3
    assert [one.end_s for one in finished.jobs.values()] == [100_000] * 4


def test_shares_are_kept_and_what_is_missing_is_told():
    """Three jobs on two GPUs: two thirds of the time for everyone."""
    policy = made("gavel-max-min")
    running = engine(policy, [job(f"j{number}", 1, 90_000) for number in range(3)], "1x2")
    running.run(60 * ROUND)
    assert list(done(running).values()) == pytest.approx([40 * ROUND] * 3, abs=1.5 * ROUND)
    behind = running.scheduler.policy.shortfall()
    assert max(behind.values()) <= 1.5
    assert set(behind) == {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "seed"),
    first(
        4,
        [
            ("gavel-max-min", 0),
            ("gavel-water-filling", 0),
            ("gavel-makespan", 1),
            ("gavel-ftf", 2),
            ("gavel-max-min", 1),
            ("gavel-max-min", 2),
        ],
    ),
)
def test_who_knows_the_speeds_does_better(name, seed):
    aware, blind = (
        mean_jct(run(made(name, aware=aware), mixed_jobs(seed), "2x2:fast+2x2:slow"))
        for aware in (True, False)
    )
    assert aware <= blind


def test_what_was_learnt_or_measured_is_worse_than_the_truth_and_better_than_nothing():
    jobs = [
        (msgspec.structs.replace(spec, model=f"m{number % 4}"), how)
        for number, (spec, how) in enumerate(mixed_jobs(5))
    ]
    found = {
        label: mean_jct(run(made("gavel-max-min", **params), jobs, "2x2:fast+2x2:slow"))
        for label, params in {
            "told": {},
            "learnt": {"speeds": "learn"},
            "noisy": {"speeds": "noisy", "noise": 1.0},
            "blind": {"aware": False},
        }.items()
    }
    assert found["told"] <= min(found.values()) * 1.02
    assert found["learnt"] < found["blind"]
    assert found["noisy"] != found["told"]


def test_a_larger_priority_is_a_larger_share():
    jobs = [job("a", 1, 90_000), job("b", 1, 90_000)]
    jobs[1] = (msgspec.structs.replace(jobs[1][0], priority=3), jobs[1][1])
    running = run(made("gavel-max-min"), jobs, "1x1", until_s=40 * ROUND)
    assert done(running)["b"] == pytest.approx(30 * ROUND, abs=2 * ROUND)


def test_tenants_share_by_their_weights():
    jobs = [job("a", 1, 90_000, tenant="x"), *[job(f"b{n}", 1, 90_000, tenant="y") for n in "123"]]
    running = run(
        made("gavel-water-filling", entities="fair"),
        jobs,
        "1x1",
        tenants=[Tenant("x", weight=1.0), Tenant("y", weight=3.0)],
        until_s=80 * ROUND,
    )
    shares = done(running)
    assert shares["a"] == pytest.approx(20 * ROUND, abs=2 * ROUND)
    assert shares["b1"] == pytest.approx(20 * ROUND, abs=2 * ROUND)


def test_equal_parts_of_gpus_or_of_time():
    """The gang of four has half of the four GPUs, or four times as many as the single job."""
    of = problem(np.ones((2, 1)), np.array([4.0]), size=np.array([1.0, 4.0]))
    assert made("gavel-isolated").solver()(of)[:, 0] == pytest.approx([1.0, 0.5])
    assert made("gavel-proportional").solver()(of)[:, 0] == pytest.approx([0.8, 0.8])
    jobs = [job(f"j{number}", 1, 90_000) for number in range(4)]
    for name in ("gavel-isolated", "gavel-proportional"):
        running = run(made(name), jobs, "1x1:fast+1x1:slow", until_s=80 * ROUND)
        assert list(done(running).values()) == pytest.approx([40 * ROUND] * 4, abs=2 * ROUND)


def test_fifo_moves_the_first_to_the_fastest_gpus():
    speeds = {"fast": 1.0, "slow": 0.5}
    jobs = [job("a", 1, 400, speeds=speeds), job("b", 1, 4000, speeds=speeds)]
    running = engine(made("gavel-fifo"), jobs, "1x1:fast+1x1:slow")
    running.run(10)
    assert kinds(running) == {"a": {"fast"}, "b": {"slow"}}
    running.run(800)
    assert kinds(running) == {"b": {"fast"}}


def test_fifo_lets_nobody_pass():
    jobs = [job("a", 1, 1000), job("wide", 2, 100, at=1), job("b", 1, 100, at=2)]
    finished = named(run(made("gavel-fifo"), jobs, "1x2"))
    assert [finished[name].end_s for name in ("a", "wide", "b")] == [1000, 1100, 1200]
    passing = named(run(made("gavel-fifo", spare=True), jobs, "1x2"))
    assert passing["b"].end_s == 102


def test_finish_time_fairness_remembers_what_was_done():
    policy = made("gavel-ftf")
    running = engine(policy, [job(f"j{number}", 1, 9000) for number in range(3)], "1x1")
    running.run(2000)
    memory = policy.snapshot()
    assert set(policy.state.history) == {"0", "1", "2"}
    again = made("gavel-ftf")
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(policy.snapshot())))
    assert again.snapshot() == memory


def test_allox_matches_and_does_not_stop_anyone():
    """The short job is best on the slow GPU: the long one gains more from the fast."""
    jobs = [
        job("short", 1, 100, speeds={"fast": 1.0, "slow": 0.9}),
        job("long", 1, 2000, speeds={"fast": 1.0, "slow": 0.1}),
        job("late", 1, 50, at=10, speeds={"fast": 1.0, "slow": 0.1}),
    ]
    running = engine(made("allox"), jobs, "1x1:fast+1x1:slow")
    running.run(5)
    assert kinds(running) == {"short": {"slow"}, "long": {"fast"}}
    running.run()
    assert sum(one.preemptions + one.migrations for one in running.jobs.values()) == 0


# --- money and deadlines --------------------------------------------------------------------------


def test_the_cheapest_gpus_for_what_they_do():
    speeds = {"fast": 1.0, "slow": 0.5}
    jobs = [job("one", 1, 1000, speeds=speeds)]
    for prices, kind in ((("fast:1", "slow:1"), "fast"), (("fast:3", "slow:1"), "slow")):
        policy = made("gavel-max-sum", objective="cost", prices=prices, spare=False)
        assert kinds(run(policy, jobs, "1x1:fast+1x1:slow", until_s=5)) == {"one": {kind}}


def test_a_job_follows_the_prices(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text("time_s,gpu_type,price\n0,fast,1\n0,slow,1\n1000,fast,9\n")
    speeds = {"fast": 1.0, "slow": 0.5}
    policy = make_policy(f"gavel-max-sum:objective=cost,price_file={file},spare=no")
    running = engine(policy, [job("one", 1, 9000, speeds=speeds)], "1x1:fast+1x1:slow")
    running.run(900)
    assert kinds(running) == {"one": {"fast"}}
    running.run(1000 + ROUND)
    assert kinds(running) == {"one": {"slow"}}
    running.run()
    assert named(running)["one"].phase == DONE


def test_a_deadline_that_can_be_kept_is_kept():
    """Without it both jobs are worth the same, and the older one with the longer run goes first."""
    jobs = [job("other", 1, 2000), job("urgent", 1, 1000)]
    spec, how = jobs[1]
    jobs[1] = (msgspec.structs.replace(spec, deadline_s=1000.0 + ROUND), how)
    slo = made("gavel-max-sum", objective="cost-slo", prices=(":1",), spare=False)
    assert named(run(slo, jobs, "1x1"))["urgent"].end_s <= 1000 + ROUND
    hopeless = [*jobs, job("late", 1, 1000)]
    hopeless[2] = (msgspec.structs.replace(hopeless[2][0], deadline_s=10.0), hopeless[2][1])
    slo = made("gavel-max-sum", objective="cost-slo", prices=(":1",))
    finished = run(slo, hopeless, "1x1")
    assert all(one.phase == DONE for one in finished.jobs.values())
    assert named(finished)["urgent"].end_s <= 1000 + ROUND


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"objective": "cost"}, "needs prices"),
        ({"objective": "cost", "prices": ("v100",)}, "write TYPE:PRICE"),
        ({"objective": "cost", "prices": ("v100:0",)}, "a number above 0"),
    ],
)
def test_what_is_wrong_with_prices_is_told(params, message):
    with pytest.raises(OptionError, match=message):
        made("gavel-max-sum", **params)


def test_every_line_of_a_file_with_prices_counts(tmp_path):
    file = Path(tmp_path, "prices.csv")
    file.write_text("time_s,gpu_type,price\n5,a,2\n0,a,1\n0,b,7\n")
    prices = Prices(make_policy(f"gavel-max-sum:objective=cost,price_file={file}").params)
    assert prices.at(-1, ["a", "b"]).tolist() == [1, 7]
    assert prices.at(5, ["b", "a"]).tolist() == [7, 2]
    assert (prices.next_change(0), prices.next_change(5)) == (5, float("inf"))
    with pytest.raises(OptionError, match="no price of GPUs of type 'c'"):
        prices.at(0, ["c"])
    for wrong in ("time_s,gpu_type,price\n0,a,-1\n", "time_s,price\n0,1\n"):
        file.write_text(wrong)
        with pytest.raises(OptionError, match=f"price_file={file}: line 2 cannot be used"):
            make_policy(f"gavel-max-sum:price_file={file}")
    file.unlink()
    with pytest.raises(OptionError, match=f"price_file={file} cannot be read"):
        make_policy(f"gavel-max-sum:price_file={file}")


# --- bugs of the originals ------------------------------------------------------------------------


def test_fifo_of_jobs_of_unknown_speed_uses_every_type():
    """Their random choice of a type is overwritten, so that one type gets all jobs."""
    jobs = [job(f"j{number}", 1, 1000) for number in range(9)]
    running = run(made("gavel-fifo", aware=False), jobs, THREE, until_s=10)
    assert len(kinds(running)) == 9
    assert len({kind for places in kinds(running).values() for kind in places}) == 3
    few = run(made("gavel-fifo", aware=False), jobs[:3], THREE, until_s=10)
    others = run(made("gavel-fifo", aware=False, seed=1), jobs[:3], THREE, until_s=10)
    assert kinds(few) != kinds(others)


def test_the_speeds_on_all_types_count_whatever_they_are_called():
    """Their finish-time fairness and makespan take the speed on one type for that on all."""
    rows = np.array([[1.0, 0.1], [1.0, 0.1], [1.0, 1.0], [1.0, 1.0]])
    of = problem(rows, np.ones(2), steps=np.full(4, 100.0))
    blind = alike(of, 0)
    for solve, ideal in ((makespan, np.ones(4)), (finish_time_fairness, ideal_times(of))):
        ours, theirs = (
            (of.steps / throughputs(of, solve(seen)) / ideal).max() for seen in (of, blind)
        )
        assert ours < 0.99 * theirs
    jobs = [
        job("picky", 1, 1000, speeds={"a100": 1.0, "t4": 0.1, "l4": 0.1}),
        job("easy", 1, 1000, speeds={"a100": 1.0, "t4": 1.0, "l4": 0.1}),
    ]
    for name in ("gavel-makespan", "gavel-ftf", "gavel-max-min", "allox"):
        running = run(made(name), jobs, "1x1:a100+1x1:t4+1x1:l4", until_s=5)
        assert kinds(running) == {"picky": {"a100"}, "easy": {"t4"}}


@pytest.mark.parametrize("name", ["gavel-makespan", "allox", "gavel-max-min"])
def test_a_gang_with_little_work_left_ends_as_others_do(name):
    """Their multi-GPU jobs with fewer steps left than GPUs fail five times and are dropped."""
    jobs = [job("gang", 8, 0.5), *[job(f"j{number}", 1, 900) for number in range(12)]]
    finished = named(run(made(name), jobs, "1x8"))
    assert finished["gang"].phase == DONE
    assert all(one.phase == DONE for one in finished.values())


# --- what the papers promise ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_nobody_envies_anybody(seed):
    """Where nobody runs all the time the largest product is the outcome of a market."""
    rng = np.random.default_rng(seed)
    of = problem(rng.uniform(0.1, 1.0, (9, 3)), np.ones(3))
    shares, parts = strategy_proof(of)
    shares /= parts[:, None]  # before a part of it is kept
    assert (shares.sum(axis=1) < 1).all()
    mine = throughputs(of, shares)
    theirs = of.throughput @ shares.T
    assert (theirs <= mine[:, None] * (1 + 1e-6)).all()
    assert (mine >= throughputs(of, isolated(of)) * (1 - 1e-6)).all()


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_who_knows_no_types_envies_nobody(seed):
    rng = np.random.default_rng(seed)
    of = problem(np.ones((5, 2)), rng.integers(1, 3, 2).astype(float))
    shares = water_filling(of).sum(axis=1)
    assert shares == pytest.approx(np.full(5, min(1.0, of.capacity.sum() / 5)))


def test_a_busy_cluster_serves_everyone():
    jobs = generate(
        "poisson", jobs=120, gpus=24, load=1.2, seed=1, options={"sizes": "1:6/2:3/4:1"}
    )
    pairs = list(zip(jobs.specs, jobs.behaviours, strict=True))
    finished = run(made("gavel-max-min"), pairs, "2x8:fast+1x8:slow")
    assert all(one.phase == DONE for one in finished.jobs.values())
