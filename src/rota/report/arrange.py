"""Which tenants and lanes are drawn where: the same in the page and in the static figures."""

import re
from collections.abc import Iterable

import polars as pl

MANY_TENANTS = 8
OTHERS = "others"


def main_tenants(tables: Iterable[pl.DataFrame]) -> list[str]:
    """The tenants with the most GPU time; the others are drawn together."""
    everything = pl.concat(list(tables))
    sums = everything.group_by("tenant").agg(pl.col("gpus").sum()).sort("gpus", "tenant")
    names: list[str] = sums["tenant"].reverse().to_list()
    return names[:MANY_TENANTS]


def by_tenant(table: pl.DataFrame, kept: list[str]) -> pl.DataFrame:
    """A row per bin: `from_s` and the share of every tenant that is kept, and of the others."""
    named = pl.when(pl.col("tenant").is_in(kept)).then("tenant").otherwise(pl.lit(OTHERS))
    sums = table.group_by("from_s", named.alias("tenant")).agg(pl.col("share").sum())
    wide = sums.pivot("tenant", index="from_s", values="share").sort("from_s")
    order = [name for name in [*kept, OTHERS] if name in wide.columns]
    return wide.select("from_s", *dict.fromkeys(order)).fill_null(0.0)


def lane_rows(bars: pl.DataFrame) -> pl.DataFrame:
    """Where the lanes of each node are drawn: `node`, `rows` (how many), `first`."""
    rows = bars.group_by("node").agg(rows=(pl.col("lane") + pl.col("lanes")).max().ceil())
    order = sorted(rows.iter_rows(named=True), key=lambda row: natural(row["node"]))
    table = pl.DataFrame(order, schema={"node": pl.String, "rows": pl.Float64})
    return table.with_columns(first=pl.col("rows").cum_sum() - pl.col("rows"))


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which n2 comes before n10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
