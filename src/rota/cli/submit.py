"""`rota submit`."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import LONG_PATIENCE_S, clean, complete_jobs, connect, server_options
from rota.cli.jobs import print_jobs
from rota.cli.show import FORMAT, emit, warn_about
from rota.cli.wait import wait_for
from rota.core.errors import InputError
from rota.wire import JobInfo

if TYPE_CHECKING:
    from rota.jobfile.model import JobFile

COMMAND = "rota.submit.command"
OPTIONS = {
    "queue": "queue", "name": "name", "gpu_type": "resources.gpu_type", "nodes": "nodes",
    "cpus": "resources.cpus", "mem": "resources.mem", "gpu_mem_gib": "resources.gpu_mem_gib",
    "priority": "priority",
    "time": "time_limit", "retries": "retries", "array": "array", "image": "image",
}  # fmt: skip
LISTS = {
    "after_ok": "depends_on", "after_any": "after_any", "after_fail": "after_fail",
    "notify": "notify", "notify_on": "notify_on", "secret": "secrets",
}  # fmt: skip
"""Options, and the keys of a job file that they set."""
NEVER_EMPTY = ("image", "time", "array")
_RANGE = re.compile(r"([0-9]+)(?:-|:|\.\.)([0-9]+)")


class WithCommand(click.Command):
    """What follows `--` is a command, not a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command aside."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command(cls=WithCommand, options_metavar="[OPTIONS]")
@click.argument("files", metavar="[FILE...] [-- COMMAND...]", nargs=-1,
                type=click.Path(path_type=Path, allow_dash=True))  # fmt: skip
@click.option("--set", "set", metavar="KEY=VALUE", multiple=True,
              help="Set a key of the job: queue=a, resources.cpus=8, envs.LR=0.1.")  # fmt: skip
@click.option("--gpus", metavar="N", help="GPUs (per node); 2-8 for an elastic job.")
@click.option("--gpu-type", metavar="T", help="GPU type; several that will do: a100|h100.")
@click.option("--nodes", metavar="N", help="Nodes, each with what is asked for.")
@click.option("--cpus", metavar="N", help="CPUs (per node).")
@click.option("--mem", metavar="M", help="Memory (per node): GiB, or 64GB, 512M.")
@click.option("--gpu-mem-gib", metavar="M", help="GPU memory in GiB, of each GPU or of its part of "
              "one: jobs that share a GPU fit into it together.")  # fmt: skip
@click.option("--resource", metavar="KIND=N", multiple=True, help="Licences and other kinds that "
              "the cluster declares: matlab=2; may be repeated.")  # fmt: skip
@click.option("--image", metavar="I", help="Run it in a container: docker.io/library/python:3.12, "
              "the path of a folder or of a .sif file.")  # fmt: skip
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Variable; may be repeated.")
@click.option("--secret", metavar="NAME", multiple=True, help="A secret of yours (`rota secret "
              "set`) as a variable, file:NAME as a file; may be repeated.")  # fmt: skip
@click.option("--queue", metavar="Q", help="Queue; overrides the file.")
@click.option("--name", metavar="NAME", help="Job name; overrides the file.")
@click.option("--priority", metavar="P", help="Priority; higher ones are served first.")
@click.option("--time", metavar="T", help="Time limit: 90m, 2h30m, 1-12:00:00 or seconds of "
              "running; then SIGTERM, grace, SIGKILL.")  # fmt: skip
@click.option("--retries", metavar="N", help="How often to try again after a failure.")
@click.option("--after", "--after-ok", "after_ok", metavar="JOB", multiple=True,
              shell_complete=complete_jobs,
              help="Only when this job (id, name, or @ID: an array) has succeeded.")  # fmt: skip
@click.option("--after-any", metavar="JOB", multiple=True, shell_complete=complete_jobs,
              help="Only when this job is over.")  # fmt: skip
