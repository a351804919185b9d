"""Folds over the event log: what a run was like, computed from nothing but its log.

`read_history(log)` turns the flat log into spans of jobs' lives; `fold_jobs` (a row per job),
`fold_summary` (the numbers of a run), `fold_delay` (waiting by reason) and `fold_ledger`
(GPU-seconds by use) take the log or its history. Definitions are in the modules' docstrings.
"""

from rota.metrics.delay import fold_delay
from rota.metrics.history import History, read_history
from rota.metrics.jobs import fold_jobs, write_jobs
from rota.metrics.ledger import fold_ledger
from rota.metrics.summary import fold_summary
from rota.metrics.window import Window

__all__ = [
    "History",
    "Window",
    "fold_delay",
    "fold_jobs",
    "fold_ledger",
    "fold_summary",
    "read_history",
    "write_jobs",
]
