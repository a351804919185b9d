"""A page about what runs inside a block."""

from contextlib import suppress

import pytest

import rota
from rota.core.errors import OutputError

TRACE = "job_id,submit_s,num_gpus,duration_s\na,0,2,100\nb,0,2,10\n"


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(TRACE)
    return tmp_path / "jobs.csv"


def test_a_block_is_reported(jobs):
    with rota.performance_report("page.html"):
        rota.simulate(jobs, cluster="1x2", policy="fifo")
        rota.simulate(jobs, cluster="1x2", policy="srtf")
        rota.simulate(jobs, cluster="1x2", policy="fifo")
    page = (jobs.parent / "page.html").read_text()
    assert "In this one run srtf has the lowest mean JCT: 1m 00s, against 1m 45s of fifo." in page
    assert "fifo (2)" in page
    assert "different" not in page
    rota.simulate(jobs, cluster="1x2", policy="las")
    assert (jobs.parent / "page.html").read_text() == page, "what runs after it is not in it"


def test_runs_that_cannot_be_compared_are_marked(jobs):
    with rota.performance_report("page.html"):
        rota.simulate(jobs, cluster="1x2", policy="fifo")
        rota.simulate(jobs, cluster="1x4", policy="srtf")
    page = (jobs.parent / "page.html").read_text()
    assert "the runs are of different clusters: do not compare their numbers" in page


def test_blocks_within_blocks_and_errors(jobs):
    with rota.performance_report("outer.html"):
        rota.simulate(jobs, cluster="1x2", policy="fifo")
        with suppress(ZeroDivisionError), rota.performance_report("inner.html"):
            rota.simulate(jobs, cluster="1x2", policy="srtf")
            raise ZeroDivisionError
    inner, outer = (jobs.parent / f"{name}.html" for name in ("inner", "outer"))
    assert "fifo" not in inner.read_text().partition("<script")[0]
    assert "2 policies" in outer.read_text()


def test_a_block_without_a_run_writes_nothing(jobs):
    with rota.performance_report("page.html"):
        pass
    assert not (jobs.parent / "page.html").exists()
    with pytest.raises(OutputError, match="No such file"), rota.performance_report("no/page.html"):
        rota.simulate(jobs, cluster="1x2", policy="fifo")
