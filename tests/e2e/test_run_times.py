"""Run times in the log of a daemon that comes and goes are those that the shims measured."""

import json
import os
import random
import sqlite3
import time
from contextlib import closing, suppress

import numpy as np
import polars as pl
import pytest

from agents_net import eventually
from live_logs import assert_sound, exported
from rota.metrics import fold_jobs, read_history
from rota.metrics.history import RUNS

CLOSE_S = 0.2


class Records:
    """What the shims wrote down: their files are kept, though the daemon removes their folders."""

    def __init__(self, daemon, folder):
        self.runs, self.folder = daemon.state / "agent" / "runs", folder
        folder.mkdir()

    def keep(self, job):
        """Hold on to the file that will be the record of the first run of a job."""
        place = self.runs / f"{job}.0-0"
        eventually((place / "identity.json").exists)  # without a shim nothing would be started
        os.link(place / "exit.reserved", self.folder / job)

    def keep_if_there(self, job):
        """The same at any point of its life: a run that has ended has its record elsewhere."""
        place = self.runs / f"{job}.0-0"
        if (place / "identity.json").exists() and not (self.folder / job).exists():
            for name in ("exit.reserved", "exit.json"):
                with suppress(FileNotFoundError):
                    os.link(place / name, self.folder / job)
                    return

    def read(self, job):
        text = (self.folder / job).read_text().strip()
        return json.loads(text) if text else None

    def over(self, job):
        """Wait until a shim has written its record."""
        return eventually(lambda: self.read(job))

    def seconds(self, job):
        record = self.read(job)
        return record["clock"] - record["began"]["clock"]


def run_times(daemon):
    log = exported(daemon)
    history = read_history(log)
    seconds = history.per_job(np.where(history.state == RUNS, history.length_s, 0.0))
    assert_sound(log, 4)
    return dict(zip(fold_jobs(history)["job_id"], seconds[history.is_job].tolist(), strict=True))


def compare(daemon, records, jobs):
    told = run_times(daemon)
    for job in jobs:
        measured_s = records.seconds(job)
        assert abs(told[job] - measured_s) <= CLOSE_S, (job, told[job], measured_s)
        assert abs(daemon.client.job(job).run_s - measured_s) <= CLOSE_S


def test_run_times_are_those_of_the_shims_though_the_daemon_was_away(daemons, tmp_path):
    """Three absences; each lasts until the job has ended, and 45 s more are planted."""
    daemon = daemons("--nodes", "1x4", "--check")
    records = Records(daemon, tmp_path / "records")
    jobs = []
    for seen in (True, False, True):
        go = tmp_path / f"go{len(jobs)}"
        job = daemon.submit(f"until [ -e {go} ]; do sleep 0.05; done")
        records.keep(job)
        if seen:
            daemon.until(job, "RUNNING")
        daemon.kill()
        go.touch()
        records.over(job)
        with closing(sqlite3.connect(daemon.state / "rota.db")) as store, store:
            store.execute("UPDATE facts SET value = value - 45 WHERE name = 'epoch_unix'")
        daemon.start()
        daemon.until(job, "SUCCEEDED")
        jobs.append(job)
    compare(daemon, records, jobs)


@pytest.mark.soak
def test_fifty_restarts_with_random_downtime(daemons, tmp_path):
    daemon = daemons("--nodes", "1x4", "--check")
    records = Records(daemon, tmp_path / "records")
    dice = random.Random(50)  # noqa: S311
    jobs = []
    for _ in range(50):
        lengths = [dice.uniform(0.1, 3.0) for _ in range(dice.randrange(1, 4))]
        jobs += [daemon.submit(f"sleep {length:.2f}") for length in lengths]
        time.sleep(dice.uniform(0.0, 0.5))  # at any point of their lives
        for job in jobs:
            records.keep_if_there(job)
        if dice.random() < 0.5:
            daemon.kill()
        else:
            daemon.stop()
        time.sleep(dice.uniform(0.0, 4.0))
        daemon.start()
    daemon.all_over()
    kept = [job for job in jobs if (records.folder / job).exists() and records.read(job)]
    assert len(kept) >= len(jobs) / 2
    compare(daemon, records, kept)
    assert exported(daemon).filter(pl.col("event") == "done").height == len(jobs)
