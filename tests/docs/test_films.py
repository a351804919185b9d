"""Labs show policies at work, and notebooks can be read: all made here, nothing is fetched."""

import json
import re
import sys

import pytest

from rota.lab.exercises import EXERCISES
from rota.report.watch import watch_data, watch_page
from shared_data import CHECKOUT

DOCS = CHECKOUT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import films  # noqa: E402 - the folder of Sphinx' extensions is no package

MARKED = re.compile(r"^<!-- generated: (film|notebook) (\S+) -->$", re.MULTILINE)
PAGES = {path: MARKED.findall(path.read_text()) for path in sorted(DOCS.rglob("*.md"))}
NOTEBOOKS = sorted(path.stem for path in films.NOTEBOOKS.glob("*.ipynb"))


def test_every_lab_has_its_film_and_every_notebook_its_page():
    shown = [name for found in PAGES.values() for kind, name in found if kind == "film"]
    assert sorted(shown) == sorted(films.FILMS) == sorted([*films.EXPERIMENTS, *EXERCISES])
    read = [name for found in PAGES.values() for kind, name in found if kind == "notebook"]
    assert sorted(read) == NOTEBOOKS
    for path, found in PAGES.items():
        assert all(kind != "film" for kind, _ in found) or path.parent == DOCS / "labs"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_rendered_whole(name):
    text = films.notebook(name)
    assert text.startswith("# ")
    cells = json.loads((films.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    assert all("".join(cell["source"]).rstrip() in text for cell in cells)
    assert text.count("{code-block} python") == sum(cell["cell_type"] == "code" for cell in cells)


@pytest.mark.parametrize("name", films.FILMS)
def test_a_film_is_one_small_file(name):
    sources = films.FILMS[name]()
    page = watch_page(sources)
    assert len(page) < 200_000
    assert "://" not in page
    assert "/tmp/" not in page  # noqa: S108 - a path of the machine that built it
    runs = watch_data(sources)["runs"]
    assert [run["policy"] for run in runs] == (
        ["first version", "a solution"] if name in EXERCISES else ["hived"]
    )
    assert all(run["bars"]["n"] and run["events"]["n"] for run in runs)
    assert f'src="../{films.PLACE}/{name}.html"' in films.film(name)


def test_a_film_that_is_not_there_is_told():
    with pytest.raises(KeyError, match="there is no film 'x'"):
        films.film("x")
