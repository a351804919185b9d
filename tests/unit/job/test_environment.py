import math
import os
from pathlib import Path

import pytest

from rota import job


def test_outside_rota_it_is_a_job_of_one_process():
    about = job.info()
    assert not about.inside
    assert about.is_first
    assert (about.rank, about.world_size, about.local_rank, about.local_world_size) == (0, 1, 0, 1)
    assert (about.node_rank, about.num_nodes, about.restart_count) == (0, 1, 0)
    assert about.report_file is None
    assert about.grace_s == math.inf
    assert about.node_name == os.uname().nodename
    assert about.checkpoint_dir == Path("checkpoint")
    assert not about.checkpoint_dir.exists()  # only to ask makes no folder


def test_inside_the_environment_tells(monkeypatch):
    told = {
        "ROTA_JOB_ID": "17",
        "ROTA_RUN_ID": "17.2",
        "ROTA_RESTART_COUNT": "2",
        "ROTA_CHECKPOINT_DIR": "/state/17",
        "ROTA_REPORT_FILE": "/run/17.2/report",
        "ROTA_GRACE_S": "2.5",
        "ROTA_NUM_NODES": "2",
        "ROTA_GPUS": "0.5",
        "ROTA_NODE_NAME": "n1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    about = job.info()
    assert about.inside
    assert not about.is_first
    assert about == job.Info(
        job_id="17",
        run_id="17.2",
        restart_count=2,
        checkpoint_dir=Path("/state/17"),
        report_file=Path("/run/17.2/report"),
        grace_s=2.5,
        rank=3,
        world_size=4,
        local_rank=1,
        local_world_size=2,
        node_rank=1,
        num_nodes=2,
        node_name="n1",
        gpus=0.5,
    )


def test_a_number_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ValueError, match="RANK='first' in the environment is not a number"):
        job.info()


def test_the_folder_of_checkpoints_is_made(checkpoints):
    assert job.checkpoint_dir() == checkpoints
    assert checkpoints.is_dir()
    assert job.checkpoint_dir() == checkpoints
