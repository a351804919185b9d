"""How tests are run: what a machine lacks is named, CI sees what a newcomer sees."""

import fcntl
import socket
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agents_net import eventually
from compiled_once import CompiledOnce, is_compiled
from shared_data import CHECKOUT

TESTS = CHECKOUT / "tests"
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a plugin is slow to import
PLUGINS = ("-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin")

LACKING = """
from needs import need

def test_one():
    need(False, "a GPU", "buy one")

def test_two():
    need(False, "a GPU", "buy one")

def test_three():
    need(True, "air", "breathe")
"""

PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_small(number):
    print("drawn", number)
    assert number < 1_000
"""


@pytest.fixture
def run(tmp_path):
    """Return `run(text, *flags)`: the exit status and output of pytest on one file of tests."""

    def run(text, *flags):
        (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\n")
        result = subprocess.run(
            [sys.executable, "-m", "pytest", *PLUGINS, *flags],
            cwd=tmp_path, env={"PATH": "", "HOME": str(tmp_path), **ALONE}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return result.returncode, result.stdout

    return run


def test_the_summary_names_what_is_missing_and_the_command_that_helps(run):
    status, out = run(LACKING)

    assert status == 0
    assert "not run on this machine" in out
    assert "2 tests: needs a GPU; to run: buy one" in out


def test_where_all_is_required_what_is_missing_fails(run):
    status, out = run(LACKING, "--require-all")

    assert status == 1
    assert "2 failed, 1 passed" in out


def test_a_failing_property_says_how_to_repeat_it_and_draws_anew(run):
    draws = []
    for _ in range(2):
        status, out = run(PROPERTY, "-s")
        assert status == 1
        assert "@reproduce_failure(" in out
        draws.append([line for line in out.splitlines() if line.startswith("drawn")][:30])

    assert draws[0] != draws[1]


def test_tests_are_compiled_after_a_run_until_they_change(run, tmp_path):
    run("def test_it():\n    assert 1")
    test = tmp_path / "test_it.py"
    assert is_compiled(tmp_path)
    (tmp_path / "test_new.py").write_text("")
    assert not is_compiled(tmp_path)
    (tmp_path / "test_new.py").unlink()
    test.touch()
    assert not is_compiled(tmp_path)


def waiters(file):
    """How many wait for a lock of this file, as the kernel says."""
    mine = f":{file.stat().st_ino} "
    return sum(
        "->" in line and mine in line for line in Path("/proc/locks").read_text().split("\n")
    )


def test_one_worker_compiles_and_the_others_collect_together_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # whatever the environment says
    (tmp_path / "test_it.py").write_text("")
    lock, order = tmp_path / "cache" / "lock", []

    def collect():
        collecting = CompiledOnce(lock, tmp_path).pytest_collection()
        next(collecting)
        return collecting

    def later():
        waiting.append(collect())
        order.append("another")

    first, waiting = collect(), []
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    others = [threading.Thread(target=later) for _ in range(2)]
    for each in others:
        each.start()
    eventually(lambda: waiters(lock) == len(others))  # else the later one would be a first one, too
    order.append("first")
    first.close()
    for each in others:
        each.join()
    assert order == ["first", "another", "another"]


def test_ci_starts_the_tests_with_a_clean_environment(tmp_path):
    """What `make` gets to see: nothing that a newcomer's shell does not have."""
    (tmp_path / "make").write_text('#!/bin/sh\necho "== $*"\nenv\n')
    (tmp_path / "make").chmod(0o755)
    result = subprocess.run(
        [CHECKOUT / ".ci" / "run"],
        env={
            "HOME": "/home/somebody", "PATH": f"{tmp_path}:/usr/bin:/bin", "LANG": "xx",
            "CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "PIP_CERT": "cert.pem",
            "https_proxy": "here:1",
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    last = lines[lines.index("== test TEST_FLAGS=--require-all") + 1 :]

    seen = {line.partition("=")[0] for line in last} - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert seen == {"HOME", "PATH", "LANG", "PIP_CERT", "https_proxy"}
    assert "LANG=C.UTF-8" in last
    assert [line for line in lines if line.startswith("==")][:2] == ["== system-deps", "== torch"]


def test_a_server_that_is_killed_before_the_handshake_is_no_warning():
    """Python leaves the socket open; see `filterwarnings`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()  # a reset, as of a process that is killed
    eventually(lambda: not connected(client))
    with pytest.raises(ConnectionResetError):
        ssl.create_default_context().wrap_socket(client, server_hostname="localhost")
    client.close()


def connected(sock):
    try:
        return bool(sock.getpeername())
    except OSError:
        return False
