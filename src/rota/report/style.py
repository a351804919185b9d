"""What all pictures share: colours, dashes, sizes, and axes of time for people."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from rota.core.words import brief

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""Paul Tol's bright scheme: told apart by most colour-blind readers, on white and on black."""
DASHES: tuple[tuple[float, ...], ...] = (
    (), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5), (3, 1), (8, 2, 1.5, 2, 1.5, 2), (1, 2.5),
)  # fmt: skip
"""Lengths drawn and left out, in widths of the line: curves on top of each other stay visible."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
REASON_COLOURS = {
    "order": "#4477aa",
    "capacity": "#66ccee",
    "fragmentation": "#ee6677",
    "quota": "#ccbb44",
    "gang": "#aa3377",
    "constraint": "#882255",
    "admission": "#999933",
    "dependency": "#117733",
    "overhead": "#999999",
    "down": "#444444",
    "unknown": "#bbbbbb",
}
REASONS_ON_DARK = {
    "order": "#77aadd",
    "capacity": "#99ddff",
    "fragmentation": "#ff8899",
    "quota": "#ddcc66",
    "gang": "#dd77bb",
    "constraint": "#c0557a",
    "admission": "#bbbb55",
    "dependency": "#55cc77",
    "overhead": "#8f959c",
    "down": "#e4e6e9",
    "unknown": "#6b7178",
}
USEFUL, OVERHEAD, DOWN = "#4477aa", "#ccbb44", "#cc3311"
LEAST_SHARE = 0.1
"""A map of shares that are all small gets brighter colours, but not for less than this."""
SINGLE_IN, DOUBLE_IN = 3.4, 7.0
"""Widths of a figure in one and in two columns of a paper, in inches."""

_LOG_TICKS = (
    1, 10, 60, 600, 3_600, 36_000, 345_600, 3_456_000, 31_536_000,
)  # fmt: skip
_STEPS = (
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
    86_400, 172_800, 432_000, 864_000, 1_728_000, 4_320_000, 8_640_000, 31_536_000,
)  # fmt: skip


def colour(number: int) -> str:
    """The colour of a curve."""
    return COLOURS[number % len(COLOURS)]


def dash(number: int) -> tuple[float, ...]:
    """Its dash: a colour that comes again has another one, so that 49 curves differ."""
    return DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def marker(number: int) -> str:
    """Its marker, which is another one when the colours begin again."""
    return MARKERS[number // len(COLOURS) % len(MARKERS)]


def log_ticks(low_s: float, high_s: float) -> list[tuple[float, str]]:
    """(time, label) on a logarithmic axis of time."""
    return [(float(at), brief(at)) for at in _LOG_TICKS if low_s <= at <= high_s]


def time_ticks(until_s: float, count: int = 6) -> tuple[list[float], list[str]]:
    """Round times from 0 on, and their labels."""
    step = next(
        (step for step in _STEPS if until_s / step <= count),
        max(math.ceil(until_s / count / 86_400), 1) * 86_400,
    )
    times = [float(i * step) for i in range(int(until_s // step) + 1)]
    return times, [brief(at) if at else "0" for at in times]


def coinciding(curves: Mapping[str, pl.DataFrame]) -> list[tuple[int, list[str], pl.DataFrame]]:
    """Curves that are not the same: their number, the names of all that are it, the curve."""
    found: list[tuple[int, list[str], pl.DataFrame]] = []
    for number, (name, curve) in enumerate(curves.items()):
        same = next((names for _, names, other in found if other.equals(curve)), None)
        if same is None:
            found.append((number, [name], curve))
        else:
            same.append(name)
    return found


def legend(names: Sequence[str]) -> str:
    """`fifo`, or `fifo = las (coincide)`."""
    text = names[0] if len(names) == 1 else f"{' = '.join(names)} (coincide)"
    return f" {text}" if text.startswith("_") else text  # matplotlib hides what begins with _


# --- Short names of policies ----------------------------------------------------------------------

LONG = 22
"""Letters that fit into half a column of a paper."""
_CUT = "\u2026"


def short_names(names: Sequence[str], longest: int = LONG) -> dict[str, str]:
    """A label for every name; all differ if the names do.

    Folders go first unless they tell two names apart, then (of names that are still too long) the
    parameters that all names of the same policy share, then the middle.

    Args:
        names: Like `las`, `mine/srgt.py:aging=2,limit=8`.
        longest: Letters of a label, about.
    """
    heads = _heads(list(dict.fromkeys(name.partition(":")[0] for name in names)))
    found = {}
    for name in dict.fromkeys(names):
        head, colon, given = name.partition(":")
        label = heads[head] + colon + given
        if len(label) > longest:
            label = _with(heads[head], _telling(name, names))
        found[name] = label
    return _numbered(_apart(found, longest))


def cut(text: str, longest: int) -> str:
    """A text without its middle if it is too long: beginnings are often alike, ends are not."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}{_CUT}{text[len(text) - tail :]}"


def _heads(paths: list[str]) -> dict[str, str]:
    """Paths by as many of their last parts as tell them apart."""
    found = {}
    for path in paths:
        parts = path.split("/")
        for many in range(1, len(parts) + 1):
            found[path] = "/".join(parts[-many:])
            if not any(other != path and _ends(other, parts[-many:]) for other in paths):
                break
    return found


def _ends(path: str, parts: list[str]) -> bool:
    return path.split("/")[-len(parts) :] == parts


def _telling(name: str, names: Sequence[str]) -> list[str]:
    """The parameters of a name that not all names of the same policy have."""
    head = name.partition(":")[0]
    family = [set(_split(other)) for other in set(names) if other.partition(":")[0] == head]
    common = set.intersection(*family) if len(family) > 1 else set()
    return [item for item in _split(name) if item not in common]


def _split(name: str) -> list[str]:
    return [item for item in name.partition(":")[2].split(",") if item]


def _with(head: str, items: list[str]) -> str:
    return f"{head}:{','.join(items)}" if items else head


def _apart(labels: dict[str, str], longest: int) -> dict[str, str]:
    """Labels that are short; where that makes two the same, what both begin with goes instead."""
    short = {name: cut(label, longest) for name, label in labels.items()}
    for text in {text for text, many in Counter(short.values()).items() if many > 1}:
        same = [name for name, label in short.items() if label == text]
        begin = _shared([labels[name] for name in same])
        kept = min(begin, longest // 3)
        for name in same:
            rest = cut(labels[name][begin:], longest - kept - 1)
            short[name] = labels[name][:kept] + (_CUT if kept < begin else "") + rest
    return short


def _shared(texts: Sequence[str]) -> int:
    """How many letters all of them begin with."""
    alike = (len(set(letters)) == 1 for letters in zip(*texts, strict=False))
    return next((i for i, same in enumerate(alike) if not same), min(map(len, texts)))


def _numbered(labels: dict[str, str]) -> dict[str, str]:
    """Labels of which several are the same get a number."""
    many = Counter(labels.values())
    seen: Counter[str] = Counter()
    found = {}
    for name, label in labels.items():
        seen[label] += 1
        found[name] = f"{label} ({seen[label]})" if many[label] > 1 else label
    return found


# --- Order of tenants and lanes -------------------------------------------------------------------

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
    rows = bars.group_by("node").agg(rows=(pl.col("lane") + pl.col("lanes")).max().round(6).ceil())
    order = sorted(rows.iter_rows(named=True), key=lambda row: natural(row["node"]))
    table = pl.DataFrame(order, schema={"node": pl.String, "rows": pl.Float64})
    return table.with_columns(first=pl.col("rows").cum_sum() - pl.col("rows"))


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which n2 comes before n10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
