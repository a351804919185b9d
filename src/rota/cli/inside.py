"""`rota exec`, `rota shell`, `rota attach` and `rota port-forward`: into jobs that run."""

import os
import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    INTERRUPTED,
    JOB,
    LONG_PATIENCE_S,
    clean,
    complete_jobs,
    connect,
    job_id,
    server_options,
)
from rota.cli.submit import COMMAND, WithCommand, changed
from rota.cli.terminal import LOST, Attached, is_terminal, say, terminal_size
from rota.core.errors import InputError, RotaError
from rota.wire import ENDED, MAIN, JobInfo

if TYPE_CHECKING:
    from rota.sdk import Client

RANK = click.option(
    "--rank", metavar="N", type=click.IntRange(0, 100_000), default=0, show_default=True,
    help="Which of the job's nodes (0: the first).",
)  # fmt: skip
_PORTS = re.compile(r"(?:(?P<local>[0-9]{1,5}):)?(?P<remote>[0-9]{1,5})", re.ASCII)
LARGEST_PORT = 65_535
SHELL = "bash -i"
PAUSE_S, LOOK_S = 0.2, 2.0
SETTLED = 50  # looks


@click.command("exec", cls=WithCommand, options_metavar="[OPTIONS]")
@click.argument("job", metavar="JOB [-- COMMAND...]", shell_complete=complete_jobs)
@click.option("-t/-T", "--tty/--no-tty", default=None,
              help="Give it a terminal; by default if this is one.")  # fmt: skip
@click.option("-n", "--no-stdin", is_flag=True, help="Pass nothing to its standard input.")
@RANK
@server_options
def run_command(
    job: str,
    *,
    tty: bool | None,
    no_stdin: bool,
    rank: int,
    server: str | None,
    token_file: str | None,
) -> int:
    """Run a COMMAND inside a JOB that runs: its folder, its variables, its GPUs, its sandbox.

    Without a COMMAND it is a shell. It runs as the job's user and counts for the job's limits; it
    ends with the job, and five minutes after nobody has listened any more. The exit code is that of
    the COMMAND. Only the owner of a job and administrators may do this.

    \b
    Examples:
      rota exec 17 -- nvidia-smi
      rota exec 17                       # a shell
      tar c data | rota exec 17 -- tar x
      rota exec 17 --rank 1 -- py-spy dump --pid 42
    """  # noqa: D301 - \b keeps click from wrapping the lines
    argv = click.get_current_context().meta.get(COMMAND) or []
    with_tty = (is_terminal() and not no_stdin) if tty is None else tty
    if with_tty and not is_terminal():
        raise click.UsageError("--tty: this is no terminal: leave it out.")
    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        number = job_id(rota, job)
        size, term = (terminal_size(), os.environ.get("TERM", "")) if with_tty else ((0, 0), "")
        rota.job(number)  # whoever may not see it hears so at once
        channel = rota.open_channel(
            number, argv, tty=with_tty, size=size, term=term, node_rank=rank
        ).id
        attached = Attached(rota, number, channel, rank=rank, on_tty=with_tty, stdin=not no_stdin)
        try:
            with closing(attached):
                code = attached.run()
        except KeyboardInterrupt:
            rota.close_channel(number, channel, node_rank=rank)
            return INTERRUPTED
        if code is None:
            rota.close_channel(number, channel, node_rank=rank)
        if code == LOST:
            say(f"job {number}: the command ended with its run: see `rota show {number}`")
        return LOST if code is None else code


@click.command("shell", cls=WithCommand, options_metavar="[OPTIONS]")
@click.argument("nothing", metavar="[-- COMMAND...]", nargs=-1)
@click.option("--gpus", metavar="N", default="1", show_default=True, help="GPUs.")
@click.option("--queue", metavar="Q", help="Queue.")
@click.option("--name", metavar="NAME", default="shell", show_default=True, help="Job name.")
@click.option("--set", "set", metavar="KEY=VALUE", multiple=True,
              help="Set a key of the job: resources.cpus=8, envs.LR=0.1.")  # fmt: skip
@server_options
def open_shell(
    nothing: tuple[str, ...], *, server: str | None, token_file: str | None, **values: Any
) -> int:
    """Get GPUs and a shell on them: an interactive job, which ends when the shell does.

    The shell stays when the connection breaks, this terminal is closed, or the daemon is restarted:
    `rota attach JOB` comes back to it. Enter ~ . leaves it without ending it. It holds its GPUs
    until it ends, or until `rota cancel JOB`.

    \b
    Examples:
      rota shell --gpus 1
      rota shell --gpus 2 --queue research --set resources.mem=32GB
      rota shell -- python
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import shlex

    from rota.jobfile.model import JobFile

    if nothing:
        raise click.UsageError(f"Write -- before the command: rota shell -- {shlex.join(nothing)}")
    argv = click.get_current_context().meta.get(COMMAND)
    script = shlex.join(argv) if argv else SHELL
    envs = {"TERM": os.environ.get("TERM") or "dumb"}
    job = JobFile(run=script, workdir=os.getcwd(), envs=envs, interactive=True)  # noqa: PTH109
    (job,) = changed([job], values)
    if not is_terminal():
        raise click.UsageError("This is no terminal: use `rota submit`.")
    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        made = rota.submit(job)
        say(f"job {made.id}")
        return _attach(rota, made.id)


@click.command("attach")
@JOB
@server_options
def attach(job: str, *, server: str | None, token_file: str | None) -> int:
    """Come back to the terminal of an interactive JOB (`rota shell`), from wherever you are.

    What it has shown last is shown again. Several terminals may be attached: all show the same.
    Enter ~ . leaves it without ending it.

    \b
    Example:
      rota attach 17
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if not is_terminal():
        raise click.UsageError("This is no terminal: use `rota logs` or `rota exec`.")
    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        return _attach(rota, job_id(rota, job))


