"""A CSV job table is imported quickly and in bounded memory.

The limits are generous: `benchmarks/traces.py` measures three million rows on one core.
"""

import subprocess
import sys

import pytest

from shared_data import CHECKOUT


@pytest.mark.soak
def test_a_table_of_200_000_jobs():
    """In a process of its own: the peak of memory is that of the import alone."""
    script = CHECKOUT / "benchmarks" / "traces.py"
    done = subprocess.run(
        [sys.executable, script, "200000"], capture_output=True, text=True, check=True, timeout=300
    )
    words = done.stdout.replace(",", "").split()
    rows, rate, peak_mib = float(words[0]), float(words[5]), float(words[8])
    assert rows == 200_000
    assert rate > 100_000, done.stdout
    assert peak_mib < 512, done.stdout
