"""What people can ask of a daemon, and what becomes of it."""

import pytest
from msgspec.structs import replace

from daemon_slow import state, until
from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    OptionError,
    UnavailableError,
)
from rota.daemon.settings import Permissions
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.live.drivers.pretend import PretendDriver
from rota.placement.count import Count
from rota.wire import TokenInfo

# --- submit ---------------------------------------------------------------------------------------


def test_a_job_runs_and_ends(daemon, alice, file):
    (info,) = daemon.submit([file(2, 0.1, name="train")], alice)
    assert (info.id, info.name, info.user, info.gpus) == ("1", "train", "alice", 2)
    done = state(daemon, alice, "1", "SUCCEEDED")
    assert done.started_at <= done.ended_at
    assert done.starts == 1
    assert done.gpu_s == pytest.approx(2 * done.run_s)


def test_all_jobs_of_a_submission_or_none(daemon, alice, file):
    with pytest.raises(InputError, match="job 2 of 2"):
        daemon.submit([file(), JobFile(run="")], alice)
    assert daemon.jobs(alice) == []
    assert [info.id for info in daemon.submit([file(), file()], alice)] == ["1", "2"]


def test_the_same_key_submits_once(daemon, alice, bob, file):
    first = daemon.submit([file(), file()], alice, key="k")
    again = daemon.submit([file(), file()], alice, key="k")
    assert [info.id for info in again] == [info.id for info in first] == ["1", "2"]
    assert [info.id for info in daemon.submit([file()], bob, key="k")] == ["3"]


def test_a_key_is_known_after_a_restart(running, alice, file):
    with running() as daemon:
        daemon.submit([file()], alice, key="k")
    with running() as daemon:
        assert [info.id for info in daemon.submit([file()], alice, key="k")] == ["1"]
        with pytest.raises(ConflictError, match="'k' was used for another submission"):
            daemon.submit([file(2)], alice, key="k")
        assert len(daemon.jobs(alice)) == 1


@pytest.mark.parametrize("count", [0, 10_001])
def test_submissions_have_a_size(daemon, alice, file, count):
    with pytest.raises(InputError, match="send 1 to 10,000"):
        daemon.submit([file()] * count, alice)


def test_a_gang_that_can_never_fit_is_rejected(daemon, alice, file):
    (info,) = daemon.submit([file(64)], alice)
    assert info.state == "REJECTED"
    assert "64 GPUs" in info.message


def test_it_waits_where_nodes_may_come(running, alice, file):
    with running(nodes=None, patient=True) as daemon:
        (info,) = daemon.submit([file(2)], alice)
        assert (info.state, info.reason) == ("PENDING", "capacity")


def test_an_elastic_job_gets_its_least(daemon, alice):
    job = JobFile(run="true", resources=Resources(gpus=GpuRange(2, 4)))
    (info,) = daemon.submit([job], alice)
    assert info.gpus == 2


def test_a_job_on_two_nodes(daemon, alice, file):
    (info,) = daemon.submit([file(1, nodes=2)], alice)
    assert info.nodes == {"n0": 1, "n1": 1}


# --- order, reasons -------------------------------------------------------------------------------


def test_who_waits_is_told_why(daemon, alice, file):
    daemon.submit([file(2), file(2), file(2), file(1)], alice)
    waiting = daemon.jobs(alice, states=["PENDING"])
    assert [(info.id, info.reason) for info in waiting] == [("3", "capacity"), ("4", "capacity")]


def test_dependencies_by_id_and_name(daemon, alice, file):
    daemon.submit([file(1, 0.2, name="prepare")], alice)
    jobs = [file(1, 0.1, depends_on=("prepare",)), file(1, 0.1, depends_on=("1", "2"))]
    second, third = daemon.submit(jobs, alice)
    assert (second.state, second.reason) == ("HELD", "dependency")
    assert third.state == "HELD"
    done = state(daemon, alice, "3", "SUCCEEDED")
    assert done.started_at >= daemon.job("2", alice).ended_at


def test_dependants_of_what_fails_are_rejected(daemon, alice, file):
    daemon.submit([file(), file(depends_on=("1",))], alice)
    daemon.cancel("1", alice)
    info = state(daemon, alice, "2", "REJECTED")
    assert "depends on job 1" in info.message


def test_unknown_dependencies_are_refused(daemon, alice, bob, file):
    daemon.submit([file(name="mine")], bob)
    for name in ("7", "mine", "2"):
        with pytest.raises(InputError, match="you have no such job"):
            daemon.submit([file(depends_on=(name,))], alice)


# --- cancel, hold, release ------------------------------------------------------------------------