def _attach(rota: "Client", job: str) -> int:
    """To the terminal of a job, when it has one."""
    try:
        found = _started(rota, job)
    except KeyboardInterrupt:
        rota.cancel(job)
        say(f"\njob {job} is cancelled")
        return INTERRUPTED
    if found.state in ENDED:
        return _told(found)
    rota.open_channel(job, id=MAIN)
    with closing(Attached(rota, job, MAIN, rank=0, on_tty=True, stdin=True)) as attached:
        code = attached.run()
    if code is None:
        say(f"job {job} goes on: `rota attach {job}` comes back to it")
        return 0
    if code == LOST:
        found = _settled(rota, job)
        if found.state in ENDED:
            return _told(found)
        say(f"job {job} was stopped ({found.state}): `rota attach {job}` when it runs again")
        return LOST
    return code


def _started(rota: "Client", job: str) -> JobInfo:
    """Wait until it runs; why it does not is said once."""
    told = ""
    while True:
        found = rota.job(job)
        if found.state == "RUNNING" or found.state in ENDED:
            return found
        why = f"job {job} is {found.state}" + (f": {found.reason}" if found.reason else "")
        if found.state != "STARTING" and why != told:
            told = why
            say(f"{clean(why)} (Ctrl-C cancels it; `rota explain {job}` says more)")
        time.sleep(PAUSE_S)


def _settled(rota: "Client", job: str) -> JobInfo:
    """A run has ended: what it means for the job takes a moment."""
    found = rota.job(job)
    for _ in range(SETTLED):
        if found.state != "RUNNING":
            break
        time.sleep(PAUSE_S)
        found = rota.job(job)
    return found


def _told(found: JobInfo) -> int:
    if found.state == "SUCCEEDED":
        return 0
    why = f": {clean(found.message)}" if found.message else ""
    say(f"job {found.id} is {found.state}{why}")
    return 1


@click.command("port-forward")
@JOB
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@click.option("--address", metavar="A", default="127.0.0.1", show_default=True,
              help="Where to listen here; whoever reaches it reaches your job.")  # fmt: skip
@RANK
@server_options
def port_forward(
    job: str,
    ports: tuple[str, ...],
    *,
    address: str,
    rank: int,
    server: str | None,
    token_file: str | None,
) -> int:
    """Reach PORTs of a JOB that runs from this machine: a notebook, TensorBoard. Until Ctrl-C.

    Connections go by way of the daemon, so the job's machine need not be reachable. There they come
    from 127.0.0.1, made as the job itself would make them. LOCAL 0 takes a free port.

    \b
    Examples:
      rota port-forward 17 8888            # http://127.0.0.1:8888
      rota port-forward 17 6007:6006 8888
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.sdk.forward import PortForward

    wanted = [_ports(text) for text in ports]
    told: set[str] = set()

    def complain(why: str) -> None:
        if why not in told:  # a browser tries again and again
            told.add(why)
            say(f"warning: {clean(why)}")

    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        number = job_id(rota, job)
        rota.channels(number, node_rank=rank)  # whoever may not hears so at once
        opened = [
            PortForward(
                rota, number, remote, local, address=address, node_rank=rank, on_error=complain
            )
            for local, remote in wanted
        ]
        for forward, (_, remote) in zip(opened, wanted, strict=True):
            click.echo(f"http://{address}:{forward.port} -> port {remote} of job {number}")
        try:
            while rota.job(number).state not in ENDED:
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            return INTERRUPTED
        except RotaError as error:
            say(f"error: {error}")
            return 1
        finally:
            for forward in opened:
                forward.close()
    say(f"job {number} has ended")
    return 0


def _ports(text: str) -> tuple[int, int]:
    """`8888` or `8889:8888`."""
    match = _PORTS.fullmatch(text)
    remote = int(match["remote"]) if match else 0
    local = int(match["local"] or remote) if match else 0
    if not 0 < remote <= LARGEST_PORT or local > LARGEST_PORT:
        raise InputError(f"port {text!r}: give PORT or LOCAL:PORT, such as 8888 or 8889:8888")
    return local, remote
