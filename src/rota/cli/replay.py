"""`rota replay`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import DEBUG, FILES, FORCE, OUTPUT_DIR, POLICY_HELP, names_of
from rota.cli.progress import Bar
from rota.cli.show import table, warn_about
from rota.core.registry import FORMATS, PLACEMENTS, POLICIES

if TYPE_CHECKING:
    from rota.experiments.replay import Answer

MOST_GROUPS = 10
HEADINGS = (
    "schedule",
    "GPUs",
    "mean wait",
    "p50 wait",
    "p95 wait",
    "mean JCT",
    "GPUs used",
    "refused",
)
SPARE = ("refused", "p50 wait", "mean JCT")


@click.command(
    epilog="Results: replay.json and replay.csv with every number, report.html, cluster.yaml (the "
    "machines, for --cluster), and a folder per schedule as of `rota simulate`."
)
@click.argument("log", shell_complete=FILES)
@click.option(
    "--nodes", metavar="FILE", shell_complete=FILES,
    help="The machines: what `scontrol show node`, `sinfo --json` or `kubectl get nodes -o json` "
    "prints. Without it, nodes are as large as jobs were seen on them.",
)  # fmt: skip
@click.option(
    "--cluster", metavar="SPEC",
    help="The machines instead, as for `rota simulate`: 16x8, a YAML file or a CSV node list.",
)  # fmt: skip
@click.option(
    "--policy", metavar="P", multiple=True, shell_complete=names_of(POLICIES),
    help=f"{POLICY_HELP} May be repeated. [default: easy]",
)  # fmt: skip
@click.option(
    "--placement", metavar="PL", shell_complete=names_of(PLACEMENTS),
    help="Where jobs run; consolidate by default.",
)  # fmt: skip
@click.option(
    "--add-nodes", metavar="NxG", multiple=True,
    help="What if there were more machines: 4x8 (nodes x GPUs), 4x8:a100, and in which partitions "
    "if there are several: 4x8:a100@gpu+debug. May be repeated.",
)  # fmt: skip
@click.option(
    "--remove", metavar="NODES", multiple=True,
    help="What if these machines were gone: names (n1,a[001-008]), patterns (gpu*), or all with "
    "partition=debug, label=nvlink, type=a100, rack=r1. May be repeated.",
)  # fmt: skip
@click.option(
    "--quota", metavar="TENANT=GPUS", multiple=True,
    help="What if a tenant had a limit: what its jobs in the queue ask for together. May be "
    "repeated.",
)  # fmt: skip
@click.option(
    "--format", metavar="F", shell_complete=names_of(FORMATS),
    help="Of LOG, with options: sacct:tz=Europe/Berlin; recognised by default.",
)  # fmt: skip
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of what is random."
)
@OUTPUT_DIR
@FORCE
@DEBUG
def replay(log: str, output: Path, *, force: bool, **values: Any) -> None:
    """What happened on a cluster, and what would have happened otherwise.

    LOG is a history: the accounting of Slurm (sacct), a list of pods of Kubernetes, an event log of
    Rota, or any trace that tells when its jobs started.

    First the recorded schedule is simulated: every job starts when it did, and waiting times must
    come out to the second. Then the same jobs run under every policy, on the machines as they are
    and, with --add-nodes, --remove or --quota, on the changed ones.

    \b
    Examples:
      rota replay jobs.txt --nodes nodes.txt -o out
      rota replay jobs.txt --nodes nodes.txt --policy fifo --policy easy \\
          --add-nodes 4x8 -o more
      rota replay jobs.txt --nodes nodes.txt --quota vision=64 -o quota
      rota replay pods.json --nodes nodes.json --policy tiresias -o out
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.experiments.folder import OutputFolder
    from rota.experiments.replay import Asked, own_files
    from rota.experiments.replay import replay as run
    from rota.experiments.replay_changes import Changes, parse_quota
    from rota.report.replay import write_page

    if values["nodes"] and values["cluster"]:
        raise click.UsageError("--nodes and --cluster both tell the machines: give one of them.")
    changes = Changes(
        add=values["add_nodes"],
        remove=values["remove"],
        quotas=tuple(parse_quota(text) for text in values["quota"]),
    )
    asked = Asked(
        log=log,
        changes=changes,
        **{
            key: values[key] for key in ("format", "nodes", "cluster", "placement", "limit", "seed")
        },
        **({"policies": values["policy"]} if values["policy"] else {}),
    )
    bar = Bar("replaying")
    with OutputFolder(output, force=force, own=own_files(output)) as folder, bar:
        answer = run(
            asked,
            folder.path,
            output,
            lambda what, number, total: bar.retitle(f"{number + 1}/{total} {what}")(number, total),
        )
        write_page(answer, folder.path)
    warn_about(answer.warnings)
    _show(answer)
    click.echo(f"report: {output / 'report.html'}", err=True)


def _show(answer: "Answer") -> None:
    from rota.experiments.replay_tables import BY, lookup, main_groups

    _tell_checked(answer)
    rows = lookup(answer.table)
    names = [schedule.name for schedule in answer.schedules]
    cells = []
    for schedule in answer.schedules:
        row = rows["all", "all", schedule.name]
        cells.append(
            (
                schedule.name,
                f"{schedule.gpus:,}",
                *(
                    _time(row[f"{key}_s"])
                    for key in ("mean_wait", "p50_wait", "p95_wait", "mean_jct")
                ),
                _share(row["use"]),
                f"{row['refused']:,}",
            )
        )
    table(HEADINGS, cells, numbers=True, spare=SPARE)
    for by in BY:
        groups = main_groups(answer.table, by, MOST_GROUPS)
        for label, key, shown in MEASURES if groups else ():
            lines = [
                (
                    group,
                    f"{rows[by, group, names[0]]['jobs']:,}",
                    *(shown(rows[by, group, name][key]) for name in names),
                )
                for group in groups
            ]
            heads = (f"{label} by {by}", "jobs", *names)
            table(heads, lines, numbers=True, spare=tuple(reversed(names[2:])))


def _tell_checked(answer: "Answer") -> None:
    """The import and the check, on stderr."""
    quality = answer.imported.quality
    for what, counts in (("left out", quality.dropped), ("changed", quality.repaired)):
        for why, many in counts.items():
            click.echo(f"{what}: {many:,} rows: {why}", err=True)
    recorded = answer.recorded
    total = len(recorded.jobs)
    how = "by counting GPUs" if recorded.counted else "on the recorded nodes"
    worst = "" if recorded.exact == total else f"; the worst is {recorded.worst_s:,.0f} s off"
    click.echo(
        f"recorded starts replayed {how}: the waits of {recorded.exact:,} of {total:,} jobs come "
        f"out to the second{worst}",
        err=True,
    )


def _time(seconds: float | None) -> str:
    """`1.25 h`, `3.5 min` or `12 s`: waits differ by orders of magnitude."""
    from rota.report.words import duration

    return duration(seconds)


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


MEASURES = (
    ("mean wait", "mean_wait_s", _time),
    ("mean JCT", "mean_jct_s", _time),
    ("GPUs used", "use", _share),
)
"""What is printed of groups: label, column, how it is written."""
