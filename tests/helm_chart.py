"""Helm itself, where it was installed (`make helm`): what it makes of the chart of the examples."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHART = Path(__file__).parents[1] / "examples/kubernetes/chart"


def helm(*words, home, **variables):
    """Return what it prints; the test is skipped where there is none, also in CI."""
    beside = Path(sys.executable).with_name("helm")
    program = beside if beside.exists() else shutil.which("helm")
    if not program:
        pytest.skip("needs Helm | make helm")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, env=env, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
