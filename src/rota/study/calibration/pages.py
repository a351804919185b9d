"""The results of a calibration as tables, YAML and Markdown."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from rota.study.calibration.fit import CostFit, Estimate
from rota.study.calibration.replay import Error, Prediction

WORST = 10
FIT_HEADINGS = ("", "mean", "95 % interval", "median", "p95", "seen", "jobs")
ERROR_HEADINGS = ("", "live", "simulated", "error", "95 % interval")
PREDICTION_HEADINGS = ("", "predicted", "95 % interval")
CHECK_HEADINGS = ("", "live", "predicted", "error", "95 % interval")
JOB_HEADINGS = ("job", "GPUs", "live JCT", "simulated JCT", "error")


def costs_yaml(source: str, fit: CostFit) -> str:
    """A cost file, with the intervals as comments."""
    params = fit.params()
    lines = [f"# Fitted by `rota calibrate` to {source!r}.", "name: calibrated", "preset: custom"]
    for key, value, estimate in (
        ("first_s", params.first_s, fit.first),
        ("start_s", params.start_s, fit.again),
        ("stop_s", params.stop_s, fit.stop),
        ("abort_s", params.abort_s, fit.abort),
        ("lost_work_s", params.lost_work_s, fit.lost),
    ):
        if value is None:  # it says what it stands for by itself
            continue
        told = f"{_interval(estimate, '.4g')} ({estimate.samples} seen)"
        lines.append(f"{key}: {value:.6g} # {estimate.note or told}")
    return "\n".join(lines) + "\n"


def fit_rows(fit: CostFit) -> list[list[str]]:
    """What was fitted."""
    rows = []
    for name, estimate in fit.named.items():
        unit = "" if name == "observed / declared duration" else " s"
        rows.append(_fit_row(name, estimate, unit))
    return rows


def _fit_row(name: str, estimate: Estimate, unit: str) -> list[str]:
    seen = [str(estimate.samples), str(estimate.jobs)]
    if not estimate.samples:
        return [name, "-", "-", "-", "-", *seen]
    return [
        name,
        f"{estimate.value:.3f}{unit}",
        _interval(estimate, ".3f", unit),
        f"{estimate.median:.3f}{unit}",
        f"{estimate.p95:.3f}{unit}",
        *seen,
    ]


def _interval(found: Estimate | Prediction, form: str, unit: str = "", of: str = "job") -> str:
    if found.low is None or found.high is None:
        return f"no interval from one {of}"
    return f"{found.low:{form}} to {found.high:{form}}{unit}"


def error_rows(errors: Sequence[Error]) -> list[list[str]]:
    """Live against simulated."""
    return [
        [
            error.metric,
            f"{error.live:,.2f} s",
            f"{error.simulated:,.2f} s",
            _percent(error.error),
            "no interval from one simulation"
            if error.low is None or error.high is None
            else f"{_percent(error.low)} to {_percent(error.high)}",
        ]
        for error in errors
    ]


def _percent(share: float) -> str:
    text = f"{share:+.2%}"
    return "+0.00%" if text == "-0.00%" else text


def prediction_rows(predictions: Sequence[Prediction]) -> list[list[str]]:
    """What is foreseen."""
    return [
        [p.metric, f"{p.value:,.2f} s", _interval(p, ",.2f", " s", of="simulation")]
        for p in predictions
    ]


def caveats(fit: CostFit) -> list[str]:
    """What could not be fitted well."""
    return [f"{name}: {e.note}" for name, e in fit.named.items() if e.note]


def fit_section(fit: CostFit) -> str:
    """The costs."""
    text = "## Costs\n\n" + _markdown(FIT_HEADINGS, fit_rows(fit))
    if fit.rate.samples > 1:
        text += (
            f"\n\nThe ratio of observed to declared durations varies from job to job with a "
            f"coefficient of variation of {fit.rate_cv:.2%}."
        )
    return text + "\n\nIntervals: bootstrap over jobs. `costs.yaml` holds the means."


def error_section(errors: Sequence[Error], jobs: pl.DataFrame) -> str:
    """How far the simulation is from what happened."""
    compared = jobs.drop_nulls("error_s")
    absolute = compared["error_s"].abs()
    worst = compared.with_columns(size=absolute).sort("size", descending=True).head(WORST)
    rows = [
        [
            str(row["job_id"]),
            f"{row['gpus']:g}",
            f"{row['live_jct_s']:,.2f} s",
            f"{row['simulated_jct_s']:,.2f} s",
            f"{row['error_s']:+,.2f} s",
        ]
        for row in worst.iter_rows(named=True)
    ]
    told = ""
    if compared.height:
        half_s, most_s, all_s = np.percentile(absolute.to_numpy(), [50, 95, 100])
        told = (
            f"Per job ({compared.height} compared) the completion time is off by "
            f"{half_s:,.2f} s (median), {most_s:,.2f} s (95 %), {all_s:,.2f} s at most.\n\n"
        )
    return (
        "## The same jobs, simulated\n\n"
        + _markdown(ERROR_HEADINGS, error_rows(errors))
        + "\n\nSimulated: the mean over simulations that draw every cost from those that were "
        + "seen. Intervals cover that noise: without 0 in them, something else is at work.\n\n"
        + told
        + "The largest errors (all are in `calibration.json`):\n\n"
        + _markdown(JOB_HEADINGS, rows)
    )


def prediction_section(
    trace: str, policy: str, predictions: Sequence[Prediction], errors: Sequence[Error] = ()
) -> str:
    """Another workload, and how far off it is if that is known."""
    text = (
        f"## Prediction: `{trace}` under `{policy}`\n\n"
        + _markdown(PREDICTION_HEADINGS, prediction_rows(predictions))
        + "\n\nMeans and intervals over simulations that draw costs and durations anew."
    )
    if errors:
        text += (
            "\n\nThe run itself, of which the prediction knows only what was submitted:\n\n"
            + _markdown(CHECK_HEADINGS, error_rows(errors))
        )
    return text


def limits_section(fit: CostFit, notes: Sequence[str]) -> str:
    """What this calibration does not know."""
    found = [*caveats(fit), *notes]
    found.append(
        "constants are fitted: a cost that grows with the size of a job or its checkpoint is not"
    )
    return "## What it does not know\n\n" + "\n".join(f"- {text}" for text in found)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join("| " + " | ".join(cell or " " for cell in line) + " |" for line in lines)
