"""What a comparison says, in a sentence and a few numbers: nothing that it does not prove."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.core.words import NONE
from rota.metrics.vocabulary import Measure, count, written
from rota.report.data import judged
from rota.report.frame import ReportTile
from rota.report.source import ReportSource
from rota.study.compare_file import Measured, PolicyComparison, PolicyRow
from rota.study.notes import LOUD, NOBODY_WAITED

FIRST = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown", "gpu_utilisation")
"""Measures of the tiles, as far as they are there."""
ALONE = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown", "gpu_utilisation")
UNPROVEN = "One run proves nothing about others: repeat it with --windows N or --repeat N."
MOST_NAMES = 4


class Standing(NamedTuple):
    """A policy and what it has of one measure."""

    policy: str
    found: Measured


def ratio_text(value: float) -> str:
    """`0.630`, `12.3`, `0.00021`: of ratios side by side all have the same digits."""
    size = abs(value)
    if 0 < size < 0.001:  # noqa: PLR2004 - would be written as 0.000
        return f"{value:.2g}"
    return f"{value:,.{3 if size < 10 else 1 if size < 100 else 0}f}"  # noqa: PLR2004 - digits


def standings(comparison: PolicyComparison, measure: Measure) -> list[Standing]:
    """Policies that have the measure, the best mean first; as they came if neither is better."""
    rows = ((row.policy, row.measures.get(measure.key)) for row in comparison.rows)
    found = [Standing(policy, one) for policy, one in rows if one and one.mean is not None]
    sign = {"less": 1.0, "more": -1.0}.get(measure.better or "", 0.0)
    return sorted(found, key=lambda one: sign * (one.found.mean or 0.0))


def winner(comparison: PolicyComparison, measure: Measure) -> str | None:
    """The policy with the best mean, if it is clearly better than the baseline."""
    order = standings(comparison, measure) if measure.better else []
    return order[0].policy if order and order[0].found.verdict == "better" else None


def main_measure(comparison: PolicyComparison) -> Measure | None:
    """What the sentence is about: the mean JCT, or the first measure of which one way is better."""
    known = [
        measure
        for measure in comparison.measures
        if measure.better and any((row.measures.get(measure.key) or Measured(None)).mean is not None
                                  for row in comparison.rows)
    ]  # fmt: skip
    return next((one for one in known if one.key == "avg_jct_s"), known[0] if known else None)


# --- the sentence --------------------------------------------------------------------------------


def sentences(source: ReportSource) -> list[str]:
    """The verdict, and what has to be known with it."""
    comparison = source.comparison
    measure = main_measure(comparison)
    if measure is None:
        return ["There is no number to judge by."]
    if source.single:
        return [_alone(comparison.rows[0])]
    if any(note.startswith(NOBODY_WAITED) for note in comparison.notes):
        return ["Nobody waited under any policy: there is nothing to compare."]
    order = standings(comparison, measure)
    if not judged(comparison):
        return [_once(comparison, measure, order), UNPROVEN]
    return _proven(comparison, measure, order)


def _alone(row: PolicyRow) -> str:
    found = {key: one.mean for key, one in row.measures.items()}
    if found.get("avg_jct_s") is None:
        return f"{row.policy} completed none of {count(row.jobs)} jobs."
    text = (
        f"Under {row.policy} a job took {written(found['avg_jct_s'], 's')} on average from its "
        f"submission to its end"
    )
    if found.get("avg_wait_s") is not None:
        text += f", {written(found['avg_wait_s'], 's')} of it waiting"
    if found.get("gpu_utilisation") is not None:
        text += f"; {written(found['gpu_utilisation'], 'share')} of the GPU time was used"
    return f"{text}. {count(row.completed)} of {count(row.jobs)} jobs completed."


def _once(comparison: PolicyComparison, measure: Measure, order: Sequence[Standing]) -> str:
    """Of one run: what was, without a winner."""
    first = order[0]
    base = next((one for one in order if one.policy == comparison.baseline), None)
    what = f"{_less(measure)} {measure.label}: {written(first.found.mean, measure.unit)}"
    if len({one.found.mean for one in order}) == 1:
        return f"In this one run all policies have the same {measure.label}."
    if base is None or first.policy == base.policy:
        return f"In this one run {first.policy} has the {what}."
    return (
        f"In this one run {first.policy} has the {what}, against "
        f"{written(base.found.mean, measure.unit)} of {base.policy}."
    )


def _proven(comparison: PolicyComparison, measure: Measure, order: Sequence[Standing]) -> list[str]:
    base = comparison.baseline
    others = [one for one in order if one.policy != base]
    by = {
        verdict: [one for one in others if one.found.verdict == verdict]
        for verdict in ("better", "worse", "unclear")
    }
    if by["better"]:
        best = by["better"][0]
        head = (
            f"{best.policy} is better than {base}: its {measure.label} is "
            f"{_change(best.found)}{_interval(best.found, comparison)}."
        )
        rest = by["better"][1:]
    elif by["worse"] and not by["unclear"]:
        head = f"{base} is better than all others in {measure.label}."
        rest = []
    else:
        one = by["unclear"][0] if by["unclear"] else None
        who = _names([one.policy for one in by["unclear"]])
        interval = _interval(one.found, comparison) if one and len(by["unclear"]) == 1 else ""
        head = f"No difference in {measure.label} can be told between {base} and {who}{interval}."
        rest = []
    more = []
    if rest:
        are = "is" if len(rest) == 1 else "are"
        more.append(
            f"{_names([one.policy for one in rest])} {are} better than {base}, too. How those that "
            f"are better compare with each other is not tested here."
        )
    if by["better"] and by["unclear"]:
        more.append(f"No difference to {base} can be told for {_of(by['unclear'])}.")
    if by["worse"] and (by["better"] or by["unclear"]):
        are = "is" if len(by["worse"]) == 1 else "are"
        more.append(f"{_of(by['worse'])} {are} worse than {base}.")
    return [head, *more]


def _of(found: Iterable[Standing]) -> str:
    return _names([one.policy for one in found])


def _less(measure: Measure) -> str:
    return "lowest" if measure.better == "less" else "highest"


def _change(found: Measured) -> str:
    ratio = found.ratio or 1.0
    if ratio < 1:
        return f"{1 - ratio:.0%} lower"
    return f"{ratio - 1:.0%} higher" if ratio < 2 else f"{ratio_text(ratio)} times as high"  # noqa: PLR2004 - in words


def _interval(found: Measured, comparison: PolicyComparison) -> str:
    if found.ratio is None or found.low is None or found.high is None:
        return ""
    return (
        f" (ratio {ratio_text(found.ratio)}, {comparison.level * 100:g} % interval "
        f"{ratio_text(found.low)} to {ratio_text(found.high)})"
    )


def _names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    shown = list(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        shown.append(f"{len(names) - MOST_NAMES} others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def loud(notes: Iterable[str]) -> list[str]:
    """What makes a comparison useless."""
    return [note for note in notes if note.startswith(LOUD)]


# --- tiles ---------------------------------------------------------------------------------------


def tiles(source: ReportSource) -> list[ReportTile]:
    """Up to five numbers with their intervals."""
    comparison = source.comparison
    known = {measure.key: measure for measure in comparison.measures}
    chosen = [known[key] for key in FIRST if key in known]
    chosen += [one for one in comparison.measures if one not in chosen and one.better]
    make = _tile_alone if source.single else _tile
    made = (make(comparison, measure) for measure in chosen)
    return [tile for tile in made if tile is not None][: len(FIRST)]


def _tile_alone(comparison: PolicyComparison, measure: Measure) -> ReportTile | None:
    found = comparison.rows[0].measures.get(measure.key)
    if found is None or found.mean is None:
        return None
    return ReportTile(measure.label, written(found.mean, measure.unit))


def _tile(comparison: PolicyComparison, measure: Measure) -> ReportTile | None:
    order = standings(comparison, measure)
    base = next((one for one in order if one.policy == comparison.baseline), None)
    if base is None or not measure.better:
        return None
    best = order[0]
    value = written(best.found.mean, measure.unit)
    of_base = f"{base.policy} {written(base.found.mean, measure.unit)}"
    if not judged(comparison):
        same = best.policy == base.policy or best.found.mean == base.found.mean
        note = f"{best.policy}: the {_less(measure)}" if same else f"{best.policy}; {of_base}"
        return ReportTile(measure.label, value, f"{note}. One run: not proven")
    if best.found.verdict == "better":
        note = f"{best.policy}: {told_ratio(best.found)} times {of_base}"
        picture = strip(best.found, scale_of([best.found]))
        return ReportTile(measure.label, value, note, "better", picture)
    if all(one.found.verdict == "worse" for one in order if one.policy != base.policy):
        shown = written(base.found.mean, measure.unit)
        return ReportTile(measure.label, shown, f"{base.policy}: all others are worse")
    shown = written(base.found.mean, measure.unit)
    return ReportTile(measure.label, shown, f"{base.policy}: nobody is proven to be better")


# --- intervals as pictures -----------------------------------------------------------------------

Scale = tuple[float, float]
"""The logarithms of the ratios at both ends of a strip."""


def scale_of(found: Iterable[Measured | None]) -> Scale:
    """A strip on which all these intervals and 1 have room."""
    ends = [
        math.log(value)
        for one in found
        if one is not None
        for value in (one.ratio, one.low, one.high)
        if value is not None and value > 0 and math.isfinite(value)
    ]
    low, high = min([-0.1, *ends]), max([0.1, *ends])
    room = 0.04 * (high - low)
    return low - room, high + room


def strip(found: Measured, scale: Scale) -> str:
    """A ratio with its interval, and a line at 1, on a logarithmic scale."""
    if found.ratio is None or not found.ratio > 0 or not math.isfinite(found.ratio):
        return ""
    low, high = scale

    def place(value: float | None) -> float:
        known = found.ratio if value is None else value
        at = math.log(known) if known and known > 0 else low
        return 100 * (min(max(at, low), high) - low) / (high - low)

    left, right = place(found.low), place(found.high)
    sure = f"{found.verdict or 'open'}"
    return (
        f'<span class="strip {sure}" aria-hidden="true">'
        f'<i class="one" style="left:{place(1.0):.1f}%"></i>'
        f'<i class="range" style="left:{left:.1f}%;width:{max(right - left, 0.5):.1f}%"></i>'
        f'<i class="dot" style="left:{place(found.ratio):.1f}%"></i></span>'
    )


def told_ratio(found: Measured) -> str:
    """`0.500 [0.475, 0.525]`; without an interval where there is none."""
    if found.ratio is None:
        return NONE
    ends = [ratio_text(one) for one in (found.low, found.high) if one is not None]
    if len(ends) < 2 or {*ends, ratio_text(found.ratio)} == {"1.000"}:  # noqa: PLR2004 - both ends
        return ratio_text(found.ratio)
    return f"{ratio_text(found.ratio)} [{ends[0]}, {ends[1]}]"
