"""Options that several commands share, and completion of their values."""

from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from rota.core import registry

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number that is neither nan, which every comparison lets pass, nor infinite."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse nan and inf."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number: give one such as 2.5", param, ctx)
        return number


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def one_of(names: Callable[[], Iterable[str]]) -> Completion:
    """Completes these names, and files."""

    def complete(
        ctx: click.Context,  # noqa: ARG001 - click's interface
        param: click.Parameter,  # noqa: ARG001 - click's interface
        incomplete: str,
    ) -> list[CompletionItem]:
        found = [name for name in names() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in found] or [CompletionItem(incomplete, "file")]

    return complete


FILES = one_of(tuple)
"""Completes files."""


def names_of(group: str) -> Completion:
    """Completes names from the registry, and files."""
    return one_of(lambda: registry.names(group))


def _text(*names: str, help: str, group: str = "", **kwargs: Any) -> Callable[[F], F]:  # noqa: A002
    if group:
        kwargs["shell_complete"] = names_of(group)
    return click.option(*names, help=help, **kwargs)


OUTPUT_DIR = click.option(
    "-o", "--output", required=True, metavar="DIR",
    type=click.Path(path_type=Path), help="Output folder; created if missing.",
)  # fmt: skip
FORCE = click.option("--force", is_flag=True, help="Overwrite Rota's files in an existing folder.")
DEBUG = click.option(
    "--debug", is_flag=True, expose_value=False, hidden=True, help="Show a traceback."
)
ISOLATION = click.option(
    "--isolation",
    type=click.Choice(["auto", "required", "off"]),
    envvar="ROTA_ISOLATION",
    help="Keep the jobs on this machine apart from each other and from Rota: if that is possible "
    "(auto, the default), or not start if it is not (required).",
)
VISIBLE = click.option(
    "--visible",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    envvar="ROTA_VISIBLE",
    help="Folder in /tmp, /run or a home that jobs see although they are kept apart; may be "
    "repeated.",
)
STATE = click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path), envvar="ROTA_STATE",
    help="State folder of the daemon; default ~/.local/state/rota.",
)  # fmt: skip
POLICY_HELP = "Policy: name or name:key=value,... (see `rota policy ls`), or a Python file."

_RUN = (
    _text("--cluster", metavar="SPEC",
          help="Cluster: 32x8 (nodes x GPUs), 4x8:v100+4x8:k80, a YAML file or a CSV node list."),
    _text("--placement", metavar="PL", group=registry.PLACEMENTS,
          help="Placement: a name or a Python file; consolidate unless a dialect differs."),
    _text("--admission", metavar="A", group=registry.ADMISSIONS,
          help="Admission: a name or a Python file; accept-all by default."),
    _text("--costs", metavar="C", group=registry.COSTS,
          help="Cost model of starts, stops and moves; zero by default."),
    _text("--rates", metavar="R", group=registry.RATES,
          help="Rate model: how fast jobs run where they are placed."),
    _text("--like", metavar="NAME", group=registry.DIALECTS,
          help="Assumptions and quirks of a published simulator (see `rota dialect ls`)."),
    _text("--format", metavar="F", group=registry.FORMATS,
          help="Trace format; detected by default (see `rota trace formats`)."),
    _text("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs."),
    _text("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
          help="Random seed."),
    _text("--round", metavar="R",
          help="Decide only every R seconds: 300[,refill=yes][,arrivals=now][,finish=boundary]."),
    _text("--estimate-error", metavar="E",
          help="Make oracles and users' estimates wrong by a random factor per job: "
               "cv=0.5,bias=0.1."),
    _text("--speed-error", metavar="E",
          help="Make what policies are told of speeds on GPU types wrong by a random factor per "
               "job and type: cv=0.2,bias=0.1."),
    _text("--mtbf", metavar="H", type=Finite(min=0, min_open=True),
          help="Mean hours between failures of a node; needs --mttr."),
    _text("--mttr", metavar="H", type=Finite(min=0, min_open=True),
          help="Mean hours to repair a node."),
    _text("--maintenance", metavar="M", multiple=True,
          help="Nodes out of use for a time: nodes=n[0-3],start=8h,for=2h[,at-start=preempt]; may "
               "be repeated."),
    _text("--reserve", metavar="R", multiple=True,
          help="Nodes for a user or queue alone: gpus=16,start=8h,for=1d,user=ann (or nodes=..., "
               "queue=...); may be repeated."),
    _text("--measure", metavar="W",
          help="Jobs in the summary: ids=A:B (B not included) or after=T (seconds)."),
    click.option("--check", is_flag=True, help="Verify every invariant at every event (slower)."),
)  # fmt: skip


def run_options(command: F) -> F:
    """Everything that determines a run, besides trace and policy."""
    for option in reversed(_RUN):
        command = option(command)
    return command


def figure_formats(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """The formats in which figures are wanted."""
    from rota.report.write import FORMATS

    kinds = tuple(kind for kind in value.replace(" ", "").split(",") if kind not in ("", "none"))
    for kind in kinds:
        if kind not in FORMATS:
            raise click.BadParameter(f"{kind!r}: use {', '.join(FORMATS)}, or none", ctx, param)
    return kinds
