"""A job that saves when it is asked to stop, resumes, and does its work exactly once.

Run as a script: `saving_job.py WORK_S FOLDER [FILE]`. Every run adds its id to FOLDER/runs, the one
that finishes the work adds a line to FOLDER/<job>.done. With FILE no work is done before that is
there. It imports nothing of Rota: it starts quickly.
"""

import os
import shlex
import signal
import sys
import time
from pathlib import Path


def script(work_s, folder, after=None):
    """The `run` of such a job."""
    words = [sys.executable, "-I", "-S", __file__, str(work_s), str(folder)]
    words += [] if after is None else [str(after)]
    return f"exec {shlex.join(words)}"


def add_line(path, line):
    """One write: lines of different processes do not mix."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def asked_to_stop(seconds):
    """Wait for so long; is it asked to stop meanwhile?"""
    return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None


def main(work_s, folder, after=None):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    add_line(folder / "runs", os.environ["ROTA_RUN_ID"])
    saved = Path(os.environ["ROTA_CHECKPOINT_DIR"]) / "seconds"
    done_s = float(saved.read_text()) if saved.exists() else 0.0
    while after is not None and not after.exists():
        if asked_to_stop(0.05):
            return
    began_s = time.monotonic()
    left_s = work_s - done_s
    if left_s > 0 and asked_to_stop(left_s):
        done_s = min(done_s + time.monotonic() - began_s, work_s - 0.001)  # not finished
    elif left_s > 0:
        add_line(folder / f"{os.environ['ROTA_JOB_ID']}.done", os.environ["ROTA_RUN_ID"])
        done_s = work_s
    part = saved.with_name("seconds.part")
    part.write_text(repr(done_s))
    part.replace(saved)


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(Path, sys.argv[2:]))
