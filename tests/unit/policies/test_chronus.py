"""Chronus: deadlines that are promised are kept, in leases."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastic_runs import ends, engine, held
from mutants.planting import plant
from rota.core.errors import OptionError
from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.log import Record
from rota.core.topology import Topology
from rota.engine import snapshot
from rota.models.costs import Custom, FixedParams
from rota.policies.chronus import Chronus, ChronusPolicyParams

LEASE_S = 20.0
JOBS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from([1, 2, 3, 4, 5, 8]),
        st.integers(1, 90),
        st.none() | st.integers(-5, 20) | st.integers(20, 150),
    ),
    min_size=1,
    max_size=12,
)


def rigid(name, at_s, gpus, work, deadline_s=INF):
    spec = JobSpec(name, float(at_s), Request.of(gpus), deadline_s=float(deadline_s))
    return spec, Behaviour(float(work))


def chronus(declined="refuse", lease_s=LEASE_S):
    return Chronus(ChronusPolicyParams(lease_s=lease_s, declined=declined))


def late(rows, placement):
    """Return the admitted jobs that are done too late."""
    jobs = [
        rigid(str(i), at, gpus, work, INF if slack is None else max(at, at + work + slack))
        for i, (at, gpus, work, slack) in enumerate(rows)
    ]
    made = engine(chronus(), jobs, nodes=2, gpus=4, placement=placement)
    made.run()
    admitted = [job for job in made.jobs.values() if job.phase != Phase.REJECTED]
    assert all(job.phase == Phase.DONE for job in admitted)
    return [job.id for job in admitted if job.end_s > job.spec.deadline_s + 1e-6]


@pytest.mark.parametrize("placement", ["count", "consolidate"])
@given(JOBS)
@example([(0, 1, 60, 0), (0, 1, 40, 20), (7, 8, 20, 20), (7, 4, 13, 1), (82, 3, 5, -1)])
@settings(deadline=None)
def test_who_is_admitted_is_never_late(placement, rows):
    assert late(rows, placement) == []


def test_a_promise_leaves_the_coming_leases_to_others_as_long_as_it_can():
    jobs = [rigid("due", 0, 4, 20, 100), rigid("any", 0, 4, 30)]
    assert ends(engine(chronus(), jobs)) == {"any": 30, "due": 50}  # not only from 80 on

    tight = [rigid("due", 0, 4, 60, 80), rigid("any", 0, 4, 30)]
    assert ends(engine(chronus(), tight)) == {"any": 90, "due": 80}  # three of the next three


def test_without_others_the_first_lease_is_filled():
    jobs = [rigid("a", 0, 4, 30, 200), rigid("b", 0, 4, 30, 300)]
    assert ends(engine(chronus(), jobs)) == {"a": 30, "b": 60}


def test_an_urgent_job_begins_in_the_lease_that_has_begun():
    jobs = [rigid("any", 0, 4, 100), rigid("due", 5, 4, 10, 16)]
    made = engine(chronus(), jobs)
    assert held(made, 6.0) == {"any": 0, "due": 4}
    assert ends(made) == {"any": 110, "due": 15}


def test_nobody_is_stopped_for_a_job_without_a_promise_before_the_lease_ends():
    jobs = [rigid("long", 0, 4, 50), rigid("short", 1, 4, 5)]
    assert ends(engine(chronus(), jobs)) == {"short": 25, "long": 55}


def test_what_cannot_be_promised_is_refused_or_of_best_effort():
    jobs = [rigid(name, 0, 4, 30, 40) for name in "ab"]
    made = engine(chronus(), jobs)
    made.run()
    assert [made.jobs[i].phase for i in (0, 1)] == [Phase.DONE, Phase.REJECTED]
    made.finish()
    log = made.log.frame()
    said = log.filter(log["event"] == Record.REJECTED.name.lower())["text"].to_list()
    assert said == ["its deadline cannot be promised beside those of others"]

    assert ends(engine(chronus("best-effort"), jobs)) == {"a": 30, "b": 60}


def test_all_leases_are_given_out_anew_for_one_more_job():
    # beside the leases of `a`, the last two of four, there are not three for `b`: only the
    # programme finds them
    jobs = [rigid("any", 0, 4, 10), rigid("a", 0, 4, 40, 100), rigid("b", 0, 4, 25, 60)]
    assert ends(engine(chronus(), jobs)) == {"any": 10, "b": 35, "a": 75}


MANY = [
    rigid(str(i), 4 * i, 1 + i % 4, work, INF if i % 3 == 0 else 4 * i + 2 * work)
    for i, work in enumerate([20, 33, 46, 59, 72] * 4)
]


@pytest.mark.parametrize("cut_s", [1.0, 45.0, 60.0, 130.0])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(cut_s):
    made = [engine(chronus(), MANY, nodes=2, placement="consolidate") for _ in range(3)]
    first, second, whole = made
    first.run(cut_s)
    snapshot.restore(second, snapshot.freeze(first))

    assert ends(second) == ends(whole)
    assert {job.phase for job in whole.jobs.values()} == {Phase.DONE, Phase.REJECTED}
    assert any(job.preemptions for job in whole.jobs.values())


def test_a_promise_that_a_failure_breaks_is_none_and_others_are_kept():
    topology = Topology.uniform(2, 4)
    outages = [(25.0, NODE_DOWN, topology.nodes[0]), (90.0, NODE_UP, topology.nodes[0])]
    jobs = [rigid(name, 0, 4, 60, 80) for name in "ab"] + [rigid("c", 0, 1, 10, 500)]
    made = engine(
        chronus(), jobs, topology=topology, placement="consolidate", outages=outages,
    )  # fmt: skip

    found = ends(made)
    assert min(found["a"], found["b"]) <= 80 < max(found["a"], found["b"]) < 200
    assert found["c"] <= 500


def test_costs_delay_but_all_jobs_end():
    costs = Custom(FixedParams(start_s=3.0))
    made = engine(chronus("best-effort"), MANY, nodes=2, placement="consolidate", costs=costs)
    made.run()
    assert {job.phase for job in made.jobs.values()} == {Phase.DONE}


def test_a_lease_takes_time():
    with pytest.raises(OptionError, match="lease_s=0: give seconds above 0"):
        ChronusPolicyParams(lease_s=0)


PLANTED = {
    "a lease counts GPUs, not shares": (
        "rota.policies.chronus:LeaseTurn.share",
        "min(1 << (ceil(job.gpus) - 1).bit_length(), self._node)",
        "job.gpus",
    ),
    "small ones are placed first": (
        "rota.policies.chronus:Chronus.decide", "-turn.share(job)", "turn.share(job)",
    ),
    "leases of others are not reserved": (
        "rota.policies.chronus:LeaseTurn.room", "-= share", "-= 0",
    ),
    "a job may have one lease more": (
        "rota.policies.chronus:LeaseTurn.need", "+ DUST))", "+ 1))",
    ),
    "who holds the lease is not counted": (
        "rota.policies.chronus:Chronus._promised", "held + turn.share(job)", "turn.share(job)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_the_promise(monkeypatch, name):
    draw = Random(1)  # noqa: S311 - jobs, no secrets
    many = [
        [
            (draw.randint(0, 30), draw.choice([1, 2, 3, 3, 4]), draw.randint(5, 60),
             draw.randint(0, 50))
            for _ in range(12)
        ]
        for _ in range(40)
    ]  # fmt: skip
    assert not any(late(rows, "consolidate") for rows in many[:6])
    plant(monkeypatch, *PLANTED[name])
    assert any(late(rows, "consolidate") for rows in many)
