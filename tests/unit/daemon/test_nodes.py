"""Nodes that are drained, removed, or come back as something else."""

import pytest

from daemon_slow import Slow, state, until
from rota.core.errors import ConflictError, NotFoundError
from rota.core.topology import NodeSpec
from rota.jobfile.model import Checkpoint
from rota.live.driver import NodeStatus


def tell(daemon, name, what, gpus=None, why=""):
    spec = None if gpus is None else NodeSpec(name, gpus)
    daemon.loop.mailbox.post(NodeStatus(name, what, spec, why))


def nodes(daemon):
    return {node.name: (node.state, node.gpus) for node in daemon.nodes()}


def comes(daemon, **wanted):
    return until(lambda: nodes(daemon), lambda found: found == wanted)


# --- draining -------------------------------------------------------------------------------------


def test_a_node_is_drained_when_nothing_is_left_there(running, alice, operator, file):
    driver = Slow()
    with running(driver=driver, nodes=(1, 2)) as daemon:
        daemon.submit([file(2, checkpoint=Checkpoint(grace_s=45))], alice)
        state(daemon, alice, "1", "RUNNING")
        info = daemon.drain("n0", operator, stop=True)
        assert (info.state, info.stopping, info.stopping_s) == ("draining", ["1"], 45)
        job = daemon.job("1", alice)
        assert (job.state, job.stopping_s) == ("STOPPING", 45)
        driver.let_go()
        comes(daemon, n0=("drained", 2))
        assert daemon.nodes()[0].stopping_s is None
        assert daemon.job("1", alice).stopping_s is None


def test_what_was_cancelled_is_told_until_it_is_gone(running, alice, operator, file):
    driver = Slow()
    with running(driver=driver, nodes=(1, 2)) as daemon:
        daemon.submit([file(2)], alice)
        state(daemon, alice, "1", "RUNNING")
        info = daemon.cancel("1", alice)
        assert (info.state, info.stopping_s) == ("CANCELLED", 30)
        assert daemon.drain("n0", operator).state == "draining"
        with pytest.raises(ConflictError, match="job 1 is there"):
            daemon.remove_node("n0", operator)
        driver.let_go()
        comes(daemon, n0=("drained", 2))
        assert daemon.job("1", alice).stopping_s is None


# --- removed --------------------------------------------------------------------------------------


def test_a_node_is_removed_and_comes_back(running, alice, operator, file):
    with running() as daemon:
        with pytest.raises(ConflictError, match="rota drain n1"):
            daemon.remove_node("n1", operator)
        daemon.drain("n1", operator)
        daemon.remove_node("n1", operator)
        assert nodes(daemon) == {"n0": ("up", 2)}
        assert daemon.status()["gpus"] == {"total": 2, "free": 2, "used": 0, "down": 0}
        for gone in (daemon.remove_node, daemon.drain, daemon.undrain):
            with pytest.raises(NotFoundError, match="no node 'n1'"):
                gone("n1", operator)
        daemon.submit([file(2), file(2)], alice)
        assert daemon.job("2", alice).state == "PENDING"
        assert "node n1 removed by olga" in [row.text for row in daemon.events(0)]
    with running() as daemon:  # it is remembered
        assert nodes(daemon) == {"n0": ("up", 2)}
        tell(daemon, "n1", "silent")
        tell(daemon, "n1", "lost")
        tell(daemon, "n1", "up", 2)
        comes(daemon, n0=("up", 2), n1=("up", 2))
        state(daemon, alice, "2", "RUNNING")


def test_a_lost_node_can_be_removed(running, operator):
    with running() as daemon:
        tell(daemon, "n1", "lost", why="power")
        comes(daemon, n0=("up", 2), n1=("down", 2))
        daemon.remove_node("n1", operator)
        assert nodes(daemon) == {"n0": ("up", 2)}


# --- others under the same name -------------------------------------------------------------------


