"""Recipes that compare with the recorded results of a simulator, job by job."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.reproduce.base import Check, Outcome, Recipe, Scale, Setting
from rota.reproduce.checks import same_rows
from rota.study.config import RunConfig

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
    def cases(self, setting: Setting) -> Sequence[Case]:
        """What was recorded."""

    def runs(self, setting: Setting) -> dict[str, RunConfig]:
        """One per case."""
        return {case.label: case.config for case in self.cases(setting)}

    def checks(self, setting: Setting, runs: Mapping[str, Outcome]) -> list[Check]:
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
        outcome: Outcome,  # noqa: ARG002 - for recipes to fill
        table: pl.DataFrame,  # noqa: ARG002 - for recipes to fill
    ) -> list[Check]:
        """Other checks of a case."""
        return []


def philly_run(setting: Setting, like: str, workload: str, policy: str) -> RunConfig:
    """A run on one of the common workloads."""
    return RunConfig(
        trace=str(setting.need(f"common/{workload}.csv")),
        format="csv",
        cluster=PHILLY[workload],
        policy=policy,
        like=like,
    )


def read_rows(setting: Setting, path: str) -> pl.DataFrame:
    """A recorded table; job ids are texts."""
    return pl.read_csv(setting.need(path), schema_overrides={"job_id": pl.String})


def by_job(table: pl.DataFrame, columns: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Columns of a table of jobs, by job; each job has one row."""
    twice = table["job_id"].filter(table["job_id"].is_duplicated())
    if len(twice):
        raise InputError(f"job {twice[0]} has several rows in the recorded table")
    return {job: tuple(values) for job, *values in table.select("job_id", *columns).iter_rows()}
