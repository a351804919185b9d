"""Price discovery as a policy: shares become rounds, and every share is proven."""

import pytest

from mixed_runs import done, engine, job, kinds, named, run
from rota.core.tenants import Tenant
from rota.policies import resalloc
from rota.policies.resalloc import Resalloc, ResallocParams

LONG = 1e6
ROUND_S = 360.0


def policy(**params):
    return Resalloc(ResallocParams(**params))


def test_equal_jobs_share_their_time():
    jobs = [job(f"j{i}", 1, LONG) for i in range(3)]
    made = run(policy(), jobs, "1x1", until_s=30 * ROUND_S)
    assert list(done(made).values()) == pytest.approx([10 * ROUND_S] * 3, abs=1.5 * ROUND_S)


def test_under_the_logarithm_shares_are_in_proportion_to_weights():
    jobs = [job("a", 1, LONG, tenant="a"), job("b", 1, LONG, tenant="b")]
    made = run(policy(), jobs, "1x1", until_s=40 * ROUND_S, tenants=[Tenant("a", weight=3)])
    assert done(made)["a"] == pytest.approx(30 * ROUND_S, abs=1.5 * ROUND_S)


def test_the_logarithm_gives_a_gang_as_many_gpu_seconds_as_a_small_job():
    jobs = [job("gang", 4, LONG), *(job(f"s{i}", 1, LONG) for i in range(7))]
    made = run(policy(), jobs, "1x4", until_s=80 * ROUND_S)
    share = done(made)["gang"] / (80 * ROUND_S)
    assert share == pytest.approx(1 / 8, abs=0.03)  # an eighth of all GPU time


def test_types_go_to_those_who_make_the_most_of_them():
    jobs = [
        job("indifferent", 1, LONG, speeds={"fast": 1.0, "slow": 0.9}),
        job("picky", 1, LONG, speeds={"fast": 1.0, "slow": 0.1}),
    ]
    made = engine(policy(), jobs, "1x1:slow+1x1:fast")
    for rounds in (1, 5, 20):
        made.run(rounds * ROUND_S + 1)
        assert kinds(made) == {"indifferent": {"slow"}, "picky": {"fast"}}


def test_a_large_negative_power_comes_close_to_equal_throughputs():
    jobs = [
        job("whole", 1, LONG, speeds={"a": 1.0, "b": 1.0}),
        job("half", 1, LONG, speeds={"a": 1.0, "b": 0.2}),
    ]
    made = run(policy(utility="power", exponent=-8.0), jobs, "1x1:a", until_s=40 * ROUND_S)
    assert done(made)["whole"] == pytest.approx(done(made)["half"], abs=1.5 * ROUND_S)


def test_more_than_the_target_goes_to_those_below_it():
    jobs = [job("a", 1, LONG, tenant="a"), job("b", 1, LONG, tenant="b")]
    heavy = [Tenant("a", weight=5)]
    made = run(
        policy(utility="target", target=0.7), jobs, "1x1", until_s=60 * ROUND_S, tenants=heavy
    )
    assert done(made)["a"] / (60 * ROUND_S) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("utility", ["log", "power", "target"])
def test_every_solution_is_within_the_gap(monkeypatch, utility):
    gaps = []
    find = resalloc.find_prices

    def watched(problem, **options):
        found = find(problem, **options)
        gaps.append(found.gap)
        return found

    monkeypatch.setattr(resalloc, "find_prices", watched)
    jobs = [
        job(f"j{i}", 1 + i % 3, 500 + 300 * i, at=200.0 * i, speeds={"a": 1.0, "b": 0.2 + i / 20})
        for i in range(12)
    ]
    made = run(policy(utility=utility), jobs, "1x4:a+1x4:b")
    assert all(one.terminal for one in named(made).values())
    assert len(gaps) > 5
    assert max(gaps) <= 1e-3


def test_a_new_job_starts_at_once_if_there_is_room():
    made = run(policy(), [job("a", 1, LONG), job("b", 1, 50, at=100.0)], "1x2", until_s=151)
    assert named(made)["b"].end_s == 150


def test_an_exponent_of_zero_is_refused():
    with pytest.raises(ValueError, match="utility=log"):
        ResallocParams(exponent=0.0)
