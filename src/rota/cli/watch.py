"""`rota watch-job`."""

import time

import click

from rota.cli.client import (
    INTERRUPTED,
    JOB,
    LONG_PATIENCE_S,
    clean,
    connect,
    job_id,
    moment,
    server_options,
    shortened,
)
from rota.wire import ENDED, JobInfo


@click.command("watch-job")
@JOB
@click.option(
    "--interval", metavar="S", type=click.FloatRange(min=0.05), default=1.0, show_default=True,
    help="Seconds between looks.",
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
