"""What must hold for every log of a real daemon."""

from collections import Counter

import numpy as np
import polars as pl

from rota.core.events import Record
from rota.metrics import fold_delay, read_history
from rota.metrics.history import OVER, RUNS


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
        if used[vertex] > capacity: log.write_parquet("/tmp/h-faults/log.parquet")
        assert used[vertex] <= capacity + 1e-9, f"row {row}: {used[vertex]} GPUs of {names[vertex]}"

