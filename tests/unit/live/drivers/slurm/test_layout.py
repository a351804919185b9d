"""Answers of Slurm, in the layout of 22.05 and in the later one."""

import json

import pytest

from rota.core.errors import ClusterError
from rota.core.events import INF
from rota.core.hostlist import expand
from rota.core.topology import NodeSpec
from rota.live.drivers.slurm.layout import (
    exit_code,
    gpus_in,
    number,
    read_jobs,
    read_nodes,
)


def old_job(**fields):
    return {
        "job_id": 7, "job_state": "RUNNING", "state_reason": "None", "comment": "c", "nodes": "n1",
        "exit_code": 0, "restart_cnt": 1, "priority": 4294901759, "tres_per_node": "gres:gpu:2",
        "node_count": 1, "gres_detail": ["gpu:a100:2(IDX:0-1)"], "submit_time": 100,
        "start_time": 110, "end_time": 0, "time_limit": 60, "cpus": 4, "memory_per_cpu": 512,
        "user_name": "ada", "account": "", "partition": "main", "het_job_id": 0, **fields,
    }  # fmt: skip


def wrapped(value):
    return {"set": True, "infinite": False, "number": value}


def jobs(*raw):
    return read_jobs(json.dumps({"errors": [], "jobs": raw, "meta": {"more": []}}))


def node(**fields):
    raw = {
        "name": "n1", "address": "10.0.0.1", "state": "idle", "state_flags": [], "cpus": 16,
        "gres": "gpu:a100:4(S:0-1)", "real_memory": 65536, "partitions": ["main"], "reason": "",
        **fields,
    }  # fmt: skip
    return read_nodes(json.dumps({"nodes": [raw]}))[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-10,12],gpu7", ("n08", "n09", "n10", "n12", "gpu7")),
        ("r[1-2]n[3-4]", ("r1n3", "r1n4", "r2n3", "r2n4")),
        ("n[1,3]-ib", ("n1-ib", "n3-ib")),
    ],
)
def test_lists_of_nodes_are_expanded(text, names):
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-2", "n[a-b]"])
def test_a_strange_list_of_nodes_is_refused(text):
    with pytest.raises(ClusterError, match="cannot read"):
        expand(text)


def test_numbers_may_be_wrapped():
    assert [number(5), number(wrapped(5)), number(None), number({"set": False}, 3.0)] == [
        5,
        5,
        0,
        3,
    ]
    assert number({"set": True, "infinite": True, "number": 0}) == INF


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, 0),
        (768, 3),
        (9, -9),
        ({"return_code": wrapped(3), "signal": {"id": wrapped(0)}}, 3),
        ({"status": ["SIGNALED"], "signal": {"id": wrapped(15), "name": "TERM"}}, -15),
        ({"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 0}}, 0),
    ],
)
def test_exit_codes(value, code):
    assert exit_code(value) == code


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:a100:2(IDX:0-1)", (2, "a100")),
        ("gres:gpu:2", (2, "")),
        ("gres/gpu:4", (4, "")),
        ("cpu=2,mem=1G,gres/gpu=4,gres/gpu:h100=4", (4, "h100")),
        ("gpu:a100:2,gpu:v100:1", (3, "")),
        ("cpu=2,license/gpuhours=7", (0, "")),
        ("", (0, "")),
    ],
)
def test_gpus_in_texts(text, found):
    assert gpus_in(text) == found


def test_old_and_new_layouts_say_the_same():
    new = old_job(
        job_state=["RUNNING"], priority=wrapped(4294901759), node_count=wrapped(1), cpus=wrapped(4),
        memory_per_cpu=wrapped(512), time_limit=wrapped(60), submit_time=wrapped(100),
        start_time=wrapped(110), end_time=wrapped(0), het_job_id=wrapped(0),
        tres_per_node="gres/gpu:2", exit_code={"return_code": wrapped(0), "status": ["SUCCESS"]},
    )  # fmt: skip
    assert jobs(new) == jobs(old_job())
    (job,) = jobs(old_job())
    assert (job.nodes, job.node_gpus, job.gpus, job.limit_s) == (("n1",), (2,), 2, 3600.0)
    assert (job.cpus, job.mem_gib, job.restarts, job.over) == (4, 2.0, 1, False)


