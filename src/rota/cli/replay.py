"""`rota replay`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.history import asked_of, history_options
from rota.cli.options import DEBUG, FILES, FORCE, OUTPUT_DIR, POLICY_HELP, names_of
from rota.cli.progress import ProgressBar
from rota.cli.show import table, tell, warn, warn_about
from rota.core.registry import POLICIES
from rota.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.study.replay.replay import Answer

MOST_GROUPS = 10
HEADINGS = (
    "schedule",
    "GPUs",
    "mean wait",
    "median wait",
    "p95 wait",
    "mean JCT",
    "GPU utilisation",
    "refused",
    "mean wait against the model",
)
SPARE = ("refused", "median wait", "mean JCT")
CLOSENESS = (
    "how close to what happened",
    "mean wait",
    "bias",
    "mean error of a job",
    "rank correlation",
    "K-S distance",
    "mean distance",
    "verdict",
)
SPARE_CLOSENESS = ("mean distance", "K-S distance", "rank correlation")


@click.command(
    epilog="Results: replay.json, replay.csv and fidelity.csv with every number, report.html, "
    "cluster.yaml (the machines, for --cluster), and a folder per schedule as of `rota simulate`."
)
@click.argument("log", shell_complete=FILES)
@history_options(
    click.option(
        "--policy",
        metavar="P",
        multiple=True,
        shell_complete=names_of(POLICIES),
        help=f"What-if {POLICY_HELP[0].lower()}{POLICY_HELP[1:]} May be repeated.",
    ),
    click.option(
        "--add-nodes",
        metavar="NxG",
        multiple=True,
        help="What if machines were added: 4x8 (nodes x GPUs), 4x8:a100, and in which partitions "
        "if there are several: 4x8:a100@gpu+debug. May be repeated.",
    ),
    click.option(
        "--remove",
        metavar="NODES",
        multiple=True,
        help="What if machines were removed: names (n1,a[001-008]), patterns (gpu*), or all with "
        "partition=debug, label=nvlink, type=a100, rack=r1. May be repeated.",
    ),
    click.option(
        "--quota",
        metavar="TENANT=GPUS",
        multiple=True,
        help="What if a tenant had a quota, for all its jobs in the queue together. May be "
        "repeated.",
    ),
    click.option(
        "--guarantee",
        metavar="TENANT=GPUS",
        multiple=True,
        help="What if a tenant had so many GPUs for itself: all others together use at most the "
        "rest. What that costs them is said. May be repeated.",
    ),
    click.option(
        "--more",
        metavar="QUEUE=GPUS",
        multiple=True,
        help="What if a queue (a partition or a tenant) had so many GPUs more: nodes like its own. "
        "May be repeated.",
    ),
    click.option(
        "--maintenance",
        metavar="M",
        multiple=True,
        help="What if nodes had been out of use for a time: nodes=n[0-3],start=8h,for=2h, counted "
        "from the beginning of the log. May be repeated.",
    ),
    click.option(
        "--reserve",
        metavar="R",
        multiple=True,
        help="What if nodes had been for a user or queue alone: gpus=16,start=8h,for=1d,user=ann "
        "(or nodes=..., queue=...). May be repeated.",
    ),
    click.option(
        "--also",
        metavar="FILE",
        multiple=True,
        shell_complete=FILES,
        help="What if more jobs arrived: any workload, from the first second of the log on; "
        "new-group.csv@gpu says in which partition. May be repeated.",
    ),
)
@OUTPUT_DIR
@FORCE
@DEBUG
def replay(log: str, output: Path, *, force: bool, **values: Any) -> None:
    """Replay the history of a cluster, and ask what would have happened otherwise.

    LOG is a history: the accounting of Slurm (sacct), a list of pods of Kubernetes, an event log of
    Rota, or any trace that tells when its jobs started.

    First the log is checked: with the recorded starts, waiting times must come out to the
    second. Then several policies run the same jobs on the same machines, and the one that comes
    closest to what happened is the model of today; how close it is is printed and decides how far
    to trust the rest. What would happen otherwise (--policy, --add-nodes, --remove, --quota,
    --maintenance, --also, ...) is compared with that model, not with what happened.

    \b
    Examples:
      rota replay jobs.txt --nodes nodes.txt -o out
      rota replay jobs.txt --nodes nodes.txt --add-nodes 4x8:a100@gpu -o more
      rota replay jobs.txt --nodes nodes.txt --policy tiresias --remove 'a[001-008]' -o less
      rota replay jobs.txt --nodes nodes.txt --quota vision=64 -o quota
      rota replay jobs.txt --nodes nodes.txt --guarantee vision=64 -o guarantee
      rota replay jobs.txt --nodes nodes.txt --more research=32 -o more-gpus
      rota replay jobs.txt --nodes nodes.txt --maintenance 'nodes=a[001-008],start=1d,for=8h' -o pdu
      rota replay jobs.txt --nodes nodes.txt --also new-group.csv@gpu -o group
      rota replay pods.json --nodes nodes.json --model fifo-skip -o out
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.report.replay import write_page
    from rota.study.folder import OutputFolder
    from rota.study.replay.changes import ReplayChanges, parse_quota
    from rota.study.replay.cost_to_others import cost_to_others
    from rota.study.replay.replay import own_files
    from rota.study.replay.replay import replay as run

    changes = ReplayChanges(
        add=values["add_nodes"],
        remove=values["remove"],
        quotas=tuple(parse_quota(text) for text in values["quota"]),
        also=values["also"],
        guarantees=tuple(parse_quota(text) for text in values["guarantee"]),
        more=tuple(parse_quota(text) for text in values["more"]),
        maintenance=values["maintenance"],
        reserve=values["reserve"],
    )
    asked = asked_of(log, values, changes=changes, policies=values["policy"])
    bar = ProgressBar("replaying")
    with OutputFolder(output, force=force, own=own_files(output)) as folder, bar:
        answer = run(
            asked,
            folder.path,
            output,
            lambda what, done, total: bar.retitle(what)(done, total),
            workers=values["jobs"],
        )
        write_page(answer, folder.path, ["rota", *sys.argv[1:]])
    warn_about(answer.warnings)
    _tell_checked(answer)
    _tell_model(answer)
    _show_fidelity(answer)
    _show(answer)
    for line in cost_to_others(answer):
        click.echo(f"{line}.")
    click.echo(f"report: {output / 'report.html'}", err=True)


