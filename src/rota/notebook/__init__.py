"""Rota in a notebook: run, compare, look at it.

`simulate` and `compare` run, an `Experiment` is a whole matrix of runs, `tune` searches the best of
many with early stopping; `predict` says how predictable a log is, `load` reads a folder that was
written before, and `performance_report` writes a page about what runs inside a block. What they
return shows itself as a table; runs and comparisons have a `plot_...` method for every figure.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.notebook.comparison import Comparison
    from rota.notebook.experiment import Experiment
    from rota.notebook.performance import performance_report
    from rota.notebook.prediction import Predictability, predict
    from rota.notebook.result import Result
    from rota.notebook.run import compare, load, simulate
    from rota.notebook.tuning import TuneResult, tune

__all__ = [
    "Comparison",
    "Experiment",
    "Predictability",
    "Result",
    "TuneResult",
    "compare",
    "load",
    "performance_report",
    "predict",
    "simulate",
    "tune",
]

_HOMES = {
    "Comparison": "comparison",
    "Experiment": "experiment",
    "Predictability": "prediction",
    "Result": "result",
    "TuneResult": "tuning",
    "compare": "run",
    "load": "run",
    "performance_report": "performance",
    "predict": "prediction",
    "simulate": "run",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """What is there to be used, loaded or not."""
    return sorted(__all__)
