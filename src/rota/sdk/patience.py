"""When to try again, and when to give up."""

import random
import time
from collections.abc import Callable

LONGEST_S = 2.0
MOST_ASKED_S = 5.0  # of what a server may ask for with Retry-After


class Patience:
    """Waits that grow, until a time is over.

    A little chance in them keeps many clients from coming back in step.
    """

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_s = total_s
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Something worked: begin anew."""
        self._until_s = self._clock() + self._total_s
        self._next_s = 0.05

    def wait_s(self, asked_s: float = 0.0) -> float | None:
        """Seconds to wait before trying again; None: give up."""
        wait = self._next_s * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
        wait = max(wait, min(asked_s, MOST_ASKED_S))
        self._next_s = min(self._next_s * 2, LONGEST_S)
        return wait if self._clock() + wait <= self._until_s else None


def asked_s(header: str | None) -> float:
    """Seconds of a Retry-After header."""
    return float(header) if header and header.isascii() and header.isdecimal() else 0.0
