"""Partitions are queues of their own: together they do what each of them does alone.

Random clusters of two to four partitions, told apart by labels or GPU types, with costs, failures
and wrong estimates; every policy that does not declare coupling, through both doors.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.events import INF
from rota.core.policy import PriorityPolicy
from rota.core.registry import POLICIES, load, names
from rota.placement.best_fit import BestFit
from rota.placement.consolidate import consolidate
from rota.placement.spread import Spread
from rota.policies.easy import Easy
from rota.testing.partitions import random_partitions
from rota.testing.policy_checks import EveryEvent
from rota.testing.scenario import Scenario, to_the_end
from rota.testing.strategies import topologies, workloads

MUST = {
    "fifo", "fifo-skip", "smallest", "sjf", "srtf", "srsf", "las", "tiresias", "easy",
    "conservative",
}  # fmt: skip
"""They have no excuse."""

CASES = 200
SEEDS = st.integers(0, 2**32)


def variant(name, **params):
    kind = load(POLICIES, name)
    return lambda: kind(kind.Parameters(**params))


class StrictSrtf(load(POLICIES, "srtf")):
    """Preemptive and strict."""

    strict = True


ALONE = {name: load(POLICIES, name) for name in names(POLICIES)}
ALONE = {name: make for name, make in ALONE.items() if not make().coupled}
ALONE |= {
    "sjf strict": variant("sjf", strict=True),
    "srtf strict": StrictSrtf,
    "las short": variant("las", limits=(4.0, 12.0)),
    "tiresias short": variant("tiresias", limits=(12.0, 36.0)),
    "tiresias promoting": variant("tiresias", limits=(12.0,), promote=1.0),
    "gittins given": variant("gittins", distribution=(12.0, 24.0, 36.0, 120.0)),
    "qssf user": variant("qssf", estimate="user"),
    "easy default": variant("easy", default_estimate_s=5.0),
    "conservative default": variant("conservative", default_estimate_s=5.0),
}


def makers(name):
    make = ALONE[name]
    policy = make()
    if not isinstance(policy, PriorityPolicy) or (policy.strict and policy.preemptive):
        return [make]
    return [make, lambda: EveryEvent(make())]


def differs(name, seed):
    partitions = random_partitions(seed, lossy=False)
    return "".join(partitions.mismatch(make) for make in makers(name))


def test_whom_it_must_hold_for():
    assert ALONE.keys() >= MUST


def test_whoever_is_coupled_says_why():
    reasons = {name: load(POLICIES, name).coupled for name in names(POLICIES)}
    kinds = ("share", "quota", "learn", "random", "score")
    assert not {n: why for n, why in reasons.items() if why and not any(k in why for k in kinds)}


@pytest.mark.parametrize("policy", ALONE)
@settings(max_examples=3)
@given(seed=SEEDS)
def test_partitions_together_and_alone(policy, seed):
    assert differs(policy, seed) == ""


@pytest.mark.soak
@pytest.mark.parametrize("policy", ALONE)
@settings(max_examples=CASES)
@given(seed=SEEDS)
def test_partitions_together_and_alone_in_many_cases(policy, seed):
    assert differs(policy, seed) == ""


ONE_TENANT = {
    "drf": variant("drf"),
    "drf strict": variant("drf", strict=True),
    "yarn-cs": variant("yarn-cs", relax_s=0.0),  # until then, what is free anywhere counts
    "capacity": variant("capacity"),
    "capacity aging": variant("capacity", aging_s=5.0),
    "hierarchical-fair": variant("hierarchical-fair"),
    "hierarchical-fair skipping": variant("hierarchical-fair", inside="fifo-skip"),
}
"""Only shares couple these: where one tenant has everything, its queue is one per partition."""


@pytest.mark.parametrize("policy", ONE_TENANT)
@settings(max_examples=5)
@given(seed=SEEDS)
def test_the_queue_of_a_tenant_is_one_per_partition(policy, seed):
    partitions = random_partitions(seed, lossy=False)
    assert partitions.mismatch(ONE_TENANT[policy]) == ""


# --- EASY's promise -------------------------------------------------------------------------------


class Recording(Easy):
    """Remembers the first promise to every head."""

    def __init__(self):
        super().__init__()
        self.promised = {}

    def decide(self, view):
        plan = super().decide(view)
        for index, start_s in self.reservations.items():
            self.promised.setdefault(index, start_s)
        return plan


@st.composite
def exact(draw):
    """Jobs with exact estimates that accept different, overlapping sets of nodes."""
    nodes = draw(topologies())
    subsets = st.sets(st.integers(0, len(nodes) - 1), max_size=3).map(lambda s: (*sorted(s),))
    on = (*draw(st.lists(subsets, min_size=1, max_size=4)),)
    jobs = draw(workloads(gpus=sum(nodes), on=on))
    return Scenario(
        tuple(type(job)(job.submit_s, job.gpus, job.work, INF, job.on, job.work) for job in jobs),
        nodes,
    )


@pytest.mark.parametrize("placement", [consolidate, BestFit, Spread])
@given(scenario=exact())
def test_easy_delays_the_reservation_of_no_head(placement, scenario):
    policy = Recording()
    engine = to_the_end(scenario.engine(policy, placement=placement))
    late = {
        index: (engine.jobs[index].first_start_s, promised_s)
        for index, promised_s in policy.promised.items()
        if engine.jobs[index].first_start_s > promised_s
    }
    assert not late
