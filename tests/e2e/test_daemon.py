"""A real daemon, its embedded agent and real processes, from submission to end."""

import io
import random
import time
from urllib.request import Request, urlopen

import polars as pl
import pytest

from agents_net import alive, eventually
from live_logs import assert_sound
from saving_job import script

WAIT_FOR_FILE = "while [ ! -e {} ]; do sleep 0.05; done"


def exported(daemon):
    """The event log, as anybody can download it."""
    place = daemon.client.place
    request = Request(  # noqa: S310 - our own server
        f"{place.server}/api/v1/events.parquet", headers={"Authorization": f"Bearer {place.token}"}
    )
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return pl.read_parquet(io.BytesIO(answer.read()))


def sixty_jobs(folder, seed=3):
    """Three waves: long wide jobs first, so that whoever preempts has a reason to."""
    dice = random.Random(seed)  # noqa: S311
    waves = []
    for gpus, least_s, most_s in (((4, 4, 2), 0.9, 1.5), ((1, 2, 4), 0.3, 0.8), ((1, 1, 2), 0.2, 0.5)):
        wave = []
        for number in range(20):
            work_s = round(dice.uniform(least_s, most_s), 2)
            wave.append(
                {
                    "run": script(work_s, folder),
                    "queue": ("red", "green", "blue")[number % 3],
                    "estimate": work_s,
                    "resources": {"gpus": dice.choice(gpus)},
                }
            )
        waves.append(wave)
    return waves


@pytest.mark.parametrize(
    ("policy", "preempts"), [("fifo", False), ("tiresias:limits=0.4/2", True), ("srtf", True)]
)
def test_sixty_jobs_in_three_queues_all_finish(daemons, tmp_path, policy, preempts, capsys):
    daemon = daemons("--nodes", "4x4", "--policy", policy, "--check", "--log-level", "warning")
    jobs = []
    for wave in sixty_jobs(tmp_path):
        jobs += daemon.client.submit_many(wave)
        eventually(
            lambda: any(job.state == "RUNNING" for job in daemon.client.jobs(active=True)), 60, 0.1
        )
    found = daemon.all_over(90)
    assert [job.id for job in found] == [job.id for job in jobs]
    assert {job.state for job in found} == {"SUCCEEDED"}
    assert {job.queue for job in found} == {"red", "green", "blue"}

    runs = (tmp_path / "runs").read_text().split()
    assert len(set(runs)) == len(runs)
    for job in found:
        assert len((tmp_path / f"{job.id}.done").read_text().split()) == 1

    log = exported(daemon)
    counts = dict(log["event"].value_counts().iter_rows())
    assert counts["done"] == 60
    assert sum(job.starts for job in found) == counts["start"] - starts_that_waited(log)
    assert bool(counts.get("stop")) == preempts
    assert sum(job.preemptions for job in found) == counts.get("stop", 0)
    assert_sound(log, capacity=4)

    status = daemon.client.status()
    decision, start = status["decision_s"], status["start_s"]
    with capsys.disabled():
        print(  # noqa: T201 - to be seen in the output of the tests
            f"\n{policy}: {counts.get('stop', 0)} preemptions; "
            f"decision p50 {1e3 * decision['p50']:.1f} ms, p99 {1e3 * decision['p99']:.1f} ms; "
            f"job start p50 {1e3 * start['p50']:.0f} ms, p99 {1e3 * start['p99']:.0f} ms"
        )
    assert decision["count"] >= 60
    assert decision["p99"] < 2.0
    assert start["p50"] < 10.0


def starts_that_waited(log):
    """START rows that only reserve a place: the real start has a row of its own, or RUN follows."""
    rows = log.filter(pl.col("event").is_in(["start", "run", "stop", "done", "stopped"]))
    again = 0
    last = {}
    for event, job, value in rows[["event", "job", "value"]].iter_rows():
        if event == "start" and last.get(job) == ("start", float("inf")):
            again += 1
        last[job] = (event, value)
    return again
