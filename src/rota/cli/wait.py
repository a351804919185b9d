"""`rota wait`, and waiting for what was submitted."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from rota.cli.client import (
    INTERRUPTED,
    JOBS,
    LONG_PATIENCE_S,
    array_id,
    clean,
    connect,
    job_id,
    members,
    server_options,
    ticking,
)
from rota.cli.jobs import print_jobs
from rota.cli.options import Finite
from rota.cli.show import FORMAT
from rota.wire import ENDED, STATES, JobInfo

if TYPE_CHECKING:
    from rich.status import Status

    from rota.sdk import Client

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
OVER = "over"
RAN = ("STARTING", "RUNNING")


@click.command()
@JOBS
@click.option(
    "--until", metavar="STATE", default=OVER, show_default=True,
    type=click.Choice([OVER, *(state.lower() for state in STATES)], case_sensitive=False),
    help=f"Wait for this state: {OVER} (however it ends), {', '.join(STATES).lower()}.",
)  # fmt: skip
@click.option("--timeout", metavar="SECONDS", type=Finite(min=0),
              help="Give up after this time; the jobs go on.")  # fmt: skip
@FORMAT
@server_options
def wait(
    job: tuple[str, ...],
    *,
    until: str,
    timeout: float | None,
    output: str,
    server: str | None,
    token_file: str | None,
) -> int:
    """Wait for JOBs (ids, names, @ID: an array) to finish; exit code 0 if all succeed, else 1.

    With `--until STATE` until they are in that state; the exit code is 1 if one of them is over
    without having been seen in it. A job that has run counts as seen running. Ctrl-C ends the
    waiting only.

    \b
    Examples:
      rota wait 17
      rota wait 17 18 --until running
      rota wait @17
      rota wait 17 18 resnet-50 --timeout 3600
      rota wait $(rota submit jobs.yaml) && rota submit evaluate.yaml
    """  # noqa: D301 - \b keeps click from wrapping the lines
    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        names: list[str] = []
        for name in job:
            array = array_id(rota, name)
            names += [each.id for each in members(rota, array)] if array else [job_id(rota, name)]
        return wait_for(rota, names, output, timeout, wanted=until.upper())


def wait_for(
    rota: "Client",
    jobs: Sequence[str],
    output: str,
    timeout_s: float | None = None,
    *,
    wanted: str = OVER.upper(),
) -> int:
    """Tell of each job how it ended, or that it is as wanted; the exit code."""
    watch = _Watch(rota, len(jobs), timeout_s, wanted)
    ended: list[JobInfo] = []
    try:
        with watch:
            for job in jobs:
                found = watch.until(job)
                if found is None:
                    left = _told(len(jobs) - len(ended))
                    what = wanted.lower()
                    click.echo(f"error: not {what} after {timeout_s:g} s: {left}", err=True)
                    return 1
                ended.append(found)
                message = f": {clean(found.message)}" if found.message else ""
                watch.say(f"job {found.id}: {found.state.lower()}{message}")
    except KeyboardInterrupt:
        left = _told(len(jobs) - len(ended))
        click.echo(f"{os.linesep}not waiting any more: {left}", err=True)
        return INTERRUPTED
    if output != "table":
        print_jobs(ended, output)
    if wanted == OVER.upper():
        return 0 if all(job.state == "SUCCEEDED" for job in ended) else 1
    return 0 if all(_is(job, wanted) for job in ended) else 1


def _is(job: JobInfo, wanted: str) -> bool:
    """In a state, or has been: who is over without an error of its own has been through some."""
    if wanted == OVER.upper():
        return job.state in ENDED
    return job.state == wanted or (wanted in RAN and job.state in ENDED and job.starts > 0)


def _told(count: int) -> str:
    return "1 job goes on" if count == 1 else f"{count} jobs go on"


class _Watch:
    """Looks at one job after the other; on a terminal a line says how far it is."""

    def __init__(self, rota: "Client", total: int, timeout_s: float | None, wanted: str) -> None:
        self._rota = rota
        self._wanted = wanted
        self._total = total
        self._over = 0
        self._begun_s = time.monotonic()
        self._until_s = float("inf") if timeout_s is None else self._begun_s + timeout_s
        self._line: Status | None = None
        self._opened = ExitStack()

    def __enter__(self) -> None:
        if sys.stderr.isatty():
            from rich.console import Console

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._line = self._opened.enter_context(console.status("waiting"))

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._over += 1
        if self._line is None:
            click.echo(text, err=True)
        else:
            self._line.console.print(text)

    def until(self, job: str) -> JobInfo | None:
        """The job when it is as wanted, or over; None: there is no more time."""
        pause_s = FIRST_PAUSE_S
        while True:
            found = self._rota.job(job)
            if found.state in ENDED or _is(found, self._wanted):
                return found
            now_s = time.monotonic()
            if now_s >= self._until_s:
                return None
            if self._line is not None:
                self._line.update(
                    f"{self._over} of {self._total} {self._wanted.lower()}, job {found.id} is "
                    f"{found.state.lower()} ({ticking(now_s - self._begun_s)})"
                )
            time.sleep(min(pause_s, self._until_s - now_s))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
