"""Reading Parquet tables that others may have damaged."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rota.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

_STDERR = 2
_MOST_LETTERS = 120


def read_parquet(
    data: bytes, select: "list[pl.Expr]", problem: Callable[[str], InputError]
) -> "tuple[pl.DataFrame, dict[str, str]]":
    """These columns of a table, and what it says of itself; `problem` makes the error."""
    import polars as pl

    try:
        with _no_backtrace():
            frame = pl.read_parquet(io.BytesIO(data)).select(select)
            return frame, pl.read_parquet_metadata(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError, ValueError, MemoryError, OverflowError) as error:
        raise problem(str(error)[:_MOST_LETTERS]) from error
    except pl.exceptions.PanicException as error:
        raise problem("its bytes are damaged") from error


@contextmanager
def _no_backtrace() -> Iterator[None]:
    """Polars stops with a backtrace on stderr when bytes are damaged; an error tells it better."""
    kept = -1
    with suppress(OSError):
        kept = os.dup(_STDERR)
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
            os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        if kept >= 0:
            os.dup2(kept, _STDERR)
            os.close(kept)
