"""`rota ls|show|cancel|hold|release`."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    INTERVAL,
    JOB,
    JOBS,
    WATCH,
    amount,
    array_id,
    clean,
    job_id,
    moment,
    on_daemon,
    repeat,
    shortened,
    span,
    stopping,
    ticking,
)
from rota.cli.logs import last_lines
from rota.cli.show import FORMAT, emit, listing
from rota.core.errors import RotaError
from rota.wire import ENDED, STATES, ArrayInfo, JobInfo

if TYPE_CHECKING:
    from rota.jobfile.model import JobFile
    from rota.sdk import Client

SHOWN = 500  # jobs in a table, unless more are wanted: one request, a few screens
MOST_COUNTED = 1000  # of those that are over
LAST_LINES, MOST_RANKS = 10, 8  # of the error output of a failed job; nodes that are asked for it
SPARE = ("starts", "ran", "queue", "user", "age", "nodes", "gpus")


@click.command()
@click.option("--all", is_flag=True, help="Include finished jobs.")
@click.option(
    "--state", metavar="S", multiple=True, type=click.Choice(STATES, case_sensitive=False),
    help=f"Only in this state; may be repeated: {', '.join(STATES).lower()}.",
)  # fmt: skip
@click.option("--queue", metavar="Q", default="", help="Only jobs in this queue.")
@click.option("--user", metavar="U", default="", help="Only jobs of this user.")
@click.option("--name", metavar="N", default="", help="Only jobs of this name.")
@click.option("--after", metavar="JOB", default="", help="Only jobs after this id, for pages.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=0),
    help=f"At most N jobs, 0 for all; a table has {SHOWN:,} by default, json and yaml all.",
)  # fmt: skip
@WATCH
@INTERVAL
@FORMAT
@on_daemon
def ls(rota: "Client", *, watch: bool, interval: float, output: str, **values: Any) -> None:
    """List the jobs that are not over.

    \b
    Examples:
      rota ls
      rota ls --all --user ann
      rota ls --state running --queue research -o json
      rota ls --limit 100 --after 4711
      rota ls --watch
    """  # noqa: D301 - \b keeps click from wrapping the lines

    def show() -> None:
        states, most = values["state"], values["limit"]
        if most is None:
            most = SHOWN if output == "table" else 0
        found = rota.jobs(
            states=states,
            queue=values["queue"],
            user=values["user"],
            name=values["name"],
            active=not values["all"] and not states,
            after=values["after"],
            limit=most + 1 if most else None,  # one more tells whether the list is complete
        )
        jobs = list(found)
        cut = bool(most) and len(jobs) > most
        del jobs[most if cut else len(jobs) :]
        print_jobs(jobs, output, nothing="" if jobs else _nothing(rota, values))
        if cut:
            click.echo(
                f"there are more than these {most:,} jobs: narrow the list (--state, --queue, "
                f"--user, --name), go on with --after {jobs[-1].id}, or show all with --limit 0",
                err=True,
            )

    repeat(show, watch=watch, interval=interval)


def _nothing(rota: "Client", values: dict[str, Any]) -> str:
    """Why there is nothing to list."""
    which = {key: values[key] for key in ("queue", "user", "name", "after")}
    wanted = any(which.values()) or bool(values["state"])
    if values["all"] or values["state"]:
        return "no such jobs" if wanted else "no jobs"
    over = sum(1 for _ in rota.jobs(states=ENDED, **which, limit=MOST_COUNTED))
    if not over:
        return "no such jobs" if wanted else "no jobs"
    more = " or more" if over == MOST_COUNTED else ""
    return f"no active jobs ({over}{more} {'is' if over == 1 else 'are'} over: rota ls --all)"


def print_jobs(jobs: list[JobInfo], output: str, *, nothing: str = "no jobs") -> None:
    """A table for people, everything for programs."""
    if output == "json":  # there may be many: ten times as fast as `emit`
        import msgspec

        data = msgspec.json.encode([plain(job) for job in jobs])
        click.echo(msgspec.json.format(data, indent=2))
    elif output != "table":
        emit([plain(job) for job in jobs], output)
    elif jobs:
        now = time.time()
        listing([row(job, now) for job in jobs], "table", spare=SPARE)
    else:
        click.echo(nothing, err=True)


def plain(job: JobInfo) -> dict[str, Any]:
    """A job for programs."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(job)
    if job.file is None:  # it is not shown in listings
        del data["file"]
    return data


