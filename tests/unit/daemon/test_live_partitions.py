"""Partitions are queues of their own on living clusters, too."""

import pytest

from rota.core.topology import NodeSpec
from rota.engine.invariants import Invariants
from rota.jobfile.model import JobFile, Resources
from scripted import Script, ScriptedWorld, drive, make_loop

NODES = [NodeSpec("a", 4, "a100"), NodeSpec("t", 4, "t4")]


def asks(gpus, kind, estimate):
    return JobFile(run="true", resources=Resources(gpus=gpus, gpu_type=kind), estimate=estimate)


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative"])
def test_a_job_does_not_wait_behind_those_of_other_nodes(policy, tmp_path):
    world = ScriptedWorld({"1": 100.0, "2": 100.0, "3": 5.0, "4": 150.0}, start_s=0.0)
    loop = make_loop(tmp_path / "rota.db", world, policy=policy, nodes=NODES, checker=Invariants)
    script = Script(
        [
            (0.0, asks(3, "a100", 100)),
            (1.0, asks(4, "a100", 100)),  # waits for the first
            (2.0, asks(4, "t4", 5)),
            (3.0, asks(1, "a100", 150)),  # would delay the second
        ]
    )
    drive(loop, world, script)
    began = {index: job.first_start_s for index, job in loop.state.engine.jobs.items()}
    assert began == {1: 0.0, 2: 100.0, 3: 2.0, 4: 200.0}
