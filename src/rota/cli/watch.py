"""`rota watch-job|efficiency`."""

import time
from typing import TYPE_CHECKING, Literal

import click

from rota.cli.client import (
    INTERRUPTED,
    JOB,
    LONG_PATIENCE_S,
    amount,
    clean,
    connect,
    job_id,
    moment,
    on_daemon,
    server_options,
    shortened,
)
from rota.cli.options import Finite
from rota.cli.show import FORMAT, emit, listing
from rota.wire import ENDED, JobInfo

if TYPE_CHECKING:
    from rota.sdk import Client


@click.command("watch-job")
@JOB
@click.option(
    "--interval", metavar="S", type=Finite(min=0.05), default=1.0, show_default=True,
    help="Seconds between updates.",
)  # fmt: skip
@server_options
def watch_job(job: str, *, interval: float, server: str | None, token_file: str | None) -> int:
    """Print a line whenever something happens to a JOB, and a summary when it is over.

    The exit code is 0 if it succeeded, else 1. Ctrl-C ends the watching only.

    \b
    Examples:
      rota watch-job 17
      rota watch-job resnet-50
    """  # noqa: D301 - \b keeps click from wrapping the lines
    try:
        with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
            number = job_id(rota, job)
            last = ""
            while True:
                found = rota.job(number)
                line = told(found)
                if line != last:
                    click.echo(f"{moment(time.time())}  {line}")
                    last = line
                if found.state in ENDED:
                    click.echo(clean(found.summary()))
                    return 0 if found.state == "SUCCEEDED" else 1
                time.sleep(interval)
    except KeyboardInterrupt:
        return INTERRUPTED


def told(job: JobInfo) -> str:
    """What matters of it now, in a line that is the same while nothing happens."""
    line = f"{job.state.lower()}"
    if job.reason:
        line += f" ({clean(job.reason)})"
    if job.nodes:
        line += f" on {shortened(list(job.nodes), 4)}"
    if job.message:
        line += f": {clean(job.message)}"
    return line


@click.command()
@click.option("--by", type=click.Choice(["user", "queue"]), default="user", show_default=True,
              help="Add up by user or by queue.")  # fmt: skip
@FORMAT
@on_daemon
def efficiency(rota: "Client", *, by: Literal["user", "queue"], output: str) -> None:
    """Show what jobs used of what they asked for; `rota show JOB` has it for one job, with advice.

    Means over the time that jobs ran, of the jobs that you may see and of which anything was
    measured. Memory is the mean of their peaks.

    \b
    Examples:
      rota efficiency
      rota efficiency --by queue -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    found = rota.efficiency(by=by)
    if output != "table":
        import msgspec

        emit([msgspec.to_builtins(each) for each in found], output)
        return
    if not found:
        click.echo("nothing was measured yet", err=True)
        return
    rows = [
        {
            by: clean(each.name) or "-",
            "jobs": str(each.jobs),
            "cpus": _part(each.cpus_used, each.cpus_asked),
            "memory GiB": _part(each.mem_peak_gib, each.mem_asked_gib),
            "gpus": amount(each.gpus_asked),
            "gpus busy": "-" if each.gpu_busy is None else f"{each.gpu_busy:.0%}",
            "gpus idle": "-" if each.gpus_idle is None else f"{each.gpus_idle:.2g}",
        }
        for each in found
    ]
    listing(rows, "table")


def _part(used: float, asked: float) -> str:
    return f"{used:.2g} of {asked:.3g}" if asked else f"{used:.2g}"