def test_cancel(daemon, alice, file):
    daemon.submit([file(4), file(4)], alice)
    assert daemon.cancel("1", alice).state == "CANCELLED"
    state(daemon, alice, "2", "RUNNING")
    assert daemon.cancel("1", alice).state == "CANCELLED"


def test_hold_and_release_a_job_that_waits(daemon, alice, file):
    daemon.submit([file(4), file(1, 0.1)], alice)
    held = daemon.hold("2", alice)
    assert (held.state, held.reason, held.message) == ("HELD", "admission", "held by alice")
    daemon.cancel("1", alice)
    assert daemon.job("2", alice).state == "HELD"
    assert daemon.release("2", alice).state in ("PENDING", "STARTING")
    state(daemon, alice, "2", "SUCCEEDED")


def test_hold_a_job_that_runs(daemon, alice, file):
    daemon.submit([file(4), file(4)], alice)
    state(daemon, alice, "1", "RUNNING")
    daemon.hold("1", alice)
    assert state(daemon, alice, "1", "HELD").preemptions == 0
    state(daemon, alice, "2", "RUNNING")
    daemon.cancel("2", alice)
    daemon.release("1", alice)
    assert state(daemon, alice, "1", "RUNNING").starts == 2


def test_a_job_that_is_submitted_held(daemon, alice, file):
    (info,) = daemon.submit([file(1, 0.1, hold=True)], alice)
    assert info.state == "HELD"
    daemon.release("1", alice)
    state(daemon, alice, "1", "SUCCEEDED")


def test_what_is_over_cannot_be_held(daemon, alice, file):
    daemon.submit([file(1, 0.0)], alice)
    state(daemon, alice, "1", "SUCCEEDED")
    with pytest.raises(ConflictError, match="is over"):
        daemon.hold("1", alice)


def test_a_dependant_cannot_be_released_early(daemon, alice, file):
    daemon.submit([file(), file(depends_on=("1",))], alice)
    with pytest.raises(ConflictError, match="held for dependency"):
        daemon.release("2", alice)


# --- who may what ---------------------------------------------------------------------------------


def test_users_see_and_touch_their_own_jobs_only(daemon, alice, bob, operator, viewer, file):
    daemon.submit([file()], alice)
    daemon.submit([file()], bob)
    assert [info.id for info in daemon.jobs(bob)] == ["2"]
    assert [info.id for info in daemon.jobs(viewer)] == ["1", "2"]
    for ask in (daemon.job, daemon.cancel, daemon.hold, daemon.release, daemon.explain):
        with pytest.raises(NotFoundError):
            ask("1", bob)
    assert daemon.cancel("1", operator).state == "CANCELLED"


def test_viewers_touch_no_jobs(daemon, alice, viewer, file):
    daemon.submit([file()], alice)
    for ask in (daemon.cancel, daemon.hold, daemon.release):
        with pytest.raises(ForbiddenError, match="job 1 belongs to 'alice'"):
            ask("1", viewer)


def test_an_unknown_node_is_named(daemon, operator):
    with pytest.raises(NotFoundError, match="no node 'n9'"):
        daemon.drain("n9", operator)


@pytest.mark.parametrize("job", ["0", "9", "-1", "x", "", "²", "1; rm"])
def test_there_is_no_such_job(daemon, alice, file, job):
    daemon.submit([file()], alice)
    with pytest.raises(NotFoundError, match="no job"):
        daemon.job(job, alice)


# --- nodes ----------------------------------------------------------------------------------------


def test_drain_and_undrain(daemon, alice, operator, file):
    daemon.submit([file(2)], alice)
    assert daemon.drain("n0", operator).state == "draining"
    assert daemon.drain("n1", operator).state == "drained"
    (info,) = daemon.submit([file(1)], alice)
    assert info.state == "PENDING"
    assert daemon.undrain("n1", operator).state == "up"
    assert state(daemon, alice, "2", "RUNNING").nodes == {"n1": 1}
    assert daemon.job("1", alice).nodes == {"n0": 2}


def test_drain_can_stop_what_runs(daemon, alice, operator, file):
    daemon.submit([file(2)], alice)
    state(daemon, alice, "1", "RUNNING")
    daemon.drain("n0", operator, stop=True)
    until(lambda: daemon.job("1", alice).nodes, lambda nodes: nodes == {"n1": 2})
    assert [node.state for node in daemon.nodes()] == ["drained", "up"]


