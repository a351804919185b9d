"""Tables of numbers as short texts for pages: columns one after the other, compressed.

`src/rota/web/columns.js` reads them.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rota.core.eventlog import Floats

FINEST_S = 0.001
_LARGEST = 2_000_000_000  # what fits into 32 bits, with some to spare
_KINDS = {"<f4": "f4", "<f8": "f8", "<i4": "i4", "<u4": "u4", "<u2": "u2", "|u1": "u1"}


class Times:
    """Times in seconds, to be written as the steps between them: short if they rise."""

    def __init__(self, values: Any) -> None:
        self.values: Floats = np.asarray(values, dtype=np.float64)

    def steps(self) -> tuple[Any, float]:
        """(steps as whole numbers, the seconds that one of them stands for)."""
        most = float(np.abs(self.values).max(initial=0.0))
        unit = max(FINEST_S, most / _LARGEST)
        whole = np.rint(self.values / unit).astype(np.int64)
        return np.diff(whole, prepend=0).astype("<i4"), unit


def packed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of equal lengths (arrays of known kinds, or `Times`) as one text."""
    described: list[list[Any]] = []
    pieces: list[bytes] = []
    count = 0
    for name, column in columns.items():
        if isinstance(column, Times):
            values, unit = column.steps()
            described.append([name, "d4", unit])
        else:
            values = np.ascontiguousarray(column)
            described.append([name, _KINDS[values.dtype.str]])
        count = len(values)
        pieces.append(values.tobytes())
    text = base64.b64encode(zlib.compress(b"".join(pieces), 9)).decode("ascii")
    return {"n": count, "of": described, "zip": text}


def singles(values: Any) -> Any:
    """Numbers with about seven digits; what is missing is NaN."""
    return np.asarray(values, dtype=np.float64).astype("<f4")
