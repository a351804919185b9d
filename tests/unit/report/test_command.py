"""`rota report`."""

from itertools import islice

import pytest
from click.testing import CliRunner

from rota.cli.report import report
from rota.core.errors import InputError
from rota.report import write
from rota.report.source import read_source


@pytest.fixture
def call():
    """Return `call(*args)`: what the command does."""

    def make(*args):
        return CliRunner().invoke(report, [str(arg) for arg in args])

    return make


def test_the_report_is_made_anew(call, folder, monkeypatch):
    two = list(islice(write.pictures(read_source(folder)), 2))  # all: test_page.py
    monkeypatch.setattr(write, "pictures", lambda _source: two)
    (folder / "report.html").write_text("old")
    done = call(folder, "--figures", "svg, png")

    assert done.exit_code == 0
    assert done.stdout == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".svg", ".png"}


def test_the_page_can_go_elsewhere_without_figures(call, folder, tmp_path):
    done = call(folder, "--figures", "none", "-o", tmp_path / "new" / "page.html")

    assert done.exit_code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]
    assert not (folder / "report.html").exists()


def test_unknown_figures_are_a_mistake(call, folder):
    done = call(folder, "--figures", "svg,gif")

    assert done.exit_code == 2
    assert "'gif': use svg, png, pdf, or none" in done.stderr


def test_without_matplotlib_there_is_a_warning(call, folder, monkeypatch):
    monkeypatch.setattr(write, "has_matplotlib", lambda: False)
    done = call(folder)

    assert done.exit_code == 0
    assert "they need matplotlib" in done.stderr


def test_another_folder_is_a_mistake(call, tmp_path):
    assert isinstance(call(tmp_path).exception, InputError)