def test_queues_count(running, operator, file):
    queues = [{"name": "a", "quota": 2, "limit": 4}, {"name": "b", "parent": "a"}]
    with running(queues=_queues(queues)) as daemon:
        daemon._permissions = Permissions(undeclared_queues=True)
        daemon.submit([file(4, queue="a"), file(1, queue="b"), file(1, queue="new")], operator)
        found = {queue.name: queue for queue in daemon.queues()}
    assert (found["a"].quota, found["a"].limit, found["a"].gpus) == (2, 4, 4)
    assert (found["b"].parent, found["b"].pending, found["b"].asked_gpus) == ("a", 1, 1)
    assert found["new"].limit is None


def _queues(entries):
    from rota.daemon.settings import Queue

    return tuple(Queue(**entry) for entry in entries)


def test_status_counts(daemon, alice, file):
    daemon.submit([file(2), file(4)], alice)
    state(daemon, alice, "1", "RUNNING")
    status = daemon.status()
    assert status["jobs"] == {"RUNNING": 1, "PENDING": 1}
    assert status["gpus"] == {"total": 4, "free": 2, "used": 2, "down": 0}
    assert status["nodes"] == {"up": 2}
    assert status["decision_s"]["count"] >= 1
    assert daemon.ready() == (True, "")


# --- explain, when --------------------------------------------------------------------------------


def test_explain_adds_up(daemon, alice, file):
    daemon.submit([file(4, 0.5), file(4, 0.5), file(4)], alice)
    state(daemon, alice, "2", "SUCCEEDED")
    found = daemon.explain("2", alice)
    info = daemon.job("2", alice)
    waited = info.ended_at - info.submitted_at - info.run_s
    assert found.wait_s == pytest.approx(waited, abs=1e-6)
    assert sum(part.seconds for part in found.parts) == found.wait_s
    assert found.parts[0].reason in ("capacity", "order")


def test_explain_names_those_ahead(daemon, alice, file):
    daemon.submit([file(4), file(4), file(4)], alice)
    found = daemon.explain("3", alice)
    assert (found.reason, found.ahead) == ("order", ["2"])
    assert found.text.startswith("PENDING: others are served first")


def test_when_follows_the_estimates(running, alice, file):
    with running(policy="fifo") as daemon:
        jobs = [file(4, estimate=100), file(4, estimate=200), file(4, estimate=50)]
        daemon.submit(jobs, alice)
        state(daemon, alice, "1", "RUNNING")
        now = daemon.status()["now"]
        found = daemon.when("3", alice)
        assert 100 < found.starts_at - now < 900  # 300, if the estimates were true
        assert found.latest_at - now > 2 * (found.earliest_at - now)  # nobody knows if they are
        assert "a guess: nobody knows how long jobs run here" in found.text
        assert (found.never, found.share) == (0, 0.8)
        assert daemon.when("1", alice).text == "has started already"


def test_when_tells_the_next_start_of_a_preempted_job(running, alice, file):
    with running(policy="srtf") as daemon:
        daemon.submit([file(4, estimate=1000)], alice)
        state(daemon, alice, "1", "RUNNING")
        daemon.submit([file(4, estimate=100)], alice)
        state(daemon, alice, "2", "RUNNING")
        now = daemon.status()["now"]
        found = daemon.when("1", alice)
        assert found.state == "PENDING"
        assert 25 < found.starts_at - now < 400  # 100, if the estimate were true
        assert found.text.startswith("is expected to start again in ")


def test_when_learns_from_the_past(running, alice, file):
    with running(policy="fifo") as daemon:
        daemon.submit([file(1, 4, estimate=8) for _ in range(4)], alice)  # side by side
        for job in "1234":
            state(daemon, alice, job, "SUCCEEDED")
        daemon.submit([file(4, estimate=1000), file(4, estimate=1000)], alice)
        found = daemon.when("6", alice)
        now = daemon.status()["now"]
    assert 400 < found.starts_at - now < 800  # jobs took about half of what was said
    assert found.assumptions["finished_jobs"] == 4
    assert str(found.backtest).startswith("not possible yet: ")  # from four jobs


# --- configuration --------------------------------------------------------------------------------


