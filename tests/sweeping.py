"""The command `rota sweep` in a process of its own, for tests."""

import subprocess
import sys
from pathlib import Path

COMMAND = [str(Path(sys.executable).with_name("rota")), "sweep"]


def rota_sweep(*args, cwd, **kwargs):
    """Run it to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False, **kwargs
    )


def tables(folder):
    """Return the bytes of the results of a sweep."""
    return [(folder / f"results.{kind}").read_bytes() for kind in ("csv", "parquet")]
