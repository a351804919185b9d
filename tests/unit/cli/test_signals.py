"""A program that works in another thread hears signals at once."""

import subprocess
import sys
import time

import pytest

SCRIPT = """
import signal, sys, threading
from rota.cli.signals import work_until_done

done = threading.Event()

def work():
    print("works", flush=True)
    done.wait()

def stop(number):
    print("heard", number, flush=True)
    done.set()

work_until_done(work, {signal.SIGTERM: stop})
print("ended", flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.01, 0.05])
def test_a_signal_ends_the_work(delay_s):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout.readline() == "works\n"
        time.sleep(delay_s)
        program.terminate()
        out, _ = program.communicate(timeout=300)
    assert out == "heard 15\nended\n"
    assert program.returncode == 0


def test_what_the_work_raises_is_raised():
    script = "from rota.cli.signals import work_until_done\nwork_until_done(lambda: 1 / 0, {})"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 1
    assert "ZeroDivisionError" in found.stderr
