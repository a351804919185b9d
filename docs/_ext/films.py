"""What labs show: notebooks as text, and policies at work as films that pages embed.

A film is the page that `rota watch` writes. It is made when the documentation is built, from runs
of this checkout, and lies beside the pages: nothing is fetched.
"""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rota.cli.app import run
from rota.lab.checks import MeasureCheck, play
from rota.lab.exercises import EXERCISES, Exercise
from rota.report.source import ReportSource, RunView, source_of
from rota.report.watch import read_runs, watch_page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = CHECKOUT / "examples" / "notebooks"
SOLUTIONS = CHECKOUT / "examples" / "labs" / "solutions"
PLACE = "_static/films"
EXPERIMENTS = ("vc-safety", "priority", "opportunistic", "gang", "incremental")
SEED = 1


def notebook(name: str) -> str:
    """A notebook as Markdown: its texts, and its cells of code."""
    data = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return "\n\n".join(_cell(cell["cell_type"], "".join(cell["source"])) for cell in data["cells"])


def _cell(kind: str, text: str) -> str:
    if kind == "markdown":
        return text
    fence = "````" if "```" in text else "```"
    return f"{fence}{{code-block}} python\n{text.rstrip()}\n{fence}"


def film(name: str) -> str:
    """A film of that name in a page; `_write` makes it."""
    if name not in FILMS:
        raise KeyError(f"there is no film {name!r}: use {', '.join(FILMS)}")
    # a page of the second level: labs/NAME.html
    return (
        f'<iframe class="film" src="../{PLACE}/{name}.html" loading="lazy" '
        f'title="{name}: a run that can be watched"></iframe>\n\n'
        f'<p class="film"><a href="../{PLACE}/{name}.html">In a window of its own</a></p>'
    )


# --- runs ----------------------------------------------------------------------------------------


def experiment(name: str) -> list[ReportSource]:
    """A lab that is watched: the run of `rota reproduce`."""
    said = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
        if run(["reproduce", f"lab6-{name}", "-o", f"{folder}/lab"]):
            raise RuntimeError(f"lab6-{name}: {said.getvalue()}")
        (source,) = read_runs([Path(folder) / "lab" / "lab"])
    view = source.looks[0].called("hived")
    return [source_of([view], f"the lab {name}", "carol and dan", [])]


def exercise_runs(exercise: Exercise) -> list[ReportSource]:
    """An exercise: the file to start from, and a solution, on the same jobs."""
    measured = next(check for _, check in exercise.checks if isinstance(check, MeasureCheck))
    with TemporaryDirectory() as folder:
        starter = Path(folder) / "starter.py"
        starter.write_text(exercise.starter, encoding="utf-8")
        return [
            _source(name, file, measured)
            for name, file in (
                ("first version", starter),
                ("a solution", SOLUTIONS / f"{exercise.name}.py"),
            )
        ]


def _source(name: str, file: Path, check: MeasureCheck) -> ReportSource:
    done = play(file, check.draw(SEED), check.cluster, check.used_as, rates=check.rates)
    return source_of([RunView(name, done.summary, done.log)], "200 jobs", check.cluster, [])


FILMS: dict[str, Callable[[], list[ReportSource]]] = {
    **{name: partial(experiment, name) for name in EXPERIMENTS},
    **{name: partial(exercise_runs, found) for name, found in EXERCISES.items()},
}


def pages() -> Iterator[tuple[str, str]]:
    """All films, by name."""
    for name, runs in FILMS.items():
        yield name, watch_page(runs())


def _write(app: "Sphinx", error: Exception | None) -> None:
    """Put them beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / PLACE
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")


def setup(app: "Sphinx") -> None:
    """Register with Sphinx."""
    app.connect("build-finished", _write)
