"""Many runs from Python: the same matrix as of `rota sweep`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import exp, log, sqrt
from os import PathLike, fspath
from pathlib import Path
from shutil import rmtree
from statistics import fmean, stdev, variance
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import finalize

import polars as pl

from rota.core.errors import OptionError, RotaError, install
from rota.core.registry import unknown
from rota.metrics.vocabulary import BY_KEY, label_of, written
from rota.notebook.frames import as_pandas
from rota.notebook.result import Result
from rota.study.statistics import LEVEL, student
from rota.study.sweep.local import Local, RunExecutor
from rota.study.sweep.matrix import make_cells
from rota.study.sweep.run import Failed, SweepOutcome, Told, load_sweep, sweep
from rota.study.sweep.source import SweepSource, read_source
from rota.study.sweep.spec import Spec, parse_spec
from rota.study.sweep.table import Mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry: TypeAlias = str | PathLike[str] | Mapping[str, Any]
Entries: TypeAlias = Entry | Iterable[Entry]
_SHOWN = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "gpu_utilisation")


class Experiment:
    """A matrix of runs: every workload on every cluster under every policy, ...

    Arguments are those of the YAML file of `rota sweep` (see the guide "Sweep"). Policies are names
    with parameters (`tiresias:limits=3250/7200`) or Python files: as texts they reach other
    processes and machines, and are part of what a result is filed under.

    Args:
        workloads: Files, generators (`philly-like:jobs=500`), or mappings.
        clusters: As of `--cluster`.
        policies: As of `--policy`; the first is the baseline unless `baseline` names another.
        parameters: More axes: options of a run with their values.
        loads: Generators: offered loads; files: how many times as fast jobs arrive.
        seeds: How many, or which.
        options: Options for all runs.
        base: The folder at which relative paths start.
        more: `name`, `baseline`, `keep`, `include`, `exclude`.
    """

    def __init__(
        self,
        workloads: Entries,
        clusters: Entries,
        policies: Entries,
        *,
        parameters: Mapping[str, Any] | None = None,
        loads: float | Sequence[float] = (),
        seeds: int | Sequence[int] = 1,
        options: Mapping[str, Any] | None = None,
        base: str | PathLike[str] = ".",
        **more: Any,
    ) -> None:
        data = {
            "workloads": _entries(workloads),
            "clusters": _entries(clusters),
            "policies": _entries(policies),
            "parameters": plain(parameters or {}),
            "loads": list(loads) if isinstance(loads, Sequence) else [loads],
            "seeds": seeds if isinstance(seeds, int) else list(seeds),
            "options": plain(options or {}),
            **plain(more),
        }
        self.spec: Spec = parse_spec(SweepSource("experiment", Path(base), data))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Experiment":
        """From the YAML file of a sweep."""
        made = cls.__new__(cls)
        made.spec = parse_spec(read_source(Path(path)))
        return made

    def to_polars(self) -> pl.DataFrame:
        """The cells: one row per run to be done."""
        return pl.DataFrame([cell.labels for cell in make_cells(self.spec)], strict=False)

    def __len__(self) -> int:
        return len(make_cells(self.spec))

    def __repr__(self) -> str:
        return f"<Experiment {self.spec.name}: {len(self)} runs over {', '.join(self.spec.axes)}>"

    def run(
        self,
        *,
        folder: str | PathLike[str] | None = None,
        jobs: int | None = None,
        on: str = "local",
        ray_address: str | None = "auto",
        fresh: bool = False,
        told: Told | None = None,
    ) -> "Results":
        """Do the runs; those that `folder` has already are not done again.

        A script that calls this must do so below `if __name__ == "__main__":`, as always when
        Python starts processes; notebooks need not. With `jobs=0` no process is started.

        Args:
            folder: Where results go; None: into a temporary one, which lasts as long as they.
            jobs: Runs at the same time; None: as many as there are cores.
            on: `local` or `ray`.
            ray_address: Of the Ray cluster; None: start one here.
            fresh: Do all runs again.
            told: Called with (runs done, runs to do, a failure or None) after every run.
        """
        executor = make_executor(on, jobs, ray_address)
        if folder is not None:
            return Results(sweep(self.spec, Path(folder), executor, fresh=fresh, told=told))
        scratch = Path(mkdtemp(prefix="rota-experiment-"))
        try:
            results = Results(sweep(self.spec, scratch, executor, told=told))
        except BaseException:
            rmtree(scratch, ignore_errors=True)
            raise
        finalize(results, rmtree, scratch, ignore_errors=True)
        return results


def make_executor(on: str, jobs: int | None, ray_address: str | None) -> RunExecutor:
    """Where runs are done."""
    if on == "local":
        return Local(jobs)
    if on == "ray":
        from rota.study.sweep.on_ray import OnRay

        return OnRay(ray_address)
    raise OptionError(f"on={on!r}: " + unknown("place to run", on, ["local", "ray"]))


def _entries(entries: Entries) -> list[Any]:
    if isinstance(entries, (str, PathLike, Mapping)):
        entries = [entries]
    return [plain(entry) for entry in entries]


def plain(value: Any) -> Any:
    """Data as a YAML file would give it."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(item) for item in value]
    return value


