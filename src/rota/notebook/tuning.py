"""The best of many trials, from Python."""

from collections.abc import Mapping
from html import escape
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from rota.notebook.experiment import make_executor, plain
from rota.notebook.frames import as_pandas
from rota.study.sweep.run import Told
from rota.study.sweep.source import SweepSource, read_source
from rota.study.tune.run import TuneRecord, trials_table
from rota.study.tune.run import tune as search
from rota.study.tune.spec import parse_tune


class TuneResult:
    """What a search found.

    Attributes:
        record: Every number, as of `tune.json`.
    """

    def __init__(self, record: TuneRecord) -> None:
        self.record = record

    @property
    def verdict(self) -> str:
        """The answer in a few sentences."""
        return self.record.verdict

    @property
    def winner(self) -> Mapping[str, Any]:
        """The options of the best trial: `policy` with its parameters, and what else is varied."""
        found = self.record.winner
        return {} if found is None else found.options

    @property
    def proven(self) -> bool:
        """The winner is better than the default, by more than noise."""
        found = self.record.judgement
        return found is not None and found.verdict == "better"

    def to_polars(self) -> pl.DataFrame:
        """A row per trial: its values, how far it came, and the goal at each rung."""
        return trials_table(self.record)

    def to_pandas(self) -> Any:
        """The same for pandas (needs pandas and pyarrow)."""
        return as_pandas(self.to_polars())

    def __repr__(self) -> str:
        return f"<TuneResult of {len(self.record.trials):,} trials: {self.verdict}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.verdict)}</p>{self.to_polars()._repr_html_()}"


def tune(
    spec: str | PathLike[str] | Mapping[str, Any],
    *,
    folder: str | PathLike[str] | None = None,
    base: str | PathLike[str] = ".",
    jobs: int | None = None,
    on: str = "local",
    ray_address: str | None = "auto",
    fresh: bool = False,
    told: Told | None = None,
) -> TuneResult:
    """Search the best parameters, as `rota tune` does.

    Args:
        spec: The YAML file, or its keys and values (those of a sweep, and `tune`).
        folder: Where results go, and where an earlier search is continued; None: nothing is kept.
        base: The folder at which relative paths of a mapping start.
        jobs: Runs at the same time; None: as many as there are cores; 0: in this process.
        on: `local` or `ray`.
        ray_address: Of the Ray cluster; None: start one here.
        fresh: Do all runs again.
        told: Called with (runs done, runs to do, a failure or None) after every run.
    """
    if isinstance(spec, Mapping):
        source = SweepSource("tune", Path(base), plain(spec))
    else:
        source = read_source(Path(spec))
    tuning = parse_tune(source)
    executor = make_executor(on, jobs, ray_address)
    if folder is None:
        with TemporaryDirectory(prefix="rota-tune-") as scratch:
            return TuneResult(search(tuning, Path(scratch), executor, told=told))
    record = search(tuning, Path(folder), executor, fresh=fresh, told=told)
    from rota.report.study_pages import write_study_page
    from rota.report.tune import tune_page

    write_study_page(tune_page(record), Path(folder))
    return TuneResult(record)
