"""The data of the pictures inside the page, kept small."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from rota.core.eventlog import Floats
from rota.metrics.history import History
from rota.metrics.ledger import active_range
from rota.metrics.vocabulary import alike
from rota.report import style
from rota.report.arrange import by_tenant, lane_rows, main_tenants
from rota.report.data import TIMES, cdf, queue, tenant_shares, utilisation
from rota.report.lanes import fragment_heat, gantt, node_heat, node_outages
from rota.report.names import short_names
from rota.report.numbers import delays, ratios
from rota.report.source import Look, Source

POINTS = 2_000  # at most, of a curve
BARS = 40_000  # at most, of a policy; longer ones first
OUTAGES = 20_000  # at most, of a policy
CELLS = 60_000  # about as many in a heat map
DOWN_CELL = 255
FULL_CELL = 250


def payload(source: Source) -> dict[str, Any]:
    """Everything that is drawn, as plain data."""
    comparison = source.comparison
    shares = {look.name: tenant_shares(look.history) for look in source.looks}
    kept = main_tenants(shares.values()) if shares else []
    tables: list[dict[str, Any]] = []
    looks = [_look(look, by_tenant(shares[look.name], kept), tables) for look in source.looks]
    policies = [row.policy for row in comparison.rows]
    waits = [sum(row.delay.values()) for row in comparison.rows]
    return {
        "baseline": comparison.baseline,
        "colours": {"light": style.COLOURS, "dark": style.COLOURS_ON_DARK},
        "dashes": [style.dash(number) for number in range(len(policies))],
        "reasons": {"light": style.REASON_COLOURS, "dark": style.REASONS_ON_DARK},
        "short": short_names(policies),
        "wait_texts": alike(waits, "s"),
        "uses": {"useful": style.USEFUL, "overhead": style.OVERHEAD, "down": style.DOWN},
        "policies": policies,
        "ratios": ratios(comparison).filter(pl.col("ratio").is_finite()).to_dicts(),
        "delays": [
            [_short(value) for value in part["wait_s"].to_list()]
            for part in delays(comparison).partition_by("policy", maintain_order=True)
        ],
        "jobs": tables,
        "looks": looks,
    }


def _look(look: Look, tenants: pl.DataFrame, tables: list[dict[str, Any]]) -> dict[str, Any]:
    history = look.history
    origin_s, until_s = active_range(history)
    return {
        "policy": look.name,
        "until_s": _short(until_s - origin_s, 3),
        "cdf": {column: _curve(cdf(look.jobs, column, look.window)) for column in TIMES},
        "utilisation": _series(history, utilisation, origin_s),
        "queue": _series(history, queue, origin_s),
        "tenants": {
            "names": tenants.columns[1:],
            "shares": [_rounded(tenants[name].to_numpy(), 4) for name in tenants.columns[1:]],
        },
        "heat": _heat(lambda bins: node_heat(history, bins)),
        "fragments": _heat(
            lambda bins: fragment_heat(history, look.basis, bins), style.LEAST_SHARE
        ),
        "jobs": _jobs(look.jobs, tables),
        "gantt": _gantt(history, origin_s),
    }


def _curve(table: pl.DataFrame) -> list[list[float]]:
    """Times and shares; of many points some, evenly in share, with both ends."""
    if table.height > POINTS:
        wanted = np.linspace(0.0, 1.0, POINTS)
        chosen = np.unique(np.minimum(table["share"].search_sorted(wanted), table.height - 1))
        table = table[np.append(0, chosen).tolist()].unique("share", keep="first").sort("share")
    times, shares = (table[name].to_numpy() for name in table.columns)
    return [_rounded(times, 2), _rounded(shares, 5)]


def _series(history: History, fold: Any, origin_s: float) -> dict[str, list[float]]:
    """Every step, or means over equal bins if there are too many."""
    table: pl.DataFrame = fold(history)
    if table.height > POINTS:
        table = fold(history, POINTS // 2)
    columns = {name: _rounded(table[name].to_numpy(), 3) for name in table.columns[1:]}
    return {"time_s": _rounded(table["time_s"].to_numpy() - origin_s, 1), **columns}


def _heat(fold: Callable[[int], pl.DataFrame | None], least: float = 1.0) -> dict[str, Any] | None:
    """Nodes and bins of time as bytes, of which 250 is `top`; None if there is no such table."""
    coarse = fold(1)
    bins = int(np.clip(CELLS // max(coarse.height, 1), 20, 400)) if coarse is not None else 1
    table = fold(bins) if coarse is not None else None
    if table is None:
        return None
    share = np.clip(table["share"].to_numpy(), 0.0, 1.0)
    top = max(least, float(share.max(initial=0.0)))
    cells = np.rint(share / top * FULL_CELL).astype(np.uint8)
    cells[table["down"].to_numpy() > 0.5] = DOWN_CELL  # noqa: PLR2004 - most of the bin
    names = table["node"].gather_every(bins).to_list()
    return {"nodes": names, "bins": bins, "cells": packed(cells), "top": top}


def _jobs(jobs: pl.DataFrame, tables: list[dict[str, Any]]) -> int:
    """Where the table of jobs is; policies that ran the same jobs share it."""
    table = {
        "id": jobs["job_id"].to_list(),
        "gpus": _rounded(jobs["gpus"].to_numpy(), 3),
        "tenant": jobs["tenant"].to_list(),
        "submit_s": _rounded(jobs["submit_s"].to_numpy(), 1),
    }
    if table not in tables:
        tables.append(table)
    return tables.index(table)


def _gantt(history: History, origin_s: float) -> dict[str, Any]:
    bars = gantt(history)
    rows = lane_rows(bars)
    drawn = bars
    if bars.height > BARS:
        area = (pl.col("end_s") - pl.col("start_s")) * pl.col("lanes")
        drawn = bars.sort(area, descending=True).head(BARS).sort("start_s", "job")
    numbers = history.actors[history.is_job]
    placed = drawn.join(rows, on="node", how="left", maintain_order="left")
    return {
        "nodes": rows["node"].to_list(),
        "rows": rows["rows"].to_list(),
        "count": placed.height,
        "all": bars.height,
        "job": packed(np.searchsorted(numbers, placed["job"].to_numpy()).astype("<i4")),
        "lane": packed((placed["first"] + placed["lane"]).to_numpy().astype("<f4")),
        "lanes": packed(placed["lanes"].to_numpy().astype("<f4")),
        "start": packed((placed["start_s"] - origin_s).to_numpy().astype("<f4")),
        "end": packed((placed["end_s"] - origin_s).to_numpy().astype("<f4")),
        "down": _down(history, rows["node"].to_list(), origin_s),
        "overhead": packed((placed["kind"] == "overhead").to_numpy().astype(np.uint8)),
    }


def _down(history: History, nodes: list[str], origin_s: float) -> list[list[float]]:
    """(number of the node, from when, until when) of the outages of nodes that are drawn."""
    number = {name: i for i, name in enumerate(nodes)}
    return [
        [number[name], _short(from_s - origin_s, 1), _short(until_s - origin_s, 1)]
        for name, from_s, until_s in node_outages(history).iter_rows()
        if name in number
    ][:OUTAGES]


def packed(values: Any) -> str:
    """Numbers of a typed array as text."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _rounded(values: Floats, digits: int) -> list[float]:
    numbers: Sequence[float] = np.round(np.asarray(values, dtype=np.float64), digits).tolist()
    return [int(number) if number.is_integer() else number for number in numbers]


def _short(value: float, digits: int = 2) -> float:
    number = round(value, digits)
    return int(number) if number.is_integer() else number