@click.option("--after-fail", metavar="JOB", multiple=True, shell_complete=complete_jobs,
              help="Only if this job ends without success.")  # fmt: skip
@click.option(
    "--notify",
    metavar="WHO",
    multiple=True,
    help="Tell a webhook of the daemon, mailto:NAME@HOST or a URL; may be repeated.",
)
@click.option(
    "--notify-on",
    metavar="WHAT",
    multiple=True,
    type=click.Choice(["start", "end", "fail", "preempt", "soon"]),
    help="Tell of start, end, fail, preempt or soon (10 minutes before); else of all.",
)
@click.option("--array", metavar="A", help="One job for each number, in ROTA_ARRAY_INDEX: 0-9, "
              "1,4,7; 0-9%4: at most four at once.")  # fmt: skip
@click.option("--hold", is_flag=True, help="Do not start it before `rota release`.")
@click.option("--upload", metavar="DIR", type=click.Path(path_type=Path),
              help="Send the files of DIR; the job runs in a copy (see .rotaignore).")  # fmt: skip
@click.option("--upload-limit", metavar="SIZE", default="1GB", show_default=True,
              help="Refuse to send more than that.")  # fmt: skip
@click.option("--key", metavar="K", help="Idempotency key: the same key again submits nothing new.")
@click.option(
    "--wait", is_flag=True, help="Wait for the jobs to finish; exit code 1 unless all succeed."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be submitted.")
@FORMAT
@server_options
def submit(
    files: tuple[Path, ...],
    *,
    server: str | None,
    token_file: str | None,
    output: str,
    **values: Any,
) -> int:
    """Submit the jobs of FILEs, or a COMMAND. Prints their ids.

    The exit code is 1 if a job is rejected at once, because it can never run here.

    A file is Rota's own YAML, an #SBATCH script, a manifest of Kubernetes (Pod, Job, PyTorchJob,
    MPIJob, RayJob), a job of OpenPAI (version 2) or of Blox; what cannot be honoured is said. The
    jobs of all files are accepted together or not at all. A COMMAND
    runs in the present folder.

    \b
    Examples:
      rota submit job.yaml
      rota submit job.yaml --set envs.LR=0.01 --queue research
      rota submit --gpus 2 --time 2h -- python train.py --epochs 10
      rota submit --array 0-9%4 --name sweep -- ./train.sh
      rota submit evaluate.yaml --after sweep
      rota submit train.sh --wait
      rota submit --upload . --gpus 1 -- python train.py     # and later: rota pull JOB
      rota submit --resource matlab=2 -- ./simulate.sh       # licences of the cluster
      rota submit job.yaml --dry-run
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.jobfile.quantities import memory_gib

    jobs = changed(_read(files), values)
    if values["dry_run"]:
        _show(jobs, output)
        return 0
    patience_s = LONG_PATIENCE_S if values["wait"] else 5.0
    with connect(server, token_file, patience_s=patience_s) as rota:
        if values["upload"] is not None:
            limit = int(memory_gib(values["upload_limit"], "--upload-limit") * 2**30)
            jobs = with_files(jobs, rota.upload(values["upload"], limit=limit))
        made = rota.submit_many(jobs, key=values["key"])
        if values["wait"]:
            if output == "table":
                _print(made, output)
            return wait_for(rota, [job.id for job in made], output)
    _print(made, output)
    return _tell_rejected(made)


def with_files(jobs: "list[JobFile]", upload: str) -> "list[JobFile]":
    """The jobs in a copy of what was sent; a folder of this machine means nothing there."""
    import msgspec

    return [
        msgspec.structs.replace(
            job, upload=upload, workdir="" if Path(job.workdir).is_absolute() else job.workdir
        )
        for job in jobs
    ]


def _read(files: Sequence[Path]) -> "list[JobFile]":
    from rota.jobfile.model import JobFile
    from rota.jobfile.read import read_translated

    command = click.get_current_context().meta.get(COMMAND)
    if (command is None) == (not files):
        raise click.UsageError("Give files, or a command after `--`.")
    if command is not None:
        if not command:
            raise click.UsageError("There is no command after `--`.")
        return [JobFile(run=shlex.join(command), workdir=str(Path.cwd()))]
    found = []
    for path in files:
        if str(path) == "-":
            text = sys.stdin.read()
            found += read_translated(text, folder=Path.cwd())
        else:
            found += read_translated(path)
    warn_about(warning for item in found for warning in item.warnings)
    return [item.job for item in found]


def changed(jobs: "list[JobFile]", values: Mapping[str, Any]) -> "list[JobFile]":
    """The jobs with what the options say; a command may have only some of them."""
    from rota.jobfile.check import check
    from rota.jobfile.plain import with_values

    for option in NEVER_EMPTY:
        if values.get(option) == "":  # of a variable that is not set: it would be without, unsaid
            raise InputError(f"--{option} is '': give one, or leave the option out")
    settings = []
    if values.get("gpus") is not None:
        settings.append(f"resources.gpus={_gpus(values['gpus'])}")
    settings += [
        f"{key}={values[option]}"
        for option, key in OPTIONS.items()
        if values.get(option) is not None
    ]
    settings += [
        f"resources.kinds.{kind}={amount:g}"
        for kind, amount in amounts_of(values.get("resource", ())).items()
    ]
    settings += [f"envs.{pair}" for pair in map(_pair, values.get("env", ()))]
    settings += [
        f"{key}={json.dumps(values[option])}" for option, key in LISTS.items() if values.get(option)
    ]
    if values.get("hold"):
        settings.append("hold=true")
    settings += values.get("set", ())
    if not settings:
        return jobs
    changed = [with_values(job, settings) for job in jobs]
    for job in changed:
        check(job)
    return changed


def _pair(text: str) -> str:
    if "=" not in text:
        raise InputError(f"--env is {text[:60]!r}: write NAME=VALUE")
    return text


def amounts_of(texts: Sequence[str]) -> dict[str, float]:
    """Kinds and amounts of `--resource matlab=2`."""
    found = {}
    for text in texts:
        kind, equals, amount = text.partition("=")
        if kind.strip() in found:
            raise InputError(f"--resource {kind.strip()[:60]!r} is given twice: give one amount")
        try:
            found[kind.strip()] = float(amount if equals else "")
        except ValueError as error:
            raise InputError(
                f"--resource is {text[:60]!r}: write KIND=AMOUNT, such as matlab=2"
            ) from error
    return found


def _gpus(text: str) -> str:
    match = _RANGE.fullmatch(text.strip())
    if match:
        return f"{{min: {match[1]}, max: {match[2]}}}"
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text.strip(), re.ASCII):
        raise InputError(f"--gpus is {text[:60]!r}: give a number, or 2-8 for an elastic job")
    return text.strip()


def _show(jobs: "list[JobFile]", output: str) -> None:
    """Jobs as they would be sent; YAML that can be submitted again, unless JSON is wanted."""
    import msgspec

    plain = [msgspec.to_builtins(job) for job in jobs]
    if output == "json":
        emit(plain, "json")
        return
    for number, job in enumerate(plain):
        if number:
            click.echo("---")
        emit(job, "yaml")


def _print(jobs: list[JobInfo], output: str) -> None:
    if output != "table":
        print_jobs(jobs, output)
        return
    for job in jobs:
        if not job.array or job.array == job.id:  # an array is one thing
            click.echo(f"@{job.id}" if job.array else job.id)


def _tell_rejected(jobs: list[JobInfo]) -> int:
    """They have an id and will never run; the exit code."""
    rejected = [job for job in jobs if job.state == "REJECTED"]
    for job in rejected:
        why = clean(job.message) or "see `rota show`"
        click.echo(f"error: job {job.id} is rejected: {why}", err=True)
    return 1 if rejected else 0
