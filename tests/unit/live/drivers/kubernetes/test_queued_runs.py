"""Objects that wait suspended, when a daemon comes back to them or they end unasked."""

import threading
from copy import deepcopy

import pytest

from rota.core.launch import Launch
from rota.daemon.intake import Intake
from rota.daemon.pictures import JobCondition
from rota.live.driver import RunOrder, RunStatus
from rota.live.drivers.kubernetes.cache import ObjectCache
from rota.live.drivers.kubernetes.manifest import short
from rota.live.drivers.kubernetes.notes import ObjectNotes
from rota.live.drivers.kubernetes.queued import KINDS, queued_origin, released, taken
from rota.live.drivers.kubernetes.queued_runs import QueuedRun, QueuedRuns
from rota.live.drivers.orders import HALT, RUN

KIND = KINDS["PyTorchJob"]
LIMITS = {"nvidia.com/gpu": "1"}
ORIGIN = "queued PyTorchJob lab/train u1"


def waiting():
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": LIMITS}}]}}
    about = {"name": "train", "namespace": "lab", "uid": "u1", "resourceVersion": "1",
             "labels": {"rota.dev/queue": "research"}}  # fmt: skip
    replicas = {"Worker": {"replicas": 1, "template": template}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    return {"metadata": about, "spec": spec, "status": {}}


def running(run="7.0"):
    return taken(KIND, waiting(), short("store"), run, ["n1"])


def with_condition(item, name):
    told = [{"type": name, "status": "True", "reason": "Test", "message": "as it is"}]
    return {**item, "status": {"conditions": told}}


class Server:
    """An API server with one collection of objects; its watches end when it is closed."""

    def __init__(self, *items):
        self.items = {item["metadata"]["name"]: item for item in items}
        self.version = 10
        self.closed = threading.Event()

    def pages(self, path):
        there = list(self.items.values()) if path == KIND.path else []
        return deepcopy(there), str(self.version)

    def watch(self, path, version):
        self.closed.wait()
        yield from ()

    def replace(self, path, body):
        self.version += 1
        made = deepcopy(body)
        made["metadata"]["resourceVersion"] = str(self.version)
        self.items[path.rpartition("/")[2]] = made
        return made

    def create(self, path, body):  # events
        return body

    def patch(self, path, body):  # conditions
        assert path.endswith("/status")
        return deepcopy(self.items[path.split("/")[-2]]) | {"status": body["status"]}


class Jobs:
    """The daemon, as an intake sees it: job 7 was made of the object before a restart."""

    def __init__(self, state="PENDING"):
        self.state = state
        self.cancelled = []

    def external_jobs(self):
        return {"7": f"resumed {ORIGIN}"}

    def taken_in(self, actor, key):
        return "7" if key == "u1" else ""

    def conditions(self, jobs):
        return {job: JobCondition(self.state, "", "") for job in jobs if job == "7"}

    def cancel(self, job, by):
        self.cancelled.append(job)
        self.state = "CANCELLED"


@pytest.fixture
def restarted():
    """Return `restarted(*items)`: the runs of a daemon that has just come back, and the server."""
    opened = []

    def start(*items):
        server = Server(*items)
        pods = ObjectCache(server, "/api/v1/pods", lambda _key: None)
        runs = QueuedRuns(
            server, pods, "store", [KIND.name], "rota", "nvidia.com/gpu", lambda: None,
            ObjectNotes(server, 0.0),
        )  # fmt: skip
        runs.free = lambda _node, _mine: 4.0
        caches = [pods, *runs.caches.values()]
        opened.append((server, caches))
        return runs, server, caches

    yield start
    for server, caches in opened:
        for cache in caches:
            cache.close()
        server.closed.set()
        for cache in caches:
            cache.join()


def listed(caches):
    for cache in caches:
        cache.start()
    assert all(cache.wait(60) for cache in caches)


def carried_out(runs, want, run="7.0"):
    """Return what is told of a run after one look at it."""
    launch = Launch(run="PyTorchJob lab/train", external=f"resumed {ORIGIN}")
    order = RunOrder(run, "7", launch, (), 1, 29500)
    told = []
    runs.tell = told.append
    runs.runs[run] = QueuedRun(order, want)
    runs.step(runs.runs[run])
    return told


def test_the_text_of_a_job_names_its_object():
    assert queued_origin(KIND, waiting()) == ORIGIN


FOUND = {
    "waits": waiting(),
    "still taken": running(),
    "suspended, not yet released": KIND.turned(running(), off=True),
    "suspended and released": released(KIND.turned(running(), off=True)),
    "released, and somebody turned it on": released(running()),
    "ended, to be told": with_condition(running(), "Succeeded"),
}


@pytest.mark.parametrize("found", FOUND)
def test_a_job_is_kept_in_whatever_state_a_restart_finds_its_object(restarted, found):
    runs, server, caches = restarted(FOUND[found])
    jobs = Jobs()
    intake = Intake(jobs, runs)
    intake.step()
    assert jobs.cancelled == [], "it was given up before anything was listed"
    listed(caches)
    intake.step()
    assert runs.alive("7")
    if found != "ended, to be told":  # its run tells
        runs.tidy()
        assert KIND.suspended(server.items["train"])
        intake.step()
        carried_out(runs, RUN, "7.1")
        assert server.items["train"]["metadata"]["annotations"]["rota.dev/taken-run"] == "7.1"
        assert not KIND.suspended(server.items["train"])
        intake.step()
    assert jobs.cancelled == []


@pytest.mark.parametrize("there", [(), ("u2",)], ids=["deleted", "made anew"])
def test_a_job_whose_object_was_deleted_meanwhile_is_given_up_once(restarted, there):
    others = [waiting() for _ in there]
    for other, uid in zip(others, there, strict=True):
        other["metadata"]["uid"] = uid
        other["metadata"]["labels"] = {}  # nobody asks Rota
    runs, _, caches = restarted(*others)
    jobs = Jobs()
    intake = Intake(jobs, runs)
    intake.step()
    assert jobs.cancelled == []
    listed(caches)
    for _ in range(3):
        intake.step()
    assert jobs.cancelled == ["7"]


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
@pytest.mark.parametrize("off", [False, True])
def test_the_end_of_an_object_counts_also_if_it_was_to_be_suspended(
    restarted, condition, code, off
):
    """It cannot go on: a job that waited for it to would be given up."""
    made = KIND.turned(running(), off=True) if off else running()
    runs, _, caches = restarted(with_condition(made, condition))
    listed(caches)
    (told,) = carried_out(runs, HALT)
    assert told == RunStatus("7.0", "ended", code, asked=False, why="Test: as it is" * code)
