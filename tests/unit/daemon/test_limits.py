"""What a user or a queue may have at work: others wait, and are told for what."""

import pytest

from agents_net import eventually
from rota.daemon.settings import Queue


def states(daemon, actor):
    return [job.state for job in daemon.jobs(actor)]


def test_a_user_at_a_limit_waits_and_is_told_which(running, alice, bob, file):
    with running(nodes=(1, 4), admission="limits:user_jobs=1,user_gpus=2") as daemon:
        first, second = daemon.submit([file(), file()], alice)
        assert (second.state, second.reason) == ("HELD", "quota")
        assert second.message == "user 'alice' may have 1 job at work (limits: user_jobs)"
        text = daemon.explain(second.id, alice).text
        assert text.startswith("HELD: user 'alice' may have 1 job at work (limits: user_jobs)")
        (other,) = daemon.submit([file()], bob)
        assert other.state != "HELD"
        daemon.cancel(first.id, alice)
        eventually(lambda: states(daemon, alice)[1] in ("STARTING", "RUNNING"))
        assert daemon.job(second.id, alice).message == ""


def test_a_queue_at_its_limit_waits_and_is_told_so(running, alice, bob, file):
    queues = (Queue("org", limit=2), Queue("nlp", parent="org"))
    with running(nodes=(1, 4), queues=queues, admission="limits") as daemon:
        daemon.submit([file(gpus=2, queue="nlp")], alice)
        (second,) = daemon.submit([file(queue="nlp")], bob)
        assert second.message == "queue 'org' may have 2 GPUs at work (its limit)"


@pytest.mark.parametrize("admission", ["limits:user_gpus=2", "quota:default=2", "load:threshold=1"])
def test_a_held_job_that_is_kept_out_on_request_holds_nobody_up(running, alice, file, admission):
    with running(nodes=(1, 2), admission=admission) as daemon:
        first, second, _third = daemon.submit([file(), file(gpus=2), file()], alice)
        assert states(daemon, alice)[1:] == ["HELD", "HELD"]
        daemon.hold(second.id, alice)
        (fourth,) = daemon.submit([file()], alice)
        daemon.cancel(first.id, alice)
        eventually(lambda: "HELD" not in states(daemon, alice)[2:])
        assert fourth.id
        daemon.release(second.id, alice)
        assert states(daemon, alice)[1] == "HELD"


def test_limits_can_be_set_while_the_daemon_runs(running, tmp_path, alice, admin, file):
    config = tmp_path / "rota.yaml"
    config.write_text("admission: limits:user_jobs=1\n")
    with running(nodes=(1, 4), config=config) as daemon:
        daemon.submit([file(), file()], alice)
        daemon.reload(admin)
        assert "HELD" not in states(daemon, alice)  # nobody is stopped for it
        (third,) = daemon.submit([file()], alice)
        assert third.reason == "quota"
