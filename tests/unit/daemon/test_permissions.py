"""Who may submit where, with which priority, and how much."""

import pytest

from rota.core.errors import ForbiddenError, InputError
from rota.core.tenants import PriorityClass
from rota.daemon import service, submissions
from rota.daemon.access import submitted_job
from rota.daemon.settings import Permissions, Queue, check_permissions, read_settings
from rota.jobfile.model import JobFile

QUEUES = (Queue("vision"), Queue("robots", parent="vision"), Queue("nlp"))
CLASSES = (PriorityClass("idle", -1), PriorityClass("urgent", 100))


@pytest.fixture
def permitted(running):
    """Return `permitted(**permissions)`: a daemon with queues and classes."""
    opened = []

    def make(declared=QUEUES, **permissions):
        context = running(queues=declared, priority_classes=CLASSES)
        daemon = context.__enter__()
        opened.append(context)
        daemon._permissions = Permissions(**permissions)
        return daemon

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def test_a_queue_is_for_its_users(permitted, alice, bob, operator, file):
    daemon = permitted(queues={"vision": ("alice",)})
    assert daemon.submit([file(queue="vision")], alice)
    for queue in ("vision", "robots"):  # a part of it
        with pytest.raises(ForbiddenError, match=f"queue '{queue}': bob may not submit there"):
            daemon.submit([file(queue="nlp"), file(queue=queue)], bob)
    assert daemon.submit([file(queue="nlp")], bob)
    assert daemon.submit([file(queue="vision")], operator)
    assert len(daemon.jobs(operator)) == 3  # all of a submission or nothing


def test_a_part_of_a_queue_may_be_for_fewer(permitted, alice, bob, file):
    daemon = permitted(queues={"vision": ("alice", "bob"), "robots": ("bob",)})
    assert daemon.submit([file(queue="vision")], alice)
    with pytest.raises(ForbiddenError, match="queue 'robots'"):
        daemon.submit([file(queue="robots")], alice)
    assert daemon.submit([file(queue="robots")], bob)


def test_undeclared_queues_are_refused_where_some_are_declared(permitted, alice, admin, file):
    daemon = permitted()
    with pytest.raises(ForbiddenError, match="queue 'mine' is not declared: there are vision, r"):
        daemon.submit([file(queue="mine")], alice)
    assert daemon.submit([file()], alice)  # it names none
    for actor in (alice, admin):  # nobody means what is misspelt
        with pytest.raises(
            ForbiddenError, match=r"'visoin' is not declared: did you mean 'vision'\?"
        ):
            daemon.submit([file(queue="vision"), file(queue="visoin")], actor)
    daemon._permissions = Permissions(undeclared_queues=True)
    assert daemon.submit([file(queue="mine")], alice)
    assert daemon.submit([file(queue="mine")], admin)


def test_without_declared_queues_everybody_makes_their_own(permitted, alice, file):
    daemon = permitted(declared=())
    assert daemon.submit([file(queue="mine")], alice)


@pytest.mark.parametrize(
    "job", [{"priority_class": "urgent"}, {"priority": 100}, {"priority": 7000}]
)
def test_a_priority_class_is_for_its_users_however_it_is_named(permitted, alice, bob, file, job):
    daemon = permitted(priority_classes={"urgent": ("alice",)})
    assert daemon.submit([file(queue="nlp", **job)], alice)
    with pytest.raises(ForbiddenError, match="priority class 'urgent': bob may not use it"):
        daemon.submit([file(queue="nlp", **job)], bob)
    assert daemon.submit([file(queue="nlp", priority=99)], bob)


def test_priorities_have_a_limit(permitted, alice, operator, file):
    daemon = permitted(max_priority=5)
    assert daemon.submit([file(queue="nlp", priority=5)], alice)
    with pytest.raises(ForbiddenError, match=r"priority 6: 5 is the highest.*max_priority"):
        daemon.submit([file(queue="nlp", priority=6)], alice)
    with pytest.raises(ForbiddenError, match="priority 100"):
        daemon.submit([file(queue="nlp", priority_class="urgent")], alice)
    assert daemon.submit([file(queue="nlp", priority=6)], operator)


