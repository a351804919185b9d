import pytest

from decisions import rows, run, starts, told
from rota.core.events import INF
from rota.core.jobs import CANCELLED, REJECTED, Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.topology import NodeSpec
from rota.policies.slurm.params import (
    NO_LIMIT,
    Association,
    Partition,
    Qos,
    SlurmPolicyParams,
    Tres,
)
from rota.policies.slurm.policy import SlurmPolicy
from rota.policies.slurm.shares import FairShare

HOUR, DAY = 3_600.0, 86_400.0


def job(name, gpus, work, *, at=0.0, limit=None, part="", qos="", user="", account="", cpus=0.0):
    labels = (part,) if part else ()
    spec = JobSpec(
        name, at, Request.of(gpus, cpus=cpus, labels=labels), user=user, account=account,
        estimate_s=work if limit is None else limit, partition=part, qos=qos,
    )  # fmt: skip
    return spec, Behaviour(work)


def slurm(**params):
    """With backfill every second, to the second, so that examples can be done by hand."""
    usual = {"bf_interval_s": 1.0, "bf_resolution_s": 1.0}
    return SlurmPolicy(SlurmPolicyParams(**{**usual, **params}))


def played(jobs, nodes, placement="consolidate", **params):
    return run(slurm(**params), jobs, nodes, placement=placement)


# --- backfill ------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_backfill_does_not_delay_who_is_planned_before(placement):
    jobs = [
        job("first", 3, 10),
        job("head", 4, 5, at=1),
        job("too-long", 1, 9, at=2),
        job("ends-in-time", 1, 7, at=3),
    ]
    made = played(jobs, (1, 4), placement)
    assert starts(made) == {"first": 0, "head": 10, "too-long": 15, "ends-in-time": 3}


def test_without_backfill_nobody_passes_the_first_of_its_partition():
    jobs = [job("first", 3, 10), job("head", 4, 5, at=1), job("small", 1, 1, at=2)]
    assert starts(played(jobs, (1, 4), backfill=False)) == {"first": 0, "head": 10, "small": 15}


def test_backfill_plans_as_many_jobs_as_it_may_test():
    """Two wait before `small`; it could start between the first and the second."""
    jobs = [
        job("runs", 1, 100, limit=100),
        job("a", 2, 10, at=1),
        job("b", 2, 10, at=1),
        job("small", 1, 20, at=1),
    ]
    assert starts(played(jobs, (1, 2)))["small"] == 1
    assert starts(played(jobs, (1, 2), bf_max_job_test=2))["small"] == 120


def test_backfill_comes_at_its_interval():
    jobs = [job("first", 3, 100), job("head", 4, 5, at=1), job("small", 1, 10, at=3)]
    assert starts(played(jobs, (1, 4), bf_interval_s=30.0))["small"] == 30


def test_what_lies_beyond_the_window_is_not_planned():
    jobs = [job("first", 3, 500), job("head", 4, 5, at=1), job("long", 1, 900, at=3)]
    assert starts(played(jobs, (1, 4)))["long"] == 505
    assert starts(played(jobs, (1, 4), bf_window_s=60.0))["long"] == 3


def test_a_node_that_is_planned_is_kept_whole():
    """Two nodes of 2: `head` is planned on one of them at 10; the other stays open."""
    jobs = [
        job("x", 1, 10),
        job("y", 2, 50),
        job("head", 2, 5, at=1),
        job("long", 1, 100, at=2),
    ]
    made = played(jobs, (2, 2))
    assert starts(made)["head"] == 10
    assert starts(made)["long"] == 15


# --- order ---------------------------------------------------------------------------------------


def order(jobs, nodes=(1, 1), **params):
    made = starts(played(jobs, nodes, backfill=False, **params))
    return sorted(made, key=made.get)


