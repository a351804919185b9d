"""The table of a sweep: one row per run, and means over the seeds.

Rows are in the order of the matrix and hold nothing that depends on when or where a run was done
(CPU times are in the `summary.json` of each run): the same sweep gives the same bytes.
"""

import io
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec
import polars as pl

from rota.study.statistics import Ratio, ratio_interval
from rota.study.sweep.spec import Label

RUN = "run"
LEFT_OUT = ("assumptions", "measured")
MACHINE = "cpu_s"  # in the names of all numbers that depend on the machine
MEASURES = (
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s",
    "gpu_utilisation", "preemptions", "completed", "jobs",
)  # fmt: skip
SEED, POLICY = "seed", "policy"

Row = dict[str, Any]


def make_table(axes: Sequence[str], rows: Sequence[Row]) -> pl.DataFrame:
    """A table from rows of labels and numbers; every name of any row is a column."""
    names = dict.fromkeys(axes)
    names |= dict.fromkeys(key for row in rows for key in row if key != RUN)
    names |= {RUN: None}
    return pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])


def make_row(labels: Mapping[str, Label], summary: Mapping[str, Any], key: str) -> Row:
    """The labels of a cell and all numbers of its run."""
    numbers = {
        name: value
        for name, value in _flat("", summary)
        if name not in labels and (value is None or isinstance(value, (int, float)))
    }
    return {**labels, **numbers, RUN: key}


def _flat(prefix: str, data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(name, value) of everything; what is inside gets the name of what it is in before its own."""
    found: list[tuple[str, Any]] = []
    for key, value in data.items():
        if not prefix and (key in LEFT_OUT or MACHINE in key):
            continue
        if isinstance(value, Mapping):
            found += _flat(f"{prefix}{key}_", value)
        else:
            found.append((prefix + key, value))
    return found


def _column(name: str, values: list[Any]) -> pl.Series:
    """Of the narrowest type that holds all: whole numbers, numbers or texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, bool}:
        kind: type[pl.DataType] = pl.Boolean if kinds == {bool} else pl.Int64
    elif kinds <= {int, float, bool}:
        kind = pl.Float64
    else:
        kind = pl.String
        values = [None if value is None else str(value) for value in values]
    return pl.Series(name, values, dtype=kind, strict=False)


def csv_bytes(table: pl.DataFrame) -> bytes:
    """As csv."""
    return table.write_csv().encode()


def parquet_bytes(table: pl.DataFrame) -> bytes:
    """As Parquet."""
    file = io.BytesIO()
    table.write_parquet(file, compression="zstd")
    return file.getvalue()


# --- means over the seeds ------------------------------------------------------------------------


class Mean(msgspec.Struct, frozen=True):
    """One group: its labels, its runs, means of its numbers, and the mean JCT to the baseline's.

    `idle`: nobody waited there under any policy, so that a ratio tells nothing about policies.
    """

    labels: dict[str, Label]
    runs: int
    values: dict[str, float | None]
    ratio: Ratio
    idle: bool = False


def make_means(axes: Sequence[str], rows: Sequence[Row], baseline: Label) -> list[Mean]:
    """Means over the seeds, in the order of the matrix.

    The ratio compares runs of a policy with those of the baseline that differ in nothing else, seed
    by seed.
    """
    others = [axis for axis in axes if axis != SEED]
    groups: dict[tuple[Label, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[axis] for axis in others), []).append(row)
    waited: set[tuple[Label, ...]] = set()
    points = [axis for axis in others if axis != POLICY]
    for row in rows:
        if row.get("avg_wait_s") != 0:  # or nobody knows
            waited.add(tuple(row[axis] for axis in points))
    found = []
    for key, group in groups.items():
        labels = dict(zip(others, key, strict=True))
        base = groups.get(tuple((labels | {POLICY: baseline}).values()), [])
        ratio = _ratio(base, group, "avg_jct_s")
        if labels[POLICY] == baseline:
            ratio = Ratio(ratio.ratio)  # by definition: there is nothing to be unsure of
        values = {name: _mean(group, name) for name in MEASURES}
        idle = tuple(labels[axis] for axis in points) not in waited
        found.append(Mean(labels, len(group), values, ratio, idle))
    return found


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [row[name] for row in rows if row.get(name) is not None]
    return fmean(known) if known else None


def _ratio(base: Sequence[Row], rows: Sequence[Row], name: str) -> Ratio:
    """Over the seeds that both have."""
    theirs = {row[SEED]: row.get(name) for row in base}
    pairs = [(theirs.get(row[SEED]), row.get(name)) for row in rows]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if len(set(known)) == 1:
        known = known[:1]  # seeds change nothing here: there is no interval, not a narrow one
    return ratio_interval([one for one, _ in known], [other for _, other in known])
