"""A cluster's history on the command line: the log, its machines and the model of today.

Shared by the commands that replay one.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.options import FILES, names_of
from rota.core.registry import FORMATS, PLACEMENTS, POLICIES

if TYPE_CHECKING:
    from rota.study.replay.replay import Asked

Command = TypeVar("Command", bound=Callable[..., Any])

_MACHINES = (
    click.option(
        "--nodes",
        metavar="FILE",
        shell_complete=FILES,
        help="The machines: what `scontrol show node`, `sinfo --json` or `kubectl get nodes "
        "-o json` prints. Without it, nodes are as large as jobs were seen on them.",
    ),
    click.option(
        "--cluster",
        metavar="SPEC",
        help="The machines instead, as for `rota simulate`: 16x8, a YAML file or a CSV node list.",
    ),
)
_MODEL = (
    click.option(
        "--model",
        metavar="P",
        shell_complete=names_of(POLICIES),
        help="Policy that models the present cluster. [default: the one of fifo, fifo-skip, easy, "
        "conservative, slurm and those of --policy that comes closest to what happened]",
    ),
    click.option(
        "--slurm-conf",
        metavar="FILE",
        shell_complete=FILES,
        help="The rules of the Slurm behind LOG, for the policy slurm: its slurm.conf, or what "
        "`scontrol show config` and `scontrol show partition` print.",
    ),
    click.option(
        "--slurm-qos",
        metavar="FILE",
        shell_complete=FILES,
        help="The same: what `sacctmgr show qos --parsable2` prints.",
    ),
    click.option(
        "--slurm-assoc",
        metavar="FILE",
        shell_complete=FILES,
        help="The same: what `sacctmgr show assoc --parsable2` prints.",
    ),
    click.option(
        "--placement",
        metavar="PL",
        shell_complete=names_of(PLACEMENTS),
        help="Placement; consolidate by default.",
    ),
)
_READING = (
    click.option(
        "--format",
        metavar="F",
        shell_complete=names_of(FORMATS),
        help="Format of LOG, with options: sacct:tz=Europe/Berlin; detected by default.",
    ),
    click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs."),
    click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(min=1),
        help="Parallel runs, each in its own process; by default one per core if the log is long.",
    ),
    click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Random seed."),
)


def history_options(*what_if: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """The options of a command that replays a log, those of its own question in the middle."""

    def add(command: Command) -> Command:
        options: list[Callable[[Command], Command]] = [*_MACHINES, *_MODEL, *what_if, *_READING]
        for option in reversed(options):
            command = option(command)
        return command

    return add


def asked_of(log: str, values: "Mapping[str, Any]", **more: Any) -> "Asked":
    """The question that the options put."""
    from rota.study.replay.replay import Asked

    if values["nodes"] and values["cluster"]:
        raise click.UsageError("--nodes and --cluster both tell the machines: give one of them.")
    same = ("model", "format", "nodes", "cluster", "placement", "limit", "seed")
    return Asked(log=log, slurm=_slurm(values), **{key: values[key] for key in same}, **more)


def _slurm(values: "Mapping[str, Any]") -> str:
    """The policy `slurm` with the files of the site."""
    files = {key: values[f"slurm_{key}"] for key in ("conf", "qos", "assoc")}
    given = ",".join(f"{key}={file}" for key, file in files.items() if file)
    return f"slurm:{given}" if given else "slurm"
