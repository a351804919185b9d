"""Carries out a recipe: its runs, its checks, the verdict, and the files of it."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import polars as pl

from rota.core.registry import RECIPES, load
from rota.reproduce.recipe import Check, CheckVerdict, Recipe, RecipeRun, RecipeSetting, Scale
from rota.study.config import RunConfig
from rota.study.folder import RUN_FILES
from rota.study.output import MANIFEST, dump, write_run
from rota.study.pool import each
from rota.study.run import simulate

VERDICT, CHECKS, SERIES, INPUTS = "verdict.json", "checks.csv", "series.csv", "inputs"
PAGE = "report.html"
PICTURE = r"[\w-]+\.svg"

Told = Callable[[str, int, int], None]
"""Told (label of the run that has ended, runs that have, runs in all)."""


class Reproduction(msgspec.Struct, frozen=True):
    """A recipe's checks and what they come to."""

    recipe: str
    summary: str
    paper: str
    source: str
    scale: Scale
    leaves_out: str
    verdict: CheckVerdict
    seconds: float
    known: list[str]
    checks: list[Check]

    def count(self, verdict: CheckVerdict) -> int:
        """How many checks came to it."""
        return sum(check.verdict == verdict for check in self.checks)


class _Task(msgspec.Struct, frozen=True):
    """One run, as it is sent to another process."""

    recipe: Recipe
    config: RunConfig
    folder: Path | None
    command: Sequence[str]


def find_recipe(name: str) -> Recipe:
    """The recipe that is registered under a name."""
    recipe: Recipe = load(RECIPES, name)
    return recipe


def lacking(recipe: Recipe, data: Path | None) -> list[str]:
    """What a recipe needs of the reference data and does not find."""
    return [path for path in recipe.needs if data is None or not (data / path).exists()]


def overall(checks: Sequence[Check]) -> CheckVerdict:
    """The worst of them; a recipe that checks nothing has failed."""
    verdicts = {check.verdict for check in checks} or {CheckVerdict.FAILS}
    return next(
        verdict
        for verdict in (CheckVerdict.FAILS, CheckVerdict.DEVIATES, CheckVerdict.AGREES)
        if verdict in verdicts
    )


def reproduce(
    recipe: Recipe,
    scale: Scale = Scale.SMALL,
    *,
    data: Path | None = None,
    output: Path | None = None,
    workers: int = 1,
    command: Sequence[str] = (),
    told: Told | None = None,
) -> Reproduction:
    """Carry out a recipe and compare.

    Args:
        recipe: What to do.
        scale: How much of it.
        data: The reference data, if there are any.
        output: An existing folder for the verdict, the inputs and a folder per run; None: nothing
            is kept.
        workers: Processes to run in; 1: in this one.
        command: The command line, for the manifests.
        told: Told of every run that has ended.
    """
    begun_s = perf_counter()
    with TemporaryDirectory(prefix="rota-") as scratch:
        inputs = Path(scratch) if output is None else output.resolve() / INPUTS
        inputs.mkdir(exist_ok=True)
        setting = RecipeSetting(scale, inputs, data)
        for path in recipe.needs:
            setting.need(path)
        runs = _run(recipe, recipe.runs(setting), output, workers, command, told)
        checks = recipe.checks(setting, runs)
    report = Reproduction(
        recipe=recipe.name,
        summary=recipe.summary,
        paper=recipe.paper,
        source=recipe.source,
        scale=scale,
        leaves_out=recipe.leaves_out if scale == Scale.SMALL else "",
        verdict=overall(checks),
        seconds=round(perf_counter() - begun_s, 3),
        known=list(recipe.known),
        checks=checks,
    )
    if output is not None:
        _write(report, recipe.series(runs), recipe.pictures(runs), output, list(runs))
        if not any(inputs.iterdir()):
            inputs.rmdir()
    return report


def _run(
    recipe: Recipe,
    configs: Mapping[str, RunConfig],
    output: Path | None,
    workers: int,
    command: Sequence[str],
    told: Told | None,
) -> dict[str, RecipeRun]:
    labels = list(configs)
    tasks = [
        _Task(recipe, config, None if output is None else output / label, command)
        for label, config in configs.items()
    ]
    found: dict[str, RecipeRun] = {}
    for number, result in each(_one, tasks, workers):
        if isinstance(result, Exception):
            result.add_note(f"in the run {labels[number]} of {recipe.name}")
            raise result
        found[labels[number]] = result
        if told is not None:
            told(labels[number], len(found), len(labels))
    return {label: found[label] for label in labels}


def _one(task: _Task) -> RecipeRun:
    result = simulate(task.config)
    summary = result.summary
    if task.folder is not None:
        task.folder.mkdir()
        summary = write_run(result, task.folder, task.command)
    return RecipeRun(task.config, result.jobs, summary, task.recipe.digest(result))


# --- files ---------------------------------------------------------------------------------------


def _write(
    report: Reproduction,
    series: pl.DataFrame | None,
    pictures: Mapping[str, str],
    output: Path,
    labels: Sequence[str],
) -> None:
    data = {**msgspec.to_builtins(report), "runs": list(labels), "pictures": list(pictures)}
    (output / VERDICT).write_text(dump(data), encoding="utf-8")
    check_frame(report.checks).write_csv(output / CHECKS)
    if series is not None:
        series.write_csv(output / SERIES)
    for name, picture in pictures.items():
        (output / name).write_text(picture, encoding="utf-8")


def check_frame(checks: Sequence[Check]) -> pl.DataFrame:
    """A row per check; numbers as texts, since some values are words."""
    rows = [
        {key: "" if value is None else str(value) for key, value in plain_check(check).items()}
        for check in checks
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(Check.__struct_fields__, pl.String))


def plain_check(check: Check) -> dict[str, Any]:
    """A check as plain data."""
    data: dict[str, Any] = msgspec.to_builtins(check)
    return data


def settle(written: Path, target: Path) -> None:
    """Let manifests name the inputs where they will be, not where they were written first."""
    for path in written.glob(f"*/{MANIFEST}"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(_quoted(written), _quoted(target)), encoding="utf-8")


def _quoted(path: Path) -> str:
    """As JSON has it inside a text."""
    return dump(str(path.resolve())).strip()[1:-1]


def own_files(folder: Path) -> list[str]:
    """What an earlier reproduction wrote into a folder."""
    own = [VERDICT, CHECKS, SERIES, PAGE]
    own += [
        str(path.relative_to(folder)) for path in (folder / INPUTS).rglob("*") if path.is_file()
    ]
    try:
        verdict = msgspec.json.decode((folder / VERDICT).read_bytes())
        runs = [str(run) for run in verdict["runs"]]
        own += [str(name) for name in verdict.get("pictures", ()) if re.fullmatch(PICTURE, name)]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return [VERDICT, CHECKS, SERIES, PAGE]
    return own + [
        f"{run}/{name}" for run in runs if re.fullmatch(r"[\w.=+-]+", run) for name in RUN_FILES
    ]