def _show(answer: "Answer") -> None:
    from rota.study.replay.tables import BY, lookup, main_groups

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
                _unserved(row),
                _against(row),
            )
        )
    table(HEADINGS, cells, numbers=True, spare=SPARE)
    _show_added(answer)
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
            click.echo(f"{what}: {counted(many, 'row')}: {why}", err=True)
    recorded = answer.recorded
    total = len(recorded.jobs)
    how = "by counting GPUs" if recorded.counted else "on the recorded nodes"
    worst = "" if recorded.exact == total else f"; the worst is {recorded.worst_s:,.0f} s off"
    click.echo(
        f"check of the books: with the recorded starts, {how}, the waits of {recorded.exact:,} of "
        f"{total:,} jobs come out to the second{worst}",
        err=True,
    )


def _tell_model(answer: "Answer") -> None:
    """What stands for today and how far to trust it, on stderr."""
    from rota.study.fidelity import CLOSE

    model, tried = answer.model, len(answer.fidelity)
    how = "as asked for" if answer.asked.model is not None else f"the closest of {tried} policies"
    tell(f"{how}: {model.sentence}.")
    closest = answer.fidelity[0]
    if closest.policy != model.policy:
        tell(f"{closest.policy} comes closer: {closest.sentence}.")
    if answer.undecided:
        tell(f"{answer.undecided}.")
    if answer.far:
        warn("no policy that was tried comes close to what happened. What may explain it:")
    elif model.verdict != CLOSE:
        tell("what may explain the difference:")
    for text in answer.lacks if model.verdict != CLOSE else ():
        tell(f"  - {text}", indent=4)


def _show_fidelity(answer: "Answer") -> None:
    cells = [
        (
            found.policy,
            _time(whole.mean_wait_s),
            "-" if whole.bias is None else f"{whole.bias:+.0%}",
            _time(whole.mae_s),
            "-" if whole.rank_correlation is None else f"{whole.rank_correlation:.2f}",
            "-" if whole.ks is None else f"{whole.ks:.2f}",
            _time(found.distance_s),
            found.verdict,
        )
        for found in answer.fidelity
        for whole in [found.whole]
    ]
    table(CLOSENESS, cells, numbers=True, spare=SPARE_CLOSENESS)
    model = answer.model
    groups = [
        (
            group.told,
            f"{group.jobs:,}",
            _time(group.observed_mean_wait_s),
            _time(group.mean_wait_s),
            "-" if group.bias is None else f"{group.bias:+.0%}",
            _time(group.mae_s),
        )
        for group in model.groups[1:]
    ]
    if groups:
        heads = (f"how close {model.policy} is", "jobs", "observed", "simulated", "bias",
                 "mean error of a job")  # fmt: skip
        table(heads, groups, numbers=True)


def _show_added(answer: "Answer") -> None:
    """What the jobs get that were added."""
    from rota.study.replay.tables import ALSO

    cells = [
        (
            f"{row['group']} under {row['schedule']}",
            f"{row['jobs']:,}",
            *(_time(row[f"{key}_s"]) for key in ("mean_wait", "p50_wait", "p95_wait", "mean_jct")),
            _share(row["use"]),
            _unserved(row),
        )
        for row in answer.table.filter(by=ALSO).iter_rows(named=True)
    ]
    if cells:
        heads = ("jobs that were added", "jobs", *HEADINGS[2:-1])
        table(heads, cells, numbers=True, spare=SPARE)


def _unserved(row: "Mapping[str, Any]") -> str:
    """Jobs that a schedule cannot run, and those that wait for a window without an end."""
    wait = f" ({row['waiting']:,} wait)" if row["waiting"] else ""
    return f"{row['refused']:,}{wait}"


def _against(row: "Mapping[str, Any]") -> str:
    """The change of the mean wait; what the model cannot tell is not called a gain."""
    from rota.study.replay.tables import BETTER, MODEL, OBSERVED, WORSE

    change, role = row["mean_wait_change_s"], row["role"]
    if role in (OBSERVED, MODEL):
        return {MODEL: "is the model", OBSERVED: ""}[role]
    if change is None:
        return "-"
    before = row["mean_wait_s"] - change
    text = f"{change / before:+.0%}" if before else f"{'+' * (change >= 0)}{_time(change)}"
    return text if row["effect"] in (BETTER, WORSE, "") else f"{text} ({row['effect']})"


def _time(seconds: float | None) -> str:
    from rota.core.words import duration

    return duration(seconds)


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


MEASURES = (
    ("mean wait", "mean_wait_s", _time),
    ("mean JCT", "mean_jct_s", _time),
    ("GPU utilisation", "use", _share),
)
"""What is printed of groups: label, column, how it is written."""
