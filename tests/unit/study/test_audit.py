"""What an audit of the queues finds in a log."""

import pytest

from rota.study.audit import audit_folder
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate

CLUSTER = """\
nodes:
  - {name: n0, gpus: 4}
tenants:
  - {name: own, quota: 3}
  - {name: guest, quota: 1}
"""
JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc
g,0,4,7200,guest
o,0,3,3600,own
large,0,99,60,own
late,7200,1,3600,guest
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    config = RunConfig(
        trace=str(tmp_path / "jobs.csv"), cluster=str(tmp_path / "cluster.yaml"), policy="fifo-skip"
    )
    out = tmp_path / "out"
    out.mkdir()
    write_run(simulate(config), out)
    return out


def test_sums_are_those_of_the_log(folder):
    found = {(one.kind, one.subject): one for one in audit_folder(folder)}
    starved = found["starved", "own"]
    # of 10,800 s: two hours of 3 GPUs asked for and not given, then an hour of 3 used
    assert starved.numbers["unmet"] == pytest.approx(3 * 7200 / 10800)
    assert starved.numbers["used"] == pytest.approx(3 * 3600 / 10800)
    assert starved.numbers["borrowed_by_others"] == pytest.approx((4 * 7200 + 3600) / 10800 - 1)
    assert "longest wait 2h 00m" in starved.text
    assert "99" in found["never", "large"].text
    assert set(found) == {("starved", "own"), ("never", "large")}
