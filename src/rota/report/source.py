"""What a report is about: a comparison, or one run as a comparison of itself with nothing."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import InputError, OptionError
from rota.metrics import History, Window, fold_jobs, read_history
from rota.metrics.basis import Basis
from rota.metrics.jobs import Promised, read_promised
from rota.metrics.vocabulary import BY_KEY
from rota.study.compare_file import (
    COMPARE,
    Assumption,
    Measured,
    PolicyComparison,
    PolicyRow,
    RunOf,
    read_comparison,
)
from rota.study.output import EVENTS, JOBS, MANIFEST, SUMMARY

_OF_A_RUN = tuple(
    BY_KEY[key]
    for key in (
        "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s",
        "avg_bounded_slowdown", "gpu_utilisation", "preemptions", "migrations", "completed",
    )
)  # fmt: skip
_OWN_PAGES = (
    ("plan.json", "plan", "plan.html"),
    ("replay.json", "replay", "report.html"),
    ("verdict.json", "reproduce", "report.html"),
)
"""Folders whose page cannot be made anew from what is in them."""


class RunView:
    """One run, of which there are pictures: the first of its policy."""

    def __init__(
        self,
        name: str,
        summary: Mapping[str, Any],
        log: pl.DataFrame,
        folder: str = "",
        *,
        basis: Basis | None = None,
        promised: Promised | None = None,
    ) -> None:
        self.promised = promised or Promised()
        self.name = name
        self.summary = summary
        self.folder = folder
        self.basis = basis
        self._log = log

    @cached_property
    def history(self) -> History:
        """The lives of its jobs."""
        return read_history(self._log)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """The table of its jobs."""
        return fold_jobs(self.history, *self.promised.of(self.history.ids))

    def called(self, name: str) -> "RunView":
        """The same run under another name."""
        return RunView(
            name, self.summary, self._log, self.folder, basis=self.basis, promised=self.promised
        )

    @property
    def window(self) -> Window:
        """The jobs that its numbers are about."""
        text = str((self.summary.get("measured") or {}).get("window") or "all")
        return Window() if text == "all" else Window.parse(text)


class ReportSource:
    """A comparison and the runs to draw."""

    def __init__(
        self,
        comparison: PolicyComparison,
        looks: list[RunView],
        notes: list[str],
        *,
        folder: Path | None = None,
        command: Sequence[str] = (),
        pictures: Mapping[str, Any] | None = None,
    ) -> None:
        self.comparison = comparison
        self.looks = looks
        self.notes = notes
        self.folder = folder
        self.shown = folder
        """How the page calls the folder."""
        self.command = list(command)
        self.pictures = pictures or {}
        """What is drawn of runs, by their folders, where it was made before."""

    @property
    def single(self) -> bool:
        """There is nothing to compare."""
        return len(self.comparison.rows) == 1

    def only(self, measures: Sequence[str]) -> "ReportSource":
        """The same with some of the measures, in the order in which they are named."""
        known = {measure.key: measure for measure in self.comparison.measures}
        wrong = [key for key in measures if key not in known]
        if wrong:
            raise OptionError(f"measure {wrong[0]!r} is not there: use {', '.join(known)}")
        chosen = [known[key] for key in dict.fromkeys(measures)]
        less = msgspec.structs.replace(self.comparison, measures=chosen)
        return ReportSource(
            less, self.looks, self.notes, folder=self.folder, command=self.command,
            pictures=self.pictures,
        )  # fmt: skip


def read_source(
    folder: Path,
    comparison: PolicyComparison | None = None,
    pictures: Mapping[str, Any] | None = None,
) -> ReportSource:
    """From a folder that `rota compare` or `rota simulate` made; its comparison may be known."""
    if comparison is not None:
        return _of_comparison(comparison, folder, pictures)
    if (folder / COMPARE).exists():
        return _of_comparison(read_comparison(folder), folder)
    if not (folder / SUMMARY).exists():
        for file, command, page in _OWN_PAGES:
            if (folder / file).exists():
                raise InputError(
                    f"{folder}: is what `rota {command}` wrote, and its page is {page}: for a new "
                    f"one, use `rota {command}` again"
                )
        raise InputError(
            f"{folder}: has neither {COMPARE} nor {SUMMARY}: name a folder that `rota compare` or "
            f"`rota simulate` made"
        )
    return _of_run(folder)


def source_of(views: Sequence[RunView], trace: str, cluster: str, notes: list[str]) -> ReportSource:
    """From runs that were made one by one; the first is the baseline.

    Nothing was repeated, so there are no intervals. A policy that ran twice has a number behind its
    name.
    """
    names = _distinct([view.name for view in views])
    told = [view.summary.get("assumptions") or {} for view in views]
    comparison = PolicyComparison(
        trace=trace,
        cluster=cluster,
        baseline=names[0],
        seeds=[0],
        windows=[],
        level=0.95,
        method="",
        measures=list(_OF_A_RUN),
        rows=[_row(name, view.summary) for name, view in zip(names, views, strict=True)],
        assumptions=[
            Assumption(key, {n: brief(each.get(key)) for n, each in zip(names, told, strict=True)})
            for key in told[0]
        ],
        runs=[
            RunOf(name, ".", 0, None, [], dict(view.summary))
            for name, view in zip(names, views, strict=True)
        ],
        notes=notes,
    )
    looks = [view.called(name) for name, view in zip(names, views, strict=True)]
    return ReportSource(comparison, looks, notes)


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        number = 1 + sum(each == name or each.startswith(f"{name} (") for each in found)
        found.append(name if number == 1 else f"{name} ({number})")
    return found


def look_at(place: Path, policy: str, summary: Mapping[str, Any], folder: str = "") -> RunView:
    """A run as it was written to a place; an OSError or PolarsError says what is wrong there."""
    log = pl.read_parquet(place / EVENTS, glob=False)
    basis, promised = read_basis(place), read_promised(place / JOBS)
    return RunView(policy, summary, log, folder, basis=basis, promised=promised)


def _of_comparison(
    comparison: PolicyComparison, folder: Path, pictures: Mapping[str, Any] | None = None
) -> ReportSource:
    notes = list(dict.fromkeys(comparison.notes))
    looks = []
    for row in comparison.rows:
        run = comparison.run_of(row.policy)
        place = _inside(folder, run.folder)
        try:
            looks.append(look_at(place, row.policy, run.summary, run.folder))
        except (OSError, pl.exceptions.PolarsError):
            notes.append(f"{row.policy}: no pictures, {run.folder}/{EVENTS} cannot be read")
    if len(comparison.seeds) > 1 or len(comparison.windows) > 1:
        first = comparison.runs[0]
        window = "" if first.window is None else f", window {first.window}"
        notes.append(
            f"curves and pictures over time show the first run of each policy "
            f"(seed {first.seed}{window}); numbers are means over {_runs(comparison)} runs"
        )
    notes += [f"{run.policy}: {text}" for run in comparison.runs for text in run.warnings]
    place = _inside(folder, comparison.runs[0].folder)
    return ReportSource(
        comparison, looks, list(dict.fromkeys(notes)), folder=folder, command=read_command(place),
        pictures=pictures,
    )  # fmt: skip


def _runs(comparison: PolicyComparison) -> int:
    return max(row.runs for row in comparison.rows)


def _inside(folder: Path, name: str) -> Path:
    """A run's folder; a file from elsewhere must not lead out of the folder."""
    place = folder / name
    if not place.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{folder / COMPARE}: the run {name!r} is not inside the folder")
    return place


