"""What transitions cost under every preset, by hand and in a small simulation."""

import pytest

from rota.core import machine, registry
from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.ports import FREE, TransitionCost
from rota.models.costs import (
    Bytes,
    BytesParams,
    Custom,
    Decima,
    FixedParams,
    HeliosCosts,
    LucidCosts,
    Migrate8,
    Pollux30,
    Pollux30Params,
    SizedParams,
    Suspend,
    Zero,
    load_costs,
    make_costs,
)

PRESETS = [Bytes, Custom, Decima, HeliosCosts, LucidCosts, Migrate8, Pollux30, Suspend, Zero]
HERE, THERE = Allocation([(1, 2)]), Allocation([(2, 2)])


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Let names be found whether or not this version of the package is installed."""
    entries = {kind.name: f"rota.models.costs:{kind.__name__}" for kind in PRESETS}
    monkeypatch.setattr(registry, "_entries", lambda group: entries)


def job_of(gpus=2, work=1000.0):
    return Job(JobSpec("j", 0.0, Request.of(gpus)), Behaviour(work), 0, Shape(0, Request.of(gpus)))


def launched(job, now_s, allocation=HERE):
    """Bring a job to where a cluster asks what its start costs."""
    machine.start(job, allocation, now_s)
    return job


def running(gpus=2, since_s=0.0):
    job = launched(job_of(gpus), since_s)
    machine.run(job, since_s, 1.0)
    return job


def preempted(gpus=2, now_s=50.0):
    job = running(gpus)
    machine.begin_stop(job, now_s, 0.0)
    machine.stopped(job)
    return job


def costs_of(model, gpus=2):
    """Return (first start, stop, resume, move)."""
    return (
        model.transition(launched(job_of(gpus), 0.0), None, HERE, 0.0),
        model.transition(running(gpus), HERE, None, 60.0),
        model.transition(launched(preempted(gpus), 90.0), None, HERE, 90.0),
        model.transition(running(gpus), HERE, THERE, 60.0),
    )


def test_a_start_that_is_broken_off_may_cost_something_else():
    plain = Custom(FixedParams(start_s=3, stop_s=2, lost_work_s=1))
    model = Custom(FixedParams(start_s=3, stop_s=2, lost_work_s=1, abort_s=0.5))
    starting = launched(job_of(), 10.0)
    assert plain.transition(starting, HERE, None, 11.0) == TransitionCost(stop_s=2, lost_work=1)
    assert model.transition(starting, HERE, None, 11.0) == TransitionCost(stop_s=0.5)
    assert model.transition(starting, HERE, THERE, 11.0) == TransitionCost(0.5, 3)
    assert model.transition(running(), HERE, None, 60.0) == plain.transition(
        running(), HERE, None, 60.0
    )
    assert model.transition(running(), HERE, THERE, 60.0) == plain.transition(
        running(), HERE, THERE, 60.0
    )


def test_a_start_that_takes_time_to_break_off_is_not_free():
    model = Custom(FixedParams(abort_s=0.5))
    assert not model.free
    assert not model.instant_stop
    assert Custom(FixedParams(abort_s=0.0)).free


def start(seconds):
    return TransitionCost(start_s=seconds)


def stop(seconds):
    return TransitionCost(stop_s=seconds)


def lose(work):
    return TransitionCost(lost_work=work)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Zero(), (FREE, FREE, FREE, FREE)),
        (Custom(), (FREE, FREE, FREE, FREE)),
        (Pollux30(), (start(30), FREE, start(30), start(30))),
        (Migrate8(), (FREE, FREE, FREE, start(8))),
        (Suspend(), (FREE, stop(0.1), start(0.1), TransitionCost(0.1, 0.1))),
        (Decima(), (start(3), FREE, start(3), start(3))),
        (HeliosCosts(), (FREE, lose(30), FREE, lose(30))),
        (LucidCosts(), (FREE, lose(40), FREE, lose(40))),
        (Bytes(), (start(10), stop(1), start(11), TransitionCost(1, 11))),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_presets(model, expected):
    assert costs_of(model) == expected


@pytest.mark.parametrize(("gpus", "helios", "lucid"), [(1, 7, 40), (8, 30, 40), (9, 60, 60)])
def test_work_is_lost_by_size(gpus, helios, lucid):
    assert HeliosCosts().transition(running(gpus), HERE, None, 9.0) == lose(helios)
    assert LucidCosts().transition(running(gpus), HERE, None, 9.0) == lose(lucid)


def test_custom_charges_every_field_where_it_belongs():
    params = FixedParams(
        start_s=5, first_s=2, move_s=7, stop_s=3, lost_work_s=11, slow_s=13, slow_factor=0.5
    )
    assert costs_of(Custom(params)) == (
        TransitionCost(start_s=2, slow_s=13, slow_factor=0.5),
        TransitionCost(stop_s=3, lost_work=11),
        TransitionCost(start_s=5, slow_s=13, slow_factor=0.5),
        TransitionCost(3, 7, 11, 13, 0.5),
    )


def test_bytes_are_divided_by_the_bandwidth():
    params = BytesParams(checkpoint_gib=6, write_gib_s=2, read_gib_s=3, container_s=20)
    assert costs_of(Bytes(params)) == (start(20), stop(3), start(22), TransitionCost(3, 22))


def test_a_waiting_job_asks_what_a_start_would_cost():
    suspend = Suspend()
    assert suspend.transition(job_of(), None, HERE, 0.0) == FREE
    assert suspend.transition(preempted(), None, HERE, 70.0) == start(0.1)
    assert suspend.transition(preempted(), None, THERE, 70.0) == start(0.1)


def test_a_job_that_is_moved_while_it_starts_pays_for_a_move():
    assert Migrate8().transition(launched(job_of(), 0.0), HERE, THERE, 4.0) == start(8)


@pytest.mark.parametrize(
    ("model", "free", "instant_stop"),
    [
        (Zero(), True, True),
        (Zero(FixedParams(checkpoint_s=60)), False, True),
        (Custom(FixedParams(slow_s=9)), True, True),  # at the factor 1 nothing is slow
        (Custom(FixedParams(slow_s=9, slow_factor=0.9)), False, True),
        (Custom(FixedParams(first_s=1)), False, True),
        (Custom(FixedParams(lost_work_s=1)), False, True),
        (Custom(FixedParams(stop_s=1)), False, False),
        (Pollux30(), False, True),
        (Pollux30(Pollux30Params(start_s=0)), True, True),
        (Migrate8(), False, True),
        (Suspend(), False, False),
        (HeliosCosts(), False, True),
        (Bytes(), False, False),
        (Bytes(BytesParams(checkpoint_gib=0)), False, True),
    ],
)
def test_promises(model, free, instant_stop):
    assert (model.free, model.instant_stop) == (free, instant_stop)
    if instant_stop:
        assert all(cost.stop_s == 0 for cost in costs_of(model))
    if free:
        assert all(cost.start_s == 0 for cost in costs_of(model))


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PRESETS)
def test_a_failure_destroys_nothing_unless_checkpoints_are_rare(kind):
    assert kind().failure_loss(running(), 100.0) == 0
    assert kind(kind.Parameters(checkpoint_s=30.0)).failure_loss(running(), 100.0) == 10
    assert kind(kind.Parameters(checkpoint_s=float("inf"))).failure_loss(running(), 100.0) == 100


def test_a_failure_loses_work_at_the_rate_of_the_job():
    job = launched(job_of(), 0.0)
    machine.run(job, 0.0, 0.5)
    assert Zero(FixedParams(checkpoint_s=30)).failure_loss(job, 100.0) == 5


def test_what_was_saved_by_a_stop_is_not_lost():
    job = launched(preempted(now_s=50.0), 90.0)
    machine.run(job, 90.0, 1.0)
    # it ran 50 s before and 5 s now: the last checkpoint but one would be at 30 s
    assert Zero(FixedParams(checkpoint_s=30)).failure_loss(job, 95.0) == 5
    assert Zero(FixedParams(checkpoint_s=float("inf"))).failure_loss(job, 95.0) == 5
    # 50 + 15 s: the checkpoint at 60 s was 5 s ago
    assert Zero(FixedParams(checkpoint_s=30)).failure_loss(job, 105.0) == 5


def test_a_job_that_is_being_started_has_nothing_to_lose():
    job = launched(preempted(), 90.0)
    assert Zero(FixedParams(checkpoint_s=30)).failure_loss(job, 95.0) == 0


# --- from texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PRESETS)
def test_every_preset_is_found_by_its_name_and_states_its_source(kind):
    costs = make_costs(kind.name)
    assert type(costs) is kind
    described = costs.describe()
    assert described["name"] == kind.name
    assert described["checkpoint_s"] == 0
    assert len(described["source"]) > 10


def test_options_change_a_preset():
    costs = make_costs("pollux30:start_s=20,checkpoint-s=600,move_s=5")
    assert costs_of(costs) == (start(20), FREE, start(20), start(5))
    assert costs.describe() == {
        "name": "pollux30",
        "start_s": 20,
        "move_s": 5,
        "stop_s": 0,
        "lost_work_s": 0,
        "slow_s": 0,
        "slow_factor": 1,
        "checkpoint_s": 600,
        "source": Pollux30.source,
    }
    assert make_costs("helios:one_s=1").params == SizedParams(one_s=1)
    assert make_costs("zero:checkpoint_s=inf").params.checkpoint_s == float("inf")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polux30", "did you mean 'pollux30'"),
        ("pollux30:start=20", "unknown parameter 'start': did you mean 'start_s'"),
        ("pollux30:start_s=-1", "costs 'pollux30': cannot use start_s=-1"),
        ("pollux30:start_s=fast", "cannot use start_s=fast"),
        ("custom:slow_factor=0", "cannot use slow_factor=0"),
        ("helios:start_s=1", "unknown parameter 'start_s'"),
    ],
)
def test_wrong_options_are_refused(text, message):
    with pytest.raises(OptionError, match=message):
        make_costs(text)


def test_a_file_says_the_same():
    costs = load_costs("name: our-cluster\npreset: bytes\ncheckpoint_gib: 2.5\nwrite_gib_s: 0.5\n")
    assert type(costs) is Bytes
    assert costs.transition(running(), HERE, None, 1.0) == stop(5)
    assert costs.describe()["name"] == "our-cluster"
    assert Bytes.name == "bytes"


def test_a_file_without_a_preset_is_custom():
    costs = load_costs("{start_s: 12, stop_s: 3}")
    assert type(costs) is Custom
    assert costs_of(costs) == (start(12), stop(3), start(12), TransitionCost(3, 12))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start_s: [", "not YAML"),
        ("", "holds no keys"),
        ("- start_s", "holds no keys"),
        ("preset: nothing", "unknown cost .*'nothing'"),
        ("starts_s: 4", "unknown parameter 'starts_s'"),
        ("start_s: soon", "cannot use start_s=soon"),
    ],
)
def test_wrong_files_are_refused(text, message):
    with pytest.raises(OptionError, match=message):
        load_costs(text)
