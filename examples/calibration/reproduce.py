"""Make everything in this folder again: two live runs, the calibration, and its check.

It takes five minutes and wants a machine with little else to do. Each run has a daemon of its own
with four imaginary GPUs; everything else is done by the commands that the guide shows.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROTA = (sys.executable, "-m", "rota.cli")
RUNS = {"fit": "tiresias:limits=6", "other": "srtf"}
PATIENCE_S = 30.0


def rota(*words: str, state: Path | None = None) -> None:
    """Run a command of Rota in this folder."""
    env = os.environ if state is None else os.environ | {"ROTA_STATE": str(state)}
    subprocess.run([*ROTA, *words], check=True, cwd=HERE, env=env)  # noqa: S603 - fixed words


def live(name: str, policy: str, state: Path, to: Path) -> None:
    """Let a daemon run the jobs of a csv, and export what it did."""
    serve = ("serve", "--nodes", "2x2", "--policy", policy, "--state", str(state))
    daemon = subprocess.Popen(  # noqa: S603 - fixed words
        [*ROTA, *serve, "--listen", "127.0.0.1:0", "--log-level", "warning"],
    )
    try:
        wait_for(state / "server.json")
        env = os.environ | {"ROTA_STATE": str(state)}
        script = [sys.executable, str(HERE / "submit_trace.py"), str(HERE / f"{name}.csv")]
        subprocess.run(script, check=True, env=env)  # noqa: S603 - our own script
        rota("export", "--force", "-o", str(to / f"{name}-live"), state=state)
    finally:
        daemon.terminate()
        daemon.wait()


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    end_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > end_s:
            sys.exit(f"{path} does not appear")
        time.sleep(0.05)


def main() -> None:
    """Run, export, calibrate, check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-report", action="store_true", help="from the runs that are here")
    options = parser.parse_args()
    if not options.only_report:
        with tempfile.TemporaryDirectory(prefix="rota-") as scratch:
            for name, policy in RUNS.items():
                live(name, policy, Path(scratch) / name, HERE)
    rota("calibrate", "fit-live", "--against", "other-live", "-o", "calibrated", "--force")


if __name__ == "__main__":
    main()
