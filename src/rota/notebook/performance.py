"""A report about everything that is simulated within a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rota.core.errors import OutputError, why_unwritten
from rota.notebook.result import Result

if TYPE_CHECKING:
    from rota.report.source import ReportSource

Noticed: TypeAlias = tuple[Result, str, str]
"""A run, its workload and its cluster."""

_listening: ContextVar[tuple[list[Noticed], ...]] = ContextVar("_listening", default=())


def noticed(result: Result, trace: str, cluster: str) -> Result:
    """A run was made: whoever listens hears of it."""
    for runs in _listening.get():
        runs.append((result, trace, cluster))
    return result


@contextmanager
def performance_report(file: str | Path = "rota-report.html") -> Iterator[None]:
    """Write a page about the runs that are made inside the block:

        with rota.performance_report("report.html"):
            rota.simulate("jobs.csv", cluster="4x8", policy="fifo")
            rota.simulate("jobs.csv", cluster="4x8", policy="srtf")

    It is the page of `rota report`: one file that needs no network. The first run is the baseline.
    If the block raises, the runs so far are reported all the same. A block without a run writes
    nothing.

    Args:
        file: The page; one that is there is replaced.
    """  # noqa: D415 - what follows is an example
    from rota.report.page import html

    runs: list[Noticed] = []
    before = _listening.set((*_listening.get(), runs))
    try:
        yield
    finally:
        _listening.reset(before)
        if runs:
            page = Path(file)
            part = page.with_name(page.name + ".part")
            try:
                part.write_text(html(_source(runs)), encoding="utf-8")
                part.replace(page)
            except OSError as error:
                raise OutputError(f"{page}: {why_unwritten(error, 'name another file')}") from error


def _source(runs: list[Noticed]) -> "ReportSource":
    from rota.report.source import source_of

    traces = [trace for _, trace, _ in runs]
    clusters = [cluster for _, _, cluster in runs]
    notes = [
        f"the runs are of different {what}: do not compare their numbers"
        for what, names in (("workloads", traces), ("clusters", clusters))
        if len(set(names)) > 1
    ]
    return source_of([run[0].look for run in runs], traces[0], clusters[0], notes)
