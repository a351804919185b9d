"""A plain training script with `rota.job`: one process, no framework.

It walks towards the minimum of a function. Preempted, it saves and leaves; started again, it goes
on where it was, and ends with the same number as a run that was never interrupted.
"""

import argparse
import json
import time

from rota import job


def main() -> None:
    """Walk, step by step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-s", type=float, default=0.1)
    options = parser.parse_args()
    job.install()
    saved = job.load()
    state = json.loads(saved) if saved else {"step": 0, "x": 8.0}
    print(f"begins at step {state['step']}", flush=True)
    while state["step"] < options.steps:
        state["x"] -= 0.1 * (state["x"] - 3.0)
        state["step"] += 1
        time.sleep(options.step_s)
        job.report(step=state["step"], loss=(state["x"] - 3.0) ** 2)
        if job.should_stop():
            job.save(json.dumps(state).encode(), step=state["step"])
            print(f"stopped at step {state['step']}, {job.seconds_left():.1f} s left", flush=True)
            job.exit_for_restart()
    job.save(json.dumps(state).encode(), step=state["step"])
    print(f"done at step {state['step']}, x {state['x']!r}", flush=True)


if __name__ == "__main__":
    main()
