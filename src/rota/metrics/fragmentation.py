"""How scattered free GPUs are.

`free_on_used_nodes` is the share of free GPU-seconds on nodes that were partly in use: on such a
node a job that needs whole nodes finds no place. A node counts while it is up and open. What a
placement takes from a pool instead of nodes is nowhere, and then there is no such share.
"""

import numpy as np
import polars as pl

from rota.metrics.history import Floats, History, read_history
from rota.metrics.spare import SpareGpus

_LITTLE = 1e-9  # parts of GPUs are floats


def free_on_used_nodes(log: pl.DataFrame | History, from_s: float, until_s: float) -> float | None:
    """The share between two times; None when nothing was free, or nobody knows where it was."""
    history = read_history(log)
    nodes = SpareGpus(history).timelines()
    if nodes is None or not len(nodes.slot):
        return None
    starts_s = np.clip(history.time_s[nodes.row], from_s, until_s)
    ends_s = np.append(starts_s[1:], until_s)
    ends_s[np.append(np.diff(nodes.slot) != 0, True)] = until_s
    free: Floats = np.maximum(nodes.size - nodes.used, 0.0) * nodes.open
    free_gpu_s = free * (ends_s - starts_s)
    total = float(free_gpu_s.sum())
    return float(free_gpu_s[nodes.used > _LITTLE].sum()) / total if total else None
