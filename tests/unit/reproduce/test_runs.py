"""Dialect schedulers inside longer stories: interrupted runs, costs, failures, cancelled jobs."""

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.ports import FREE, TransitionCost
from rota.engine import snapshot
from rota.reproduce.blox.dialect import BloxDialect
from rota.reproduce.tiresias.dialect import TiresiasDialect

POLICIES = [
    *((TiresiasDialect, name) for name in ("fifo", "fifo-skip", "smallest", "srtf", "srsf", "las")),
    (TiresiasDialect, "tiresias"),
    (TiresiasDialect, "tiresias:promote=1"),
    (TiresiasDialect, "gittins"),
    *((BloxDialect, name) for name in ("fifo", "las", "srtf")),
]

ROWS = st.lists(
    st.tuples(st.integers(0, 6000), st.integers(1, 4), st.integers(1, 9000)),
    min_size=4,
    max_size=14,
)
CLUSTER = (2, 2)
FEWER = settings(max_examples=settings().max_examples // 4)  # there are many policies


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Return the policy's text, with samples for gittins."""
    path = tmp_path_factory.mktemp("samples") / "samples.csv"
    path.write_text("duration\n100\n1000\n4000\n9000\n20000\n")
    return lambda policy: f"gittins:distribution={path}" if policy == "gittins" else policy


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, at_s=st.integers(0, 12_000))
@example(rows=[(0, 1, 2), (0, 1, 2), (0, 3, 1), (1, 1, 1)], at_s=0)  # the third blocks the last
def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(lab, text, kind, policy, rows, at_s):
    whole = lab.engine_for(kind(), text(policy), CLUSTER, rows)
    whole.run()
    first = lab.engine_for(kind(), text(policy), CLUSTER, rows)
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = lab.engine_for(kind(), text(policy), CLUSTER, rows)
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same
    assert lab.outcome(second) == lab.outcome(whole)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, step_s=st.integers(50, 3000))
def test_looking_at_a_run_changes_nothing(lab, text, kind, policy, rows, step_s):
    looked_at = lab.engine_for(kind(), text(policy), CLUSTER, rows)
    for time_s in range(0, 60_000, step_s):
        looked_at.run(time_s)
    looked_at.run()
    assert lab.outcome(looked_at) == lab.simulate(kind(), text(policy), CLUSTER, rows)


class Slow:
    """Starting takes time, stopping takes time, and some work is lost."""

    name = "slow"
    free = False
    instant_stop = False

    def __init__(self, stop_s, start_s, lost_work):
        self.stop = TransitionCost(stop_s=stop_s, lost_work=lost_work)
        self.start = TransitionCost(start_s=start_s)

    def transition(self, job, old, new, now_s):
        return self.stop if new is None else self.start if job.started else FREE

    def failure_loss(self, job, now_s):
        return 0.0

    def describe(self):
        return {}


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(
    rows=ROWS,
    stop_s=st.sampled_from([0, 5, 400]),
    start_s=st.sampled_from([0, 7, 700]),
    lost_work=st.sampled_from([0, 20]),
)
def test_costs_given_by_the_user_are_honoured(
    lab, text, kind, policy, rows, stop_s, start_s, lost_work
):
    costs = Slow(stop_s, start_s, lost_work)
    outcome = lab.simulate(kind(), text(policy), CLUSTER, rows, costs=costs)
    assert {state for *_, state in outcome} <= {"done", "rejected", "cancelled"}
    if kind is TiresiasDialect:
        assert all(end is not None for end, *_ in outcome)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, down_s=st.integers(0, 5000), for_s=st.integers(1, 5000), node=st.integers(0, 1))
def test_jobs_survive_the_failure_of_a_node(lab, text, kind, policy, rows, down_s, for_s, node):
    outages = [(down_s, NODE_DOWN, node), (down_s + for_s, NODE_UP, node)]
    outcome = lab.simulate(kind(), text(policy), CLUSTER, rows, outages=outages)
    assert {state for *_, state in outcome} <= {"done", "rejected", "cancelled"}
    if kind is TiresiasDialect:
        assert all(end is not None for end, *_ in outcome)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, at_s=st.integers(0, 9000), which=st.integers(0, 13))
def test_a_cancelled_job_leaves_no_trace(lab, text, kind, policy, rows, at_s, which):
    engine = lab.engine_for(kind(), text(policy), CLUSTER, rows)
    engine.run(at_s)
    active = list(engine.view.active.values())
    if active:
        engine.cancel(active[which % len(active)], None, engine.view.now_s)
    engine.run()
    ends = [end for end, _, state in lab.outcome(engine) if state == "done"]
    assert all(end is not None for end in ends)
    assert engine.view.active == {}


@pytest.mark.parametrize("gpus", [4, 5])
def test_a_job_cancelled_before_its_first_round_is_not_started_or_refused(lab, gpus):
    engine = lab.engine_for(BloxDialect(), "fifo", CLUSTER, [(10, gpus, 100), (20, 4, 100)])
    engine.run(30)
    engine.cancel(engine.view.active[0], None, 30)
    engine.run()
    assert lab.outcome(engine) == [(None, 0, "cancelled"), (600, 0, "done")]
