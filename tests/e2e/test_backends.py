"""One policy file, unchanged, in the simulator and on every backend: the same decisions."""

import json
from contextlib import ExitStack

import pytest

from agents_net import eventually
from daemon_process import DaemonProcess
from decisions import job, rows, run
from kube_cluster import KubeCluster, require_kubernetes
from ray_cluster import RayCluster, require_ray
from rota.core.events import INF
from rota.core.log import Record
from rota.daemon.store import Store
from rota.engine.parts import make_policy
from rota.jobfile.model import Checkpoint, JobFile, Resources
from slurm_cluster import SlurmCluster, require_slurm

POLICY = '''
"""Fewest GPUs first, whoever runs."""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class FewestGpus(PriorityPolicy[Params]):
    """Serve small jobs first."""

    name = "fewest-gpus"
    preemptive = True

    def key(self, job: Job, now_s: float) -> float:
        """Smaller is served first."""
        return job.gpus
'''
GPUS = (16, 4, 8, 2, 16)  # of the jobs, in the order in which they come
ENDS = (2, 3, 4, 1, 5)  # the order in which they end: 1 and 5 wait until they are alone
DECISIONS = {Record.START: "start", Record.STOP: "stop", Record.DONE: "done"}
IN_A_BATCH = {Record.DONE: 0, Record.STOP: 1, Record.START: 2}  # what happens at the same time
EXPECTED = [
    ("start", 1), ("stop", 1), ("start", 2), ("start", 3), ("start", 4), ("done", 2), ("done", 3),
    ("done", 4), ("start", 1), ("done", 1), ("start", 5), ("done", 5),
]  # fmt: skip


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "fewest_gpus.py"
    file.write_text(POLICY)
    return file


def decisions(found, first):
    """(what, which job as counted from 1), in order; `first` is the number of the first job."""
    return [
        (DECISIONS[Record(kind)], number - first + 1)
        for kind, number in found
        if kind in set(DECISIONS)
    ]


def test_in_the_simulator(policy):
    works = (200.0, 400.0, 400.0, 400.0, 100.0)
    jobs = [
        job(str(number), gpus, work, at=100.0 * number)
        for number, (gpus, work) in enumerate(zip(GPUS, works, strict=True))
    ]
    done = run(make_policy(str(policy)), jobs, (4, 4), placement="consolidate")
    found = [(*row[:2], kind) for kind in DECISIONS for row in rows(done, kind)]
    order = sorted(found, key=lambda row: (row[0], IN_A_BATCH[row[2]]))
    assert decisions([(kind, number) for _, number, kind in order], 0) == EXPECTED


@pytest.fixture(params=["local", "slurm", "kubernetes", "ray"])
def daemon(request, policy, tmp_path):
    """A daemon on sixteen GPUs."""
    with ExitStack() as stack:
        config = "cluster: 4x4\n"
        if request.param == "slurm":
            require_slurm()
            slurm = stack.enter_context(SlurmCluster(tmp_path / "cluster"))
            config = f"backend: slurm\nslurm: {{conf: '{slurm.conf}', poll_s: 0.2}}\n"
        elif request.param == "kubernetes":
            require_kubernetes()
            kube = stack.enter_context(KubeCluster(tmp_path / "cluster"))
            access = f"kubeconfig: '{kube.kubeconfig}', image: none"
            config = f"backend: kubernetes\nkubernetes: {{{access}}}\n"
        elif request.param == "ray":
            require_ray()
            ray = stack.enter_context(RayCluster(nodes=2, gpus=8))
            config = f"backend: ray\nray: {json.dumps(ray.settings)}\n"
        file = tmp_path / "rota.yaml"
        file.write_text(f"{config}policy: {policy}\n")
        made = DaemonProcess(tmp_path / "daemon", "--config", file)
        stack.callback(made.close)
        yield made.start()


def test_on_a_living_cluster(daemon, tmp_path):
    eventually(lambda: sum(node.gpus for node in daemon.client.nodes()) == 16)
    state = {}

    def waiting(number, gpus):
        waits = f"while [ ! -e {tmp_path}/{number} ]; do sleep 0.05; done"
        return JobFile(
            run=f"trap 'exit 0' TERM; {waits}", resources=Resources(gpus=gpus),
            checkpoint=Checkpoint(grace_s=20.0),
        )  # fmt: skip

    def reach(number, *states):
        eventually(lambda: daemon.client.job(state[number]).state in states)

    for number, gpus in enumerate(GPUS, 1):
        state[number] = daemon.client.submit(waiting(number, gpus)).id
        reach(number, "PENDING" if number == 5 else "RUNNING")
    for number in ENDS:
        reach(number, "RUNNING")
        (tmp_path / str(number)).touch()
        reach(number, "SUCCEEDED")
    daemon.stop()
    store = Store(daemon.state / "rota.db")
    # a start with the value inf waits for its victims: it is told again when they have left
    seen = [(row[2], row[3]) for row in store.rows(0, 10**6) if row[6] != INF]
    store.close()
    assert decisions(seen, int(state[1])) == EXPECTED
