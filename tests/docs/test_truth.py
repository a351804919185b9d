"""What the first pages and messages say is true today."""

import re

from rota.core.errors import install
from rota.core.registry import DIALECTS, names
from shared_data import CHECKOUT

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven", "twelve", "thirteen")  # fmt: skip
DOCS = CHECKOUT / "docs"


def test_the_first_page_names_every_published_simulator():
    page = " ".join((DOCS / "index.md").read_text().split())
    found = re.search(
        r"numbers of (\w+) published simulators \(\[`--like`\]\([^)]*\) ([^)]*)\)", page
    )
    assert found
    assert found[2].split(", ") == names(DIALECTS)
    assert found[1] == NUMBERS[len(names(DIALECTS))]


def test_the_first_page_leads_to_notebooks():
    page = (DOCS / "index.md").read_text()
    assert "(reference/python-notebook.md)" in page
    assert "examples/notebooks" in page
    assert list((CHECKOUT / "examples" / "notebooks").glob("*.ipynb"))


def test_nobody_is_sent_to_an_index_that_does_not_have_rota():
    pages = [CHECKOUT / "README.md", *DOCS.rglob("*.md"), *(CHECKOUT / "src").rglob("*.py")]
    wrong = [
        str(page.relative_to(CHECKOUT))
        for page in pages
        if re.search(r"pip install '?rota\b|install rota\[", page.read_text())
    ]
    assert wrong == []
    assert "pip install -e '.[plot]'" in install("plot")
