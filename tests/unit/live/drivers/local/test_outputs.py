"""Which agents are asked for the output of a job."""

import pytest

from rota.core.topology import NodeSpec
from rota.live.agent.messages import AgentNode, AgentReport, LogPiece
from rota.live.drivers.local import outputs as outputs_module
from rota.live.drivers.local.fleet import AgentFleet
from rota.live.drivers.local.outputs import Outputs

OUT = "out", 0


def hear(fleet, agent, *, jobs="", now_s=0.0, number=1, **options):
    nodes = (AgentNode(NodeSpec(f"node-{agent}", 1)),)
    report = AgentReport(agent, agent, 1, number, nodes, jobs=jobs or agent, **options)
    fleet.hear(report, now_s)


@pytest.fixture
def fleet():
    made = AgentFleet(15.0, 60.0)
    for agent in "abc":
        hear(made, agent)
    return made


def asked(outputs, fleet, job="1", stream=OUT):
    return sorted(agent.id for agent in outputs.whom_to_ask(job, stream, fleet))


def test_only_those_that_had_a_new_job_are_asked(fleet):
    outputs = Outputs()
    outputs.begin("1")
    assert asked(outputs, fleet) == []
    outputs.note("1", "b")
    assert asked(outputs, fleet) == ["b"]
    outputs.begin("1")  # told twice
    outputs.note("1", "c")
    assert asked(outputs, fleet) == ["b", "c"]


def test_a_job_from_before_may_have_been_anywhere(fleet):
    outputs = Outputs()
    outputs.note("1", "b")  # where it is now
    assert asked(outputs, fleet) == ["a", "b", "c"]
    outputs.answered("1", OUT, "a", LogPiece(0, end=5, since=1.0))
    outputs.answered("1", OUT, "c", LogPiece(0))
    assert asked(outputs, fleet) == ["a", "b"]
    assert asked(outputs, fleet, stream=("err", 0)) == ["a", "b", "c"]  # may be elsewhere
    hear(fleet, "d")  # a machine that was away
    assert asked(outputs, fleet) == ["a", "b", "d"]


def test_a_folder_that_machines_share_is_read_once(fleet):
    outputs = Outputs()
    for agent in "xy":
        hear(fleet, agent, jobs="shared")
        outputs.note("1", agent)
    assert len({"x", "y"} & set(asked(outputs, fleet))) == 1


def test_what_is_out_of_reach_keeps_its_place(fleet):
    outputs = Outputs()
    outputs.begin("1")
    for agent in "ab":
        outputs.note("1", agent)
    outputs.answered("1", OUT, "a", LogPiece(0, start=2, end=7, since=1.0))
    hear(fleet, "b", now_s=50.0, number=2)
    fleet.check(60.0)  # a and c are lost
    agents = outputs.whom_to_ask("1", OUT, fleet)
    assert [agent.id for agent in agents] == ["b"]
    ((piece, agent),) = outputs.out_of_reach("1", OUT, fleet, agents)
    assert (agent.id, piece.start, piece.end, piece.since) == ("a", 7, 7, 1.0)
    assert outputs.out_of_reach("2", OUT, fleet, agents) == []
    hear(fleet, "a", now_s=61.0, number=2)
    agents = outputs.whom_to_ask("1", OUT, fleet)
    assert outputs.out_of_reach("1", OUT, fleet, agents) == []


def test_what_another_machine_can_read_is_not_out_of_reach(fleet):
    outputs = Outputs()
    outputs.begin("1")
    for agent in "xy":
        hear(fleet, agent, jobs="shared")
        outputs.note("1", agent)
        outputs.answered("1", OUT, agent, LogPiece(0, end=3))
    hear(fleet, "y", jobs="shared", now_s=50.0, number=2)
    fleet.check(60.0)
    agents = outputs.whom_to_ask("1", OUT, fleet)
    assert [agent.id for agent in agents] == ["y"]
    assert outputs.out_of_reach("1", OUT, fleet, agents) == []


def test_memory_is_bounded(fleet, monkeypatch):
    monkeypatch.setattr(outputs_module, "JOBS_KEPT", 2)
    outputs = Outputs()
    for job in ("1", "2", "3"):
        outputs.begin(job)
    assert asked(outputs, fleet, "3") == []
    assert asked(outputs, fleet, "1") == ["a", "b", "c"]  # forgotten: it may be anywhere
