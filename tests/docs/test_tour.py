"""The tour is true: its functions exist, and the walks call them in its order."""

import re
import subprocess
import sys

import pytest

from shared_data import CHECKOUT

TOUR = CHECKOUT / "docs" / "explanation" / "tour.md"
HOP = re.compile(r"^\| `([\w/]+)\.py` \| `([\w.]+)` \|", re.MULTILINE)
WALKS = {
    "A simulated job": ("simulate", "command"),
    "A live job: the client": ("submit", "client"),
    "A live job: the daemon": ("submit", "daemon"),
}


def hops(title):
    """Return the functions of a section as a walk prints them."""
    section = TOUR.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [f"rota.{path.replace('/', '.')}: {name}" for path, name in HOP.findall(section)]


@pytest.fixture(scope="module")
def walked():
    """Return what each process of each walk called, in order."""
    found = {}
    for walk in sorted({walk for walk, _ in WALKS.values()}):
        done = subprocess.run(
            [sys.executable, str(CHECKOUT / "scripts" / "walk.py"), walk],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        for part in done.stdout.split("# ")[1:]:
            head, *calls = part.splitlines()
            found[walk, head.partition(":")[0]] = calls
    return found


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_calls_the_functions_of_the_tour_in_its_order(walked, title):
    calls = walked[WALKS[title]]
    missing = [hop for hop in hops(title) if hop not in calls]
    assert missing == []
    assert hops(title) == sorted(hops(title), key=calls.index)
    assert len(hops(title)) > 5
