"""The data of the pictures of a report, kept small: what is long is packed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from rota.metrics.delay import REASONS, fold_delay
from rota.metrics.history import History
from rota.metrics.ledger import active_range
from rota.report import style
from rota.report.columns import Times, packed, singles
from rota.report.data import NO_TENANT, TIMES, cdf, queue, tenant_shares, utilisation
from rota.report.lanes import fragment_heat, gantt, node_heat, node_outages
from rota.report.source import ReportSource, RunView
from rota.report.style import by_tenant, lane_rows, main_tenants, short_names

POINTS = 1_000  # at most, of a curve
BARS = 40_000  # at most, of a policy; longer ones first
OUTAGES = 20_000  # at most, of a policy
CELLS = 60_000  # about as many in a heat map
DOWN_CELL = 255
FULL_CELL = 250


def payload(source: ReportSource) -> dict[str, Any]:
    """Everything that is drawn, as plain data."""
    comparison = source.comparison
    shares = {look.name: tenant_shares(look.history) for look in source.looks}
    kept = main_tenants(shares.values()) if shares else []
    tables: list[dict[str, Any]] = []
    looks = []
    for look in source.looks:
        drawn = source.pictures.get(look.folder) or picture(look)
        number = among(tables, drawn["jobs"])
        tenants = _tenants(by_tenant(shares[look.name], kept))
        looks.append({**drawn, "jobs": number, "tenants": tenants})
    policies = [row.policy for row in comparison.rows]
    means = {row.policy: row.avg_jct_s for row in comparison.rows}
    return {
        "baseline": comparison.baseline,
        "policies": policies,
        "means": [means[policy] for policy in policies],
        "dashes": [style.dash(number) for number in range(len(policies))],
        "short": short_names(policies),
        "reasons": {
            name: [style.REASON_COLOURS.get(name, ""), style.REASONS_ON_DARK.get(name, "")]
            for name in REASONS
        },
        "folder": "" if source.shown is None else str(source.shown),
        "kept": kept,
        "jobs": tables,
        "looks": looks,
    }


def picture(look: RunView) -> dict[str, Any]:
    """What is drawn of one run, whatever it is compared with."""
    history = look.history
    origin_s, until_s = active_range(history)
    return {
        "policy": look.name,
        "folder": look.folder,
        "until_s": _short(until_s - origin_s, 3),
        "cdf": {column: _curve(cdf(look.jobs, column, look.window)) for column in TIMES},
        "use": _series(history, utilisation, origin_s),
        "queue": _series(history, queue, origin_s),
        "heat": _heat(lambda bins: node_heat(history, bins)),
        "fragments": _heat(
            lambda bins: fragment_heat(history, look.basis, bins), style.LEAST_SHARE
        ),
        "jobs": job_table(look.jobs, origin_s),
        "fates": fates(look),
        "lanes": lanes_data(history, origin_s),
    }


def _curve(table: pl.DataFrame) -> dict[str, Any]:
    """Times and shares; of many points some, evenly in share, with both ends."""
    if table.height > POINTS:
        wanted = np.linspace(0.0, 1.0, POINTS)
        chosen = np.unique(np.minimum(table["share"].search_sorted(wanted), table.height - 1))
        table = table[np.append(0, chosen).tolist()].unique("share", keep="first").sort("share")
    times, shares = (table[name].to_numpy() for name in table.columns)
    return packed({"time": Times(times), "share": singles(shares)})


def _series(history: History, fold: Any, origin_s: float) -> dict[str, Any]:
    """Every step, or means over equal bins if there are too many."""
    table: pl.DataFrame = fold(history)
    if table.height > POINTS:
        table = fold(history, POINTS - 1)
    columns = {name: singles(table[name].to_numpy()) for name in table.columns[1:]}
    return packed({"time": Times(table["time_s"].to_numpy() - origin_s), **columns})


def _tenants(table: pl.DataFrame) -> dict[str, Any]:
    """Shares of the GPUs over time, in equal bins."""
    names = table.columns[1:]
    columns = {str(number): singles(table[name].to_numpy()) for number, name in enumerate(names)}
    return {"names": names, "shares": packed(columns)}


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
    return {"nodes": names, "bins": bins, "cells": packed({"cell": cells}), "top": top}


def among(tables: list[dict[str, Any]], table: dict[str, Any]) -> int:
    """Where a table of jobs is; it is added unless policies that ran the same jobs share it."""
    if table not in tables:
        tables.append(table)
    return tables.index(table)


def job_table(jobs: pl.DataFrame, origin_s: float) -> dict[str, Any]:
    """Which jobs there are."""
    names = jobs["tenant"].fill_null("").replace("", NO_TENANT)
    tenants = names.unique(maintain_order=True).to_list()
    number = {name: i for i, name in enumerate(tenants)}
    return {
        "ids": jobs["job_id"].to_list(),
        "tenants": tenants,
        "columns": packed(
            {
                "gpus": singles(jobs["gpus"].to_numpy()),
                "tenant": np.array([number[name] for name in names], dtype="<u2"),
                "submit": Times(jobs["submit_s"].to_numpy() - origin_s),
                "work": singles(jobs["work_s"].to_numpy()),
            }
        ),
    }


def fates(look: RunView) -> dict[str, Any]:
    """What became of each job: times, and waiting by reason (columns of reasons that occur)."""
    jobs = look.jobs
    delays = fold_delay(look.history)
    columns = {
        "jct": singles(jobs["jct_s"].to_numpy()),
        "wait": singles(jobs["wait_s"].to_numpy()),
        "start": singles((jobs["first_start_s"] - jobs["submit_s"]).to_numpy()),
        "stops": jobs["preemptions"].clip(0, 65_535).to_numpy().astype("<u2"),
        "done": (jobs["state"] == "done").to_numpy().astype(np.uint8),
    }
    for number, reason in enumerate(REASONS):
        if delays[:, number].any():
            columns[reason] = singles(delays[:, number])
    return packed(columns)


def lanes_data(history: History, origin_s: float) -> dict[str, Any]:
    """Jobs on GPUs: bars by the time at which they begin."""
    bars = gantt(history)
    rows = lane_rows(bars)
    drawn = bars
    if bars.height > BARS:
        area = (pl.col("end_s") - pl.col("start_s")) * pl.col("lanes")
        drawn = bars.sort(area, descending=True).head(BARS).sort("start_s", "job")
    numbers = history.actors[history.is_job]
    nodes = {name: i for i, name in enumerate(rows["node"])}
    start_s, end_s = drawn["start_s"].to_numpy(), drawn["end_s"].to_numpy()
    return {
        "nodes": list(nodes),
        "rows": rows["rows"].to_list(),
        "count": drawn.height,
        "all": bars.height,
        "bars": packed(
            {
                "job": np.searchsorted(numbers, drawn["job"].to_numpy()).astype("<i4"),
                "node": np.array([nodes[name] for name in drawn["node"]], dtype="<u2"),
                "lane": singles(drawn["lane"].to_numpy()),
                "lanes": singles(drawn["lanes"].to_numpy()),
                "gpus": singles(drawn["gpus"].to_numpy()),
                "start": Times(start_s - origin_s),
                "length": singles(end_s - start_s),
                "overhead": (drawn["kind"] == "overhead").to_numpy().astype(np.uint8),
            }
        ),
        "down": _down(history, nodes, origin_s),
    }


def _down(history: History, nodes: dict[str, int], origin_s: float) -> list[list[float]]:
    """(number of the node, from when, until when) of the outages of nodes that are drawn."""
    return [
        [nodes[name], _short(from_s - origin_s, 1), _short(until_s - origin_s, 1)]
        for name, from_s, until_s in node_outages(history).iter_rows()
        if name in nodes
    ][:OUTAGES]


def _short(value: float, digits: int = 2) -> float:
    number = round(value, digits)
    return int(number) if float(number).is_integer() else number
