"""Policies inside virtual clusters: a tenant sees the cluster that it was promised."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions import ends, run, starts
from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import DONE, Behaviour, JobSpec, Request
from rota.core.registry import POLICIES, load
from rota.core.tenants import Tenant
from rota.policies.hived.policy import HivedParams, HivedPolicy

TENANTS = [Tenant("a", quota=4), Tenant("b", quota=4)]
ORDERS = ["fifo", "fifo-skip", "sjf", "easy", "conservative", "tetris", "drf"]
PREEMPTIVE = ["smallest", "srtf", "srsf", "las", "tiresias", "elas"]


def jobs_of(drawn, tenant, sizes):
    return [
        (
            JobSpec(
                f"{tenant}{number}",
                float(at),
                Request.of(sizes[size % len(sizes)]),
                tenant=tenant,
                estimate_s=float(work + slack),
            ),
            Behaviour(float(work)),
        )
        for number, (at, size, work, slack) in enumerate(drawn)
    ]


DRAWN = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(1, 9000), st.integers(0, 999)),
    min_size=1,
    max_size=8,
)


def agree(name, drawn, sizes):
    """Two tenants with a node each do as two clusters of one node."""
    by_tenant = {tenant: jobs_of(each, tenant, sizes) for tenant, each in drawn.items()}
    both = [job for jobs in by_tenant.values() for job in jobs]
    shared = run(HivedPolicy(HivedParams(inside=name)), both, (2, 4), tenants=TENANTS)
    alone = {}
    for jobs in by_tenant.values():
        alone |= ends(run(load(POLICIES, name)(), jobs, (1, 4)))
    assert ends(shared) == alone


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=8)
@given(DRAWN, DRAWN)
def test_a_tenant_has_what_the_policy_would_give_it_on_a_cluster_of_its_own(name, one, other):
    agree(name, {"a": one, "b": other}, (1, 2, 3, 4))


@pytest.mark.parametrize("name", PREEMPTIVE)
@settings(max_examples=8)
@given(DRAWN, DRAWN)
def test_so_it_has_with_policies_that_preempt(name, one, other):
    agree(name, {"a": one, "b": other}, (4,))  # who leaves is HiveD's choice: there is none here


def job(name, work, *, at=0.0, gpus=4, priority=0, estimate=1.0):
    spec = JobSpec(name, at, Request.of(gpus), tenant="a", priority=priority, estimate_s=estimate)
    return spec, Behaviour(work)


def test_a_short_job_displaces_a_long_one_of_its_own_tenant():
    jobs = [job("long", 100), job("short", 10, at=5)]
    assert ends(run(HivedPolicy(), jobs, (1, 4))) == {"long": 100.0, "short": 110.0}
    inner = run(HivedPolicy(HivedParams(inside="srtf")), jobs, (1, 4))
    assert ends(inner) == {"short": 15.0, "long": 110.0}


def test_priorities_come_before_the_inner_policy():
    jobs = [job("important", 100, priority=5), job("short", 10, at=5)]
    made = run(HivedPolicy(HivedParams(inside="srtf")), jobs, (1, 4))
    assert ends(made) == {"important": 100.0, "short": 110.0}


@pytest.mark.parametrize("name", ORDERS + PREEMPTIVE)
def test_a_job_starts_when_the_higher_priority_that_it_waited_for_is_gone(name):
    """The inner policy of the lower priority does not see the job that it waits for."""
    jobs = [
        job("important", 10, priority=5, estimate=10.0),
        job("second", 10, at=1, estimate=10.0),
        job("third", 10, at=2, estimate=10.0),
    ]
    made = run(HivedPolicy(HivedParams(inside=name)), jobs, (1, 4))
    assert starts(made) == {"important": 0.0, "second": 10.0, "third": 20.0}


class Forgetful(HivedPolicy):
    """Knows nothing but its snapshot from one decision to the next."""

    def decide(self, view):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.snapshot()))
        self._inner.clear()
        self.restore(state)
        return super().decide(view)


def test_who_found_no_place_is_part_of_a_snapshot():
    jobs = [job("important", 10, priority=5), job("second", 10, at=1)]
    made = run(Forgetful(HivedParams(inside="conservative")), jobs, (1, 4))
    assert starts(made) == {"important": 0.0, "second": 10.0}


def test_only_as_many_are_displaced_as_it_takes():
    jobs = [job(name, 100, gpus=1) for name in "abcd"] + [job("short", 10, at=5, gpus=2)]
    made = run(HivedPolicy(HivedParams(inside="srtf")), jobs, (1, 4))
    assert sorted(j.preemptions for j in made.jobs.values()) == [0, 0, 0, 1, 1]
    assert ends(made)["short"] == 15.0


def test_a_job_that_would_delay_the_head_is_not_backfilled():
    jobs = [
        job("first", 10, gpus=2, estimate=10.0),
        job("head", 10, at=1, gpus=4, estimate=10.0),
        job("long", 50, at=2, gpus=2, estimate=50.0),
        job("short", 5, at=3, gpus=2, estimate=5.0),
    ]
    made = run(HivedPolicy(HivedParams(inside="easy")), jobs, (1, 4))
    assert starts(made) == {"first": 0.0, "short": 3.0, "head": 10.0, "long": 20.0}


def test_a_reservation_looks_at_the_nodes_that_are_up():
    jobs = [job("one", 10, gpus=4, estimate=10.0), job("two", 10, at=1, gpus=8, estimate=10.0)]
    outages = [(0.5, NODE_DOWN, 1), (30.0, NODE_UP, 1)]
    made = run(HivedPolicy(HivedParams(inside="easy")), jobs, (2, 4), outages=outages)
    assert starts(made) == {"one": 0.0, "two": 30.0}


def test_parameters_of_the_inner_policy_are_separated_by_semicolons():
    policy = HivedPolicy(HivedParams(inside="tiresias:limits=10/20;promote=2"))
    made = run(policy, [job("a", 5), job("b", 5)], (1, 4))
    assert policy._inner["everyone", 0].policy.params.limits == (10.0, 20.0)
    assert all(j.phase == DONE for j in made.jobs.values())


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        ("synergy", "CPUs and memory"),
        ("hived", "on which GPUs"),
        ("capacity", "among tenants"),
        ("nobody", "unknown policy 'nobody'"),
        ("tiresias:colour=red", "colour"),
    ],
)
def test_what_cannot_run_inside_is_refused(inside, named):
    with pytest.raises(OptionError, match=named):
        HivedPolicy(HivedParams(inside=inside))