def test_a_higher_tier_goes_first_whatever_the_priority():
    nodes = [NodeSpec("n", 1, labels=("low", "high"))]
    parts = (
        Partition(name="low", priority_tier=1, priority_job_factor=100),
        Partition(name="high", priority_tier=5),
    )
    jobs = [job("runs", 1, 10, part="low"), job("a", 1, 5, at=1, part="low")]
    jobs.append(job("b", 1, 5, at=2, part="high"))
    assert order(jobs, nodes, partitions=parts, weight_partition=1000) == ["runs", "b", "a"]


def test_the_partition_factor_is_relative_to_the_largest():
    nodes = [NodeSpec("n", 1, labels=("low", "high"))]
    parts = (
        Partition(name="low", priority_job_factor=1),
        Partition(name="high", priority_job_factor=4),
    )
    jobs = [job("runs", 1, 10, part="low"), job("a", 1, 5, at=1, part="low")]
    jobs.append(job("b", 1, 5, at=2, part="high"))
    assert order(jobs, nodes, partitions=parts, weight_partition=1000) == ["runs", "b", "a"]
    assert order(jobs, nodes, partitions=parts) == ["runs", "a", "b"]


def test_age_beats_the_qos_when_it_weighs_enough():
    """After 100 s of 1000: 100 points of age against 50 of the QOS."""
    qos = (Qos(name="normal"), Qos(name="better", priority=10))
    jobs = [
        job("runs", 1, 200),
        job("old", 1, 5, at=0, qos="normal"),
        job("new", 1, 5, at=150, qos="better"),
    ]
    weights = {"weight_qos": 50.0, "max_age_s": 1000.0, "calc_period_s": 10.0}
    assert order(jobs, qos=qos, weight_age=1000.0, **weights) == ["runs", "old", "new"]
    assert order(jobs, qos=qos, weight_age=100.0, **weights) == ["runs", "new", "old"]


def test_large_jobs_go_first_unless_small_ones_are_favoured():
    jobs = [job("runs", 4, 10), job("small", 1, 5, at=1), job("large", 4, 5, at=2)]
    assert order(jobs, (1, 4), weight_job_size=1000) == ["runs", "large", "small"]
    assert order(jobs, (1, 4), weight_job_size=1000, favor_small=True) == ["runs", "small", "large"]


def test_priorities_are_computed_again_after_a_period_only():
    """At 10 s `old` has aged past `new`, but the last computation was at 0 and 9 s."""
    qos = (Qos(name="normal"), Qos(name="better", priority=10))
    jobs = [
        job("runs", 1, 10),
        job("old", 1, 5, qos="normal"),
        job("new", 1, 5, at=9, qos="better"),
    ]
    weights = {"weight_qos": 50.0, "max_age_s": 100.0, "weight_age": 1000.0, "qos": qos}
    assert order(jobs, calc_period_s=300.0, **weights) == ["runs", "new", "old"]
    assert order(jobs, calc_period_s=5.0, **weights) == ["runs", "old", "new"]


# --- fair share ----------------------------------------------------------------------------------


def shares(*associations, half_life_s=DAY, fair_tree=True, dampening=1.0):
    return FairShare(
        associations, half_life_s=half_life_s, fair_tree=fair_tree, dampening=dampening
    )


def test_usage_halves_in_a_half_life():
    fair = shares(half_life_s=100.0)
    member = fair.member("a", "u")
    fair.charge(member, 2.0, 0.0, 1e-6)
    fair.decay(100.0)
    assert member.usage == pytest.approx(1e-6, rel=1e-4)
    assert fair.member("a", "u").parent.usage == pytest.approx(1e-6, rel=1e-4)


def test_usage_of_a_long_run_decays_while_it_grows():
    """2 per second for ever: 2 * half-life / ln 2."""
    fair = shares(half_life_s=100.0)
    member = fair.member("a", "u")
    fair.decay(10_000.0)
    fair.charge(member, 2.0, 0.0, 10_000.0)
    assert member.usage == pytest.approx(200 / 0.693147, rel=1e-4)


