"""Small traces and runs."""

import pytest

from rota.study.config import RunConfig

JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc
0,0,4,100,a
1,10,4,20,b
2,20,1,30,a
3,25,8,10,b
4,30,2,60,a
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


@pytest.fixture
def config(trace):
    """Return `config(**changes)`: a run of the small trace on one node with 8 GPUs."""

    def make(**changes):
        return RunConfig(**{"trace": str(trace), "cluster": "1x8", "policy": "fifo"} | changes)

    return make
