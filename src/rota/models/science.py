"""SciPy (`rota[solve]`), imported where it is used."""

import os
from importlib import import_module
from typing import Any

from rota.core.errors import OptionError, install


def scipy_module(name: str, purpose: str) -> Any:
    """A module of SciPy, e.g. `optimize`; its linear algebra has one thread.

    Fits and interpolations are tiny: with more threads they take many times the processor time.
    The library asks once, when it is loaded; who has set another number keeps it.

    Raises:
        OptionError: SciPy is not installed; `purpose` says what needs it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return import_module(f"scipy.{name}")
    except ImportError as error:
        raise OptionError(f"{purpose} needs SciPy ({error}): {install('solve')}") from error