def _of_run(folder: Path) -> ReportSource:
    summary, config = _read(folder / SUMMARY), _read(folder / MANIFEST).get("config") or {}
    assumptions = summary.get("assumptions") or {}
    policy = str(config.get("policy") or (assumptions.get("policy") or {}).get("name") or "run")
    try:
        look = look_at(folder, policy, summary)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{folder / EVENTS}: cannot be read ({error})") from error
    comparison = PolicyComparison(
        trace=str(config.get("trace") or folder.name),
        cluster=str(config.get("cluster") or "?"),
        baseline=policy,
        seeds=[int(config.get("seed") or 0)],
        windows=[],
        level=0.95,
        method="",
        measures=list(_OF_A_RUN),
        rows=[_row(policy, summary)],
        assumptions=[Assumption(key, {policy: brief(assumptions[key])}) for key in assumptions],
        runs=[RunOf(policy, ".", int(config.get("seed") or 0), None, [], summary)],
        notes=[],
    )
    return ReportSource(comparison, [look], [], folder=folder, command=read_command(folder))


class _Measured(msgspec.Struct):
    """The parts of a manifest that reports need."""

    fragments: Basis | None = None
    command: list[str] = []


def read_command(folder: Path) -> list[str]:
    """The command line that made a run, as its manifest tells; empty: it does not."""
    try:
        content = (folder / MANIFEST).read_bytes()
        return msgspec.json.decode(content, type=_Measured).command
    except (OSError, msgspec.DecodeError):
        return []


def read_basis(folder: Path) -> Basis | None:
    """What the fragments of a run are measured by; None if its folder does not tell."""
    try:
        content = (folder / MANIFEST).read_bytes()
        return msgspec.json.decode(content, type=_Measured).fragments
    except (OSError, msgspec.DecodeError):
        return None


def _row(policy: str, summary: Mapping[str, Any]) -> PolicyRow:
    completed = max(summary.get("completed") or 0, 1)
    return PolicyRow(
        policy=policy,
        knowledge=str((summary.get("assumptions") or {}).get("knowledge") or ""),
        avg_jct_s=summary.get("avg_jct_s"),
        completed=summary.get("completed"),
        jobs=summary.get("jobs"),
        measures={m.key: Measured(summary.get(m.key)) for m in _OF_A_RUN},
        delay={key: value / completed for key, value in (summary.get("delay") or {}).items()},
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `rota simulate` made"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not understood ({error})") from error


def brief(value: Any) -> str:
    """An assumption in a few words."""
    if isinstance(value, Mapping):
        name = str(value.get("name", ""))
        rest = ", ".join(f"{key}={brief(item)}" for key, item in value.items() if key != "name")
        return f"{name} ({rest})" if name and rest else name or rest
    if isinstance(value, (list, tuple)):
        return ", ".join(map(brief, value)) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
