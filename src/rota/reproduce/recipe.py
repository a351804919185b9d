"""What a recipe is: runs, and checks of what came out against what was published."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.core.workload import Workload
from rota.study.config import RunConfig
from rota.study.run import RunResult
from rota.traces.write import write_workload

LAYOUT = "a folder with one folder per simulator (blox, tiresias, ...) and the workloads in common"


class Scale(StrEnum):
    """How much is run."""

    SMALL = "small"
    PAPER = "paper"


class CheckVerdict(StrEnum):
    """Ours against theirs; `deviates` is a difference whose reason is known."""

    AGREES = "agrees"
    DEVIATES = "deviates"
    FAILS = "fails"


Value = float | int | str | None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity, theirs and ours; made by the functions of `checks`.

    Attributes:
        quantity: What is compared, e.g. `multi300 las: preemptions`.
        theirs: What was published; None: nothing was, see `expected`.
        ours: What came out here.
        expected: How near or in what relation ours must be, in words.
        verdict: What follows.
        reason: Why they differ, or where, if they do.
    """

    quantity: str
    theirs: Value
    ours: Value
    expected: str
    verdict: CheckVerdict
    reason: str = ""


class RecipeRun(msgspec.Struct, frozen=True):
    """What is kept of a run: its table of jobs, its summary and what `Recipe.digest` made of it."""

    config: RunConfig
    jobs: pl.DataFrame
    summary: dict[str, Any]
    extra: Any = None

    def column(self, name: str) -> dict[str, Any]:
        """A column of the table of jobs, by job."""
        return dict(zip(self.jobs["job_id"].to_list(), self.jobs[name].to_list(), strict=True))


class RecipeSetting(msgspec.Struct, frozen=True):
    """Where a recipe works: how large, with whose files, and a folder for inputs that it makes."""

    scale: Scale
    folder: Path
    data: Path | None = None

    @property
    def small(self) -> bool:
        """Not at the paper's scale."""
        return self.scale == Scale.SMALL

    def find(self, path: str) -> Path | None:
        """A file or folder of the reference data, if it is there."""
        found = self.data / path if self.data is not None else None
        return found if found is not None and found.exists() else None

    def need(self, path: str) -> Path:
        """A file or folder of the reference data that a recipe cannot do without."""
        found = self.find(path)
        if found is None:
            where = "no folder is named" if self.data is None else f"{self.data} has none"
            raise InputError(
                f"{path}: this recipe compares with recorded results, which do not come with "
                f"Rota, and {where}: name {LAYOUT}, with --data or ROTA_DATA"
            )
        return found

    def keep(self, workload: Workload, name: str) -> str:
        """Write a generated workload into the folder; the `trace` of a run."""
        path = self.folder / f"{name}.csv"
        write_workload(workload, path, force=True)
        return str(path)

    def write(self, name: str, text: str) -> str:
        """Write another input (a cluster, say) into the folder; its path."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)


class Recipe(ABC):
    """A published table, figure or artifact that can be made again.

    A recipe is a module with one subclass and `RECIPE`, an instance of it. Everything that is
    random in it is seeded.
    """

    name: str
    """As registered."""

    summary: str
    """What is made again, in one line."""

    paper: str
    """Authors, title, venue."""

    source: str
    """Where the published values are: table, figure or file; or that only a shape is checked."""

    needs: Sequence[str] = ()
    """Files and folders of the reference data, relative to it."""

    takes: Mapping[Scale, str]
    """About how long it runs, on one core."""

    leaves_out: str
    """What `small` does not show; nothing if both scales are the same."""

    known: Sequence[str] = ()
    """Known reasons for which ours differ from theirs, or what nobody can agree with."""

    @abstractmethod
    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """The runs by label (letters, digits, `.`, `=`, `+`, `-`)."""

    @abstractmethod
    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Ours against theirs, from what the runs gave."""

    def digest(self, result: RunResult) -> Any:  # noqa: ARG002 - for recipes to fill
        """What else to keep of a run, as plain data (called where it ran, its log is at hand)."""
        return None

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame | None:  # noqa: ARG002
        """The data of the figure, if there is one."""
        return None

    def pictures(self, runs: Mapping[str, RecipeRun]) -> Mapping[str, str]:  # noqa: ARG002
        """Pictures of what came out: SVG by the name of the file (letters, digits, `-`)."""
        return {}


# --- Checks ---------------------------------------------------------------------------------------

# Every function takes `known`: the reason for a difference that is understood. With it a check that
# does not hold `deviates`, without it `fails`.

SHOWN = 3  # differing rows that are named
LARGE = 1_000  # numbers without digits after the point


def _verdict(*, holds: bool, known: str) -> CheckVerdict:
    if holds:
        return CheckVerdict.AGREES
    return CheckVerdict.DEVIATES if known else CheckVerdict.FAILS


def holds(
    quantity: str, expected: str, ours: Value, *, ok: bool, theirs: Value = None, known: str = ""
) -> Check:
    """Any claim, decided by the caller.

    Args:
        quantity: What is looked at.
        expected: The claim, in words.
        ours: What came out.
        ok: Does it hold?
        theirs: What was published, if a number was.
        known: Why it may not hold.
    """
    return Check(
        quantity=quantity, theirs=theirs, ours=ours, expected=expected,
        verdict=_verdict(holds=bool(ok), known=known), reason="" if ok else known,
    )  # fmt: skip


