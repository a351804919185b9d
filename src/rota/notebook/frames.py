"""Reading and handing over tables."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import polars as pl
from polars.exceptions import PolarsError

from rota.core.errors import InputError, OptionError, RotaError, TraceError
from rota.core.registry import unknown

Jobs: TypeAlias = str | Path | pl.DataFrame | pl.LazyFrame | Any
"""Where the jobs of a run are: a file, or a table (`Any`: of pandas, which is no dependency)."""
_PLAIN = "csv"


@contextmanager
def jobs_file(trace: Jobs, beside: Path | None, format_text: str | None) -> Iterator[str | Path]:
    """The file that holds the jobs of a run; one is written for a table.

    Args:
        trace: A file or a table.
        beside: Results of the run, which the file of a table goes along with; None: it is gone when
            the context is left.
        format_text: The format that was asked for.
    """
    if isinstance(trace, (str, Path)):
        yield trace
        return
    table = _checked(trace, format_text)
    with TemporaryDirectory(prefix="rota-") as folder:
        path = Path(folder) / "jobs.csv"
        _write(table, path)
        if beside is not None:
            path = beside.with_name(f"{beside.name}.jobs.csv")
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(table, path)
        try:
            yield path
        except BaseException as error:
            if beside is not None:
                path.unlink(missing_ok=True)
            if isinstance(error, InputError):
                raise type(error)(_in_words_of_tables(str(error), path)) from error
            raise


def _checked(trace: Any, format_text: str | None) -> Any:
    """A table with the columns of the csv format."""
    from rota.traces.formats.plain import LAYOUT

    if isinstance(trace, pl.LazyFrame):
        trace = trace.collect()
    if not isinstance(trace, pl.DataFrame) and not hasattr(trace, "to_csv"):
        raise OptionError(
            f"trace: a {type(trace).__name__} is neither a file nor a table: give a path, or a "
            f"DataFrame of polars or pandas"
        )
    name, _, options = (format_text or _PLAIN).partition(":")
    if name != _PLAIN:
        raise OptionError(f"format {format_text!r}: a table is always in the format csv: leave it")
    titles = [str(title) for title in trace.columns]
    names = LAYOUT.names_of(titles)
    for column in LAYOUT.needed:
        if column not in names:
            raise TraceError(
                f"the table has no column {column!r}: add it or rename one (it has "
                f"{', '.join(titles) or 'no columns'})"
            )
    for title, known in zip(titles, names, strict=True):
        if not known and "ignore" not in options:
            raise TraceError(
                f"the table: {unknown('column', title, LAYOUT.titles)}; drop it, or ignore all "
                f"unknown columns with format='csv:ignore=yes'"
            )
    if not len(trace):
        raise TraceError("the table has no rows: there is nothing to run")
    return trace


def _write(table: Any, path: Path) -> None:
    if not isinstance(table, pl.DataFrame):
        table.to_csv(path, index=False)
        return
    try:
        table.write_csv(path)
    except PolarsError as error:
        raise TraceError(f"the table cannot be written as CSV ({error}): flatten it") from error


def _in_words_of_tables(message: str, path: Path) -> str:
    """`jobs.csv: line 3` is the second row of the table, which is number 1."""

    def row(found: re.Match[str]) -> str:
        return f"the table: row {int(found[1]) - 2}"

    message = re.sub(rf"{re.escape(str(path))}: line (\d+)", row, message)
    return message.replace(str(path), "the table")


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
