"""A stand-in for a training job: takes its time, and saves how far it is when asked to stop.

For rehearsals and tests. It is run as a script of its own (`command`), without importing Rota, so
that it starts quickly; what starting takes counts as work.
"""

import os
import signal
import sys
import time
from pathlib import Path


def command(work_s: float, checkpoint: Path) -> list[str]:
    """A command that works for so long in all, over as many runs as it takes."""
    return [sys.executable, "-I", "-S", __file__, repr(work_s), str(checkpoint)]


def main(work_s: float, checkpoint: Path) -> None:
    """Work until it is done (exit code 0), or save on SIGTERM (exit code 0 too)."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    before_s = float(checkpoint.read_text()) if checkpoint.exists() else 0.0
    _say(f"{before_s:.2f} of {work_s:g} s are done")
    left_s = work_s - before_s - _age_s()
    if left_s > 0 and signal.sigtimedwait({signal.SIGTERM}, left_s) is not None:
        done_s = before_s + _age_s()
        part = checkpoint.with_name(checkpoint.name + ".part")
        part.write_text(repr(done_s))
        part.replace(checkpoint)
        _say(f"asked to stop after {done_s:.2f} s")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _age_s() -> float:
    """Seconds since this process was made."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    born_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the machine was switched on
    return time.clock_gettime(time.CLOCK_BOOTTIME) - born_s


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
