from pathlib import Path

import pytest

from agents_net import order
from rota.core.topology import NodeSpec
from rota.live.agent import environment
from rota.live.agent.environment import PINNED, THREADS
from rota.live.agent.messages import AgentNode, PartKey
from rota.live.driver import RunPart
from rota.live.drivers.agent_run import AgentRun


def launch(**options):
    parts = (
        RunPart("n0", ((-1, 2.0),), 0, 0, 2),
        RunPart("n1", ((0, 1.0), (3, 1.0)), 1, 2, 2),
    )
    made = order("17.2", parts=parts, restart=2, name="train; rm -rf /", **options)
    return AgentRun(made).launch_of(PartKey("17.2", 1), "10.0.0.1")


def common(made):
    return environment.common(
        made, ["4", "7"], checkpoint=Path("/c"), report=Path("/r/report"), key="k1"
    )


def test_what_every_process_finds():
    assert common(launch()) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "4,7",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "NODE_RANK": "1",
        "WORLD_SIZE": "4",
        "job_id": "17",
        "local_accessible_gpu": "4,7",
        "local_accessible_gpus": "4,7",
        "master_ip_address": "10.0.0.1",
        "world_size": "4",
        "ROTA_CHECKPOINT_DIR": "/c",
        "ROTA_GPUS": "2",
        "ROTA_GRACE_S": "5",
        "ROTA_JOB_ID": "17",
        "ROTA_JOB_NAME": "train; rm -rf /",
        "ROTA_NODE_NAME": "n1",
        "ROTA_NUM_NODES": "2",
        "ROTA_REPORT_FILE": "/r/report",
        "ROTA_RESTART_COUNT": "2",
        "ROTA_RUN_ID": "17.2",
        "ROTA_RUN_KEY": "k1",
    }


def test_what_each_process_finds():
    assert environment.of_process(launch(), ["4", "7"], 1) == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "dist_rank": "3",
        "local_gpu_id": "7",
    }
    assert environment.of_process(launch(), [], 0)["local_gpu_id"] == ""


def test_users_variables_win_except_over_ours():
    made = launch(envs={"MASTER_PORT": "1", "RANK": "9", "ROTA_JOB_ID": "99", "MINE": "x"})
    env = common(made) | environment.of_process(made, ["4", "7"], 0)
    assert (env["MASTER_PORT"], env["MINE"], env["ROTA_JOB_ID"]) == ("1", "x", "17")
    assert "RANK" not in environment.of_process(made, ["4"], 0)


def test_no_secret_is_inherited():
    environ = {
        "PATH": "/bin",
        "ROTA_TOKEN": "secret",
        "ROTA_TOKEN_FILE": "/t",
        "ROTA_AGENT_TOKEN_FILE": "/t",
        "ROTA_ANYTHING": "x",
    }
    assert environment.inherited(environ) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("mode", "shares", "terms", "found"),
    [
        ("fraction", [(0, 0.25)], (0, 0), {THREADS: "25"}),
        ("fraction", [(0, 0.5)], (2.5, 0), {THREADS: "50", PINNED: "0=2560M"}),
        ("mps", [(0, 0.2)], (0, 0.6), {THREADS: "60"}),  # a limit above what it holds
        ("mps", [(3, 1.0), (1, 1.0)], (8, 0), {PINNED: "0=8192M,1=8192M"}),
        ("mps", [(0, 0.001)], (0, 0), {THREADS: "1"}),
        ("timeslice", [(0, 0.5)], (8, 0), {}),
        ("exclusive", [(0, 0.5)], (8, 0), {}),
        ("", [(0, 0.5)], (8, 0), {}),
        (("", "", "mps", ""), [(0, 1.0), (2, 1.0)], (8, 0), {PINNED: "1=8192M"}),
    ],
)
def test_what_limits_a_part_under_mps(mode, shares, terms, found):
    node = AgentNode(NodeSpec("n0", 4, sharing=mode), devices=("0", "1", "2", "3"))
    part = RunPart("n0", (), 0, 0, 1, 0.0, 0.0, *terms)
    assert environment.of_mps(part, node, shares) == found
