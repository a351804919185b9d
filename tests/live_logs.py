"""The event log of a real daemon, and what must hold for every one."""

import io
import sqlite3
from collections import Counter
from contextlib import closing
from urllib.request import Request, urlopen

import numpy as np
import polars as pl

from rota.core.log import Record
from rota.core.topology import Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from rota.metrics import fold_delay, read_history
from rota.metrics.history import OVER, RUNS
from scripted import ScriptedDriver, ScriptedWorld


def exported(daemon):
    """Return the event log of a daemon, as anybody can download it."""
    place = daemon.client.place
    request = Request(  # noqa: S310 - our own server
        f"{place.server}/api/v1/events.parquet", headers={"Authorization": f"Bearer {place.token}"}
    )
    with urlopen(request, timeout=300) as answer:  # noqa: S310
        return pl.read_parquet(io.BytesIO(answer.read()))


def stored_rows(path):
    """Check a store that no daemon uses; return the rows of its log after a recovery.

    A recovery raises if what follows from the journal is not what was logged.
    """
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = Store(path)
    try:
        loop = DaemonLoop(
            store, ScriptedDriver(ScriptedWorld({})), Scheduling(), Topology.uniform(4, 4)
        )
        loop.flush()  # writes what was not logged yet
        return [row[1:] for row in store.rows(0, 10**9)]
    finally:
        store.close()


def assert_sound(log, capacity):
    """Times never go back, jobs end at most once, delays add up, no node is over-committed."""
    assert log["time_s"].is_sorted()
    ends = log.filter(pl.col("event").is_in(["done", "failed", "rejected", "cancelled"]))
    assert ends["job"].is_unique().all(), ends
    history = read_history(log)
    delays = fold_delay(history).sum(axis=1)
    jobs = history.is_job
    np.testing.assert_allclose(delays, history.waited_s[jobs], atol=1e-6)
    ran_s = history.per_job(np.where(history.state == RUNS, history.length_s, 0.0))[jobs]
    life_s = history.per_job(np.where(history.state != OVER, history.length_s, 0.0))[jobs]
    np.testing.assert_allclose(delays + ran_s, life_s, atol=1e-6)
    assert_nobody_shares(log, history, capacity)


def assert_nobody_shares(log, history, capacity):
    """At no row are more GPUs of a node held than it has."""
    vertices = log.filter(pl.col("event") == "vertex")
    names = dict(zip(vertices["ref"], vertices["text"], strict=True))
    slices = {}
    for ref, vertex, gpus in log.filter(pl.col("event") == "allocation")[
        ["ref", "other", "value"]
    ].iter_rows():
        slices.setdefault(ref, []).append((vertex, gpus))
    changes, allocation = [], -1
    for span in range(len(history.row)):
        row = history.row[span]
        leaves = history.value[row] == np.inf and history.held[span]  # its old place, for a MOVE
        if history.kind[span] in (Record.START, Record.MOVE) and not leaves:
            allocation = int(history.ref[row])
        if history.held[span]:
            for vertex, gpus in slices[allocation]:
                changes.append((int(history.until_row[span]), 0, vertex, -gpus))
                changes.append((int(row), 1, vertex, gpus))
    used = Counter()
    for row, _, vertex, gpus in sorted(changes):
        used[vertex] += gpus
        assert used[vertex] <= capacity + 1e-9, f"row {row}: {used[vertex]} GPUs of {names[vertex]}"