class Results:
    """What became of the runs, in the order of the matrix; failed ones are in `failures`.

    Args:
        outcome: Of the sweep.
    """

    def __init__(self, outcome: SweepOutcome) -> None:
        self._outcome = outcome
        self.folder = outcome.folder

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "Results":
        """From a folder that `rota sweep` or an experiment wrote."""
        return cls(load_sweep(Path(folder)))

    @property
    def failures(self) -> list[Failed]:
        """Runs that failed, each with its labels and its error."""
        return self._outcome.failures

    @property
    def ran(self) -> int:
        """How many runs were done for this; the folder had the others."""
        return self._outcome.ran

    @property
    def warnings(self) -> list[str]:
        """What a careful reader must know."""
        return self._outcome.warnings

    @property
    def means(self) -> list[Mean]:
        """Means over the seeds, with the ratio of the mean JCT to the baseline's."""
        return self._outcome.means

    def to_polars(self) -> pl.DataFrame:
        """One row per run: its labels, then all numbers of its summary."""
        return self._outcome.table

    def to_pandas(self) -> Any:
        """The same for pandas (needs pandas and pyarrow)."""
        return as_pandas(self.to_polars())

    def __len__(self) -> int:
        return len(self._outcome.rows)

    def __getitem__(self, number: int) -> Result:
        return Result.load(self.folder / "runs" / self._outcome.rows[number]["run"])

    def __iter__(self) -> Iterator[Result]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"<Results {self._outcome.record.name}: {len(self)} runs{failed}>"

    def _repr_html_(self) -> str:
        means = self.means
        axes = list(means[0].labels) if means else []
        heads = [*axes, "runs", *(label_of(key) for key in _SHOWN), "ratio"]
        head = "".join(f"<th>{escape(text)}</th>" for text in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in _cells(mean)) + "</tr>"
            for mean in means
        )
        failed = "".join(
            f"<p>failed: {escape(failure.describe())}</p>" for failure in self.failures
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{failed}"

    def curves(
        self, x: str = "load", y: str = "avg_jct_s", by: str = "policy"
    ) -> dict[str, pl.DataFrame]:
        """The data of `plot`: per line a table with x, the mean of y, and its interval.

        The interval is Student's, at 95 %, over all runs with the same x; null for a single one. Of
        positive numbers it is that of their logarithms around the mean, and never goes below 0.
        """
        table = self.to_polars()
        for name in (x, y, by):
            if name not in table.columns:
                raise OptionError(unknown("column", name, table.columns))
        return {
            str(label): _curve(table.filter(pl.col(by).eq_missing(label)), x, y)
            for label in table[by].unique(maintain_order=True)
        }

    def plot(self, x: str = "load", y: str = "avg_jct_s", by: str = "policy") -> "Figure":
        """Means with bands: one line per value of `by` (needs matplotlib)."""
        try:
            from rota.notebook.curves import draw
        except ImportError as error:
            raise RotaError(f"a figure needs matplotlib ({error}): {install('plot')}") from error
        return draw(self.curves(x, y, by), x, y, by)


def _curve(table: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    rows = []
    for value in table[x].unique(maintain_order=True):
        known = table.filter(pl.col(x).eq_missing(value))[y].drop_nulls().to_list()
        if not known:
            continue
        mean = fmean(known)
        low, high = _interval(known, mean)
        rows.append({x: value, y: mean, "low": low, "high": high, "runs": len(known)})
    number, count = pl.Float64(), pl.Int64()
    kinds = {x: table.schema[x], y: number, "low": number, "high": number, "runs": count}
    return pl.DataFrame(rows, schema=kinds)


def _interval(values: list[float], mean: float) -> tuple[float | None, float | None]:
    """Student's; of positive numbers that of their logarithms, which does not go below 0.

    A mean also varies with the spread of the logarithms (Cox's term).
    """
    count = len(values)
    if count == 1:
        return None, None
    reach = student(LEVEL, count - 1)
    if min(values) > 0:
        square = variance(map(log, values))
        factor = exp(reach * sqrt(square / count + square**2 / (2 * (count - 1))))
        return mean / factor, mean * factor
    half = reach * stdev(values) / sqrt(count)
    return mean - half, mean + half


def _cells(mean: Mean) -> list[str]:
    ratio = written(mean.ratio.ratio, "ratio")
    if mean.ratio.low is not None:
        ratio += f" [{written(mean.ratio.low, 'ratio')}, {written(mean.ratio.high, 'ratio')}]"
    return [
        *("" if label is None else str(label) for label in mean.labels.values()),
        str(mean.runs),
        *(written(mean.values[key], BY_KEY[key].unit) for key in _SHOWN),
        ratio,
    ]