def test_without_a_half_life_usage_stays():
    fair = shares(half_life_s=0.0)
    member = fair.member("a", "u")
    fair.charge(member, 2.0, 0.0, 50.0)
    fair.decay(1e9)
    assert member.usage == 100.0


def test_the_fair_tree_ranks_accounts_before_users():
    """A used 1/5 of all with half of the shares, B 4/5: all users of A come first."""
    fair = shares(
        *(Association(account=name) for name in "AB"),
        *(Association(account=a, user=u) for a, u in ("Aa", "Ab", "Bc", "Bd")),
        half_life_s=0.0,
    )
    for (account, user), amount in {"Aa": 20, "Bc": 70, "Bd": 10}.items():
        fair.charge(fair.member(account, user), amount, 0.0, 1.0)
    fair.rank()
    found = {user: fair.factor(account, user) for account, user in ("Ab", "Aa", "Bd", "Bc")}
    assert found == {"b": 1.0, "a": 0.75, "d": 0.5, "c": 0.25}


def test_equal_ratios_have_equal_ranks_across_tied_accounts():
    fair = shares(*(Association(account=a, user=u) for a, u in ("Aa", "Ab", "Bc")))
    fair.rank()
    assert [fair.factor(*who) for who in ("Aa", "Ab", "Bc")] == [1.0, 1.0, 1.0]


def test_shares_decide_between_equal_usages():
    fair = shares(
        Association(account="A", user="poor", shares=1.0),
        Association(account="A", user="rich", shares=3.0),
        half_life_s=0.0,
    )
    for user in ("poor", "rich"):
        fair.charge(fair.member("A", user), 1.0, 0.0, 10.0)
    fair.rank()
    assert (fair.factor("A", "rich"), fair.factor("A", "poor")) == (1.0, 0.5)


def test_the_classic_factor_by_hand():
    """Share 1/2, all usage in one account with one user: 2 ** -(1 / 0.5)."""
    fair = shares(
        Association(account="A", user="a"), Association(account="B", user="b"),
        fair_tree=False, half_life_s=0.0,
    )  # fmt: skip
    fair.charge(fair.member("A", "a"), 1.0, 0.0, 10.0)
    fair.rank()
    assert fair.factor("A", "a") == pytest.approx(0.25)
    # B used nothing; its effective usage is its part of what its parent used: 0 + (1 - 0) * 1/2
    assert fair.factor("B", "b") == pytest.approx(0.5**1.0)


@pytest.mark.parametrize("fair_tree", [True, False])
def test_who_used_less_goes_first(fair_tree):
    jobs = [
        job("big", 4, 100, user="heavy", account="A"),
        job("a", 4, 5, at=1, user="heavy", account="A"),
        job("b", 4, 5, at=2, user="light", account="B"),
    ]
    found = order(jobs, (1, 4), weight_fairshare=1000.0, calc_period_s=10.0, fair_tree=fair_tree)
    assert found == ["big", "b", "a"]


# --- preemption ----------------------------------------------------------------------------------

LEVELS = (
    Qos(name="low", priority=1),
    Qos(name="mid", priority=5),
    Qos(name="high", priority=10, preempt=("low", "mid")),
)


def test_a_job_preempts_only_whom_its_qos_may():
    jobs = [job("mid", 2, 100, qos="mid"), job("high", 2, 5, at=1, qos="high")]
    made = played(jobs, (1, 2), qos=LEVELS, preempt="qos", preempt_mode="requeue")
    assert starts(made)["high"] == 1
    other = [job("mid", 2, 100, qos="mid"), job("low", 2, 5, at=1, qos="low")]
    made = played(other, (1, 2), qos=LEVELS, preempt="qos", preempt_mode="requeue")
    assert starts(made)["low"] == 100