def row(job: JobInfo, now: float) -> dict[str, str]:
    """A job as a line of a table."""
    return {
        "job": job.id,
        "name": _titled(job) or "-",
        "user": clean(job.user) or "-",
        "queue": clean(job.queue) or "-",
        "state": job.state,
        "why": clean(job.reason) or stopping(job.stopping_s) or "-",
        "gpus": job.sized(),
        "nodes": shortened(list(job.nodes), 3),
        "age": ticking(now - job.submitted_at),
        "ran": ticking(job.run_s) if job.starts else "-",
        "starts": str(job.starts),
    }


@click.command()
@JOB
@FORMAT
@on_daemon
def show(rota: "Client", *, job: str, output: str) -> None:
    """Show everything about a JOB (its id or name; @17 or its name: an array, 17_3: task 3 of it).

    What it executes, and its variables, are shown to its owner and to administrators only.

    \b
    Examples:
      rota show 17
      rota show resnet-50 -o yaml
      rota show @17
    """  # noqa: D301 - \b keeps click from wrapping the lines
    array = array_id(rota, job)
    if array:
        _show_array(rota.array(array), output)
        return
    found = rota.job(job_id(rota, job))
    if output != "table":
        emit(plain(found), output)
        return
    for key, value in (facts(found) | _submitted(found.file)).items():
        click.echo(f"{key + ':':<13}{value}")
    if found.state in ("FAILED", "TIMEOUT"):
        _print_last_words(rota, found.id)


def _show_array(array: ArrayInfo, output: str) -> None:
    if output != "table":
        import msgspec

        emit(msgspec.to_builtins(array), output)
        return
    most = f", at most {array.limit} at once" if array.limit else ""
    told = {
        "array": f"@{array.id}",
        "name": clean(array.name),
        "user": clean(array.user),
        "queue": clean(array.queue),
        "jobs": f"{array.tasks}, {array.id}_{array.first} to {array.id}_{array.last}{most}",
        "states": states_of(array),
        "submitted": moment(array.submitted_at),
        "started": moment(array.started_at) if array.started_at is not None else "",
        "ended": moment(array.ended_at) if array.ended_at is not None else "",
        "ran": f"{span(array.run_s)}, {amount(round(array.gpu_s, 3))} GPU-seconds",
    }
    for key, value in told.items():
        if value:
            click.echo(f"{key + ':':<13}{value}")


def states_of(array: ArrayInfo) -> str:
    """`4 running, 6 held`."""
    return ", ".join(f"{many} {state.lower()}" for state, many in array.states.items())


def _print_last_words(rota: "Client", job: str) -> None:
    """The end of what a failed job wrote to stderr, on the first of its nodes that has any."""
    for rank in range(MOST_RANKS):
        try:
            last = rota.last_output(job, stream="err", node_rank=rank)
        except RotaError:  # not everybody may read it, or its machine is away
            return
        if last:
            more = f" --rank {rank}" if rank else ""
            click.echo(f"the end of its error output (rota logs {job} --stderr{more}):")
            for line in last_lines(last, LAST_LINES).decode(errors="replace").splitlines():
                click.echo(f"  {clean(line)}")
            return


def _titled(job: JobInfo) -> str:
    """Its name, with its number if it is one of an array: `train[3]`."""
    return clean(job.name) if job.task is None else f"{clean(job.name)}[{job.task}]"


def facts(job: JobInfo) -> dict[str, str]:
    """A job in words; what is not known is left out."""
    places = [f"{name} ({amount(gpus)})" for name, gpus in job.nodes.items()]
    told = {
        "job": job.id,
        "name": clean(job.name),
        "user": clean(job.user),
        "queue": clean(job.queue),
        "group": clean(job.group),
        "array": "" if job.task is None else f"{job.array}_{job.task} of @{job.array}",
        "state": state_of(job, f" ({clean(job.reason)})" if job.reason else ""),
        "message": clean(job.message),
        "waits for": shortened(job.waits_for, 20) if job.waits_for else "",
        "tried again": moment(job.retry_at) if job.retry_at is not None else "",
        "gpus": job.sized() + (f" of type {clean(job.gpu_type)}" if job.gpu_type else ""),
        "nodes": shortened(places, 20) if places else "",
        "priority": str(job.priority) if job.priority else "",
        "submitted": moment(job.submitted_at),
        "started": moment(job.started_at) if job.started_at is not None else "",
        "ended": moment(job.ended_at) if job.ended_at is not None else "",
        "deadline": moment(job.deadline_at) if job.deadline_at is not None else "",
        "estimate": span(job.estimate_s) if job.estimate_s is not None else "",
        "time limit": _limit(job),
        "retries": f"{job.failures} of {job.retries} used" if job.retries else "",
        "ran": f"{span(job.run_s)}, {amount(round(job.gpu_s, 3))} GPU-seconds",
        "starts": f"{job.starts}, {job.preemptions} preemptions",
        "used": job.used.words().removeprefix("used ") if job.used is not None else "",
        "advice": "; ".join(job.used.advice) if job.used is not None else "",
        "metrics": shortened([f"{key}={amount(v)}" for key, v in job.metrics.items()], 20)
        if job.metrics
        else "",
    }
    return {key: value for key, value in told.items() if value}


