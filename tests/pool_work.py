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
