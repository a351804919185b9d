"""What a recipe is: runs, and checks of what came out against what was published."""

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


class Verdict(StrEnum):
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
    verdict: Verdict
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What is kept of a run: its table of jobs, its summary and what `Recipe.digest` made of it."""

    config: RunConfig
    jobs: pl.DataFrame
    summary: dict[str, Any]
    extra: Any = None

    def column(self, name: str) -> dict[str, Any]:
        """A column of the table of jobs, by job."""
        return dict(zip(self.jobs["job_id"].to_list(), self.jobs[name].to_list(), strict=True))


class Setting(msgspec.Struct, frozen=True):
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
    def runs(self, setting: Setting) -> dict[str, RunConfig]:
        """The runs by label (letters, digits, `.`, `=`, `+`, `-`)."""

    @abstractmethod
    def checks(self, setting: Setting, runs: Mapping[str, Outcome]) -> list[Check]:
        """Ours against theirs, from what the runs gave."""

    def digest(self, result: RunResult) -> Any:  # noqa: ARG002 - for recipes to fill
        """What else to keep of a run, as plain data (called where it ran, its log is at hand)."""
        return None

    def series(self, runs: Mapping[str, Outcome]) -> pl.DataFrame | None:  # noqa: ARG002
        """The data of the figure, if there is one."""
        return None

    def pictures(self, runs: Mapping[str, Outcome]) -> Mapping[str, str]:  # noqa: ARG002
        """Pictures of what came out: SVG by the name of the file (letters, digits, `-`)."""
        return {}
