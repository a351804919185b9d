"""Work for other processes, which find it by its name."""

import os
import signal

from rota.study.pool import report


def double(item):
    report(1, 2)
    if item == "wrong":
        raise ValueError(item)
    if item == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * item


class TwoPartError(Exception):
    """As many are: it cannot be made again from its message alone."""

    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")


def awkward(item):
    """Fail, or answer, in a way that cannot be sent as it is."""
    if item == "error":
        raise TwoPartError("the policy", "is odd")
    return (lambda: item) if item == "answer" else item