def test_a_node_comes_back_with_other_gpus(running, alice, file):
    with running(patient=True) as daemon:
        daemon.submit([file(8, 0.2)], alice)
        tell(daemon, "n1", "up", 8)
        comes(daemon, n0=("up", 2), n1=("up", 8))
        assert daemon.job("1", alice).state in ("PENDING", "STARTING", "RUNNING", "SUCCEEDED")
        state(daemon, alice, "1", "SUCCEEDED")
        assert daemon.status()["gpus"]["total"] == 10
        daemon.submit([file(8)], alice)
        state(daemon, alice, "2", "RUNNING")
        made = daemon.export().made.nodes
        assert [(spec.name, spec.gpus) for spec in made] == [("n0", 2), ("n1~1", 2), ("n1", 8)]
    with running(patient=True) as daemon:
        assert nodes(daemon) == {"n0": ("up", 2), "n1": ("up", 8)}
        assert daemon.job("2", alice).nodes == {"n1": 8}
        tell(daemon, "n1", "up", 4)  # what runs there cannot go on
        comes(daemon, n0=("up", 2), n1=("up", 4))
        assert daemon.job("2", alice).state == "PENDING"


@pytest.mark.parametrize("killed", [False, True])
def test_a_node_that_gets_other_labels_keeps_its_jobs(running, alice, file, killed):
    def labels(daemon):
        return {node.name: node.labels for node in daemon.nodes()}

    with running() as daemon:
        daemon.submit([file(2)], alice)
        state(daemon, alice, "1", "RUNNING")
        (where,) = daemon.job("1", alice).nodes
        spec = NodeSpec(where, 2, labels=("container",))
        daemon.loop.mailbox.post(NodeStatus(where, "up", spec))
        until(lambda: labels(daemon)[where], lambda found: found == ("container",))
        assert daemon.job("1", alice).starts == 1
        if killed:
            daemon.loop.snapshot = lambda: None
    with running() as daemon:
        assert daemon.job("1", alice).state == "RUNNING"
        others = {name for name, found in labels(daemon).items() if found == ()}
        assert others == {"n0", "n1"} - {where}
        made = {spec.name: spec.labels for spec in daemon.export().made.nodes}
        assert made[where] == ("container",)
        daemon.loop.mailbox.post(NodeStatus(where, "up", NodeSpec(where, 2)))
        until(lambda: labels(daemon)[where], lambda found: found == ())


def test_it_repeats_from_the_journal(running, tmp_path, alice, file):
    with running() as daemon:
        tell(daemon, "n1", "up", 3)
        comes(daemon, n0=("up", 2), n1=("up", 3))
        daemon.submit([file(3)], alice)
        state(daemon, alice, "1", "RUNNING")
        daemon.loop.snapshot = lambda: None  # as if it were killed
    with running() as daemon:
        assert nodes(daemon) == {"n0": ("up", 2), "n1": ("up", 3)}
        assert daemon.job("1", alice).nodes == {"n1": 3}


def test_what_is_still_ending_keeps_the_name(running, alice, file):
    driver = Slow()
    with running(driver=driver, nodes=(1, 2)) as daemon:
        daemon.submit([file(2)], alice)
        state(daemon, alice, "1", "RUNNING")
        tell(daemon, "n0", "up", 4)
        comes(daemon, n0=("down", 2))
        assert daemon.nodes()[0].why == "had 2 GPUs, now has 4 GPUs"
        driver.let_go()
        comes(daemon, n0=("up", 4))
        state(daemon, alice, "1", "RUNNING")


def test_a_drained_node_stays_drained_whatever_it_has(running, operator):
    with running(nodes=(1, 2)) as daemon:
        daemon.drain("n0", operator)
        tell(daemon, "n0", "up", 4)
        comes(daemon, n0=("down", 2))
        daemon.undrain("n0", operator)
        comes(daemon, n0=("up", 4))


def test_whoever_did_not_wait_does_not_join(running, operator):
    with running(nodes=(1, 2)) as daemon:
        daemon.drain("n0", operator)
        tell(daemon, "n0", "up", 4)
        tell(daemon, "n0", "lost")
        comes(daemon, n0=("down", 2))
        daemon.undrain("n0", operator)
        assert nodes(daemon) == {"n0": ("down", 2)}
        tell(daemon, "n0", "up", 2)
        comes(daemon, n0=("up", 2))
