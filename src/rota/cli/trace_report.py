"""The report of `rota trace inspect` for a terminal."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite

import click

from rota.core.words import duration
from rota.traces.tools.report import Report

_WIDTH = 40
_LARGE = 1e15
_STEPS = "▁▂▃▄▅▆▇█"


def show(found: Report) -> None:
    """Print the report."""
    jobs = found.jobs
    click.echo(f"{found.name}: {found.rows:,} rows read, {found.kept:,} kept")
    _counts("dropped", found.dropped)
    _counts("repaired", found.repaired)
    _counts("contradiction", found.contradictions)
    for note in found.notes:
        click.echo(f"  note: {note}")
    click.echo(f"  second 0: {found.origin or 'not known'}")
    click.echo(f"\n{_jobs_line(jobs)}")
    click.echo(
        f"duration: median {duration(jobs['median_duration_s'])}, "
        f"p95 {duration(jobs['p95_duration_s'])}, p99 {duration(jobs['p99_duration_s'])}; "
        f"{_number(jobs['gpu_hours'])} GPU-hours in all"
    )
    if jobs["mean_gpus_needed"] is not None:
        click.echo(
            f"submitted over {duration(jobs['span_s'])}: "
            f"{_number(jobs['mean_gpus_needed'])} GPUs would be busy on average"
        )
    if found.cluster["nodes"] or found.cluster["events"]:
        click.echo(
            f"cluster: {found.cluster['nodes']:,} nodes, {found.cluster['gpus']:,} GPUs, "
            f"{found.cluster['events']:,} events"
        )
    _observed(found)
    _bars("GPUs per job", found.sizes)
    _bars("durations", found.durations)
    _by_hour("submissions by hour of the day", found.submissions_by_hour)
    _by_hour("GPU-hours submitted by hour of the day", found.gpu_hours_by_hour)


def _jobs_line(jobs: Mapping[str, object]) -> str:
    parts = [f"{jobs['jobs']:,} jobs"]
    if jobs["virtual_clusters"]:
        parts.append(f"{jobs['virtual_clusters']:,} virtual clusters")
    if jobs["users"]:
        parts.append(f"{jobs['users']:,} users")
    if jobs["without_gpus"]:
        parts.append(f"{jobs['without_gpus']:,} without GPUs")
    if jobs["single_gpu_pct"] is not None:
        parts.append(f"{jobs['single_gpu_pct']:.0f} % of those with GPUs ask for one at most")
    return ", ".join(parts)


def _observed(found: Report) -> None:
    seen = found.observed
    if not seen["attempts"]:
        return
    click.echo(
        f"observed: {seen['attempts']:,} attempts of {seen['jobs']:,} jobs, "
        f"{seen['censored']:,} still running at the end; of the others: mean JCT "
        f"{duration(seen['mean_jct_s'])}, mean wait {duration(seen['mean_wait_s'])}, median wait "
        f"{duration(seen['median_wait_s'])}, p95 wait {duration(seen['p95_wait_s'])}"
    )


def _counts(what: str, counts: Mapping[str, int]) -> None:
    for why, many in counts.items():
        click.echo(f"  {what}: {many:,} {why}")


def _bars(title: str, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    click.echo(f"\n{title}")
    most = max(counts.values())
    wide = max(map(len, counts))
    for name, many in counts.items():
        bar = "█" * max(1, round(_WIDTH * many / most))
        click.echo(f"  {name:>{wide}}  {bar} {many:,}")


def _by_hour(title: str, values: Sequence[float]) -> None:
    most = max(values)
    if not 0 < most < inf:
        return
    steps = len(_STEPS) - 1
    line = "".join(_STEPS[round(steps * value / most)] for value in values)
    click.echo(f"\n{title} (0-23, highest {_number(most)})\n  {line}")


def _number(value: float | None) -> str:
    if value is None or not isfinite(value):
        return "?"
    if abs(value) >= _LARGE:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"  # noqa: PLR2004
