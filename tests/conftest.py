"""Settings and fixtures of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

import shared_data

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if shared_data.IN_CI else "dev"))


HERE = Path(__file__).parent
REAL = (HERE / "e2e", HERE / "docs" / "test_pages.py")


def pytest_collection_modifyitems(items):
    """One more try for tests that drive real machines, whose time is shared with others.

    The first failure is printed at the end all the same.
    """
    for item in items:
        if any(place == item.path or place in item.path.parents for place in REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def shared():
    """Return `shared(path)`: a path in the shared reference folder, or a skip (a failure in CI)."""
    return shared_data.shared


def pytest_terminal_summary(terminalreporter):
    """Print first failures of tests with two tries, and what tests measured.

    A test tells what it measured by `record_property("latency", ...)`.
    """
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
