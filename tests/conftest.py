"""Settings and fixtures of all tests."""

import gc
import logging
import os
import sys

import pytest
import structlog
from hypothesis import settings

import needs
import shared_data
from compiled_once import CompiledOnce
from cpu_times import CpuTimes

# Every run draws new examples. A failure prints the line that repeats it (`print_blob`).
settings.register_profile("test", max_examples=10, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

# Jobs of tests write to folders in /tmp, which a job that is kept apart does not see. To run all
# tests with sandboxes: ROTA_ISOLATION=required ROTA_VISIBLE=/tmp
os.environ.setdefault("ROTA_ISOLATION", "off")


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
    parser.addoption(
        "--cpu-times",
        type=int,
        default=0,
        metavar="N",
        help="list the N files and the N tests that use most CPU time",
    )


def pytest_configure(config):
    """Options hold in every worker."""
    config.pluginmanager.register(CpuTimes(config))
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(CompiledOnce(config.rootpath / ".cache" / "compiling"))
    if config.getoption("--require-all"):
        needs.require_everything()


def pytest_collection_finish():
    """What was collected stays to the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown():
    """What a test leaves behind in this process is put away."""
    if scripted := sys.modules.get("scripted"):  # from 3.13 on Python warns of open databases
        scripted.close_stores()
    if "rota.api.logs" in sys.modules:  # `rota serve` sets up the logs of its process
        structlog.reset_defaults()
        for name in ("rota", "uvicorn"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [], True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def shared():
    """Return `shared(path)`: a path in the shared reference folder, or a skip (a failure in CI)."""
    return shared_data.shared


@pytest.fixture(scope="session")
def postgres_server():
    """Return a PostgreSQL server."""
    from postgres_server import PostgresServer

    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def database(postgres_server):
    """Return the URL of an empty database."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


def pytest_terminal_summary(terminalreporter):
    """Print what could not run, and what tests measured.

    A test tells what it measured by `record_property("latency", ...)`.
    """
    groups = needs.skipped_groups(terminalreporter.getreports("skipped"))
    if groups:
        terminalreporter.section("not run on this machine")
        for (enable, what), number in sorted(groups.items()):
            tests = "1 test" if number == 1 else f"{number} tests"
            terminalreporter.line(f"{tests}: {what}; to run: {enable}")
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
