"""The same work on many things, in several processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from agents_net import eventually
from pool_work import awkward, double
from rota.core.errors import RotaError
from rota.study.pool import DeadWorkerError, each

SCRIPT = """
import os, sys, time
from contextlib import closing
from pathlib import Path
from rota.study import pool

READ = {}


def work(item):
    return READ.get("jobs"), os.getpid(), os.getppid()


def hang(item):
    Path(f"begun-{os.getpid()}").touch()
    time.sleep(3600)


if __name__ == "__main__":
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_results_and_errors_come_with_their_numbers(workers):
    found = dict(each(double, [1, "wrong", 3, 4], workers))

    assert isinstance(found.pop(1), ValueError)
    assert found == {0: 2, 2: 6, 3: 8}


def test_a_process_that_dies_takes_only_its_own_item_with_it():
    found = dict(each(double, [1, "deadly", 3], 2))

    assert isinstance(found[1], DeadWorkerError)
    assert str(found.pop(1)) == "its process died (killed by SIGKILL: out of memory?)"
    assert found == {0: 2, 2: 6}


def test_what_cannot_be_sent_is_an_error_of_its_own_item():
    found = dict(each(awkward, ["error", "answer", 3], 2))

    assert isinstance(found[0], RotaError)
    assert str(found[0]) == "TwoPartError: the policy: is odd"
    assert isinstance(found[1], RotaError)
    assert not isinstance(found[1], DeadWorkerError)
    assert found[2] == 3


def test_one_item_may_be_done_apart():
    ((number, died),) = each(double, ["deadly"], 1, apart=True)

    assert number == 0
    assert isinstance(died, DeadWorkerError)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_half_done_counts_as_a_half(workers):
    told = []
    list(each(double, [1, 2], workers, told=told.append))

    assert told[-1] == 2
    assert told == sorted(told)
    if workers == 1:
        assert told == [0.5, 1, 1.5, 2]


def test_nothing_to_do():
    assert list(each(double, [], 2)) == []


# --- forked processes: in a process without threads, which this one may not be --------------------


@pytest.fixture
def script(tmp_path):
    """Return `script(code)`: a process that runs it, in an empty folder."""
    started = []

    def start(code):
        (tmp_path / "script.py").write_text(SCRIPT + textwrap.indent(code, "    "))
        started.append(
            subprocess.Popen(
                [sys.executable, "script.py"], cwd=tmp_path, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_processes_share_what_was_read_before(script):
    process = script(
        "READ['jobs'] = 17\n"
        "found = [answer for _, answer in pool.each(work, range(4), 2)]\n"
        "assert {jobs for jobs, _, _ in found} == {17}, found\n"
        "assert {parent for _, _, parent in found} == {os.getpid()}\n"
        "assert os.getpid() not in {own for _, own, _ in found}\n"
    )
    _, err = process.communicate()

    assert process.returncode == 0, err


def test_once_polars_has_computed_processes_are_started_anew(script):
    process = script(
        "import polars as pl\n"
        "assert pool._can_fork()\n"
        "pl.DataFrame({'a': [1, 2]}).write_csv('a.csv')\n"
        "assert not pool._can_fork()\n"
        "READ['jobs'] = 17\n"
        "found = [answer for _, answer in pool.each(work, range(3), 2)]\n"
        "assert {jobs for jobs, _, _ in found} == {None}, found\n"
    )
    _, err = process.communicate()

    assert process.returncode == 0, err


def test_an_interruption_ends_all(script, tmp_path):
    process = script("list(pool.each(hang, range(4), 2))\n")
    begun = eventually(lambda: found if len(found := list(tmp_path.glob("begun-*"))) == 2 else None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert process.returncode == -signal.SIGINT
    assert err.count("KeyboardInterrupt") == 1
    assert not any(os.path.exists(f"/proc/{path.name[6:]}") for path in begun)  # noqa: PTH110


def test_leaving_early_ends_what_is_going_on():
    with closing(each(double, range(100), 2)) as found:
        next(found)


def test_a_comparison_in_several_processes_gives_the_same_bytes(tmp_path):
    trace = "generate:poisson:jobs=300,load=1.2,seed=3"
    for jobs in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "rota.cli", "compare", trace, "--cluster", "2x8", "--jobs", jobs,
             "--policy", "fifo", "--policy", "srtf", "--policy", "easy", "-o", f"in{jobs}"],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    for policy in ("fifo", "srtf", "easy"):
        for name in ("jobs.csv", "events.parquet"):
            one, two = (tmp_path / f"in{jobs}" / policy / name for jobs in (1, 2))
            assert one.read_bytes() == two.read_bytes()
    one, two = (
        json.loads((tmp_path / f"in{jobs}" / "compare.json").read_text()) for jobs in (1, 2)
    )
    assert one["rows"] == two["rows"]
    assert one["rows"][1]["measures"]["p95_jct_s"]["low"] is not None
