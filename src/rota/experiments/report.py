"""A comparison as one HTML page that needs nothing else: the table and a picture, no network."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

import rota
from rota.experiments.compare import PICTURE, REPORT
from rota.experiments.comparison import Row, read_comparison
from rota.experiments.config import RunConfig
from rota.experiments.output import JOBS
from rota.experiments.table import HEADINGS, cells

CURVE_POINTS = 200
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 16, 16, 52
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#000000",
)  # fmt: skip
"""Paul Tol's bright scheme: told apart by most colour-blind readers."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")
_TIMES = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"),
    (345_600, "4 d"), (3_456_000, "40 d"), (31_536_000, "1 y"),
)  # fmt: skip


class Curve(msgspec.Struct, frozen=True):
    """Quantiles at even steps from 0 to 1."""

    label: str
    quantiles_s: Sequence[float]


def write_report(folder: Path) -> None:
    """Make the page and the picture of a folder with a comparison."""
    comparison = read_comparison(folder)
    first = {row.policy: comparison.run_of(row.policy) for row in comparison.rows}
    curves = [Curve(policy, _quantiles_s(folder / run.folder)) for policy, run in first.items()]
    picture = cdf_svg(curves)
    config = RunConfig(trace=comparison.trace, cluster=comparison.cluster, policy="")
    page = html(
        comparison.rows,
        picture,
        config,
        comparison.runs[0].summary["assumptions"],
        {policy: run.folder for policy, run in first.items()},
    )
    (folder / PICTURE).write_text(picture, encoding="utf-8")
    (folder / REPORT).write_text(page, encoding="utf-8")


def _quantiles_s(folder: Path) -> list[float]:
    types = {"jct_s": pl.Float64}
    jobs = pl.read_csv(folder / JOBS, columns=["jct_s", "state"], schema_overrides=types)
    jct_s = jobs.filter(pl.col("state") == "done")["jct_s"].to_numpy()
    steps = np.linspace(0.0, 1.0, CURVE_POINTS + 1)
    return [float(time_s) for time_s in np.quantile(jct_s, steps)] if len(jct_s) else []


def html(
    rows: Sequence[Row],
    picture: str,
    config: RunConfig,
    assumptions: Mapping[str, Any],
    folders: Mapping[str, str],
) -> str:
    """The page."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    body = "\n".join(_row(row, folders.get(row.policy, "")) for row in rows)
    facts = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(_brief(assumptions.get(key)))}</dd>"
        for key in ("placement", "admission", "costs", "rates", "rounds", "seed", "ignored")
    )
    return _PAGE.format(
        title=f"Policies on {escape(config.trace)}, cluster {escape(config.cluster)}",
        heads=heads,
        body=body,
        baseline=escape(rows[0].policy),
        picture=picture,
        facts=facts,
        version=escape(rota.__version__),
    )


def _row(row: Row, folder: str) -> str:
    first, *others = cells(row)
    link = f'<a href="{escape(folder, quote=True)}/summary.json">{escape(first)}</a>'
    return f"<tr><td>{link}</td>" + "".join(f"<td>{escape(text)}</td>" for text in others) + "</tr>"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        name = str(value.get("name", ""))
        rest = ", ".join(f"{key}={item}" for key, item in value.items() if key != "name")
        return f"{name} ({rest})" if name and rest else name or rest
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "nothing"
    return "none" if value is None else str(value)


# --- the picture ---------------------------------------------------------------------------------


def cdf_svg(curves: Sequence[Curve]) -> str:
    """Share of jobs completed within a time, with a logarithmic axis of time."""
    shown = [curve for curve in curves if len(curve.quantiles_s) > 1]
    times = [max(time_s, 1.0) for curve in shown for time_s in curve.quantiles_s]
    low = math.floor(math.log10(min(times, default=1.0)))
    high = max(math.ceil(math.log10(max(times, default=10.0))), low + 1)

    def x(time_s: float) -> float:
        share = (math.log10(max(time_s, 1.0)) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [_axis_x(x(at_s), label) for at_s, label in _TIMES if 10**low <= at_s <= 10**high]
    parts += [_axis_y(y(share / 4), f"{share * 25} %") for share in range(5)]
    for number, curve in enumerate(shown):
        steps = len(curve.quantiles_s) - 1
        points = " ".join(
            f"{x(time_s):.1f},{y(i / steps):.1f}" for i, time_s in enumerate(curve.quantiles_s)
        )
        parts.append(_line(points, curve.label, number))
    return _SVG.format(
        width=WIDTH, height=HEIGHT, middle=(LEFT + WIDTH - RIGHT) / 2, below=HEIGHT - 8,
        parts="\n".join(parts),
    )  # fmt: skip


def _axis_x(at: float, label: str) -> str:
    return (
        f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>'
    )


def _axis_y(at: float, label: str) -> str:
    return (
        f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    )


def _line(points: str, label: str, number: int) -> str:
    colour = COLOURS[number % len(COLOURS)]
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    at = HEIGHT - BOTTOM - 14 - 18 * number
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"><title>{escape(label)}</title></polyline>'
        f'<line x1="{WIDTH - 210}" y1="{at - 4}" x2="{WIDTH - 186}" y2="{at - 4}" '
        f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        f'<text x="{WIDTH - 180}" y="{at}">{escape(label[:24])}</text>'
    )


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" font-family="sans-serif" font-size="12">
<rect width="{width}" height="{height}" fill="white"/>
{parts}
<text x="{middle}" y="{below}" text-anchor="middle">job completion time (share of jobs below)</text>
</svg>
"""

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2rem; max-width: 75rem; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
dt {{ font-weight: bold; }}
</style>
</head>
<body>
<h1>{title}</h1>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{body}
</tbody>
</table>
<p>Ratio: mean JCT relative to {baseline}; below 1 is better. A bracket is a 95 % interval; a
star: it excludes 1.</p>
<h2>Job completion times</h2>
{picture}
<h2>Assumptions</h2>
<dl>{facts}</dl>
<p>Made by Rota {version}. Every policy has a folder with its jobs, log and manifest.</p>
</body>
</html>
"""
