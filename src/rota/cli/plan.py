"""`rota plan`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.history import asked_of, history_options
from rota.cli.options import DEBUG, FILES, FORCE, OUTPUT_DIR
from rota.cli.progress import ProgressBar
from rota.cli.show import table, tell, warn_about

if TYPE_CHECKING:
    from rota.study.replay.sizing import PlanAnswer

HEADINGS = ("nodes", "GPUs", "target", "GPU utilisation", "fragments", "refused")


@click.command(
    epilog="Results: plan.json, plan.csv with every size that was tried, plan.html, and the files "
    "of `rota replay`. A job that a cluster cannot run counts as waiting for ever."
)
@click.argument("log", shell_complete=FILES)
@history_options(
    click.option(
        "--target",
        metavar="T",
        required=True,
        help="What shall hold: mean, median or pNN of wait or jct, below a time: "
        "'p95 wait < 1h', 'mean jct < 12h'.",
    ),
    click.option(
        "--shape",
        metavar="G",
        multiple=True,
        help="Nodes to add or remove: GPUs of a node, its type, and its partitions if there are "
        "several: 8, 8:a100, 4:h100@gpu+debug. May be repeated. [default: the most common node]",
    ),
    click.option("--partition", metavar="NAME", help="Only jobs of this partition count."),
    click.option("--tenant", metavar="NAME", help="Only jobs of this tenant count."),
    click.option(
        "--most",
        metavar="N",
        type=click.IntRange(min=1),
        help="Add at most N nodes. [default: three times the GPUs of today]",
    ),
    click.option(
        "--price",
        metavar="PRICE",
        multiple=True,
        help="Money for a GPU-hour: 2.5, or by type: a100=2.5. May be repeated.",
    ),
)
@OUTPUT_DIR
@FORCE
@DEBUG
def plan(log: str, output: Path, *, force: bool, **values: Any) -> None:
    """Find how many nodes it takes to keep a promise to users.

    LOG is the history of a cluster, as for `rota replay`, which finds the policy that models today.
    That model then runs the same jobs on larger or smaller clusters, and the smallest that meets
    the target is the answer, with an interval: another log like this one might need so many.
    A cluster that meets the target already is asked how many nodes it could spare.

    \b
    Examples:
      rota plan jobs.txt --nodes nodes.txt --target "p95 wait < 1h" -o out
      rota plan jobs.txt --nodes nodes.txt --target "p95 wait < 1h" \\
          --shape 8:a100@gpu --shape 4:h100@gpu --partition gpu --price a100=2.1 --price h100=4 \\
          -o out
      rota plan jobs.txt --nodes nodes.txt --target "mean wait < 10m" --tenant vision -o out
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.report.plan import write_plan_page
    from rota.study.folder import OutputFolder
    from rota.study.replay.replay import own_files, replay
    from rota.study.replay.sizing import PlanQuestion, ServiceTarget, own_plan_files, parse_price
    from rota.study.replay.sizing import plan as find

    question = PlanQuestion(
        target=ServiceTarget.parse(values["target"]),
        shapes=values["shape"],
        prices=tuple(parse_price(text) for text in values["price"]),
        **{key: values[key] for key in ("partition", "tenant", "most")},
    )
    asked = asked_of(log, values)
    bar = ProgressBar("replaying")
    own = [*own_files(output), *own_plan_files(output)]
    with OutputFolder(output, force=force, own=own) as folder, bar:

        def told(what: str, done: int, total: int) -> None:
            bar.retitle(what)(done, total)

        replayed = replay(asked, folder.path, output, told, workers=values["jobs"])
        answer = find(question, replayed, folder.path, told, workers=values["jobs"])
        write_plan_page(answer, folder.path, ["rota", *sys.argv[1:]])
    warn_about([*answer.warnings, *replayed.warnings])
    tell(f"{replayed.model.sentence}.")
    _show_sizes(answer)
    for one in answer.shapes:
        click.echo(f"{answer.sentence(one)}.")
    best = answer.best
    if best is not None and len(answer.shapes) > 1:
        why = "costs least" if best.price_per_month is not None else "needs the fewest GPUs"
        click.echo(f"Of these, {best.shape} {why}.")
    click.echo(f"report: {output / 'plan.html'}", err=True)


def _show_sizes(answer: "PlanAnswer") -> None:
    """The curve of each shape as a table."""
    for one in answer.shapes:
        price = answer.question.price(one.gpu_type)
        cells = [
            (
                f"{size.nodes:+,}" if size.nodes else "today",
                f"{size.gpus:,}",
                size.told,
                "-" if size.use is None else f"{size.use:.1%}",
                _fragments(size.fragment_gpu_h, price),
                f"{size.refused:,}",
            )
            for size in one.sizes
        ]
        heads = (f"{one.shape}: nodes", HEADINGS[1], answer.question.target.name, *HEADINGS[3:])
        table(heads, cells, numbers=True, spare=("refused", "fragments"))


def _fragments(gpu_h: float | None, price: float | None) -> str:
    """GPU-hours that were of no use, and what they cost."""
    if gpu_h is None:
        return "-"
    return f"{gpu_h:,.0f} GPU-h" + (f" ({gpu_h * price:,.0f})" if price is not None else "")
