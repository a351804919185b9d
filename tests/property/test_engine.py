"""Any small run on the real engine: the naive engine agrees, and every invariant holds."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.policy import Params, PriorityPolicy
from rota.core.registry import POLICIES, load
from rota.placement.consolidate import SearchingConsolidate
from rota.testing.logs import difference, entries
from rota.testing.policy_checks import EveryEvent
from rota.testing.strategies import licensed, owned, scenarios


def made(name, **params):
    """A maker of a registered policy with parameters that suit runs of some seconds."""
    kind = load(POLICIES, name)
    return lambda: kind(kind.Parameters(**params))


class Aging(PriorityPolicy[Params]):
    """A job that has waited for 7 s goes before all that have not: keys of waiting jobs jump."""

    name = "aging"
    ages = True
    state_key = True  # a job that has started does not age any more

    def key(self, job, now_s):
        return (0 if job.started or now_s >= job.submit_s + 7 else 1, job.submit_s)

    def next_change(self, job, now_s):
        due_s = job.submit_s + 7
        return due_s if not job.started and now_s < due_s else float("inf")


class Patient(Aging):
    """The same without preemption, strict."""

    preemptive = False
    strict = True


class StrictSrtf(load(POLICIES, "srtf")):
    """Nobody passes the shortest job that does not fit."""

    strict = True


POLICY = {
    "fifo": made("fifo"),
    "fifo-skip": made("fifo-skip"),
    "sjf": made("sjf"),
    "sjf-strict": made("sjf", strict=True),
    "smallest": made("smallest"),
    "srtf": made("srtf"),
    "srtf-strict": StrictSrtf,
    "srsf": made("srsf"),
    "las": made("las", limits=(4.0, 12.0)),
    "tiresias": made("tiresias", limits=(12.0, 36.0)),
    "elas": made("elas", limits=(12.0, 36.0)),
    "gittins": made("gittins", distribution=(12.0, 24.0, 36.0, 120.0)),
    "gittins-learning": made("gittins", warmup=2),
    "qssf-history": made("qssf", estimate="history"),
    "aging": Aging,
    "patient": Patient,
}


@pytest.mark.parametrize("policy", POLICY)
@given(scenario=scenarios())
def test_the_naive_engine_agrees(policy, scenario):
    # open: does a strict queue wait for a head that is away because its stop takes time?
    assume(policy != "srtf-strict" or not scenario.costs.stop_s)
    assert scenario.mismatch(POLICY[policy]) == ""


@pytest.mark.parametrize("policy", POLICY)
@given(scenario=scenarios(placement="consolidate", choosy=True))
def test_the_naive_engine_agrees_on_jobs_that_accept_different_nodes(policy, scenario):
    assume(policy != "srtf-strict" or not scenario.costs.stop_s)  # as above
    assert scenario.mismatch(POLICY[policy]) == ""


LICENSED = ["fifo", "fifo-skip", "srtf", "srtf-strict", "tiresias", "patient"]


@pytest.mark.parametrize("policy", LICENSED)
@given(scenario=scenarios(choosy=True, placement="consolidate").flatmap(licensed))
def test_the_naive_engine_agrees_on_licences_of_the_cluster(policy, scenario):
    assume(policy != "srtf-strict" or not scenario.costs.stop_s)  # as above
    assert scenario.mismatch(POLICY[policy]) == ""


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
@given(scenario=scenarios(placement="count").flatmap(licensed))
def test_the_naive_engine_agrees_on_licences_in_a_pool(policy, scenario):
    assert scenario.mismatch(POLICY[policy]) == ""


@pytest.mark.parametrize("policy", ["srtf", "srsf", "sjf"])
@given(scenario=scenarios(ties=False))
def test_the_naive_engine_agrees_on_fractions_of_seconds(policy, scenario):
    assert scenario.mismatch(POLICY[policy]) == ""


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "sjf", "srtf", "las"])
@given(scenario=scenarios(lossy=False).flatmap(owned))
def test_the_naive_engine_agrees_on_limits_retries_arrays_and_dependencies(policy, scenario):
    assert scenario.mismatch(POLICY[policy]) == ""


@given(scenario=scenarios(lossy=False))
def test_the_naive_engine_agrees_on_promotions(scenario):
    assert scenario.mismatch(made("tiresias", limits=(12.0,), promote=1.0)) == ""


@pytest.mark.parametrize("policy", [name for name in POLICY if name != "srtf-strict"])
@given(scenario=scenarios(placement="count"))
def test_both_doors_decide_alike_on_one_pool(policy, scenario):
    fast = scenario.run(POLICY[policy]())
    slow = scenario.run(EveryEvent(POLICY[policy]()))
    assert difference(log_of(fast), log_of(slow)) == ""


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "tiresias"])
@given(scenario=scenarios(placement="consolidate"))
def test_the_fast_and_the_general_form_of_consolidate_agree(policy, scenario):
    fast = scenario.run(POLICY[policy]())
    general = scenario.engine(POLICY[policy](), placement=SearchingConsolidate)
    general.run()
    assert difference(log_of(fast), log_of(general)) == ""


@pytest.mark.parametrize("policy", ["fifo", "sjf", "smallest", "srtf", "srsf", "las", "tiresias"])
@given(scenario=scenarios(rounds=True))
def test_the_naive_engine_agrees_in_rounds(policy, scenario):
    assert scenario.mismatch(POLICY[policy]) == ""


@pytest.mark.parametrize("policy", ["tiresias", "srtf"])
@given(scenario=scenarios(), rounds=st.sampled_from((3, 5, 0.7)))
def test_invariants_hold_in_imposed_rounds(policy, scenario, rounds):
    engine = replace(scenario, round_s=rounds).run(POLICY[policy]())
    assert not engine.view.active


@pytest.mark.parametrize("name", ["easy", "conservative", "drf", "tetris", "yarn-cs"])
@given(scenario=scenarios(lossy=False))
def test_invariants_hold_for_policies_that_decide_everything(name, scenario):
    engine = scenario.engine(made(name)())
    engine.run(100_000)
    assert not engine.view.active


@given(scenario=scenarios(with_outages=False, with_costs=False), data=st.data())
def test_a_cancelled_job_leaves_no_trace_in_the_books(scenario, data):
    engine = scenario.engine(POLICY["tiresias"]())
    for _ in range(data.draw(st.integers(1, 6))):
        engine.advance()
    for job in list(engine.view.active.values()):
        if data.draw(st.booleans()):
            engine.cancel(job, None, engine.view.now_s)
    engine.run()
    assert not engine.view.active


def log_of(engine):
    return entries(engine.log, engine.cluster.topology)
