"""A schedule has one mean JCT and one mean wait, whoever is asked."""

import json

import polars as pl
import pytest

HEAD = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|"
    "TimelimitRaw|ReqTRES|AllocTRES|NNodes|NodeList"
)
ROWS = (
    ("1", "08:00", "08:00", "09:00", "COMPLETED", 3600),
    ("2", "08:10", "09:00", "09:30", "COMPLETED", 1800),
    ("3", "08:20", "09:30", None, "RUNNING", 1800),
    ("4", "08:30", "09:30", "10:00", "FAILED", 1800),
)


@pytest.fixture
def replayed(rota, here):
    def at(clock):
        return f"2026-03-02T{clock}:00" if clock else "Unknown"

    lines = [
        f"{i}|{i}|a|ann|x|gpu|{at(submit)}|{at(submit)}|{at(start)}|{at(end)}|{state}|{ran}|120|"
        "gres/gpu=4|gres/gpu=4|1|n1"
        for i, submit, start, end, state, ran in ROWS
    ]
    (here / "jobs.txt").write_text("\n".join([HEAD, *lines]) + "\n")
    code, _, err = rota("replay", "jobs.txt", "--cluster", "1x8", "--policy", "fifo", "-o", "out")
    assert code == 0, err
    return here / "out"


@pytest.mark.parametrize("schedule", ["observed", "fifo"])
def test_the_table_and_the_summary_agree_and_name_who_is_unfinished(replayed, schedule):
    table = pl.read_csv(replayed / "replay.csv").filter(
        (pl.col("by") == "all") & (pl.col("schedule") == schedule)
    )
    summary = json.loads((replayed / schedule / "summary.json").read_text())
    jobs = pl.read_csv(replayed / schedule / "jobs.csv")

    assert table["mean_jct_s"][0] == summary["avg_jct_s"]
    assert table["mean_wait_s"][0] == summary["avg_wait_s"]
    assert table["p50_wait_s"][0] == summary["p50_wait_s"]
    assert (summary["completed"], summary["censored"]) == (3, 1)
    assert jobs.filter(pl.col("state") == "unfinished")["job_id"].to_list() == [3]
    assert table["refused"][0] == 0


def test_inspecting_the_log_gives_the_same_means(replayed, rota):
    summary = json.loads((replayed / "observed" / "summary.json").read_text())
    seen = json.loads(rota("trace", "inspect", "jobs.txt", "-o", "json")[1])["observed"]

    assert summary["avg_jct_s"] == 4600
    assert (seen["mean_jct_s"], seen["mean_wait_s"], seen["median_wait_s"]) == (
        summary["avg_jct_s"], summary["avg_wait_s"], summary["p50_wait_s"],
    )  # fmt: skip
    assert seen["censored"] == 1
