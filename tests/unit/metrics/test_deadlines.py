"""Who was too late."""

import numpy as np
import polars as pl
import pytest

from rota.metrics import fold_summary
from rota.metrics.deadlines import fold_deadlines
from rota.study.config import RunConfig
from rota.study.explain import explain_folder
from rota.study.output import write_run
from rota.study.run import simulate

INF = float("inf")


def folded(*jobs, end_s=100.0):
    """Fold jobs given as (state, end, deadline)."""
    states, ends, deadlines = zip(*jobs, strict=True)
    table = pl.DataFrame({"state": states, "end_s": pl.Series(ends, dtype=pl.Float64)})
    chosen = np.ones(len(jobs), dtype=np.bool_)
    found = fold_deadlines(table, chosen, np.array(deadlines, dtype=float), end_s)
    return tuple(found.values())


@pytest.mark.parametrize(
    ("job", "found"),
    [
        (("done", 10, 10), (1, 0, 0.0, 0.0, 0.0)),
        (("done", 11, 10), (1, 1, 1.0, 1.0, 1.0)),
        (("done", 11, INF), (0, 0, None, None, None)),
        (("failed", 5, 10), (1, 1, 1.0, None, None)),
        (("cancelled", 5, 10), (1, 1, 1.0, None, None)),
        (("rejected", None, 10), (1, 1, 1.0, None, None)),
        (("unfinished", None, 99), (1, 1, 1.0, None, None)),
        (("unfinished", None, 101), (0, 0, None, None, None)),  # it could still be met
    ],
)
def test_one_job(job, found):
    assert folded(job) == found


def test_the_share_is_of_those_with_a_deadline():
    assert folded(("done", 5, 10), ("done", 20, 10), ("done", 20, INF), ("done", 1, 2)) == (
        3, 1, 1 / 3, 10 / 3, 10.0,
    )  # fmt: skip


def test_a_log_alone_does_not_know(script):
    summary = fold_summary(script.submit(0).start(0).at(5).row("done", 0).end())

    assert summary["with_deadline"] is summary["deadline_miss_share"] is None


def test_a_run_knows_the_deadlines_of_its_trace(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s,deadline_s\n"
        "a,0,8,100,100\nb,0,8,100,150\nc,0,8,100,\nd,0,8,10,320\n"
    )
    config = RunConfig(trace=str(trace), cluster="1x8", policy="fifo")
    whole = simulate(config).summary
    later = simulate(RunConfig(trace=str(trace), cluster="1x8", policy="fifo", window="2/2"))

    assert (whole["with_deadline"], whole["deadline_misses"]) == (3, 1)
    assert whole["deadline_miss_share"] == pytest.approx(1 / 3)
    assert (whole["avg_tardiness_s"], whole["max_tardiness_s"]) == (50 / 3, 50.0)
    assert later.summary["with_deadline"] == 1
    assert later.summary["deadline_misses"] == 0


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("a", "met its deadline"),
        ("b", "50 s too late for its deadline"),
        ("c", None),
        ("d", "missed its deadline"),
    ],
)
def test_explain_tells_what_became_of_a_deadline(tmp_path, job, said):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s,deadline_s\n"
        "a,0,8,100,100\nb,0,8,100,150\nc,0,8,100,\nd,0,9,10,320\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    write_run(simulate(RunConfig(trace=str(trace), cluster="1x8", policy="fifo")), out)
    story = explain_folder(out, job)

    assert story.text.rpartition("; ")[2] == said if said else "deadline" not in story.text
    assert (story.deadline_s is None) == (said is None)
