"""One run, to look at."""

from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from rota.core.errors import InputError
from rota.metrics import History
from rota.metrics.basis import Basis
from rota.metrics.jobs import read_promised
from rota.metrics.vocabulary import BY_KEY, written
from rota.notebook.frames import as_pandas, read_json
from rota.notebook.plots import draw
from rota.report.source import RunView, read_basis
from rota.study.output import EVENTS, JOBS, SUMMARY
from rota.study.run import RunResult

if TYPE_CHECKING:
    from rota.report.figures import Picture


class Result:
    """A run: its numbers, its tables and its figures.

    Made by `rota.notebook.simulate`, `rota.notebook.load`, or from what `rota.study.run.simulate`
    returned. Tables of a folder are read when they are first used.

    Args:
        summary: The numbers of the run, as in `summary.json`.
        jobs: One row per job; None: from the folder.
        log: The event log; None: from the folder.
        folder: Where the run was written, if it was.
        basis: What fragments are measured by; None: as the folder says.
    """

    def __init__(
        self,
        summary: dict[str, Any],
        jobs: pl.DataFrame | None = None,
        log: pl.DataFrame | None = None,
        folder: Path | None = None,
        *,
        basis: Basis | None = None,
    ) -> None:
        self._basis = basis
        self.summary = summary
        self.folder = folder
        self._jobs = jobs
        self._log = log

    @classmethod
    def of(cls, result: RunResult) -> Self:
        """From what `rota.study.run.simulate` returned."""
        return cls(result.summary, result.jobs, result.log, basis=result.basis)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """From a folder that `rota simulate` made, or a policy's folder of `rota compare`."""
        place = Path(folder)
        return cls(read_json(place / SUMMARY, "rota simulate"), folder=place)

    # --- numbers and tables -----------------------------------------------------------------------

    @property
    def assumptions(self) -> dict[str, Any]:
        """Everything that the numbers rest on."""
        found: dict[str, Any] = self.summary.get("assumptions") or {}
        return found

    @property
    def policy(self) -> str:
        """The name of the policy, for tables and legends."""
        policy = self.assumptions.get("policy")
        name = policy.get("name", "") if isinstance(policy, dict) else str(policy or "")
        return name or (self.folder.name if self.folder else "run")

    @property
    def jobs(self) -> pl.DataFrame:
        """One row per job: the columns of `jobs.csv`."""
        if self._jobs is None:
            self._jobs = self.look.jobs
        return self._jobs

    @property
    def log(self) -> pl.DataFrame:
        """The event log."""
        if self._log is None:
            if self.folder is None:
                raise InputError("this result has no event log: it was made without one")
            path = self.folder / EVENTS
            try:
                self._log = pl.read_parquet(path, glob=False)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise InputError(
                    f"{path}: cannot be read ({error}): name a folder with {EVENTS} and {JOBS}"
                ) from error
        return self._log

    @property
    def history(self) -> History:
        """The life of every job as spans."""
        return self.look.history

    def to_polars(self) -> pl.DataFrame:
        """The table of jobs."""
        return self.jobs

    def to_pandas(self) -> Any:
        """The table of jobs as a pandas data frame (needs pandas and pyarrow)."""
        return as_pandas(self.jobs)

    # --- figures ----------------------------------------------------------------------------------

    def plot_cdf(self, column: str = "jct_s", **options: Any) -> "Picture":
        """Share of jobs with a time (`jct_s` or `wait_s`) of at most so much.

        Every `plot_...` takes `width_in`, the width of the figure in inches.
        """
        return draw("cdf", {self.policy: self.look}, column=column, **options)

    def plot_utilisation(self, **options: Any) -> "Picture":
        """GPUs by use over time."""
        return draw("utilisation", {self.policy: self.look}, **options)

    def plot_queue(self, **options: Any) -> "Picture":
        """Waiting and running jobs over time."""
        return draw("queue", {self.policy: self.look}, **options)

    def plot_gantt(self, **options: Any) -> "Picture":
        """Jobs on GPUs over time."""
        return draw("gantt", {self.policy: self.look}, **options)

    def plot_heat(self, **options: Any) -> "Picture":
        """How full every node was over time."""
        return draw("heat", {self.policy: self.look}, **options)

    def plot_fragments(self, **options: Any) -> "Picture":
        """How much of every node was free, but of no use for usual jobs, over time."""
        return draw("fragments", {self.policy: self.look}, **options)

    def plot_tenants(self, **options: Any) -> "Picture":
        """Shares of tenants over time."""
        return draw("tenants", {self.policy: self.look}, **options)

    def plot_delay(self, **options: Any) -> "Picture":
        """Mean wait of completed jobs by reason."""
        return draw("delay", {self.policy: self.look}, **options)

    @cached_property
    def look(self) -> RunView:
        """What the figures are drawn from."""
        basis = self._basis
        if basis is None and self.folder is not None:
            basis = read_basis(self.folder)
        promised = read_promised(self.folder / JOBS) if self.folder else None
        return RunView(self.policy, self.summary, self.log, basis=basis, promised=promised)

    # --- how it shows itself ----------------------------------------------------------------------

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in facts(self.summary))
        return f"<Result {self.policy}: {told}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in facts(self.summary)
        )
        return f"<table><caption>{escape(self.policy)}</caption>{rows}</table>"


_FACTS = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "makespan_s", "gpu_utilisation")


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) for people."""
    jobs = f"{summary.get('completed', 0):,} of {summary.get('jobs', 0):,} completed"
    measures = (BY_KEY[key] for key in _FACTS)
    return [("jobs", jobs), *((m.label, written(summary.get(m.key), m.unit)) for m in measures)]
