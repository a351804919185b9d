"""The command `rota sweep` in a process of its own, for tests."""

import subprocess
import sys

SCRIPT = """\
from rota.cli.app import main, rota
from rota.cli.sweep import sweep

rota.add_command(sweep)
main()
"""
COMMAND = [sys.executable, "-c", SCRIPT, "sweep"]


def rota_sweep(*args, cwd, **kwargs):
    """Run it to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False, **kwargs
    )


def tables(folder):
    """Return the bytes of the results of a sweep."""
    return [(folder / f"results.{kind}").read_bytes() for kind in ("csv", "parquet")]