def test_reload_changes_the_policy_under_running_jobs(running, tmp_path, alice, admin, file):
    config = tmp_path / "rota.yaml"
    config.write_text("policy: fifo\n")
    with running(policy="fifo", config=config) as daemon:
        jobs = [file(4, 60, estimate=1000), file(4, 60, estimate=500), file(2, 60, estimate=1)]
        daemon.submit(jobs, alice)
        state(daemon, alice, "1", "RUNNING")
        config.write_text("policy: srtf\nqueues: {a: {quota: 1}}\n")
        changed = daemon.reload(admin)
        assert changed[0] == "policy: fifo -> srtf"
        state(daemon, alice, "3", "RUNNING")
        assert [queue.name for queue in daemon.queues()][:1] == ["a"]
        assert daemon.reload(admin) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("policy: nonsense\n", OptionError),
        ("placement: count\n", OptionError),
        ("polcy: fifo\n", InputError),
        ("- 1\n", InputError),
    ],
)
def test_a_bad_configuration_changes_nothing(running, tmp_path, alice, admin, file, text, error):
    config = tmp_path / "rota.yaml"
    with running(config=config) as daemon:
        config.write_text(text)
        with pytest.raises(error):
            daemon.reload(admin)
        daemon.submit([file(1, 0.0)], alice)
        state(daemon, alice, "1", "SUCCEEDED")


@pytest.mark.parametrize(
    ("policy", "does"),
    [("srtf", "preempts"), ("gandiva-fair", "does not declare"), ("easy", "does not declare")],
)
def test_a_backend_that_cannot_preempt_refuses_every_policy_that_may(policy, does, running):
    class Rigid(PretendDriver):
        capabilities = replace(PretendDriver.capabilities, preempt=False)

    message = f"policy '{policy}' {does}.* the backend 'pretend' cannot"
    with (
        pytest.raises(OptionError, match=message),
        running(driver=Rigid(), policy=policy),
    ):
        pass
    with running(driver=Rigid(), policy="fifo-skip"):
        pass


@pytest.mark.parametrize("placement", ["count", "pool-of-a-plugin"])
def test_a_placement_that_names_no_nodes_is_refused(placement, running, monkeypatch):
    monkeypatch.setattr(Count, "name", placement)
    with (
        pytest.raises(OptionError, match=f"placement '{placement}' names no nodes"),
        running(placement="count"),
    ):
        pass


def test_another_policy_after_a_restart(running, alice, file):
    with running(policy="fifo") as daemon:
        daemon.submit([file(4), file(4, estimate=9), file(1, estimate=1)], alice)
    with running(policy="srtf") as daemon:
        assert daemon.status()["policy"] == "srtf"
        state(daemon, alice, "3", "RUNNING")


# --- the end --------------------------------------------------------------------------------------


def test_nothing_is_lost_by_a_stop(running, alice, file):
    with running() as daemon:
        daemon.submit([file(4), file(4), file(1, 0.0)], alice)
        daemon.hold("2", alice)
        before = daemon.events(0, 10_000)
    with running() as daemon:
        assert daemon.events(0, 10_000)[: len(before)] == before
        assert [info.state for info in daemon.jobs(alice)][1:] == ["HELD", "PENDING"]
        daemon.cancel("1", alice)
        state(daemon, alice, "3", "SUCCEEDED")


def test_who_asks_a_daemon_that_stops_is_told(running, alice, file):
    with running() as daemon:
        pass
    with pytest.raises(UnavailableError, match="stopping"):
        daemon.submit([file()], alice)
    assert daemon.ready()[0] is False


def test_events_can_be_waited_for(daemon, alice, file):
    last = daemon.status()["last_event"]
    assert daemon.wait_events(last, 0.05) is False
    daemon.submit([file()], alice)
    assert daemon.wait_events(last, 5.0) is True
    assert "submit" in [row.event for row in daemon.events(last)]


def test_a_new_token_of_a_revoked_name_inherits_nothing(running, admin, file):
    with running() as daemon:
        former = daemon.identities.authenticate(
            daemon.identities.create_token("carol", "user", admin)
        )
        (theirs,) = daemon.submit([file(name="secret")], former, key="k")
        daemon.cancel(theirs.id, admin)
        daemon.identities.revoke_token("carol", admin)
        carol = daemon.identities.authenticate(
            daemon.identities.create_token("carol", "user", admin)
        )
        assert daemon.jobs(carol) == []
        for ask in (daemon.job, daemon.cancel, daemon.hold, daemon.explain, daemon.when):
            with pytest.raises(NotFoundError, match="there is no job"):
                ask(theirs.id, carol)
        for before in ("secret", theirs.id):
            with pytest.raises(InputError, match="you have no such job"):
                daemon.submit([file(depends_on=(before,))], carol)
        with pytest.raises(ConflictError, match="was used for another submission"):
            daemon.submit([file(name="secret")], carol, key="k")
        (own,) = daemon.submit([file()], carol)
        assert [job.id for job in daemon.jobs(carol)] == [own.id]
        assert daemon.job(own.id, carol).file is not None
    with running() as daemon:  # and so after a restart
        assert daemon.identities.tokens() == [TokenInfo("carol", "user")]
