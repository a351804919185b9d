"""What a trace does not say, assigned by a named rule: models, speeds, deadlines, priorities.

A rule is written `name:key=value,...`. What a job gets depends on the seed, the rule and the job's
id only: half of a trace gets the same as the whole, and one rule does not disturb another.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.registry import unknown
from rota.core.sums import ordered_sum
from rota.traces.imported import Imported
from rota.traces.schema import as_json
from rota.traces.synth.draws import Floats
from rota.traces.tools.change import chance, with_jobs

if TYPE_CHECKING:
    import polars as pl

Options: TypeAlias = Mapping[str, str]
Rule: TypeAlias = "Callable[[pl.DataFrame, Options, int], pl.DataFrame]"

_LEAST_SPEED = 1e-6


def annotate(imported: Imported, rules: Sequence[str], seed: int) -> Imported:
    """Apply rules in their order; the notes of the result say which, with the seed.

    Raises:
        OptionError: A rule or one of its options is unknown or has a bad value.
    """
    parsed = [(text, *split_rule(text)) for text in rules]
    for text, name, options in parsed:
        jobs = RULES[name][1](imported.jobs, options, seed)
        imported = with_jobs(imported, jobs, f"annotate {text} seed {seed}")
    return imported


def split_rule(text: str) -> tuple[str, dict[str, str]]:
    """`name:key=value,...` as (name, options); keys are kept as written, they may be names."""
    name, _, rest = text.partition(":")
    name = name.strip()
    if name not in RULES:
        raise OptionError(unknown("rule", name, list(RULES)))
    options: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or key in options or (equals and not value):
            raise OptionError(f"rule {text!r}: {part!r} is empty or given twice: write key=value")
        options[key] = value if equals else "1"
    return name, options


# --- rules ---------------------------------------------------------------------------------------


def _models(jobs: "pl.DataFrame", options: Options, seed: int) -> "pl.DataFrame":
    import polars as pl

    if not options:
        raise OptionError("rule models: names no model: write models:resnet50=3,bert=1 (weights)")
    weights = [_number("models", key, text, low=0.0) for key, text in options.items()]
    if not ordered_sum(weights) > 0:
        raise OptionError("rule models: all weights are 0: give one that is above 0")
    edges = np.cumsum(weights) / ordered_sum(weights)
    drawn = np.searchsorted(edges, _chances(jobs, seed, "models"), side="right")
    names = list(options)
    chosen = [names[min(number, len(names) - 1)] for number in drawn.tolist()]
    return jobs.with_columns(model=pl.Series(chosen, dtype=pl.String))


def _deadlines(jobs: "pl.DataFrame", options: Options, seed: int) -> "pl.DataFrame":
    import polars as pl

    later_s = _stretched("deadlines", jobs, options, seed)
    drawn = pl.col("submit_s") + pl.Series(later_s)
    return jobs.with_columns(deadline_s=_some("deadlines", jobs, options, seed, drawn))


def _estimates(jobs: "pl.DataFrame", options: Options, seed: int) -> "pl.DataFrame":
    import polars as pl

    drawn = pl.lit(pl.Series(_stretched("estimates", jobs, options, seed)))
    return jobs.with_columns(estimate_s=_some("estimates", jobs, options, seed, drawn))


def _priorities(jobs: "pl.DataFrame", options: Options, seed: int) -> "pl.DataFrame":
    import polars as pl

    _known("priorities", options, ("high", "value"))
    share = _number("priorities", "high", options.get("high", "0.2"), low=0.0, high=1.0)
    value = _number("priorities", "value", options.get("value", "1"), low=-1e9, high=1e9)
    if value != int(value):
        raise OptionError(f"rule priorities: value={value:g} is not a whole number: give one")
    chosen = _chances(jobs, seed, "priorities") < share
    return jobs.with_columns(priority=pl.Series(np.where(chosen, int(value), 0), dtype=pl.Int64))


def _speeds(jobs: "pl.DataFrame", options: Options, seed: int) -> "pl.DataFrame":
    import polars as pl

    rest = dict(options)
    spread = _number("speeds", "spread", rest.pop("spread", "0"), low=0.0, high=1.0)
    by = rest.pop("by", "job")
    if by not in {"job", "model"}:
        raise OptionError(f"rule speeds: by={by} is not known: give job or model")
    if not rest:
        raise OptionError("rule speeds: names no GPU type: write speeds:v100=1,k80=0.3,spread=0.2")
    speeds = {key: _number("speeds", key, text, low=_LEAST_SPEED) for key, text in rest.items()}
    column = "job_id" if by == "job" else "model"
    drawn = [
        np.full(jobs.height, speed)
        if speed == 1  # the trace's durations are those on GPUs of speed 1
        else speed * (1.0 + spread * (2.0 * _chances(jobs, seed, f"speeds {key}", column) - 1.0))
        for key, speed in speeds.items()
    ]
    rows = np.round(np.maximum(np.transpose(drawn), _LEAST_SPEED), 6).tolist()
    texts = [as_json(dict(zip(speeds, row, strict=True))) for row in rows]
    return jobs.with_columns(speeds=pl.Series(texts, dtype=pl.String))


RULES: Mapping[str, tuple[str, Rule]] = {
    "models": (
        "a model for every job, by weight: models:resnet50=3,bert=1; a name alone weighs 1",
        _models,
    ),
    "deadlines": (
        "submission + duration * U(factor), for a share of jobs: deadlines:factor=1.5-3,share=1",
        _deadlines,
    ),
    "estimates": (
        "duration * U(factor), for a share of jobs: estimates:factor=1-5,share=1",
        _estimates,
    ),
    "priorities": (
        "a share of the jobs gets a value, the others 0: priorities:high=0.2,value=1",
        _priorities,
    ),
    "speeds": (
        "by GPU type, those not 1 times U(1 -+ spread): speeds:v100=1,k80=0.3,spread=0.2,by=job",
        _speeds,
    ),
}
"""What each rule assigns, and its function."""


# --- help for rules ------------------------------------------------------------------------------


def _chances(jobs: "pl.DataFrame", seed: int, rule: str, column: str = "job_id") -> Floats:
    return np.array([chance(seed, rule, name) for name in jobs[column].to_list()], float)


def _stretched(rule: str, jobs: "pl.DataFrame", options: Options, seed: int) -> Floats:
    """Durations times a factor, in whole seconds."""
    _known(rule, options, ("factor", "share"))
    if "factor" not in options:
        raise OptionError(f"rule {rule}: factor is missing: write {rule}:factor=1.5-3")
    text = options["factor"]
    low_text, dash, high_text = text.partition("-")
    low = _number(rule, "factor", low_text, low=0.0)
    high = _number(rule, "factor", high_text, low=low) if dash else low
    if not low > 0:
        raise OptionError(f"rule {rule}: factor={text} is not above 0: write factor=1.5-3")
    factors = low + (high - low) * _chances(jobs, seed, rule)
    return np.asarray(np.ceil(jobs["duration_s"].to_numpy() * factors))


def _some(
    rule: str, jobs: "pl.DataFrame", options: Options, seed: int, drawn: "pl.Expr"
) -> "pl.Expr":
    """What was drawn, for the chosen share of jobs; null for the others."""
    import polars as pl

    share = _number(rule, "share", options.get("share", "1"), low=0.0, high=1.0)
    chosen = _chances(jobs, seed, f"{rule} share") < share
    return pl.when(pl.Series(chosen)).then(drawn).otherwise(None)


def _known(rule: str, options: Options, keys: Sequence[str]) -> None:
    for key in options:
        if key not in keys:
            raise OptionError(f"rule {rule}: {unknown('option', key, list(keys))}")


def _number(rule: str, key: str, text: str, *, low: float, high: float = INF) -> float:
    try:
        value = float(text)
    except ValueError:
        value = INF
    if not low <= value <= high or value == INF:
        most = "" if high == INF else f", at most {high:g}"
        raise OptionError(
            f"rule {rule}: {key}={text} is out of range: give a number, at least {low:g}{most}"
        )
    return value
