"""Gandiva_fair: tickets are honoured, gangs share with small jobs, and trades help everybody."""

import pytest

from mixed_runs import done, engine, job, kinds, named, run
from rota.core.tenants import Tenant
from rota.policies.gandiva_fair.policy import GandivaFair, GandivaFairParams

LONG = 1e6


def fair(**params):
    return GandivaFair(GandivaFairParams(**params))


def by_user(made):
    total = {}
    for name, work in done(made).items():
        total[name[0]] = total.get(name[0], 0.0) + work
    return total


def test_time_is_divided_in_proportion_to_tickets():
    jobs = [job(f"{user}{i}", 1, LONG, tenant=user) for user in "ab" for i in range(3)]
    made = run(fair(), jobs, "1x1", until_s=8000, tenants=[Tenant("a", weight=3)])
    received = by_user(made)
    assert received["a"] + received["b"] == pytest.approx(8000)
    assert received["a"] == pytest.approx(6000, abs=60)


def test_a_user_with_many_jobs_has_no_more_than_one_with_few():
    jobs = [job("a0", 1, LONG, tenant="a")]
    jobs += [job(f"b{i}", 1, LONG, tenant="b") for i in range(9)]
    received = by_user(run(fair(), jobs, "1x1", until_s=6000))
    assert received["a"] == pytest.approx(3000, abs=60)


def test_a_users_own_jobs_take_turns():
    jobs = [job(f"a{i}", 1, LONG, tenant="a") for i in range(4)]
    made = run(fair(), jobs, "1x2", until_s=6000)
    assert list(done(made).values()) == pytest.approx([3000] * 4, abs=60)


def test_a_gang_shares_with_small_jobs():
    jobs = [job("gang", 4, LONG, tenant="a")]
    jobs += [job(f"s{i}", 1, LONG, tenant="b") for i in range(4)]
    made = run(fair(), jobs, "1x4", until_s=6000)
    assert done(made)["gang"] == pytest.approx(3000, abs=60)
    assert by_user(made)["s"] == pytest.approx(4 * 3000, abs=240)


def test_small_jobs_run_beside_a_gang_that_leaves_room():
    jobs = [job("g", 3, LONG, tenant="a"), job("s", 1, LONG, tenant="b")]
    assert done(run(fair(), jobs, "1x4", until_s=600)) == {"g": 600, "s": 600}


def test_who_had_all_it_wanted_has_saved_up_nothing():
    """b has one job beside a's many for an hour; then more of its jobs come."""
    jobs = [job(f"a{i}", 1, LONG, tenant="a") for i in range(8)]
    jobs += [job("b0", 1, LONG, tenant="b")]
    jobs += [job(f"b{i}", 1, LONG, tenant="b", at=3600.0) for i in range(1, 8)]
    made = engine(fair(), jobs, "1x4")
    made.run(3600)
    before = by_user(made)
    assert before["b"] == pytest.approx(3600, abs=60)
    made.run(7200)
    after = by_user(made)
    assert after["b"] - before["b"] == pytest.approx(2 * 3600, abs=300)  # a half, not more


def test_what_becomes_free_is_used_at_once():
    jobs = [job("a", 1, 100, tenant="a"), *(job(f"b{i}", 1, LONG, tenant="b") for i in range(3))]
    made = run(fair(), jobs, "1x2", until_s=110)
    assert len(made.view.running) == 2


A, B = {"fast": 4.0, "slow": 1.0}, {"fast": 1.5, "slow": 1.0}


def traders():
    jobs = [job(f"a{i}", 1, LONG, tenant="a", speeds=A) for i in range(6)]
    return jobs + [job(f"b{i}", 1, LONG, tenant="b", speeds=B) for i in range(6)]


def test_trades_help_one_and_hurt_nobody():
    cluster = "1x4:fast+1x4:slow"
    without = by_user(run(fair(trades=False), traders(), cluster, until_s=36_000))
    traded = by_user(run(fair(), traders(), cluster, until_s=36_000))
    # two fast and two slow GPUs each: 10 and 5; after the trade 13.33 and 5
    assert without == pytest.approx({"a": 10 * 36_000, "b": 5 * 36_000}, rel=0.02)
    assert traded == pytest.approx({"a": 13.33 * 36_000, "b": 5 * 36_000}, rel=0.02)
    assert traded["b"] >= 0.995 * without["b"]


def test_jobs_that_have_run_equally_long_stay_where_they_are():
    jobs = [job(f"a{i}", 1, LONG, tenant="a", speeds=A) for i in range(2)]
    made = run(fair(), jobs, "1x1:fast+1x1:slow", until_s=7200)
    assert sum(one.migrations for one in made.jobs.values()) <= 1
    assert sum(one.preemptions for one in made.jobs.values()) == 0


def test_any_number_of_types():
    speeds = {kind: 1.0 / (1 + n) for n, kind in enumerate("abcde")}
    jobs = [job(f"u{i}", 1, 4000, tenant=f"t{i % 3}", speeds=speeds) for i in range(9)]
    cluster = "+".join(f"1x1:{kind}" for kind in "abcde")
    made = engine(fair(), jobs, cluster)
    made.run(1)
    assert set.union(*kinds(made).values()) == set("abcde")
    made.run()
    assert all(one.terminal for one in named(made).values())
