"""`rota trace`: workloads from generators and other formats, and what is in them."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import Any

import click

from rota.cli.options import DEBUG, FILES, Finite, names_of, one_of
from rota.cli.show import FORMAT, listing, warn, warn_about
from rota.cli.trace_change import annotate, change, fit, merge, redact
from rota.core.errors import OptionError
from rota.core.registry import FORMATS, names
from rota.core.words import counted, duration
from rota.traces.tools.report import TraceReport

_FILE = click.option(
    "-o", "--output", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="Output file.",
)  # fmt: skip
_FORCE = click.option("--force", is_flag=True, help="Overwrite an existing file.")


@click.group()
def trace() -> None:
    """Inspect, generate, convert and change workloads."""


def _kinds() -> Iterable[str]:
    from rota.traces.synth.generate import KINDS

    return [*KINDS, "fit:"]


@trace.command()
@click.argument("kind", shell_complete=one_of(_kinds))
@click.option(
    "--jobs", metavar="N", type=click.IntRange(min=2), required=True, help="Number of jobs."
)
@click.option(
    "--cluster", metavar="SPEC", required=True, help="Cluster that the load is relative to."
)
@click.option("--load", metavar="L", type=Finite(), default=0.9, show_default=True,
              help="Work offered per GPU while jobs arrive.")  # fmt: skip
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
              help="Random seed.")  # fmt: skip
@_FILE
@_FORCE
@DEBUG
def generate(
    kind: str, jobs: int, cluster: str, load: float, seed: int, output: Path, *, force: bool
) -> None:
    """Draw a synthetic workload of a KIND at exactly the chosen load.

    Kinds: poisson, gavel-like, philly-like, bursts, diurnal; options follow a colon (arrivals,
    durations, sizes, mean_s, max_s, vcs, users, estimate_factor, exact, ...). fit:FILE draws from
    the model of a trace (see `rota trace fit`; options max_s, exact).

    \b
    Examples:
      rota trace generate philly-like:max_s=86400 --jobs 4000 --cluster 16x8 --load 1.2 -o jobs.csv
      rota trace generate poisson:mean_s=600,sizes=1:70/4:30 --jobs 500 --cluster 4x8 -o jobs.csv
      rota trace generate fit:philly.json --jobs 2000 --cluster 16x8 --load 1.1 -o jobs.csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.cluster import parse_cluster
    from rota.traces.synth.generate import carried, offered_load
    from rota.traces.synth.generate import generate as draw
    from rota.traces.synth.sampling import split_kind
    from rota.traces.write import write_workload

    name, options = split_kind(kind)
    gpus = parse_cluster(cluster)[0].gpus
    if not gpus:
        raise OptionError(f"cluster {cluster!r} has no GPUs: name one that has")
    workload = draw(name, jobs=jobs, gpus=gpus, load=load, seed=seed, options=options)
    write_workload(workload, output, force=force)
    offered = offered_load(workload, gpus)
    click.echo(
        f"{output}: {counted(len(workload), 'job')}, load {offered:.3f} on {gpus} GPUs", err=True
    )
    few = carried(workload, gpus)
    if few:
        click.echo(f"warning: {few}", err=True)


