"""Recognising a file imports no reader but the one that reads it."""

import subprocess
import sys

import pytest

from rota.core.registry import FORMATS, names
from rota.traces import read
from rota.traces.sniff import PATTERNS

SIMULATE = """
import sys
from rota.cli import main
try:
    main()
finally:
    prefix = "rota.traces.formats."
    print(*sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)),
          file=sys.stderr)
"""
PLAIN = "job_id,submit_s,num_gpus,duration_s\na,0,1,9\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,9,1,9,v\n"


class Guess:
    """A format of another package."""

    name = "guess"

    def __init__(self, sure):
        self.sure = sure

    def recognises(self, head):
        return self.sure


@pytest.mark.parametrize(
    ("content", "readers"),
    [
        (PLAIN, "plain"),
        (PHILLY, "philly philly_machines"),
    ],
)
def test_simulate_imports_only_the_reader_that_it_uses(tmp_path, content, readers):
    path = tmp_path / "jobs"
    path.write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", SIMULATE, "simulate", path, "--policy", "fifo", "--cluster", "1x8",
         "-o", tmp_path / "run"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert done.stderr.split("\n")[-2] == readers


def test_every_format_of_ours_has_a_pattern():
    assert set(PATTERNS) == set(names(FORMATS))


@pytest.fixture
def guessing(monkeypatch):
    """Return `guessing(sure)`: another package registers a format that is so sure."""

    def register(sure):
        ours = read.load_format
        loaded = []

        def load(name):
            loaded.append(name)
            return Guess(sure) if name == "guess" else ours(name)

        monkeypatch.setattr(read, "names", lambda group: [*names(group), "guess"])
        monkeypatch.setattr(read, "load_format", load)
        return loaded

    return register


def test_a_format_of_another_package_is_not_asked_when_one_of_ours_is_certain(guessing, tmp_path):
    loaded = guessing(1.0)
    path = tmp_path / "jobs"
    path.write_text(PLAIN)
    assert read.recognise(path).name == "csv"
    assert loaded == ["csv"]


@pytest.mark.parametrize(("sure", "name"), [(0.9, "guess"), (0.2, "csv")])
def test_it_is_asked_when_none_of_ours_is_certain(guessing, tmp_path, sure, name):
    guessing(sure)
    path = tmp_path / "jobs"
    path.write_text("job_id,submit_s,num_gpus,length\na,0,1,9\n")
    assert read.recognise(path).name == name