def test_a_user_has_so_many_jobs(permitted, alice, bob, operator, file):
    daemon = permitted(max_jobs=3)
    first, *_ = daemon.submit([file(queue="nlp"), file(queue="nlp")], alice)
    daemon.hold(first.id, alice)  # held ones count
    with pytest.raises(ForbiddenError, match=r"alice has 2 jobs .* submits 2: 3 are allowed"):
        daemon.submit([file(queue="nlp"), file(queue="nlp")], alice)
    assert daemon.submit([file(queue="nlp")], alice)
    assert daemon.submit([file(queue="nlp")], bob)
    assert daemon.submit([file(queue="nlp")] * 5, operator)
    daemon.cancel(first.id, alice)
    assert daemon.submit([file(queue="nlp")], alice)


def test_jobs_are_counted_only_where_there_could_be_too_many(permitted, monkeypatch, alice, file):
    looked = []

    def submitted(actor, owner, number):
        looked.append(number)
        return submitted_job(actor, owner, number)

    monkeypatch.setattr(service, "submitted_job", submitted)
    daemon = permitted(max_jobs=6)
    first, *_ = daemon.submit([file(queue="nlp")] * 2, alice)
    daemon.submit([file(queue="nlp")], alice)
    daemon.submit([file(queue="nlp")] * 3, alice)
    assert looked == []  # there were none when she first came
    daemon.cancel(first.id, alice)
    daemon.submit([file(queue="nlp")], alice)
    assert len(looked) == 5
    with pytest.raises(ForbiddenError, match="alice has 6 jobs"):
        daemon.submit([file(queue="nlp")], alice)


def test_they_can_be_changed_while_the_daemon_runs(running, tmp_path, alice, admin, file):
    config = tmp_path / "rota.yaml"
    config.write_text("queues: {nlp: {}}\npermissions: {max_jobs: 1}\n")
    with running(config=config, queues=(Queue("nlp"),)) as daemon:
        assert daemon.reload(admin) == ["permissions.max_jobs: 10000 -> 1"]
        daemon.submit([file(queue="nlp")], alice)
        with pytest.raises(ForbiddenError, match="1 are allowed"):
            daemon.submit([file(queue="nlp")], alice)
        config.write_text("queues: {nlp: {}}\n")
        assert daemon.reload(admin) == ["permissions.max_jobs: 1 -> 10000"]
        assert daemon.submit([file(queue="nlp")], alice)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("permissions: {max_jobs: -1}", "permissions.max_jobs is -1: give 0 or more"),
        ("permissions: {queue: {}}", "permissions.queue: there is no such key"),
        ("permissions: {queues: {a: bob}}", "permissions.queues"),
    ],
)
def test_wrong_ones_are_named(tmp_path, text, message):
    (tmp_path / "rota.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_settings(tmp_path / "rota.yaml", {})


@pytest.mark.parametrize("key", ["queues", "priority_classes"])
def test_names_that_are_not_declared_are_refused(key, tmp_path):
    settings = read_settings(None, {})
    with pytest.raises(InputError, match=rf"permissions\.{key}\.x: it is not declared"):
        check_permissions(Permissions(**{key: {"x": ("a",)}}), settings.scheduling.tenants())


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([JobFile(run="true", array="0-9999")] * 10_000, "100,000,000 jobs with those of arrays"),
        ([JobFile(run="x" * 200_000, array="0-999")], "1,000 jobs with 200,0.. bytes each"),
        ([JobFile(run="true", array="0," * 60_000 + "0")], "at most 100,000 characters"),
    ],
)
def test_a_few_lines_do_not_become_more_than_can_be_kept(daemon, alice, jobs, said):
    with pytest.raises(InputError, match=said):
        daemon.submit(jobs, alice)
    assert daemon.jobs(alice) == []


def test_jobs_that_wait_for_each_of_many_others_are_limited(daemon, monkeypatch, alice, file):
    monkeypatch.setattr(submissions, "MOST_PAIRS", 12)
    daemon.submit([file(hold=True, array="0-3", name="first")], alice)
    daemon.submit([file(array="0-2", depends_on=("first", "first", "1_0"))], alice)
    with pytest.raises(InputError, match="let one small job wait for the others"):
        daemon.submit([file(array="0-3", depends_on=("first",))], alice)
    with pytest.raises(InputError, match="you have no such job"):
        daemon.submit([file(depends_on=("1_",))], alice)
    assert len(daemon.jobs(alice)) == 7
