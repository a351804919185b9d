"""The command `rota`: its subcommands, and what happens when one of them fails.

Exit codes: 0 ok, 1 failed, 2 wrong usage or input, 130 interrupted, 143 terminated.
"""

import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rota.core.errors import InputError, RotaError, is_full, lacking, why_unwritten
from rota.core.version import VERSION

if TYPE_CHECKING:
    from traceback import FrameSummary

YOUNG_OBJECTS = 50_000
"""New objects until the collector looks at them: what imports make stays, so looking is in vain."""

OK, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

COMMANDS = {
    "simulate": ("rota.cli.simulate:simulate", "Run a workload on a simulated cluster."),
    "compare": ("rota.cli.compare:compare", "Run several policies on the same workload."),
    "sweep": ("rota.cli.sweep:sweep", "Run a matrix of experiments, here or on Ray."),
    "tune": ("rota.cli.tune:tune", "Search the best parameters with early stopping."),
    "robust": ("rota.cli.robust:robust", "Test policies against errors, failures and costs."),
    "replay": ("rota.cli.replay:replay", "Replay a cluster's history and ask what-if questions."),
    "plan": ("rota.cli.plan:plan", "Find how many nodes a promise to users takes."),
    "predict": ("rota.cli.predict:predict", "Measure how predictable run times are."),
    "usage": ("rota.cli.usage:usage", "Add up GPU-hours by user, queue and month."),
    "scenario": ("rota.cli.scenario:scenario", "Play scripted events and check the decisions."),
    "reproduce": ("rota.cli.reproduce:reproduce", "Reproduce published results."),
    "report": ("rota.cli.report:report", "Rebuild a folder's report."),
    "watch": ("rota.cli.movie:watch", "Watch a run as an animation, or two side by side."),
    "rerun": ("rota.cli.rerun:rerun", "Repeat a run and check that the result is the same."),
    "lab": ("rota.cli.lab:lab", "Learn scheduling by exercises, with a grader."),
    "policy": ("rota.cli.listing:policy", "List the policies, or explain one."),
    "placement": ("rota.cli.listing:placement", "List the placements, or explain one."),
    "admission": ("rota.cli.listing:admission", "List the admissions, or explain one."),
    "costs": ("rota.cli.listing:costs", "List the cost models, or explain one."),
    "rates": ("rota.cli.listing:rates", "List the rate models, or explain one."),
    "dialect": ("rota.cli.listing:dialect", "List the dialects (--like), or explain one."),
    "trace": ("rota.cli.trace:trace", "Inspect, generate, convert and change workloads."),
    "submit": ("rota.cli.submit:submit", "Submit jobs from files, or a command."),
    "ls": ("rota.cli.jobs:ls", "List jobs."),
    "show": ("rota.cli.jobs:show", "Show a job in full."),
    "logs": ("rota.cli.logs:logs", "Print a job's output."),
    "exec": ("rota.cli.inside:run_command", "Run a command inside a job."),
    "shell": ("rota.cli.inside:open_shell", "Get GPUs and a shell on them."),
    "attach": ("rota.cli.inside:attach", "Come back to the terminal of an interactive job."),
    "port-forward": ("rota.cli.inside:port_forward", "Reach a port of a job from here."),
    "pull": ("rota.cli.pull:pull", "Copy a job's files to this machine."),
    "cancel": ("rota.cli.jobs:cancel", "Cancel jobs."),
    "hold": ("rota.cli.jobs:hold", "Hold jobs: they do not start."),
    "release": ("rota.cli.jobs:release", "Release held jobs."),
    "wait": ("rota.cli.wait:wait", "Wait for jobs to finish."),
    "efficiency": ("rota.cli.watch:efficiency", "Show what jobs used of what they asked for."),
    "watch-job": ("rota.cli.watch:watch_job", "Watch a job until it is over."),
    "explain": ("rota.cli.explain:explain", "Explain why a job waits or waited."),
    "why": ("rota.cli.outlook:why", "Name why a job does not start, and what would start it."),
    "audit": ("rota.cli.audit:audit", "Find starved queues, idle quotas and stuck jobs."),
    "when": ("rota.cli.outlook:when", "Estimate when a job will start."),
    "top": ("rota.cli.top:top", "Watch nodes, queues and jobs live."),
    "nodes": ("rota.cli.nodes:nodes", "List the nodes, or remove some."),
    "drain": ("rota.cli.nodes:drain", "Drain a node: nothing new starts there."),
    "undrain": ("rota.cli.nodes:undrain", "Put a drained node back into use."),
    "maintenance": ("rota.cli.windows:maintenance", "Plan times in which nodes are out of use."),
    "reserve": ("rota.cli.windows:reserve", "Reserve nodes for users or queues."),
    "queues": ("rota.cli.nodes:queues", "List the queues."),
    "tls": ("rota.cli.tls:tls", "Make certificates for the daemon and its machines."),
    "secret": ("rota.cli.secret:secret", "Keep passwords and keys for jobs."),
    "token": ("rota.cli.token:token", "Create, list and revoke tokens."),
    "user": ("rota.cli.user:user", "Add, change and disable people."),
    "session": ("rota.cli.user:session", "List and end sessions of people."),
    "login": ("rota.cli.login:login", "Log in by the cluster's identity provider."),
    "logout": ("rota.cli.login:logout", "End the session of `rota login`."),
    "web": ("rota.cli.web:web", "Log a browser in."),
    "doctor": ("rota.cli.doctor:doctor", "List what this machine can do for a cluster."),
    "store": ("rota.cli.store:store", "Back up, check and repair a daemon's store."),
    "reload": ("rota.cli.nodes:reload", "Reload the daemon's configuration."),
    "export": ("rota.cli.export:export", "Export a run or a daemon's history for other tools."),
    "profile": ("rota.cli.profile:profile", "Measure how a real job scales with GPUs."),
    "calibrate": ("rota.cli.calibrate:calibrate", "Fit costs to a run's log, and check the fit."),
    "serve": ("rota.cli.serve:serve", "Run the scheduler on real machines."),
    "agent": ("rota.cli.agent:agent", "Run a worker agent here."),
    "shadow": ("rota.cli.shadow:shadow", "Watch Slurm and show what Rota would do."),
    "completion": ("rota.cli.completion:completion", "Print shell completions."),
}


