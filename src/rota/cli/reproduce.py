"""`rota reproduce`: published tables, figures and artifacts, ours against theirs."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import DEBUG, FORCE
from rota.cli.progress import ProgressBar
from rota.cli.show import FORMAT, emit, listing, table, warn
from rota.core import registry
from rota.core.errors import OptionError

if TYPE_CHECKING:
    from rota.reproduce.run import Reproduction

FAILED = 1
ALL = "all"


class Recipes(click.Group):
    """Besides `all` and `ls`, every registered recipe is a command; listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """What is not a recipe."""
        return [ALL, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, or the one that carries out a recipe."""
        return super().get_command(ctx, cmd_name) or _carry_out(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse names that are not registered, with the remedy."""
        known = [*self.list_commands(ctx), *registry.names(registry.RECIPES)]
        if args and not args[0].startswith("-") and args[0] not in known:
            raise OptionError(registry.unknown("recipe", args[0], known))
        return super().resolve_command(ctx, args)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> "list[click.shell_completion.CompletionItem]":
        """Complete recipes too."""
        from click.shell_completion import CompletionItem

        names = registry.names(registry.RECIPES)
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *found]


@click.group(
    cls=Recipes,
    subcommand_metavar="ls | all | NAME [OPTIONS]",
    epilog="Options of NAME: `rota reproduce NAME --help`. Exit code 1 if something fails.",
)
def reproduce() -> None:
    """Reproduce a paper's table, figure or artifact and compare it with the original.

    \b
    Examples:
      rota reproduce ls
      rota reproduce blox-fig6
      rota reproduce tiresias-artifact --data reference -o tiresias
      rota reproduce all --data reference --jobs 2
    """  # noqa: D301 - \b keeps click from wrapping the lines


@reproduce.command()
@FORMAT
@DEBUG
def ls(output: str) -> None:
    """List the recipes: paper, how long they take, what they need.

    \b
    Example:
      rota reproduce ls -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.reproduce.run import find_recipe

    rows = []
    for name in registry.names(registry.RECIPES):
        try:
            recipe = find_recipe(name)
        except Exception as error:  # noqa: BLE001 - a broken wheel must not hide the others
            warn(f"{name}: cannot be loaded: {error}")
            continue
        row: dict[str, Any] = {"recipe": name, "what": recipe.summary, "paper": recipe.paper}
        row |= {f"{scale} takes": about for scale, about in recipe.takes.items()}
        row["needs"] = ", ".join(recipe.needs) or "nothing"
        rows.append(row)
    listing(rows, output)


def _carry_out(name: str) -> click.Command:
    """The command of a recipe, or of all."""

    @click.command(
        name, epilog="Results: report.html, verdict.json, checks.csv, a folder per run, inputs."
    )
    @click.option(
        "--scale", type=click.Choice(["small", "paper"]), default="small", show_default=True,
        help="Size of the runs: under two minutes, or as in the paper.",
    )  # fmt: skip
    @click.option(
        "--data", metavar="DIR", envvar="ROTA_DATA", type=click.Path(path_type=Path),
        help="Recorded results of the original simulators; also ROTA_DATA.",
    )  # fmt: skip
    @click.option(
        "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
        help="Output folder; created if missing. Without it nothing is written.",
    )  # fmt: skip
    @click.option(
        "--jobs", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
        help="Parallel runs, each in its own process.",
    )  # fmt: skip
    @FORCE
    @click.option("--json", is_flag=True, help="Print the verdict as JSON.")
    @DEBUG
    def run(**values: Any) -> None:
        names = _possible(values["data"]) if name == ALL else [name]
        reports = [_reproduce(each, values, nested=name == ALL) for each in names]
        if values["json"]:
            _emit(reports, several=name == ALL)
        else:
            for report in reports:
                _show(report)
            if name == ALL:
                _overview(reports)
        if any(report.verdict == "fails" for report in reports):
            click.get_current_context().exit(FAILED)

    about = (
        "Run every recipe whose data are available." if name == ALL else f"Run the recipe {name}."
    )
    run.help = f"{about}\n\n\b\nExample:\n  rota reproduce {name} --scale paper -o out"
    return run


def _possible(data: Path | None) -> list[str]:
    """The recipes whose data are there; the others are told."""
    from rota.reproduce.run import find_recipe, lacking

    possible = []
    for name in registry.names(registry.RECIPES):
        missing = lacking(find_recipe(name), data)
        if missing:
            warn(f"{name}: left out, it needs {', '.join(missing)} in the folder of --data")
        else:
            possible.append(name)
    return possible


def _reproduce(name: str, values: dict[str, Any], *, nested: bool) -> "Reproduction":
    from rota.report.study_pages import reproduction_page, write_study_page
    from rota.reproduce.recipe import Scale
    from rota.reproduce.run import find_recipe, own_files, settle
    from rota.reproduce.run import reproduce as carry_out
    from rota.study.folder import OutputFolder

    recipe = find_recipe(name)
    output = values["output"]
    target = output / name if output is not None and nested else output
    folder = (
        nullcontext()
        if target is None
        else OutputFolder(target, force=values["force"], own=own_files(target))
    )
    with folder as place, ProgressBar(name) as bar:
        report = carry_out(
            recipe,
            Scale(values["scale"]),
            data=values["data"],
            output=place.path if place is not None else None,
            workers=values["jobs"],
            command=["rota", *sys.argv[1:]],
            told=lambda _, done, total: bar(done, total),
        )
        if place is not None:
            write_study_page(reproduction_page(report, ["rota", *sys.argv[1:]]), place.path)
            settle(place.path, target)
    return report


# --- what is shown -------------------------------------------------------------------------------


def _show(report: "Reproduction") -> None:
    click.echo(f"{report.recipe}: {report.summary}")
    click.echo(f"paper:  {report.paper}")
    click.echo(f"theirs: {report.source}")
    rows = [
        [check.quantity, _text(check.theirs), _text(check.ours), check.expected, check.verdict]
        for check in report.checks
    ]
    table(["quantity", "theirs", "ours", "expected", "verdict"], rows)
    for check in report.checks:
        if check.reason:
            click.echo(f"{check.verdict}: {check.quantity}: {check.reason}")
    for reason in report.known:
        click.echo(f"known: {reason}")
    if report.leaves_out:
        click.echo(f"small leaves out: {report.leaves_out}")
    click.echo(f"verdict: {report.verdict} (checks: {_counts(report)}; {report.seconds:.0f} s)")


def _overview(reports: "list[Reproduction]") -> None:
    rows = [
        [report.recipe, report.verdict, _counts(report), f"{report.seconds:.0f} s"]
        for report in reports
    ]
    table(["recipe", "verdict", "checks", "took"], rows)


def _counts(report: "Reproduction") -> str:
    from rota.reproduce.recipe import CheckVerdict

    words = {
        CheckVerdict.AGREES: "agree",
        CheckVerdict.DEVIATES: "deviate",
        CheckVerdict.FAILS: "fail",
    }
    return ", ".join(f"{report.count(verdict)} {word}" for verdict, word in words.items())


def _text(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"


def _emit(reports: "list[Reproduction]", *, several: bool) -> None:
    import msgspec

    data = msgspec.to_builtins(reports)
    emit(data if several else data[0], "json")