@pytest.mark.parametrize(
    ("state", "base", "busy", "over"),
    [
        ("PENDING", "PENDING", False, False),
        ("COMPLETING", "RUNNING", True, False),
        ("COMPLETED", "COMPLETED", False, True),
        (["FAILED", "COMPLETING"], "FAILED", True, False),
        (["RUNNING", "CONFIGURING"], "RUNNING", False, False),
        ("CONFIGURING", "RUNNING", False, False),
        ("REQUEUE_HOLD", "PENDING", False, False),
        ("NODE_FAIL", "NODE_FAIL", False, True),
        ("SOMETHING_NEW", "FAILED", False, True),
    ],
)
def test_states_of_jobs(state, base, busy, over):
    (job,) = jobs(old_job(job_state=state))
    assert (job.state, job.busy, job.over) == (base, busy, over)


def test_a_job_without_priority_is_held():
    held, free = jobs(
        old_job(job_state="PENDING", priority=0),
        old_job(job_id=8, job_state="PENDING", state_reason="Resources"),
    )
    assert (held.held, free.held) == (True, False)
    assert held.nodes == ()


def test_components_of_a_heterogeneous_job_are_one_job():
    first = old_job(job_id=9, het_job_id=9, job_state="COMPLETED")
    second = old_job(job_id=10, het_job_id=9, nodes="n[3-4]", gres_detail=["gpu:1", "gpu:1"])
    (job,) = jobs(second, first)
    assert (job.id, job.nodes, job.node_gpus) == (9, ("n1", "n3", "n4"), (2, 1, 1))
    assert not job.over  # the second one is still there


def test_gpus_of_the_whole_job():
    asked = [
        old_job(tres_per_node="", tres_per_job="gres:gpu:8", gres_detail=[]),
        old_job(job_id=2, tres_per_node="gres:gpu:2", node_count=3, gres_detail=[]),
        old_job(job_id=3, tres_per_node="", tres_per_task="gres:gpu:1", tasks=5, gres_detail=[]),
        old_job(job_id=4, tres_per_node="", tres_req_str="cpu=1,gres/gpu=6", gres_detail=[]),
    ]
    assert [job.gpus for job in jobs(*asked)] == [8, 6, 5, 6]


@pytest.mark.parametrize(
    ("fields", "health", "refuses"),
    [
        ({"state": "mixed"}, "up", False),
        ({"state": ["IDLE"]}, "up", False),
        ({"state": "idle", "state_flags": ["DRAIN"]}, "silent", True),
        ({"state": ["ALLOCATED", "DRAIN"]}, "silent", True),
        ({"state_flags": ["NOT_RESPONDING"]}, "silent", False),
        ({"state": "unknown"}, "silent", False),
        ({"state": "down", "state_flags": ["NOT_RESPONDING"]}, "lost", True),
        ({"state_flags": ["POWERED_DOWN"]}, "lost", True),
    ],
)
def test_health_of_nodes(fields, health, refuses):
    found = node(**fields)
    assert (found.health, found.refuses) == (health, refuses)


def test_a_node_becomes_a_spec():
    found = node()
    assert found.spec == NodeSpec("n1", 4, "a100", 16.0, 64.0)
    assert found.address == "10.0.0.1"


def test_errors_in_an_answer_are_errors():
    with pytest.raises(ClusterError, match="no controller") as error:
        read_jobs(json.dumps({"errors": [{"description": "no controller"}], "jobs": []}))
    assert error.value.retryable
    with pytest.raises(ClusterError, match="cannot understand"):
        read_nodes("squeue: error: hello")


@pytest.mark.parametrize(
    ("state", "flags", "used", "forgotten"),
    [
        ("idle", [], "gpu:a100:4(IDX:0-3)", True),
        ("idle", [], "gpu:a100:0(IDX:N/A)", False),
        ("idle", ["COMPLETING"], "gpu:a100:4(IDX:0-3)", False),
        ("allocated", [], "gpu:a100:4(IDX:0-3)", False),
    ],
)
def test_gpus_that_slurm_has_forgotten(state, flags, used, forgotten):
    raw = {
        "name": "n1",
        "state": state,
        "state_flags": flags,
        "gres": "gpu:a100:4",
        "gres_used": used,
    }
    (node,) = read_nodes(json.dumps({"nodes": [raw]}))
    assert node.forgotten_gpus is forgotten
