"""What `rota.report.columns` packs, unpacked again."""

import base64
import zlib

import numpy as np


def unpacked(found):
    """What `packed` wrote, as arrays by name."""
    content = zlib.decompress(base64.b64decode(found["zip"]))
    at, columns = 0, {}
    for name, kind, *unit in found["of"]:
        size = found["n"] * int(kind[1])
        dtype = "<i4" if kind == "d4" else f"<{kind}"
        values = np.frombuffer(content[at : at + size], dtype=dtype)
        columns[name] = np.cumsum(values.astype(np.int64)) * unit[0] if unit else values
        at += size
    return columns
