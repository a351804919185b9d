"""A driver whose jobs take their time to end, and how to wait for what a daemon does."""

import time

from agents_net import PATIENCE_S
from rota.live.drivers.pretend import PretendDriver


class Slow(PretendDriver):
    """Whoever is asked to end takes its time, until it is let go."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def halt(self, run):
        self.asked.append(run)

    def kill(self, run):
        self.asked.append(run)

    def let_go(self):
        for run in self.asked:
            super().halt(run)


def until(look, wanted, longest_s=PATIENCE_S):
    """Wait until a look shows what is wanted."""
    end_s = time.monotonic() + longest_s
    while time.monotonic() < end_s:
        found = look()
        if wanted(found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {look()}")


def state(daemon, actor, job, *states):
    return until(lambda: daemon.job(job, actor), lambda info: info.state in states)
