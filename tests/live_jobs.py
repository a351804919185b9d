"""Jobs in a chosen phase, without an engine."""

from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.jobs import Behaviour, Job, JobSpec, Phase, Request, Shape

HERE = Allocation(((1, 2),))
ROADS = {
    Phase.HELD: ["hold"],
    Phase.WAITING: [],
    Phase.STARTING: ["start"],
    Phase.RUNNING: ["start", "run"],
    Phase.STOPPING: ["start", "run", "begin_stop"],
    Phase.DONE: ["start", "run", "finish"],
    Phase.FAILED: ["start", "run", "fail"],
    Phase.REJECTED: ["reject"],
    Phase.CANCELLED: ["cancel"],
    Phase.TIMEOUT: ["start", "run", "time_out"],
}
ARGUMENTS = {
    "hold": (),
    "admit": (),
    "start": (HERE, 10.0),
    "run": (10.0, 1.0),
    "change_rate": (10.0, 0.5),
    "begin_stop": (10.0, 0.0),
    "stopped": (),
    "finish": (10.0,),
    "fail": (10.0,),
    "time_out": (10.0,),
    "reject": (10.0,),
    "cancel": (10.0,),
}


def live(name="a", *, gpus=2, work=100.0, index=0, at=0.0, known=0, number=0, **spec):
    """A waiting job."""
    request = Request.of(gpus)
    made = Job(JobSpec(name, at, request, **spec), Behaviour(work), index, Shape(number, request))
    made.known = int(known)
    return made


def launch(job, allocation, now_s):
    """Started, and making progress at once."""
    machine.start(job, allocation, now_s)
    machine.run(job, now_s, 1.0)


def interrupt(job, now_s):
    """Stopped, and gone at once."""
    machine.begin_stop(job, now_s, 0.0)
    machine.stopped(job)


def drive(job, verb):
    """One transition at time 10."""
    return getattr(machine, verb)(job, *ARGUMENTS[verb])


def in_phase(phase, name="a", **options):
    """A job that went there by allowed transitions, all at time 10."""
    made = live(name, **options)
    for verb in ROADS[phase]:
        drive(made, verb)
    assert made.phase == phase
    return made
