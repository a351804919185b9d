"""Settings and fixtures of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

import needs
import shared_data

# Every run draws new examples. A failure prints the line that repeats it (`print_blob`).
settings.register_profile("test", max_examples=40, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


HERE = Path(__file__).parent
REAL = (HERE / "e2e", HERE / "docs" / "test_pages.py")
WITHOUT_RACES = {  # they wait for causes alone: one try is enough
    HERE / "e2e" / name
    for name in ("test_fractions.py", "test_output.py", "test_run_times.py", "test_tenants.py")
}


def pytest_addoption(parser):
    """CI has to run every test: `.ci/run` sets this option."""
    parser.addoption(
        "--require-all",
        action="store_true",
        help="a test that this machine cannot run fails instead of being skipped",
    )
    parser.addoption(
        "--correct-pages",
        action="store_true",
        help="write what commands print now into the pages that show it; read the diff",
    )


def pytest_configure(config):
    """The option holds in every worker."""
    if config.getoption("--require-all"):
        needs.require_everything()


def pytest_collection_modifyitems(items):
    """One more try for tests that drive real machines, whose time is shared with others.

    The first failure is printed at the end all the same.
    """
    for item in items:
        real = any(place == item.path or place in item.path.parents for place in REAL)
        if real and item.path not in WITHOUT_RACES:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def shared():
    """Return `shared(path)`: a path in the shared reference folder, or a skip (a failure in CI)."""
    return shared_data.shared


def pytest_terminal_summary(terminalreporter):
    """Print what could not run, first failures of tests with two tries, and what tests measured.

    A test tells what it measured by `record_property("latency", ...)`.
    """
    groups = needs.skipped_groups(terminalreporter.getreports("skipped"))
    if groups:
        terminalreporter.section("not run on this machine")
        for (enable, what), number in sorted(groups.items()):
            tests = "1 test" if number == 1 else f"{number} tests"
            terminalreporter.line(f"{tests}: {what}; to run: {enable}")
    again = terminalreporter.getreports("rerun")
    if again:
        terminalreporter.section("failed at the first try")
        for report in again:
            terminalreporter.line(f"{report.nodeid}\n{report.longreprtext}")
    measured = [
        f"{report.nodeid.rpartition('::')[2]}: {value}"
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "latency"
    ]
    if measured:
        terminalreporter.section("measured")
        for line in sorted(measured):
            terminalreporter.line(line)