class LazyGroup(click.Group):
    """Commands that are imported when they are called, not when they are listed.

    Given by name: where each is (`module:attribute`) and one line of help.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order in which they were given."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which command was meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near or "id you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's interface
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        rows = [(name, text) for name, (_, text) in self._lazy.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ROTA"},
    epilog="Every option can be set in the environment, e.g. ROTA_SIMULATE_CLUSTER=32x8.",
)
@click.version_option(VERSION, "-V", "--version", message="rota %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback on failure.")
def rota() -> None:
    """Schedule deep-learning jobs on GPU clusters: simulate, compare, run, explain.

    \b
    Start here:
      rota trace generate philly-like:max_s=86400 --jobs 4000 --cluster 16x8 --load 1.2 -o jobs.csv
      rota simulate jobs.csv --cluster 16x8 --policy srtf -o out
      rota compare jobs.csv --cluster 16x8 --policy fifo --policy tiresias -o report
      rota policy ls

    \b
    Run a cluster:
      rota serve --nodes 4x4 --policy tiresias
      rota submit --gpus 2 -- python train.py
      rota top
    """  # noqa: D301 - \b keeps click from wrapping the lines


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    signal.signal(signal.SIGTERM, _terminated)  # an exit cleans up, a plain kill would not
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    code = run(list(sys.argv[1:] if args is None else args))
    gc.freeze()  # all that is left goes with the process: nothing to look for at exit
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run a command; its exit code. Only `--debug` (or ROTA_DEBUG) shows tracebacks."""
    try:
        code = rota.main(args=args, prog_name="rota", standalone_mode=False)
    except click.Abort:
        click.echo("interrupted: nothing was written", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return FAILED
    except SystemExit as ended:  # by a signal, or by click when nobody reads what it writes
        return ended.code if isinstance(ended.code, int) else FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: users never see a traceback
        return _explain(error, debug=_wants_traceback(args))
    return code if isinstance(code, int) else OK


def _terminated(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - the signal's interface
    sys.exit(TERMINATED)


def _wants_traceback(args: list[str]) -> bool:
    return "--debug" in args or os.environ.get("ROTA_DEBUG", "").lower() in ("1", "true", "yes")


def _explain(error: Exception, *, debug: bool) -> int:
    import traceback

    if debug:
        traceback.print_exception(error)
    if isinstance(error, RotaError):
        click.echo(f"error: {error}", err=True)
        return USAGE if isinstance(error, InputError) else FAILED
    if isinstance(error, ModuleNotFoundError) and (remedy := lacking(error)):
        click.echo(f"error: {remedy}", err=True)
        return FAILED
    if isinstance(error, OSError) and is_full(error):
        click.echo(f"error: {error.filename or 'a file'}: {why_unwritten(error, '')}", err=True)
        return FAILED
    if isinstance(error, MemoryError):
        why = f" ({error})" if str(error) else ""
        click.echo(
            f"error: this machine has too little memory for it{why}: ask for less (fewer jobs, a "
            f"smaller cluster, a part of the trace), or take a larger one",
            err=True,
        )
        return FAILED
    place = _blamed(traceback.extract_tb(error.__traceback__))
    click.echo(
        f"error: {type(error).__name__}: {error} "
        f"({place.filename.rpartition(os.sep)[2]}, line {place.lineno})"
        + ("" if debug else ": run with `rota --debug ...` to see where it comes from"),
        err=True,
    )
    return FAILED


def _blamed(frames: "Sequence[FrameSummary]") -> "FrameSummary":
    """The innermost line of a file of the user's own, if there is one; else the innermost line."""
    import rota as package

    ours = (*package.__path__, sys.prefix, sys.base_prefix, "<")
    own = [frame for frame in frames if not frame.filename.startswith(ours)]
    return (own or frames)[-1]


def _forget_stdout() -> None:
    """The reader of our output has gone: Python must not complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
