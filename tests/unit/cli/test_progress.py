"""The bar on stderr."""

import io

import pytest

from rota.cli import progress
from rota.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)


def test_nothing_is_shown_when_it_is_no_terminal(monkeypatch, impatient):
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    with ProgressBar("fifo") as bar:
        bar(1, 10, 0.0)

    assert stderr.getvalue() == ""


def test_nothing_is_shown_of_a_short_run(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with ProgressBar("fifo") as bar:
        bar(1, 10, 0.0)

    assert stderr.getvalue() == ""


def test_a_long_run_shows_how_far_it_is(monkeypatch, impatient):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("fifo") as bar:
        bar(1, 10, 0.0)
        bar(5, 10, 86400.0)
        bar.retitle("srtf")
        bar(2, 10, 0.0)

    assert "srtf (day 0.0)" in stderr.getvalue()
    assert "/10" in stderr.getvalue()
