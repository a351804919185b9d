"""Reading and handing over tables."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from rota.core.errors import InputError, RotaError


def as_pandas(table: pl.DataFrame) -> Any:
    """A table for pandas, which is not a dependency."""
    try:
        return table.to_pandas()
    except ImportError as error:  # polars wants pandas and pyarrow
        raise RotaError(
            f"a pandas table needs pandas and pyarrow ({error}): "
            f"install them with `pip install pandas pyarrow`, or use to_polars()"
        ) from error


def read_json(path: Path, maker: str) -> dict[str, Any]:
    """A JSON object from a folder that a command made."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `{maker}` made"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}): run `{maker}` again") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds no JSON object: run `{maker}` again")
    return data
