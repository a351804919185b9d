"""Rota: deep-learning jobs, simulated exactly or run for real, with the same policy object.

For notebooks and scripts: `rota.simulate`, `rota.compare`, `rota.Experiment`, `rota.tune`,
`rota.predict`, `rota.load` (see `rota.notebook`). They are loaded when they are first used, so that
`import rota` stays quick and a job that imports `rota.job` loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.notebook import (
        Comparison,
        Experiment,
        Predictability,
        Result,
        TuneResult,
        compare,
        load,
        performance_report,
        predict,
        simulate,
        tune,
    )

    __version__: str

__all__ = [
    "Comparison",
    "Experiment",
    "Predictability",
    "Result",
    "TuneResult",
    "__version__",
    "compare",
    "load",
    "performance_report",
    "predict",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    """The version, and the interface for notebooks from `rota.notebook`."""
    if name not in __all__:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    from importlib import import_module

    if name == "__version__":
        return import_module("rota.core.version").VERSION
    return getattr(import_module("rota.notebook"), name)


def __dir__() -> list[str]:
    """What is there to be used, loaded or not."""
    return sorted(__all__)
