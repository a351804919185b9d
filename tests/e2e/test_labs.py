"""The labs on a real daemon: its two one-GPU nodes, and the job files of the examples."""

import yaml

from agents_net import eventually
from live_logs import exported
from shared_data import CHECKOUT

JOBS = CHECKOUT / "examples" / "labs"
CLUSTERS = CHECKOUT / "src" / "rota" / "reproduce" / "labs"


class Course:
    """A daemon with a lab's cluster; jobs run until they are told to end."""

    def __init__(self, daemons, cluster):
        path = CLUSTERS / cluster
        self.daemon = daemons("--nodes", path, "--policy", f"hived:config={path}", "--check")

    def submit(self, name):
        """Submit the jobs of a file, which wait for a file instead of sleeping."""
        ids = []
        for given in yaml.safe_load_all((JOBS / name).read_text()):
            assert given["run"].startswith("sleep ")
            go = self.daemon.folder / f"end-{given['name']}"
            run = f"while [ ! -e {go} ]; do sleep 0.05; done"
            ids.append(self.daemon.client.submit({**given, "run": run}).id)
        return ids if len(ids) > 1 else ids[0]

    def end(self, name):
        """Let a job of this name end."""
        (self.daemon.folder / f"end-{name}").touch()

    def on(self, job, *nodes):
        """Wait until a job runs on these nodes."""
        found = eventually(lambda: self._runs(job), 60, 0.05)
        assert sorted(found) == sorted(nodes)

    def _runs(self, job):
        info = self.daemon.client.job(job)
        return list(info.nodes) if info.state == "RUNNING" else None

    def waits(self, job):
        assert self.daemon.state_of(job) == "PENDING"


def test_an_opportunistic_job_runs_on_an_idle_node_until_its_owner_comes(daemons):
    lab = Course(daemons, "lab6a.yaml")
    steady = lab.submit("job-3.yaml")
    lab.on(steady, "dan")
    guest = lab.submit("job-4.yaml")
    lab.on(guest, "carol")
    owner = lab.submit("owner.yaml")
    lab.on(owner, "carol")
    lab.waits(guest)
    lab.end("job-3")
    lab.on(guest, "dan")
    for name in ("job-4", "owner"):
        lab.end(name)
    assert {job.state for job in lab.daemon.all_over()} == {"SUCCEEDED"}
    log = exported(lab.daemon)
    stops = log.filter(log["event"] == "stop").select("text").to_series().to_list()
    assert stops == ["it used cells that virtual cluster 'default' was promised"]


def test_a_gang_waits_for_both_nodes_and_single_tasks_do_not(daemons):
    lab = Course(daemons, "lab6b.yaml")
    first = lab.submit("job-5.yaml")
    lab.on(first, "carol")
    gang = lab.submit("job-6.yaml")
    single, late = lab.submit("job-7.yaml")
    lab.on(single, "dan")
    lab.waits(gang)
    lab.waits(late)
    for name in ("job-7-0", "job-5"):
        lab.end(name)
    lab.end("job-7-1")
    lab.on(gang, "carol", "dan")
    lab.end("job-6")
    assert {job.state for job in lab.daemon.all_over()} == {"SUCCEEDED"}
