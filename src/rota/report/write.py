"""Making the report of a folder anew."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rota.core.errors import OptionError, OutputError, install
from rota.core.unfinished import write_whole
from rota.report.data import TIMES, cdf, delays, queue, ratios, tenant_shares, utilisation
from rota.report.lanes import fragment_heat, gantt, node_heat, node_outages
from rota.report.page import html
from rota.report.payload import picture
from rota.report.source import ReportSource, RunView, look_at, read_source
from rota.report.study_pages import study_page
from rota.report.style import DOUBLE_IN
from rota.study.compare_file import PolicyComparison

if TYPE_CHECKING:
    from rota.report.figures import Picture

REPORT, FIGURES = "report.html", "figures"
FORMATS = ("svg", "png", "pdf")
NEEDS_PLOT = f"no figures as files: they need matplotlib, {install('plot')}"

_OWN = re.compile(
    r"(cdf-jct|cdf-wait|utilisation|queue|tenants|heat|fragments|gantt(-[^/]+)?|delay|ratios)\.(svg|png|pdf)"
)

Told = Callable[[str, int, int], object]
"""Called with (what is being made, how many files are done, how many there will be)."""


def write_report(
    folder: Path,
    *,
    to: Path | None = None,
    formats: Sequence[str] = FORMATS,
    measures: Sequence[str] = (),
    told: Told | None = None,
    comparison: PolicyComparison | None = None,
    pictures: Mapping[str, Any] | None = None,
    target: Path | None = None,
) -> Path:
    """Write the page and the figures of a folder that `rota compare` or `rota simulate` made.

    Of a sweep, a tuning, a study of robustness or of predictions, the page: its pictures are in it.

    Args:
        folder: With compare.json, a run's summary.json, or what is there of one of these studies.
        to: The page; by default report.html in the folder. Figures go to `figures` beside it.
        formats: Of the figures: some of svg, png, pdf, or none.
        measures: Keys like `avg_jct_s`: only these are in the table and in the picture of ratios.
        told: Called before each file is made.
        comparison: What compare.json says, if it is known.
        pictures: What `draw_run` made of runs, by their folders, if it did.
        target: What the folder will be called when it is complete, if it is not yet.

    Returns:
        Where the page is.
    """
    wrong = [kind for kind in formats if kind not in FORMATS]
    if wrong:
        raise OptionError(f"figures as {wrong[0]!r}: use {', '.join(FORMATS)}, or none")
    page = to or folder / REPORT
    study = None if comparison is not None else study_page(folder)
    if study is not None:
        if measures:
            raise OptionError(f"{folder}: is no comparison: leave --measures out")
        with _writing(page):
            write_whole(page, study.html())
        return page
    source = read_source(folder, comparison, pictures)
    if measures:
        source = source.only(measures)
    source.shown = target or folder
    with _writing(page):
        if formats:
            _write_figures(source, page.parent / FIGURES, formats, told)
        write_whole(page, html(source))
    return page


def draw_run(place: Path, policy: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the page draws of one run of a comparison; where it ran is a good place for it."""
    return picture(look_at(place, policy, summary, place.name))


@contextmanager
def _writing(page: Path) -> Iterator[None]:
    """Its folder is made only now: there is something to write."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(
            f"{page}: cannot be written ({error.strerror}): name another file with -o"
        ) from error


def figure_files(folder: Path) -> list[str]:
    """Figures that an earlier report wrote into a folder, relative to it."""
    found = sorted((folder / FIGURES).glob("*.*"))
    return [f"{FIGURES}/{path.name}" for path in found if _OWN.fullmatch(path.name)]


def has_matplotlib() -> bool:
    """Static figures can be made."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def _write_figures(
    source: ReportSource, folder: Path, formats: Sequence[str], told: Told | None
) -> None:
    if not has_matplotlib():
        source.notes.append(NEEDS_PLOT)
        return
    from rota.report.figures import save, settle

    folder.mkdir(exist_ok=True)
    total = count(source) * len(formats)
    for number, (name, figure) in enumerate(pictures(source)):
        settle(figure)
        for turn, kind in enumerate(formats):
            if told:
                told(f"{name}.{kind}", number * len(formats) + turn, total)
            save(figure, folder / f"{name}.{kind}")


# --- Static figures -------------------------------------------------------------------------------

BINS = 400


def count(source: ReportSource) -> int:
    """How many figures there will be, or two more."""
    shared = 7 if source.looks else 0
    return shared + len(source.looks) + 2


def pictures(source: ReportSource) -> Iterator[tuple[str, "Picture"]]:
    """(name of the file without its ending, figure), one after the other."""
    from rota.report import figures

    looks = source.looks
    if looks:
        for column in TIMES:
            curves = {look.name: cdf(look.jobs, column, look.window) for look in looks}
            yield f"cdf-{column.removesuffix('_s')}", figures.cdf_figure(curves, column)
        used = {look.name: utilisation(look.history, BINS) for look in looks}
        yield "utilisation", figures.utilisation_figure(used)
        waiting = {look.name: queue(look.history, BINS) for look in looks}
        yield "queue", figures.queue_figure(waiting)
        shares = {look.name: tenant_shares(look.history) for look in looks}
        yield "tenants", figures.tenants_figure(shares)
        heat = {look.name: node_heat(look.history) for look in looks}
        yield "heat", figures.heat_figure(heat, DOUBLE_IN)
        useless = fragments_of({look.name: look for look in looks})
        if useless:
            yield "fragments", figures.fragments_figure(useless, DOUBLE_IN)
        for look in looks:
            name = f"gantt-{look.folder}" if look.folder else "gantt"
            yield name, figures.gantt_figure(gantt(look.history), down=node_outages(look.history))
    yield "delay", figures.delay_figure(delays(source.comparison))
    table = ratios(source.comparison)
    if table.height:
        yield "ratios", figures.ratio_figure(table, DOUBLE_IN)


def fragments_of(looks: Mapping[str, RunView]) -> dict[str, pl.DataFrame]:
    """Tables of `fragment_heat` of those runs that have one."""
    found = {name: fragment_heat(look.history, look.basis) for name, look in looks.items()}
    return {name: table for name, table in found.items() if table is not None}
