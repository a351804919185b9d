"""Fixtures of the tests that run real daemons."""

import shutil
from importlib.util import find_spec

import pytest

from daemon_process import DaemonProcess, serving
from needs import SYSTEM, need

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture(scope="module")
def browser():
    """Return Chromium; without it the tests are skipped (a failure in CI)."""
    chromium = shutil.which("chromium")
    need(chromium is not None, "Chromium", SYSTEM)
    need(find_spec("playwright") is not None, "the Python package playwright", "make test")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def daemons(tmp_path):
    """Return `make(*args)`: a running daemon; at the end nothing of it may be left."""
    made = []

    def make(*args, start=True, **options):
        daemon = DaemonProcess(tmp_path / f"daemon{len(made)}", *args, **options)
        made.append(daemon)
        return daemon.start() if start else daemon

    yield make
    problems = []
    for daemon in made:
        try:
            daemon.close()
        except Exception as error:  # noqa: BLE001 - the others have to be closed too
            problems.append(f"{type(error).__name__}: {error}")
    assert not problems, problems


@pytest.fixture(scope="module")
def common_daemon(tmp_path_factory):
    """Return a daemon that many tests use one after the other."""
    with serving(tmp_path_factory.mktemp("common"), "--nodes", "4x4", "--check") as daemon:
        yield daemon


@pytest.fixture
def daemon(common_daemon):
    """Return a running daemon with 4 nodes of 4 GPUs; no job of another test is there."""
    yield common_daemon
    common_daemon.clear()


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory):
    """Return a running daemon for questions that leave no traces."""
    with serving(tmp_path_factory.mktemp("shared"), "--nodes", "1x1") as daemon:
        yield daemon
