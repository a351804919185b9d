"""HiveD on machines that come, fail and come back: cells of a file, agents for its nodes."""

import pytest

from agents_net import eventually

CELLS = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 1, isNodeLevel: true}
  physicalCells:
    - {cellType: NODE, cellAddress: carol}
    - {cellType: NODE, cellAddress: dan}
virtualClusters:
  vision: {virtualCells: [{cellType: NODE}]}
  speech: {virtualCells: [{cellType: NODE}]}
"""


class Site:
    """A daemon with these cells, and jobs that run until they are told to end."""

    def __init__(self, daemon, folder):
        self.daemon = daemon
        self.folder = folder

    def submit(self, queue, priority=0, **more):
        """Submit a job; its id."""
        go = self.folder / f"end-{queue}{priority}"
        run = f"while [ ! -e {go} ]; do sleep 0.05; done"
        return self.daemon.submit(run, queue=queue, priority=priority, **more)

    def end(self, queue, priority=0):
        """Let it end."""
        (self.folder / f"end-{queue}{priority}").touch()

    def runs_on(self, job, node):
        """Wait until it is there."""
        eventually(lambda: self.daemon.client.job(job).nodes == {node: 1}, every_s=0.05)


@pytest.fixture
def cells(tmp_path):
    path = tmp_path / "hived.yaml"
    path.write_text(CELLS)
    return path


def test_a_promise_survives_a_machine(daemons, cells, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(f"policy: hived:config={cells}\nlocal: {{silent_s: 1.0, lost_s: 5.0}}\n")
    daemon = daemons("--config", config, "--check")
    site = Site(daemon, tmp_path)
    large = daemon.submit("true", queue="vision", gpus=2)
    assert "cannot hold" in daemon.until(large, "REJECTED").message
    guest, owner = site.submit("speech", -1), site.submit("vision")
    assert daemon.state_of(guest) == daemon.state_of(owner) == "PENDING"  # no machine has come
    first = daemon.agent("dan", gpus=1)
    site.runs_on(owner, "dan")
    daemon.agent("carol", gpus=1)
    site.runs_on(guest, "carol")
    first.kill()  # the owner loses its machine, and takes the guest's
    site.runs_on(owner, "carol")
    daemon.until(guest, "PENDING")
    assert daemon.client.explain(guest).preempted_by == [owner]
    daemon.agent("dan", gpus=1)
    site.runs_on(guest, "dan")
    site.end("speech", -1)
    site.end("vision")
    assert {job.state for job in daemon.all_over()} == {"SUCCEEDED", "REJECTED"}


def test_a_new_daemon_knows_whose_cells_are_in_use(daemons, cells, tmp_path):
    daemon = daemons("--nodes", cells, "--policy", f"hived:config={cells}", "--check")
    site = Site(daemon, tmp_path)
    owner, guest = site.submit("vision"), site.submit("speech", -1)
    places = {job: daemon.until(job, "RUNNING").nodes for job in (owner, guest)}
    daemon.kill()
    daemon.start()
    assert {job: daemon.until(job, "RUNNING").nodes for job in places} == places
    other = site.submit("speech", 5)  # its own node, on which the guest is
    (node,) = places[guest]
    site.runs_on(other, node)
    assert daemon.client.job(owner).starts == 1
    assert daemon.client.explain(guest).preempted_by == [other]
