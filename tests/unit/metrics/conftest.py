"""Event logs written by hand."""

import polars as pl
import pytest

from rota.core.log import Record

KINDS = pl.Enum([record.name.lower() for record in Record])


class Script:
    """Writes the rows of a log one after the other; `at(t)` sets the clock."""

    def __init__(self, nodes=1, gpus=4):
        self.rows = []
        self.now_s = 0.0
        self.shapes = {}
        self.allocations = {}
        self.row("vertex", ref=0, value=nodes * gpus, text="cluster:cluster")
        for number in range(nodes):
            self.row("vertex", ref=1 + number, other=0, value=gpus, text=f"node:n{number}")
        self.row("tenant", ref=0, text="")
        self.row("tenant", ref=1, text="team")

    def at(self, now_s):
        self.now_s = float(now_s)
        return self

    def row(self, event, job=-1, ref=-1, other=-1, value=0.0, text=None):
        self.rows.append((self.now_s, event, job, ref, other, float(value), text))
        return self

    def shape(self, gpus):
        if gpus not in self.shapes:
            self.shapes[gpus] = len(self.shapes)
            self.row("shape", ref=self.shapes[gpus], value=gpus, text=f"{gpus} GPUs")
        return self.shapes[gpus]

    def submit(self, job, gpus=1, tenant=0):
        return self.row("submit", job, self.shape(gpus), tenant, gpus, f"j{job}")

    def task(self, job, parent, gpus=1):
        return self.row("task", job, self.shape(gpus), parent, gpus)

    def allocation(self, gpus):
        if gpus not in self.allocations:
            self.allocations[gpus] = len(self.allocations)
            self.row("allocation", ref=self.allocations[gpus], other=1, value=gpus)
        return self.allocations[gpus]

    def start(self, job, gpus=1, since=None):
        since = self.now_s if since is None else since
        return self.row("start", job, self.allocation(gpus), 0, since)

    def move(self, job, gpus=1, since=None):
        since = self.now_s if since is None else since
        return self.row("move", job, self.allocation(gpus), -1, since)

    def stop(self, job, lost=0.0):
        return self.row("stop", job, 0, -1, lost)

    def blame(self, gpus, reason, head=-1):
        return self.row("reason", head, self.shape(gpus), -1, reason)

    def share(self, gpus, tenant, reason):
        return self.row("reason", -1, self.shape(gpus), tenant, reason)

    def end(self, events=7, decisions=3):
        self.row("end", -1, events, decisions)
        return pl.DataFrame(
            self.rows,
            schema={
                "time_s": pl.Float64, "event": KINDS, "job": pl.Int32, "ref": pl.Int32,
                "other": pl.Int32, "value": pl.Float64, "text": pl.String,
            },
            orient="row",
        )  # fmt: skip


@pytest.fixture
def script():
    return Script()
