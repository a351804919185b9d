"""A history as Slurm's accounting: read again, it is the same schedule."""

import polars as pl
import pytest

from rota.core.errors import OutputError
from rota.study.config import RunConfig
from rota.study.replay.replay import Asked, replay
from rota.study.run import simulate
from rota.traces.formats.slurm.write_sacct import shards_for, write_sacct
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.read import read_trace

JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc,user
0,0,4,100,a,ann
1,10,4,20,b,bob
2,20,1,30,a,ann
3,25,8,10,b,bob
4,30,2,60,a,cid
"""


@pytest.fixture
def ran(tmp_path):
    """Return the history of jobs under a policy that preempts."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    config = RunConfig(trace=str(tmp_path / "jobs.csv"), cluster="1x8", policy="srtf")
    (tmp_path / "run").mkdir()
    simulate(config).log.write_parquet(tmp_path / "run" / "events.parquet")
    return read_trace(tmp_path / "run", "rota-log")


def attempts(imported):
    names = imported.jobs["job_id"].to_list()
    return [
        (names[seen.job], seen.start_s, seen.end_s, sum(seen.gpus), seen.state)
        for seen in imported.observed.rows()
    ]


def test_what_is_written_is_read_back_as_the_same_schedule(ran, tmp_path):
    lost = write_sacct(ran, tmp_path / "jobs.sacct")
    back = read_trace(tmp_path / "jobs.sacct", "sacct:runtime=sum")
    assert attempts(back) == attempts(ran)
    assert any(state == "preempted" for *_, state in attempts(ran))
    columns = ["job_id", "submit_s", "num_gpus", "duration_s"]
    assert back.jobs.select(columns).rows() == ran.jobs.select(columns).rows()
    assert back.jobs["account"].to_list() == ran.jobs["vc"].to_list()
    assert any("progress of preempted jobs" in text for text in lost)


def test_attempts_of_other_sizes_on_several_nodes_keep_their_gpus(tmp_path):
    jobs = pl.DataFrame(
        {"job_id": ["1"], "submit_s": [0.0], "num_gpus": [16.0], "duration_s": [60.0]}
    )
    seen = [
        Seen(0, 0.0, 10.0, ("n0", "n1"), (4.0, 1.0), "preempted"),
        Seen(0, 10.0, 30.0, ("n0",), (3.0,), "preempted"),
        Seen(0, 30.0, 60.0, ("n0", "n1"), (8.0, 8.0), "done"),
    ]
    write_sacct(Imported(jobs, observed=Observed.of(seen)), tmp_path / "jobs.sacct")
    back = read_trace(tmp_path / "jobs.sacct", "sacct").observed.rows()
    assert [one.gpus for one in back][:2] == [(3.0, 2.0), (3.0,)]  # how it was divided is lost
    assert sum(back[2].gpus) in {0, 16}  # nothing is told: what the job asks for


def test_a_replay_of_it_comes_out_to_the_second(ran, tmp_path):
    write_sacct(ran, tmp_path / "jobs.sacct")
    (tmp_path / "out").mkdir()
    asked = Asked(log=str(tmp_path / "jobs.sacct"), cluster="1x8", model="fifo")
    answer = replay(asked, tmp_path / "out", tmp_path / "out")
    assert answer.recorded.exact == len(answer.recorded.jobs) == 5


def test_names_dates_and_odd_characters_keep_their_place(tmp_path):
    jobs = pl.DataFrame(
        {"job_id": ["a|b"], "submit_s": [0.0], "num_gpus": [0.5], "duration_s": [9.5]}
    )
    seen = [Seen(0, 0.0, 9.5, ("n1",), (0.5,), "done")]
    imported = Imported(jobs, observed=Observed.of(seen), origin="2026-03-31 23:59:55")
    lost = write_sacct(imported, tmp_path / "jobs.sacct")
    names, row = (line.split("|") for line in (tmp_path / "jobs.sacct").read_text().splitlines())
    cells = dict(zip(names, row, strict=True))
    assert (cells["JobID"], cells["JobName"]) == ("1", "a_b")
    assert (cells["Start"], cells["End"]) == ("2026-03-31T23:59:55", "2026-04-01T00:00:05")
    assert cells["AllocTRES"] == "node=1,gres/shard=1"
    assert [text.split(" (")[0] for text in lost] == [
        "names of jobs", "how many shards make a GPU, and the types of shared ones",
        "parts of seconds",
    ]  # fmt: skip


def test_a_file_is_not_overwritten_and_jobs_alone_are_refused(ran, tmp_path):
    path = tmp_path / "jobs.sacct"
    path.write_text("mine")
    with pytest.raises(OutputError, match="--force"):
        write_sacct(ran, path)
    with pytest.raises(OutputError, match="does not say when jobs ran"):
        write_sacct(Imported(ran.jobs), path, force=True)
    assert path.read_text() == "mine"


def test_parts_of_gpus_come_back_as_they_were(tmp_path):
    gpus = [0.5, 0.25, 2.0, 0.2]
    jobs = pl.DataFrame(
        {
            "job_id": ["1", "2", "3", "4"],
            "submit_s": [0.0] * 4,
            "num_gpus": gpus,
            "duration_s": [9.0] * 4,
        }
    )
    seen = [Seen(i, 0.0, 9.0, ("n1",), (amount,), "done") for i, amount in enumerate(gpus)]
    path = tmp_path / "jobs.sacct"
    lost = write_sacct(Imported(jobs, observed=Observed.of(seen)), path)
    assert any("sacct:shards=20)" in text for text in lost)
    assert read_trace(path, "sacct:shards=20").jobs["num_gpus"].to_list() == gpus


def test_shards_of_odd_parts():
    assert shards_for([1.0, 4.0]) == 0
    assert shards_for([0.5, 0.3]) == 10
    assert shards_for([10 / 81, 1 / 3, 0.7]) == 810
    assert shards_for([10 / 81, 1 / 3, 0.7, 1 / 7]) == 1000  # no more, and not all of them whole