def test_the_lowest_qos_has_to_go_first():
    jobs = [
        job("mid", 1, 100, qos="mid"),
        job("low", 1, 100, qos="low"),
        job("high", 1, 5, at=1, qos="high"),
    ]
    made = played(jobs, (1, 2), qos=LEVELS, preempt="qos", preempt_mode="requeue")
    stopped = [made.jobs[index].id for _, index, *_ in rows(made, Record.STOP)]
    assert stopped == ["low"]
    assert "QOS high may preempt QOS low" in made.log.texts.values()


def test_of_equals_the_youngest_has_to_go():
    jobs = [
        job("old", 1, 100, qos="low"),
        job("young", 1, 100, at=1, qos="low"),
        job("high", 1, 5, at=2, qos="high"),
    ]
    made = played(jobs, (1, 2), qos=LEVELS, preempt="qos", preempt_mode="requeue")
    assert [made.jobs[i].id for _, i, *_ in rows(made, Record.STOP)] == ["young"]


def test_cancelled_instead_of_requeued():
    levels = (*LEVELS[1:], Qos(name="low", priority=1, preempt_mode="cancel"))
    jobs = [job("low", 2, 100, qos="low"), job("high", 2, 5, at=1, qos="high")]
    made = played(jobs, (1, 2), qos=levels, preempt="qos", preempt_mode="requeue")
    assert made.jobs[0].phase == CANCELLED
    assert starts(made)["high"] == 1


def test_nobody_is_preempted_before_its_exempt_time():
    jobs = [job("low", 2, 100, qos="low"), job("high", 2, 5, at=1, qos="high")]
    made = played(
        jobs, (1, 2), qos=LEVELS, preempt="qos", preempt_mode="requeue", preempt_exempt_s=60.0,
        calc_period_s=10.0,
    )  # fmt: skip
    assert starts(made)["high"] >= 60


def test_a_higher_tier_preempts_with_partition_prio():
    nodes = [NodeSpec("n", 2, labels=("low", "high"))]
    parts = (Partition(name="low"), Partition(name="high", priority_tier=2))
    jobs = [job("low", 2, 100, part="low"), job("high", 2, 5, at=1, part="high")]
    made = played(jobs, nodes, partitions=parts, preempt="partition_prio", preempt_mode="requeue")
    assert starts(made)["high"] == 1


def test_a_requeued_job_needs_no_event_to_start_elsewhere():
    """Backfill comes every 30 s: it does not wait until another job ends."""
    nodes = [NodeSpec("both", 1, labels=("low", "high")), NodeSpec("own", 1, labels=("low",))]
    jobs = [
        job("low", 1, 500, part="low", qos="low"),
        job("high", 1, 1000, at=1, part="high", qos="high"),
    ]
    made = played(
        jobs, nodes, qos=LEVELS, preempt="qos", preempt_mode="requeue", bf_interval_s=30.0,
        calc_period_s=5000.0,
    )  # fmt: skip
    begun = [(at_s, made.jobs[index].id) for at_s, index, *_ in rows(made, Record.START)]
    assert begun == [(0, "low"), (1, "high"), (30, "low")]


def test_a_requeued_job_counts_its_age_anew():
    jobs = [
        job("low", 1, 100, qos="low", user="u"),
        job("high", 1, 50, at=10, qos="high"),
        job("other", 1, 5, at=5, qos="low", user="v"),
    ]
    made = played(
        jobs, (1, 1), qos=LEVELS, preempt="qos", preempt_mode="requeue", weight_age=1e6,
        max_age_s=1000.0, calc_period_s=5.0,
    )  # fmt: skip
    assert starts(made) == {"low": 0, "high": 10, "other": 60}


# --- limits --------------------------------------------------------------------------------------


def test_a_limit_of_a_user_holds_back_without_blocking():
    qos = (Qos(name="normal", max_tres_per_user=Tres(INF, INF, INF, 2)),)
    jobs = [
        job("one", 2, 10, user="u", qos="normal"),
        job("two", 1, 10, at=1, user="u", qos="normal"),
        job("other", 1, 10, at=2, user="v", qos="normal"),
    ]
    made = played(jobs, (1, 4), qos=qos)
    assert starts(made) == {"one": 0, "two": 10, "other": 2}
    assert told(made, "two")[0] == (1.0, Reason.QUOTA)