@trace.command()
@click.argument("source", metavar="TRACE", shell_complete=FILES)
@click.option("--format", metavar="F", shell_complete=names_of(FORMATS),
              help="Trace format; detected by default.")  # fmt: skip
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs.")
@_FILE
@_FORCE
@DEBUG
def convert(
    source: str, limit: int | None, output: Path, *, force: bool, **values: str | None
) -> None:
    """Convert TRACE to another format.

    The end of FILE says which: `.csv` (plain), `.swf` (Standard Workload Format), `.sacct` (as
    Slurm's `sacct --parsable2` prints it), or no ending: a folder of Parquet tables with everything
    that the trace tells (see the trace schema).

    \b
    Examples:
      rota trace convert cluster_job_log --format philly -o jobs.csv
      rota trace convert cluster_log.csv -o venus
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.imported import NOT_IMPORTED
    from rota.traces.read import read_trace
    from rota.traces.tools.convert import convert_known, count_written
    from rota.traces.tools.report import contradictions_of

    imported = read_trace(source, values["format"], limit=limit)
    told = f"{source} {values['format'] or ''}".strip()
    lost = convert_known(imported, source, output, source=told, force=force)
    warn_about(imported.quality.told)
    for what in lost:
        warn(f"this form has no room for {what}: it is lost")
    for what, count in contradictions_of(imported).items():
        warn(f"contradiction: {count:,} {what}")
    for note in imported.notes:
        if note.startswith(NOT_IMPORTED):
            warn(f"{note}: it is lost")
        else:
            click.echo(f"note: {note}", err=True)
    click.echo(f"{output}: {counted(count_written(imported, output), 'job')}", err=True)


@trace.command()
@click.argument("source", metavar="TRACE", shell_complete=FILES)
@click.option("--format", metavar="F", shell_complete=names_of(FORMATS),
              help="Trace format; detected by default.")  # fmt: skip
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path),
              help="Also write an HTML page with figures.")  # fmt: skip
@FORMAT
@DEBUG
def inspect(
    source: str, limit: int | None, html: Path | None, output: str, **values: str | None
) -> None:
    """Describe TRACE and what its import had to do.

    Rows read, kept, dropped by reason and repaired by rule; censored jobs; contradictions; load by
    hour, sizes and durations. The page (`--html`) is one file that needs no network.

    \b
    Examples:
      rota trace inspect philly.csv
      rota trace inspect philly.csv --html philly.html
      rota trace inspect openb_pod_list_default.csv -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    from rota.cli.show import emit
    from rota.cli.trace import show
    from rota.traces.read import read_trace
    from rota.traces.tools.report import report

    if html:
        from rota.report.trace_page import check_name

        check_name(html)  # before the trace is read, which may take long
    found = report(read_trace(source, values["format"], limit=limit))
    if html:  # first: what is printed may go to `head`
        from rota.report.trace_page import write_trace_page

        write_trace_page(found, html, ["rota", *sys.argv[1:]])
        click.echo(f"page: {html}", err=True)
    if output == "table":
        show(found)
    else:
        emit(msgspec.to_builtins(found), output)


@trace.command()
@FORMAT
@DEBUG
def formats(output: str) -> None:
    """List the formats that can be read.

    Verified on a real file: a test reads one. Schema only: nothing but the description of the
    format was at hand.

    \b
    Example:
      rota trace formats -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.read import load_format

    listing(
        [
            {
                "format": name,
                "form": form,
                "verified": "verified on a real file" if real else "schema only",
                "description": load_format(name).description,
            }
            for name in names(FORMATS)
            for form, real in load_format(name).verified_forms.items()
        ],
        output,
    )


for _command in (fit, change, annotate, merge, redact):
    trace.add_command(_command)


# --- The report of `rota trace inspect` -----------------------------------------------------------

_WIDTH = 40
_LARGE = 1e15
_STEPS = "▁▂▃▄▅▆▇█"


def show(found: TraceReport) -> None:
    """Print the report."""
    jobs = found.jobs
    click.echo(f"{found.name}: {counted(found.rows, 'row')} read, {found.kept:,} kept")
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


def _jobs_line(jobs: Mapping[str, Any]) -> str:
    named = {"jobs": "job", "virtual_clusters": "virtual cluster", "users": "user"}
    parts = [counted(jobs[key], noun) for key, noun in named.items() if jobs[key] or key == "jobs"]
    if jobs["without_gpus"]:
        parts.append(f"{jobs['without_gpus']:,} without GPUs")
    if jobs["single_gpu_pct"] is not None:
        parts.append(f"{jobs['single_gpu_pct']:.0f} % of those with GPUs ask for one at most")
    return ", ".join(parts)


def _observed(found: TraceReport) -> None:
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
