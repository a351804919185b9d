"""Queues that lend to each other, and priority classes, on a daemon."""

from pathlib import Path

import pytest

from daemon_slow import state
from rota.core.errors import InputError
from rota.core.tenants import PriorityClass, Tenant
from rota.daemon.settings import Queue, Settings, queue_of, read_settings
from rota.jobfile.model import JobFile, Resources
from rota.policies import capacity
from rota.server import declared

POLICY = str(Path(capacity.__file__))
HALVES = (Queue("research", quota=2), Queue("production", quota=2))


def sized(gpus, queue, **more):
    return JobFile(run="work", resources=Resources(gpus), queue=queue, estimate="1h", **more)


def test_a_queue_borrows_and_the_other_reclaims(running, alice):
    with running(policy=POLICY, queues=HALVES) as daemon:
        jobs = daemon.submit([sized(1, "research")] * 4, alice)
        for job in jobs:
            state(daemon, alice, job.id, "RUNNING")
        found = {queue.name: queue.gpus for queue in daemon.queues()}
        assert found == {"research": 4, "production": 0}
        (owner,) = daemon.submit([sized(2, "production")], alice)
        state(daemon, alice, owner.id, "RUNNING")
        for job in jobs[2:]:
            info = state(daemon, alice, job.id, "PENDING")
            assert info.reason == "quota"
            assert daemon.explain(job.id, alice).preempted_by == [owner.id]
        assert {daemon.job(job.id, alice).state for job in jobs[:2]} == {"RUNNING"}


def test_jobs_name_their_class(running, alice):
    classes = (PriorityClass("urgent", 10), PriorityClass("idle", -1, guaranteed=False))
    with running(policy=POLICY, queues=HALVES, priority_classes=classes) as daemon:
        (job,) = daemon.submit([sized(1, "research", priority_class="urgent")], alice)
        assert job.priority == 10
        with pytest.raises(InputError, match="unknown priority class 'urgnt': known: idle, urgent"):
            daemon.submit([sized(1, "research", priority_class="urgnt")], alice)
        with pytest.raises(InputError, match="priority 3 and priority_class 'idle': give one"):
            daemon.submit([sized(1, "research", priority=3, priority_class="idle")], alice)


# --- settings -------------------------------------------------------------------------------------


def read(tmp_path, text):
    path = tmp_path / "rota.yaml"
    path.write_text(text)
    return read_settings(path, {})


def test_queues_and_classes_of_a_file(tmp_path):
    settings = read(
        tmp_path,
        "queues: {a: {quota: 4, lend: 1, borrow: 2}}\n"
        "priority_classes: {urgent: {value: 10, preemptible: false}, usual: }\n",
    )
    tenants = settings.scheduling.tenants()
    assert list(tenants) == [Tenant("a", quota=4, lend=1, borrow=2)]
    assert tenants.classes == (
        PriorityClass("usual"),
        PriorityClass("urgent", 10, preemptible=False),
    )
    assert queue_of(Tenant("a", quota=4, lend=1)) == Queue("a", quota=4, lend=1)


def test_they_may_stand_in_the_cluster_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: 1x2\ntenants: [{name: a, lend: 0}]\npriority_classes: [{name: b}]\n")
    _, scheduling = declared(Settings(cluster=str(path)))
    assert scheduling.queues == (Queue("a", lend=0),)
    assert scheduling.priority_classes == (PriorityClass("b"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queues: {a: {quota: -1}}", "queues.a: quota is -1: give 0 or more"),
        ("queues: {a: {quota: 4, limit: 3}}", "queues.a: limit is 3, below quota 4"),
        ("queues: {a: {weight: 0}}", "queues.a: weight is 0: give more than 0"),
        ("priority_classes: {a: 3}", "priority_classes.a: write keys with values: value, pre"),
        ("priority_classes: {a: {valeu: 3}}", "priority_classes.a.valeu: .*'value'"),
        ("priority_classes: {a: {min_runtime_s: -1}}", "min_runtime_s is -1: give 0 or more"),
    ],
)
def test_mistakes_are_told(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text + "\n")