def _limit(job: JobInfo) -> str:
    if job.time_limit_s is None:
        return ""
    left = span(job.time_limit_s - job.run_s)
    return span(job.time_limit_s) + ("" if job.state in ENDED else f", {left} are left")


def state_of(job: JobInfo, reason: str = "") -> str:
    """Its state, and whether something of it is still being stopped."""
    ending = stopping(job.stopping_s)
    if job.state == "STOPPING":
        return job.state + ending.removeprefix("stopping")
    return f"{job.state}{reason}, {ending}" if ending else job.state + reason


def _submitted(file: "JobFile | None") -> dict[str, str]:
    """What it executes."""
    if file is None:
        return {}
    told = {
        "command": file.run.splitlines(),
        "setup": file.setup.splitlines(),
        "workdir": [file.workdir],
        "variables": [f"{name}={value}" for name, value in file.envs.items()],
    }
    lines = {key: [clean(line) for line in found if line] for key, found in told.items()}
    return {key: f"\n{'':13}".join(found) for key, found in lines.items() if found}


# --- changes -------------------------------------------------------------------------------------


def _change(
    rota: "Client",
    jobs: tuple[str, ...],
    output: str,
    *,
    one: Callable[[str], JobInfo],
    whole: Callable[[str], ArrayInfo],
) -> int:
    """Change each of the jobs, even if one of them is refused; the exit code.

    Args:
        rota: The daemon.
        jobs: As they were given: ids, names, arrays.
        output: Format of what is printed.
        one: Changes a job.
        whole: Changes an array.
    """
    done: list[JobInfo] = []
    arrays: list[ArrayInfo] = []
    for name in jobs:
        try:
            array = array_id(rota, name)
            if array:
                arrays.append(whole(array))
            else:
                done.append(one(job_id(rota, name)))
        except RotaError as error:
            if len(jobs) == 1:
                raise
            click.echo(f"error: {error}", err=True)
    if output == "table":
        for each in arrays:
            click.echo(f"array @{each.id}: {states_of(each)}", err=True)
        for job in done:
            click.echo(f"job {job.id}: {state_of(job).lower()}", err=True)
    else:
        import msgspec

        emit([*map(plain, done), *map(msgspec.to_builtins, arrays)], output)
    return 0 if len(done) + len(arrays) == len(jobs) else 1


@click.command()
@JOBS
@FORMAT
@on_daemon
def cancel(rota: "Client", *, job: tuple[str, ...], output: str) -> int:
    """End jobs for good; finished ones stay as they are.

    \b
    Examples:
      rota cancel 17
      rota cancel 18 19 resnet-50
      rota cancel @20
    """  # noqa: D301 - \b keeps click from wrapping the lines
    return _change(rota, job, output, one=rota.cancel, whole=rota.cancel_array)


@click.command()
@JOBS
@FORMAT
@on_daemon
def hold(rota: "Client", *, job: tuple[str, ...], output: str) -> int:
    """Keep jobs out of the queue; what runs is stopped first and can go on later.

    \b
    Example:
      rota hold 17
    """  # noqa: D301 - \b keeps click from wrapping the lines
    return _change(rota, job, output, one=rota.hold, whole=rota.hold_array)


@click.command()
@JOBS
@FORMAT
@on_daemon
def release(rota: "Client", *, job: tuple[str, ...], output: str) -> int:
    """Let held jobs into the queue.

    \b
    Example:
      rota release 17
    """  # noqa: D301 - \b keeps click from wrapping the lines
    return _change(rota, job, output, one=rota.release, whole=rota.release_array)
