"""When a watched quantity reaches its level."""

import pytest

from live_jobs import HERE, in_phase, interrupt, launch, live
from rota.core import machine
from rota.core.changes import Level
from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import Phase
from rota.engine.timers import level_time


def running():
    """Submitted at 0, on two GPUs since 10, at half speed; 200 s of work."""
    job = live(work=200.0)
    machine.start(job, HERE, 10.0)
    machine.run(job, 10.0, 0.5)
    return job


@pytest.mark.parametrize(
    ("quantity", "value", "at_s"),
    [
        ("service", 100.0, 60.0),
        ("executed", 100.0, 110.0),
        ("progress", 0.25, 110.0),
        ("progress", 1.0, 410.0),
        ("waiting", 100.0, INF),
    ],
)
def test_a_running_job_serves_executes_and_progresses(quantity, value, at_s):
    assert level_time(Level(running(), quantity, value), 10.0) == at_s
    assert level_time(Level(running(), quantity, value), 30.0) == pytest.approx(at_s)


@pytest.mark.parametrize(
    ("quantity", "have"), [("service", 40.0), ("executed", 20.0), ("waiting", 10.0)]
)
def test_a_level_that_is_reached_already_never_comes(quantity, have):
    assert level_time(Level(running(), quantity, have), 30.0) == INF
    assert level_time(Level(running(), quantity, have - 1), 30.0) == INF


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.STARTING])
@pytest.mark.parametrize(
    ("quantity", "at_s"), [("service", INF), ("executed", INF), ("progress", INF), ("waiting", 50)]
)
def test_without_progress_only_waiting_grows(phase, quantity, at_s):
    value = 0.5 if quantity == "progress" else 50.0
    assert level_time(Level(in_phase(phase), quantity, value), 20.0) == at_s


def test_what_ran_before_counts():
    job = running()
    machine.begin_stop(job, 30.0, 0.0)
    machine.stopped(job)
    launch(job, HERE, 100.0)
    assert level_time(Level(job, "executed", 50.0), 100.0) == 130.0
    assert level_time(Level(job, "service", 100.0), 100.0) == 130.0
    interrupt(job, 110.0)
    assert level_time(Level(job, "waiting", 100.0), 110.0) == 130.0  # 80 s of 110 so far


def test_an_unknown_quantity_is_refused():
    with pytest.raises(PolicyError, match="unknown quantity 'speed' to watch: service, executed"):
        level_time(Level(live(), "speed", 1.0), 0.0)


def test_a_job_without_work_has_all_its_progress():
    assert level_time(Level(live(work=0.0), "progress", 0.5), 0.0) == INF