def test_jobs_per_user_and_of_a_whole_qos():
    qos = (Qos(name="q", max_jobs_per_user=1, grp_jobs=2),)
    jobs = [
        job(f"{user}{i}", 1, 10, user=user, qos="q") for i in range(2) for user in ("u", "v", "w")
    ]
    made = starts(played(jobs, (1, 8), qos=qos))
    assert sorted(made.values()) == [0, 0, 10, 10, 20, 20]
    assert (made["u0"], made["v0"], made["w0"]) == (0, 0, 10)


def test_limits_of_an_account_hold_for_those_below_it():
    associations = (
        Association(account="all", grp_tres=Tres(INF, INF, INF, 2)),
        Association(account="team", parent="all"),
    )
    jobs = [job("a", 2, 10, account="team"), job("b", 1, 10, at=1, account="team")]
    assert starts(played(jobs, (1, 4), associations=associations))["b"] == 10
    assert starts(played(jobs, (1, 4), associations=associations, enforce_limits=False))["b"] == 1


@pytest.mark.parametrize(
    ("partition", "qos", "why"),
    [
        ({"max_time_s": 5.0}, {}, "MaxTime=5 s of partition p"),
        ({"max_nodes": 0.0}, {}, "MaxNodes=0 of partition p"),
        ({"allow_qos": ("high",)}, {}, "does not allow QOS 'q'"),
        ({"deny_accounts": ("team",)}, {}, "does not allow account 'team'"),
        ({}, {"max_wall_s": 5.0}, "MaxWall=5 s of QOS q"),
        ({}, {"max_tres": Tres(INF, INF, INF, 1)}, "more GPUs than MaxTRES of QOS q"),
        ({}, {"grp_tres": Tres(INF, INF, INF, 1)}, "the limit of qos q"),
    ],
)
def test_what_may_never_run_is_refused_with_the_setting(partition, qos, why):
    nodes = [NodeSpec("n", 4, labels=("p",))]
    made = played(
        [job("a", 2, 10, part="p", qos="q", account="team")],
        nodes,
        partitions=(Partition(name="p", **partition),),
        qos=(Qos(name="q", **qos),),
    )
    assert made.jobs[0].phase == REJECTED
    assert any(why in text for text in made.log.texts.values())


def test_no_limit_limits_nothing():
    assert min(NO_LIMIT.cpu, NO_LIMIT.mem_gib, NO_LIMIT.node, NO_LIMIT.gpu) == INF


# --- partitions ----------------------------------------------------------------------------------


def test_partitions_on_nodes_of_their_own_do_not_block_each_other():
    nodes = [NodeSpec("a", 2, labels=("one",)), NodeSpec("b", 2, labels=("two",))]
    jobs = [
        job("runs", 1, 100, part="one"),
        job("waits", 2, 10, at=1, part="one"),
        job("free", 2, 10, at=2, part="two"),
    ]
    assert starts(played(jobs, nodes, backfill=False)) == {"runs": 0, "waits": 100, "free": 2}


def test_who_waits_keeps_the_nodes_of_its_partition_from_others():
    nodes = [NodeSpec("a", 2, labels=("one", "both")), NodeSpec("b", 2, labels=("both",))]
    jobs = [
        job("runs", 1, 100, part="one"),
        job("waits", 2, 10, at=1, part="one"),
        job("small", 1, 5, at=2, part="both"),
    ]
    made = played(jobs, nodes, backfill=False)
    assert starts(made) == {"runs": 0, "waits": 100, "small": 2}
    where = made.cluster.topology.vertices[made.jobs[2].allocation.slices[0][0]].name
    assert where == "b"
