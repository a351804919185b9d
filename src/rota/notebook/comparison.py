"""Several policies on the same jobs, to look at."""

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from rota.core.errors import OptionError, RotaError, install
from rota.metrics.vocabulary import alike
from rota.notebook.frames import as_pandas
from rota.notebook.plots import draw
from rota.notebook.result import Result
from rota.report.data import delays, ratios
from rota.report.source import RunView
from rota.report.write import has_matplotlib, write_report
from rota.study import compare_file as found

if TYPE_CHECKING:
    from rota.report.figures import Picture

_SHOWN = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "makespan_s", "gpu_utilisation")


class Comparison:
    """A folder that `rota compare` (or `rota.notebook.compare`) made: numbers, runs and figures.

    Args:
        folder: With compare.json and a folder per run.
        data: What compare.json holds, if it is known already.
    """

    def __init__(self, folder: Path, data: found.PolicyComparison | None = None) -> None:
        self.folder = folder
        self.data = data if data is not None else found.read_comparison(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """From a folder."""
        return cls(Path(folder))

    # --- numbers, runs and tables -----------------------------------------------------------------

    @property
    def policies(self) -> list[str]:
        """Their names; the first is the baseline."""
        return [row.policy for row in self.data.rows]

    @cached_property
    def results(self) -> dict[str, Result]:
        """The first run of every policy."""
        return {
            policy: Result.load(self.folder / self.data.run_of(policy).folder)
            for policy in self.policies
        }

    def __getitem__(self, policy: str) -> Result:
        """The first run of a policy."""
        if policy not in self.results:
            raise OptionError(f"policy {policy!r} was not compared: {', '.join(self.policies)}")
        return self.results[policy]

    def to_polars(self) -> pl.DataFrame:
        """A row per policy and measure.

        Columns `policy`, `key`, `measure`, `unit`, `mean`, `ratio` (to the baseline), `low`,
        `high` (its interval), `verdict`.
        """
        rows = []
        for row in self.data.rows:
            for measure in self.data.measures:
                one = row.measures.get(measure.key, found.Measured(None))
                rows.append(
                    (
                        row.policy, measure.key, measure.label, measure.unit, one.mean, one.ratio,
                        one.low, one.high, one.verdict,
                    )
                )  # fmt: skip
        schema = {
            "policy": pl.String, "key": pl.String, "measure": pl.String, "unit": pl.String,
            "mean": pl.Float64, "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64,
            "verdict": pl.String,
        }  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    def to_pandas(self) -> Any:
        """The same for pandas (needs pandas and pyarrow)."""
        return as_pandas(self.to_polars())

    def report(self) -> Path:
        """Write the page and the figures anew; where the page is."""
        return write_report(self.folder)

    # --- figures ----------------------------------------------------------------------------------

    @property
    def _looks(self) -> dict[str, RunView]:
        return {policy: result.look for policy, result in self.results.items()}

    def plot_cdf(self, column: str = "jct_s", **options: Any) -> "Picture":
        """Distributions of completion times (`jct_s`) or waiting times (`wait_s`)."""
        return draw("cdf", self._looks, column=column, **options)

    def plot_utilisation(self, **options: Any) -> "Picture":
        """GPUs by use over time."""
        return draw("utilisation", self._looks, **options)

    def plot_queue(self, **options: Any) -> "Picture":
        """Waiting and running jobs over time."""
        return draw("queue", self._looks, **options)

    def plot_gantt(self, policy: str | None = None, **options: Any) -> "Picture":
        """Jobs on GPUs under one policy; by default the baseline."""
        chosen = policy or self.policies[0]
        return draw("gantt", {chosen: self[chosen].look}, **options)

    def plot_heat(self, **options: Any) -> "Picture":
        """How full every node was over time."""
        return draw("heat", self._looks, **options)

    def plot_fragments(self, **options: Any) -> "Picture":
        """How much of every node was free, but of no use for usual jobs, over time."""
        return draw("fragments", self._looks, **options)

    def plot_tenants(self, **options: Any) -> "Picture":
        """Shares of tenants over time."""
        return draw("tenants", self._looks, **options)

    def plot_delay(self, **options: Any) -> "Picture":
        """Mean wait by reason: means over all runs of a policy."""
        _need_matplotlib()
        from rota.report.figures import delay_figure

        return delay_figure(delays(self.data), **options)

    def plot_ratios(self, **options: Any) -> "Picture":
        """Ratios to the baseline with their intervals."""
        _need_matplotlib()
        from rota.report.figures import ratio_figure

        return ratio_figure(ratios(self.data), **options)

    # --- how it shows itself ----------------------------------------------------------------------

    def _table(self) -> tuple[list[str], list[list[str]]]:
        measures = [m for m in self.data.measures if m.key in _SHOWN]
        columns = [
            alike(
                (row.measures.get(m.key, found.Measured(None)).mean for row in self.data.rows),
                m.unit,
            )
            for m in measures
        ]
        ratio = [_ratio(row) for row in self.data.rows]
        rows = [list(line) for line in zip(self.policies, *columns, ratio, strict=True)]
        return ["policy", *(m.label for m in measures), "ratio"], rows

    def __repr__(self) -> str:
        heads, rows = self._table()
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in (heads, *rows))
        return f"<Comparison on {self.data.trace}, cluster {self.data.cluster}>\n" + "\n".join(
            lines
        )

    def _repr_html_(self) -> str:
        heads, rows = self._table()
        head = "".join(f"<th>{escape(name)}</th>" for name in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        title = escape(f"{self.data.trace}, cluster {self.data.cluster}")
        return (
            f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


def _ratio(row: found.PolicyRow) -> str:
    if row.ratio is None:
        return "-"
    interval = f" [{row.interval[0]:.3f}, {row.interval[1]:.3f}]" if row.interval else ""
    return f"{row.ratio:.3f}{interval}"


def _need_matplotlib() -> None:
    if not has_matplotlib():
        raise RotaError(f"a figure needs matplotlib: {install('plot')}")
