"""Maintenance and reservations in any small run: never violated, through every door.

The checker of invariants looks at every start (`engine.invariants.check_windows`); the naive engine
says what must happen.
"""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rota.core.registry import POLICIES, load, names
from rota.engine.parts import make_policy
from rota.engine.snapshot import freeze, restore
from rota.placement.consolidate import SearchingConsolidate
from rota.placement.count import CountOnNodes
from rota.testing.logs import difference, entries
from rota.testing.policy_checks import EveryEvent
from rota.testing.scenario import Item, Scenario, Span
from rota.testing.strategies import scenarios

NAIVE = {
    "fifo": {},
    "fifo-skip": {},
    "srtf": {},
    "sjf": {"strict": True},
    "las": {"limits": (4.0, 12.0)},
    "tiresias": {"limits": (12.0, 36.0)},
}
GENERAL = ("easy", "conservative", "drf", "tetris", "yarn-cs", "capacity", "slurm")
TENANTS = ("capacity", "hierarchical-fair")
FREED = Scenario(
    (
        Item(3, 2, 1, estimate_s=12, user="ann"),
        Item(10, 2, 1, estimate_s=12, user="bob"),
    ),
    (4,),
    "consolidate",
    windows=(
        Span(30, 51, (0,), ("bob",), preempt=False),
        Span(7, 22, (0,), (), preempt=False),
    ),
)
"""Both wait for the maintenance; then bob may start, ann waits for the end of bob's time."""


def made(name):
    kind = load(POLICIES, name)
    return lambda: kind(kind.Parameters(**NAIVE.get(name, {})))


def log_of(engine):
    return entries(engine.log, engine.cluster.topology)


@pytest.mark.parametrize("policy", NAIVE)
@given(scenario=scenarios(placement="consolidate", with_windows=True))
def test_the_naive_engine_agrees(policy, scenario):
    assert scenario.mismatch(made(policy)) == ""


@given(scenario=scenarios(placement="consolidate", with_windows=True, choosy=True))
def test_the_naive_engine_agrees_on_jobs_that_accept_different_nodes(scenario):
    assert scenario.mismatch(made("fifo")) == ""


@given(scenario=scenarios(placement="consolidate", with_windows=True, ties=False))
def test_the_naive_engine_agrees_on_fractions_of_seconds(scenario):
    assert scenario.mismatch(made("srtf")) == ""


@pytest.mark.parametrize("policy", NAIVE)
@given(scenario=scenarios(placement="count", with_windows=True))
def test_the_naive_engine_agrees_where_only_numbers_matter(policy, scenario):
    assert scenario.mismatch(made(policy)) == ""


@pytest.mark.parametrize("policy", ["easy", "drf", "capacity"])
@given(scenario=scenarios(placement="count", with_windows=True, lossy=False))
def test_policies_that_write_plans_keep_to_them_where_only_numbers_matter(policy, scenario):
    engine = scenario.engine(made(policy)())
    engine.run(100_000)
    assert not engine.view.active


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip"])
@given(scenario=scenarios(placement="count"))
def test_counting_on_nodes_is_counting(policy, scenario):
    """Without windows nobody starts or ends at another time than with one pool.

    Where nobody is preempted: on nodes a job may have to move, which may cost something.
    """
    assume(not scenario.outages)  # which jobs a node takes with it differs
    pool, nodes = (
        scenario.engine(made(policy)()),
        scenario.engine(made(policy)(), placement=CountOnNodes),
    )
    for engine in (pool, nodes):
        engine.run(100_000)
    assert [(job.first_start_s, job.end_s) for job in pool.jobs.values()] == [
        (job.first_start_s, job.end_s) for job in nodes.jobs.values()
    ]


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf"])
@given(scenario=scenarios(placement="consolidate", with_windows=True))
def test_the_slow_door_and_the_general_placement_keep_to_them(policy, scenario):
    assert not scenario.run(EveryEvent(made(policy)())).view.active
    fast = scenario.run(made(policy)())
    general = scenario.engine(made(policy)(), placement=SearchingConsolidate)
    general.run()
    assert difference(log_of(fast), log_of(general)) == ""


@pytest.mark.parametrize("policy", GENERAL)
@given(scenario=scenarios(placement="consolidate", with_windows=True, lossy=False))
def test_policies_that_write_plans_keep_to_them(policy, scenario):
    engine = scenario.engine(made(policy)())
    engine.run(100_000)
    assert not engine.view.active


@pytest.mark.soak
@pytest.mark.parametrize("policy", sorted(set(names(POLICIES)) - {"hived", "auto"}))
@given(scenario=scenarios(placement="consolidate", with_windows=True, lossy=False))
def test_every_policy_keeps_to_them(policy, scenario):
    engine = scenario.engine(make_policy(policy))
    engine.run(100_000, 20_000)
    assert engine.view.version  # the checker looked at every batch


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "drf", *TENANTS])
@given(
    scenario=scenarios(placement="consolidate", with_windows=True, lossy=False),
    batches=st.integers(1, 12),
)
@example(scenario=FREED, batches=4)
def test_a_snapshot_holds_them(policy, scenario, batches):
    assume(scenario.windows)
    whole = scenario.run(made(policy)())
    first = scenario.engine(made(policy)())
    for _ in range(batches):
        first.advance()
    second = scenario.engine(made(policy)(), windows=False)
    restore(second, freeze(first))
    second.run()
    second.finish()
    assert difference(log_of(whole), log_of(second)) == ""


@pytest.mark.parametrize("policy", ["fifo", *TENANTS])
def test_who_may_start_when_a_window_ends_does_not_wait_for_those_whom_another_bars(policy):
    engine = FREED.run(made(policy)())
    assert [job.first_start_s for job in engine.jobs.values()] == [51, 22]
