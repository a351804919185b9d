"""Alibaba's gpu-v2020 (PAI) and spot-gpu-v2026."""

import gzip

import pytest

from rota.core.errors import TraceError
from rota.core.jobs import TaskGroup
from rota.core.topology import NodeSpec
from rota.traces.formats import pai, spot
from rota.traces.observed import Seen
from rota.traces.tidy import CUT, NO_DURATION, NO_TIME
from trace_readers import counted

TABLES = {
    "pai_job_table.csv": (
        "j1,i1,u1,Terminated,1000,2000\nj2,i2,u1,Failed,1100.0,1500\nj3,i3,u2,Running,1200,\n"
        "j4,i4,u2,Waiting,1300,\nj5,i5,u2,Terminated,0,1500\n"
    ),
    "pai_task_table.csv": (
        "j1,ps,1,Terminated,1010,2000,600,10,,\n"
        "j1,worker,2,Terminated,1010,2000,600,29.5,100,V100\n"
        "j2,tensorflow,3,Failed,1100,1500,100,2,50,MISC\n"
        "j3,w,1,Running,1200,,600,29,150,T4\nj4,w,1,Waiting,,,600,29,100,T4\n"
        "j5,w,1,Terminated,100,200,1,1,100,T4\n"
    ),
    "pai_instance_table.csv": (
        "j1,ps,x,y,i1,Terminated,1020,2000,m1\nj1,worker,x,y,i1,Terminated,1030,1990,m2\n"
        "j2,tensorflow,x,y,i2,Failed,0,1400,\n"
    ),
    "pai_group_tag_table.csv": "i1,u1,,g9,bert\n",
    "pai_machine_spec.csv": "m1,V100,96,512,8\nm2,CPU,96,512,0\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_tasks_become_roles(folder):
    one, shares, rounded = pai.FORMAT.load(folder, {}).workload.specs
    assert one.request.groups == (
        TaskGroup("ps", 1, 0, 6.0, 10.0),
        TaskGroup("worker", 2, 1, 6.0, 29.5),
    )
    assert (one.request.gpu_types, one.request.gang) == (("V100",), True)
    assert (one.user, one.name, one.model) == ("u1", "g9", "bert")
    assert shares.request.groups[0].gpus == 0.5
    assert not shares.request.gang  # shares are placed one by one
    assert rounded.request.groups[0].gpus == 2


def test_times_come_from_instances_or_else_from_tasks(folder):
    imported = pai.FORMAT.load(folder, {})
    assert imported.observed.rows() == [
        Seen(0, 20.0, 1000.0, ("m1", "m2"), state="done"),
        Seen(1, 100.0, 400.0, state="failed"),
        Seen(2, 200.0, None, state="running"),
    ]
    assert [behaviour.work for behaviour in imported.workload.behaviours] == [980, 300, 800]
    without = pai.FORMAT.load(folder, {"observed": "no"})
    assert [row.start_s for row in without.observed.rows()] == [10.0, 100.0, 200.0]


def test_unknown_times_waiting_jobs_and_missing_plans_are_counted(folder):
    imported = pai.FORMAT.load(folder, {})
    assert imported.quality.dropped == {NO_TIME: 1, NO_DURATION: 1}
    assert imported.quality.repaired == {
        "task without plan_gpu taken as one without GPUs": 1,
        "task with a share above one GPU rounded up to whole GPUs": 1,
        CUT: 1,
    }
    dropped = pai.FORMAT.load(folder, {"gpu": "drop"})
    assert [spec.id for spec in dropped.workload.specs] == ["j2", "j3"]
    assert counted(dropped.quality)


def test_machines(folder):
    assert pai.FORMAT.load(folder, {}).cluster == (
        NodeSpec("m1", 8, "V100", 96.0, 512.0),
        NodeSpec("m2", 0, "", 96.0, 512.0),
    )


def test_the_job_table_names_the_rest_and_tables_may_be_packed(folder):
    packed = folder / "pai_task_table.csv.gz"
    packed.write_bytes(gzip.compress((folder / "pai_task_table.csv").read_bytes()))
    (folder / "pai_task_table.csv").unlink()
    assert len(pai.FORMAT.load(folder / "pai_job_table.csv", {})) == 3
    packed.unlink()
    with pytest.raises(TraceError, match="there is no task table beside it"):
        pai.FORMAT.load(folder, {})


SPOT = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type\n"
    "j2,o1,A100,8,1,2,10,100,Spot\nj1,o1,A100,8,8,1,0,100,HP\nj3,o2,,8,0.5,1,10,,Spot\n"
)


def test_spot_jobs_and_nodes(tmp_path):
    path = tmp_path / "job_info_df.csv"
    path.write_text(SPOT)
    (tmp_path / "node_info_df.csv").write_text(
        "node_name,gpu_model,gpu_capacity_num,cpu_num\nn1,A100,8,128\n"
    )
    imported = spot.FORMAT.load(path, {})
    one, two = imported.workload.specs
    assert (one.id, one.tenant, one.priority, one.request.apart) == ("j1", "o1", 1, True)
    assert two.request.groups == (TaskGroup("worker", 2, 1, 8.0),)
    assert two.priority == 0
    assert imported.cluster == (NodeSpec("n1", 8, "A100", 128.0),)
    assert imported.quality.dropped == {NO_DURATION: 1}


def test_spot_without_its_header(tmp_path):
    path = tmp_path / "jobs"
    path.write_text("".join(SPOT.splitlines(keepends=True)[1:]))
    assert len(spot.FORMAT.load(path, {})) == 2
