"""A job with known costs, to check a calibration: it works for so long in all, over all its runs.

What it costs to start is planted in the job file (`setup: sleep 2`), what it costs to stop here: it
needs `--stop-s` seconds to save. A killed run loses what it did since it began.
"""

import argparse
import time

from rota import job

TICK_S = 0.02


def main() -> None:
    """Work, a tick at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float, help="to work in all")
    parser.add_argument("--stop-s", type=float, default=0.0, help="that saving takes")
    options = parser.parse_args()
    job.install()
    done_s = float(job.load() or b"0")
    began_s = time.monotonic() - done_s
    while done_s < options.seconds:
        time.sleep(max(0.0, min(TICK_S, options.seconds - done_s)))
        done_s = time.monotonic() - began_s
        job.report(step=done_s)
        if job.should_stop():
            time.sleep(options.stop_s)
            job.save(repr(done_s).encode(), step=job.info().restart_count)
            job.exit_for_restart()


if __name__ == "__main__":
    main()