def within(
    quantity: str,
    ours: float,
    theirs: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    known: str = "",
) -> Check:
    """A number near the published one: by at most `absolute`, or that part of it."""
    far = abs(ours - theirs)
    parts = [f"± {100 * relative:g} %"] if relative else []
    parts += [f"± {absolute:g}"] if absolute else []
    return holds(
        quantity,
        " or ".join(parts) or "equal",
        ours,
        ok=far <= max(absolute, relative * abs(theirs)),
        theirs=theirs,
        known=known,
    )


def between(quantity: str, ours: float, low: float, high: float, *, known: str = "") -> Check:
    """A number inside an interval."""
    return holds(quantity, f"{low:g} to {high:g}", ours, ok=low <= ours <= high, known=known)


def ordered(
    quantity: str, values: Mapping[str, float], *, slack: float = 0.0, known: str = ""
) -> Check:
    """Values that do not fall, in the order given; each may be below the one before by `slack`."""
    numbers = list(values.values())
    ok = all(a <= b * (1 + slack) for a, b in itertools.pairwise(numbers))
    expected = " <= ".join(values) + (f" (to within {100 * slack:g} %)" if slack else "")
    ours = ", ".join(f"{name} {_text(number)}" for name, number in values.items())
    return holds(quantity, expected, ours, ok=ok, known=known)


def _text(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= LARGE else f"{number:.3g}"


def same_rows(
    quantity: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    known: Mapping[str, str] | None = None,
) -> Check:
    """Job by job equality.

    Args:
        quantity: What is equal, e.g. `fifo: end_s`.
        ours: By job; jobs that are only here count as different.
        theirs: By job.
        known: Jobs that cannot be equal, and why.
    """
    known = known or {}
    jobs = list(dict.fromkeys([*theirs, *ours]))
    odd = [job for job in jobs if job not in ours or job not in theirs or ours[job] != theirs[job]]
    unknown = [job for job in odd if job not in known]
    reasons = list(dict.fromkeys(known[job] for job in odd if job in known))
    if unknown:
        reasons.append("different: " + _named(unknown, ours, theirs))
    if not theirs:
        unknown, reasons = ["none"], [*reasons, "there is nothing to compare with"]
    ok = bool(theirs) and not odd
    verdict = _verdict(holds=ok, known="" if unknown else "; ".join(reasons))
    return Check(
        quantity=quantity,
        theirs=f"{len(theirs):,} jobs",
        ours=f"{len(jobs) - len(odd):,} of {len(jobs):,} equal",
        expected="equal job by job",
        verdict=verdict,
        reason="; ".join(reasons),
    )


def _named(jobs: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    told = [
        f"job {job}: ours {ours.get(job, 'missing')}, theirs {theirs.get(job, 'missing')}"
        for job in jobs[:SHOWN]
    ]
    more = [f"and {len(jobs) - SHOWN:,} more"] if len(jobs) > SHOWN else []
    return "; ".join([*told, *more])


# --- Recorded results of a simulator, job by job --------------------------------------------------

PHILLY = {"philly300": "32x8", "philly1000": "48x8"}
"""The common workloads, and the machines that they were recorded on."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run of theirs.

    Attributes:
        label: Of the run and its folder.
        config: The same run here.
        theirs: The recorded file, relative to the reference data.
        columns: Columns of our table of jobs, and what the file calls them.
    """

    label: str
    config: RunConfig
    theirs: str
    columns: Mapping[str, str]


class Artifact(Recipe):
    """Every job of every case must come out as recorded."""

    takes: Mapping[Scale, str] = {Scale.SMALL: "seconds", Scale.PAPER: "seconds"}
    leaves_out = ""

    @abstractmethod
    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """What was recorded."""

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """One per case."""
        return {case.label: case.config for case in self.cases(setting)}

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Column by column, and what the recipe adds."""
        found = []
        for case in self.cases(setting):
            table = read_rows(setting, case.theirs)
            outcome = runs[case.label]
            what = f"{case.label}: {', '.join(case.columns)}"
            ours, theirs = list(case.columns), list(case.columns.values())
            found.append(same_rows(what, by_job(outcome.jobs, ours), by_job(table, theirs)))
            found += self.more(case, outcome, table)
        return found

    def more(
        self,
        case: Case,  # noqa: ARG002 - for recipes to fill
        outcome: RecipeRun,  # noqa: ARG002 - for recipes to fill
        table: pl.DataFrame,  # noqa: ARG002 - for recipes to fill
    ) -> list[Check]:
        """Other checks of a case."""
        return []


def philly_run(setting: RecipeSetting, like: str, workload: str, policy: str) -> RunConfig:
    """A run on one of the common workloads."""
    return RunConfig(
        trace=str(setting.need(f"common/{workload}.csv")),
        format="csv",
        cluster=PHILLY[workload],
        policy=policy,
        like=like,
    )


def read_rows(setting: RecipeSetting, path: str) -> pl.DataFrame:
    """A recorded table; job ids are texts."""
    return pl.read_csv(setting.need(path), schema_overrides={"job_id": pl.String})


def by_job(table: pl.DataFrame, columns: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Columns of a table of jobs, by job; each job has one row."""
    twice = table["job_id"].filter(table["job_id"].is_duplicated())
    if len(twice):
        raise InputError(f"job {twice[0]} has several rows in the recorded table")
    return {job: tuple(values) for job, *values in table.select("job_id", *columns).iter_rows()}
