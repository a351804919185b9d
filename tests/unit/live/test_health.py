"""Health of machines: what the tools say, what the agent makes of it, and what becomes of nodes."""

import pytest

from rota.core.errors import OptionError
from rota.core.events import NODE_CLOSED, NODE_OPENED
from rota.core.topology import Topology
from rota.live.agent.health import (
    LONGEST,
    HealthAnswer,
    HealthWatch,
    ask,
    check_gpus,
    check_with,
    counted,
    make_check,
    overall,
    remapped,
)
from rota.live.driver import NodeStatus
from rota.live.inputs import NodeRequest
from rota.live.nodes import NodeRegistry

WELL = "0, 0, No\n1, 0, No\n"
DCGM = """+---------------------------+
| Health Monitor Report     |
+===========================+
| Overall Health            | {} |
+---------------------------+
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WELL, ""),
        ("0, [N/A], [N/A]\n1, [N/A], [N/A]\n", ""),
        ("0, 0, No\n1, 3, No\n", "GPU 1 has 3 uncorrected memory errors"),
        ("0, 0, Yes\n1, 0, No\n", "GPU 0 has memory pages to be retired: reset it"),
        ("0, 0, No\n", "nvidia-smi finds 1 of 2 GPUs"),
        ("", "nvidia-smi finds 0 of 2 GPUs"),
        ("rubbish, [GPU is lost], x\n0, 0, No\n", "nvidia-smi finds 1 of 2 GPUs"),
    ],
)
def test_what_nvidia_smi_counts(text, told):
    assert counted(text, 2) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("GPU-a, No, No\nGPU-b, 0, 0\n", ""),
        ("GPU-a, No, No\nGPU-b, Yes, No\n", "GPU gpu-b has memory rows to be remapped: reset it"),
        ("GPU-a, 1, 1\n", "GPU gpu-a could not remap a memory row: replace it"),
        ("", ""),
    ],
)
def test_what_it_says_of_memory_rows(text, told):
    assert remapped(text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (DCGM.format("Healthy"), ""),
        (DCGM.format("Warning"), ""),
        (DCGM.format("Failure"), "DCGM says Failure"),
        ("Overall Health: Failure", "DCGM says Failure"),
        ("Error: unable to connect", ""),
    ],
)
def test_what_dcgm_says(text, told):
    assert overall(text) == told


def tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_tools_of_a_machine_are_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool(
        tmp_path, "nvidia-smi",
        'case "$1" in *remapped*) echo "GPU-a, No, No";; *uuid,name*) '
        'echo "0, GPU-a, NVIDIA A100, 40960";; *) cat "$(dirname "$0")/counts";; esac',
    )  # fmt: skip
    counts = tmp_path / "counts"
    counts.write_text("0, 0, No\n")
    check = make_check("auto")
    assert check() == ""
    counts.write_text("0, 7, No\n")
    assert check() == "GPU 0 has 7 uncorrected memory errors"
    counts.write_text("0, 0, No\n")
    tool(tmp_path, "dcgmi", "echo 'Overall Health | Failure'")
    assert check() == "DCGM says Failure"
    tool(
        tmp_path, "nvidia-smi", "echo 'Unable to determine the device handle: GPU is lost'; exit 1"
    )
    assert check().startswith("Unable to determine the device handle")


def test_a_driver_that_hangs_is_not_well():
    hangs = [HealthAnswer(None, "nvidia-smi does not answer within 60 s")]
    assert check_gpus(1, lambda _: hangs[0]) == "nvidia-smi does not answer within 60 s"


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path):
    said = ask(["sh", "-c", "sleep 1000 & sleep 1000"], timeout_s=0.1)
    assert said.code is None
    assert said.text == "sh does not answer within 0.1 s"


def test_a_command_of_ones_own(tmp_path):
    fine = tool(tmp_path, "fine", "exit 0")
    bad = tool(tmp_path, "bad", "echo; echo 'the fan is still'; exit 3")
    mute = tool(tmp_path, "mute", "exit 3")
    assert make_check(str(fine))() == ""
    assert make_check(f"{bad} --verbose")() == "the fan is still"
    assert make_check(str(mute))() == f"{mute} fails with code 3"
    assert check_with(["/nonexistent"]).startswith("/nonexistent cannot be started")
    assert make_check("off") is None
    for wrong in ("/nonexistent", "'", ""):
        with pytest.raises(OptionError, match="health check"):
            make_check(wrong)


def test_without_gpus_there_is_nothing_to_be_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_check("auto") is None


def test_a_check_that_is_broken_says_nothing():
    said = []
    answers = iter(["", ValueError("no"), "x" * 1000])

    def check():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = HealthWatch(check, said.append)
    for _ in range(3):
        watch.look()
    assert said == ["", "x" * LONGEST]


# --- what becomes of nodes ------------------------------------------------------------------------


@pytest.fixture
def nodes():
    made = NodeRegistry(Topology.uniform(2, 2))
    made.told = []
    return made


def hear(nodes, state, why=""):
    status = NodeStatus("n0", state, why=why)
    if not nodes.is_news(status):
        return None
    kinds = nodes.reported(status)
    for kind in kinds:
        nodes.vertex("n0").closed = kind == NODE_CLOSED
    return kinds


def undrain(nodes):
    kinds = nodes.requested(NodeRequest("undrain", "n0", "olga"))
    nodes.vertex("n0").closed = False
    return kinds


def test_a_sick_node_is_closed_until_it_is_well(nodes):
    assert hear(nodes, "well") is None
    assert hear(nodes, "sick", "hot") == [NODE_CLOSED]
    assert nodes.by_name["n0"].why == "unhealthy: hot"
    assert hear(nodes, "sick", "hot") is None
    assert hear(nodes, "sick", "hotter") == []
    assert hear(nodes, "well") == [NODE_OPENED]
    assert nodes.by_name["n0"].why == ""


def test_it_may_stay_closed_until_somebody_has_looked(nodes):
    hear(nodes, "sick", "hot")
    assert hear(nodes, "well", "its health check") == []
    assert nodes.by_name["n0"].why == "drained by its health check"
    assert undrain(nodes) == [NODE_OPENED]


def test_somebody_may_know_better(nodes):
    hear(nodes, "sick", "hot")
    assert undrain(nodes) == [NODE_OPENED]
    assert hear(nodes, "sick", "hot") is None, "they have seen that"
    assert hear(nodes, "sick", "on fire") == [NODE_CLOSED], "but not this"
    undrain(nodes)
    assert hear(nodes, "well") == []
    assert hear(nodes, "sick", "on fire") == [NODE_CLOSED], "it came back"


def test_what_was_drained_on_request_stays_so(nodes):
    nodes.requested(NodeRequest("drain", "n0", "olga"))
    nodes.vertex("n0").closed = True
    assert hear(nodes, "sick", "hot") == []
    assert nodes.by_name["n0"].why == "drained by olga"
    assert hear(nodes, "well") == []
    assert nodes.by_name["n0"].drained


def test_a_node_that_comes_back_sick_stays_closed(nodes):
    hear(nodes, "sick", "hot")
    hear(nodes, "silent", "not heard of")
    assert hear(nodes, "up") == []
    assert nodes.by_name["n0"].why == "unhealthy: hot"
    assert hear(nodes, "well") == [NODE_OPENED]


def test_it_is_remembered(nodes):
    hear(nodes, "sick", "hot")
    again = NodeRegistry(Topology.uniform(2, 2))
    again.restore(nodes.snapshot())
    assert again.by_name["n0"].sick == "hot"
    again.restore([("n0", (False, False, True, "x", "olga", False))])  # of an older version
    assert again.by_name["n0"].sick == ""
