"""CSV files as columns, checked column by column; every error names file, line, column and value.

The standard parser is used on purpose: for the 82,247 rows of Philly it costs less CPU than the
import of a data-frame library, and the line number of a row stays exact whatever is quoted.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from rota.core.errors import InputError, TraceError
from rota.core.registry import unknown
from rota.traces.format import decode, read_bytes, separated, shortened

if TYPE_CHECKING:
    from _csv import Reader

_CHUNK_ROWS = 20_000
_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0"})


class Schema(msgspec.Struct, frozen=True):
    """The columns of a format; `synonyms` maps other titles to them."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    synonyms: dict[str, str] = {}
    remedy: str = ""  # how to go on in spite of an unknown column

    @property
    def known(self) -> list[str]:
        """All titles that are understood."""
        return [*self.required, *self.optional, *self.synonyms]


class Rule(msgspec.Struct, frozen=True):
    """Which numbers a column may hold; they are always finite."""

    least: float = -inf
    above: float = -inf
    whole: bool = False

    def problem(self, value: float) -> str:
        """Why the number is refused, with the remedy; empty when it is fine."""
        if not isfinite(value):
            return "is not a finite number: give a plain number"
        if value < self.least:
            return f"is less than {self.least:g}: give {self.least:g} or more"
        if value <= self.above:
            return f"is not more than {self.above:g}: give more than {self.above:g}"
        if self.whole and value != int(value):
            return "is not a whole number: give one"
        return ""


class Table:
    """The cells of a CSV file as text, by column; rows are counted from 0 without the header."""

    def __init__(
        self, path: Path, text: str, columns: dict[str, list[str]], titles: dict[str, str]
    ) -> None:
        self.path = path
        self.columns = columns
        self._text = text
        self._titles = titles
        self.error: type[InputError] = TraceError

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def texts(self, name: str) -> list[str]:
        """A column of texts without surrounding blanks; all empty when the column is absent."""
        if name not in self.columns:
            return [""] * len(self)
        shared: dict[str, str] = {}
        return [shared.setdefault(text, text) for text in map(str.strip, self.columns[name])]

    def keys(self, name: str) -> list[str]:
        """A column of texts that are there and differ."""
        values = list(map(str.strip, self.columns[name]))
        if "" in values:
            self.fail(values.index(""), name, "is empty: give every row its own")
        if len(set(values)) != len(values):
            self._refuse_twin(name, values)
        return values

    def numbers(self, name: str, rule: Rule, default: float | None = None) -> list[float]:
        """A column of numbers; an empty cell (or absent column) is the default, if there is one."""
        if name not in self.columns and default is not None:
            return [default] * len(self)
        texts = self.columns[name]
        try:
            if default is None:
                values = list(map(float, texts))
            else:
                values = [float(text) if text else default for text in texts]
        except ValueError:
            self._refuse_text(name, texts, optional=default is not None)
        if "_" in ",".join(texts):  # float() takes 12_3, which is rather an array job's id
            self.refuse(
                name, ["_" in text for text in texts], "is not a number: give a plain number"
            )
        if not _all_fine(values, rule):
            for row, value in enumerate(values):
                if texts[row] and (problem := rule.problem(value)):
                    self.fail(row, name, problem)
        return values

    def flags(self, name: str, *, default: bool) -> list[bool]:
        """A column of true/false (or yes/no, 1/0)."""
        values = []
        for row, text in enumerate(self.texts(name)):
            lower = text.lower()
            if lower and lower not in _TRUE and lower not in _FALSE:
                self.fail(row, name, "is neither true nor false: give one of them")
            values.append(lower in _TRUE if lower else default)
        return values

    def refuse(self, name: str, wrong: Sequence[bool], problem: str) -> None:
        """Fail at the first row that is wrong, if any."""
        if True in wrong:
            self.fail(wrong.index(True), name, problem)

    def fail(self, row: int, name: str, problem: str) -> NoReturn:
        """Refuse a cell."""
        title = self._titles.get(name, name)
        value = shortened(self.columns[name][row])
        raise self.error(
            f"{self.path}: line {self.line(row)}, column {title!r}: {value!r} {problem}"
        )

    def line(self, row: int) -> int:
        """The 1-based line of the file on which a row starts."""
        return next(islice(_starts(self._text), row + 1, None))

    def _refuse_text(self, name: str, texts: list[str], *, optional: bool) -> NoReturn:
        row = next(row for row, text in enumerate(texts) if not _is_number(text, optional=optional))
        problem = "is not a number: give a plain number"
        self.fail(row, name, problem if texts[row].strip() else "is empty: give a number")

    def _refuse_twin(self, name: str, values: list[str]) -> NoReturn:
        first: dict[str, int] = {}
        for row, value in enumerate(values):
            if value in first:
                line = self.line(first[value])
                self.fail(row, name, f"occurs twice (first on line {line}): give every row its own")
            first[value] = row
        raise AssertionError("no twin")  # pragma: no cover - called only when there is one


def read_table(
    path: Path, schema: Schema, *, ignore: bool = False, error: type[InputError] = TraceError
) -> Table:
    """Read a CSV file; unknown columns are refused unless they are to be ignored."""
    text = decode(read_bytes(path, error), path, error)
    reader = _reader(text)
    try:
        records = filter(None, reader)
        titles = [title.strip() for title in next(records)]
        names = _names(path, titles, schema, error, ignore=ignore)
        cells, ragged = _cells(records, len(titles))
    except csv.Error as problem:
        raise error(
            f"{path}: line {reader.line_num}: is not CSV ({problem}): close every quote"
        ) from problem
    if not (cells[0] or ragged):
        raise error(f"{path}: has a header but no rows: add at least one")
    wanted = {name: index for index, name in enumerate(names) if name}
    table = Table(
        path,
        text,
        {name: cells[index] for name, index in wanted.items()},
        {name: titles[index] for name, index in wanted.items()},
    )
    table.error = error
    if ragged:
        raise error(
            f"{path}: line {table.line(len(table))}: has {len(ragged)} fields but the header has "
            f"{len(titles)}: complete the line, and quote fields that contain commas"
        )
    return table


def _names(
    path: Path, titles: list[str], schema: Schema, error: type[InputError], *, ignore: bool
) -> list[str]:
    """What each column means; empty for one that is ignored."""
    names: list[str] = []
    for title in titles:
        name = schema.synonyms.get(title, title)
        if name not in schema.required and name not in schema.optional:
            if not ignore:
                _refuse_title(path, title, titles, schema, error)
            name = ""
        if name and name in names:
            other = titles[names.index(name)]
            raise error(f"{path}: line 1: columns {other!r} and {title!r} mean the same: keep one")
        names.append(name)
    for name in schema.required:
        if name not in names:
            raise error(
                f"{path}: line 1: there is no column {name!r}: add it "
                f"(the file has {', '.join(titles)})"
            )
    return names


def _refuse_title(
    path: Path, title: str, titles: list[str], schema: Schema, error: type[InputError]
) -> NoReturn:
    if separated(title):
        raise error(f"{path}: line 1: {separated(title)}")
    said = {schema.synonyms.get(each, each) for each in titles}
    missing = [name for name in schema.required if name not in said]
    remedy = f"; or {schema.remedy}" if schema.remedy else ""
    if missing:  # to ignore columns would not help
        remedy = f"; there is no column {missing[0]!r}: add it or rename one"
    raise error(f"{path}: line 1: {unknown('column', title, schema.known)}{remedy}")


def _cells(records: Iterator[list[str]], width: int) -> tuple[list[list[str]], list[str]]:
    """Columns up to the first record of another width, and that record.

    They are turned chunk by chunk, so that not every row is in memory as a list of its own.
    """
    columns: list[list[str]] = [[] for _ in range(width)]
    ragged: list[str] = []
    while not ragged and (chunk := list(islice(records, _CHUNK_ROWS))):
        if set(map(len, chunk)) != {width}:
            row = next(row for row, record in enumerate(chunk) if len(record) != width)
            ragged = chunk[row]
            del chunk[row:]
        for column, cells in zip(columns, zip(*chunk, strict=True), strict=False):
            column.extend(cells)
    return columns, ragged


def _reader(text: str) -> "Reader":
    return csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)


def _starts(text: str) -> Iterator[int]:
    """The line on which each record starts, the header's first."""
    reader = _reader(text)
    before = 0
    for record in reader:
        if record:
            yield before + 1
        before = reader.line_num


def _all_fine(values: list[float], rule: Rule) -> bool:
    """A quick look at a whole column; False means that each value must be looked at."""
    if not values:
        return True
    smallest = min(values)
    quick = isfinite(sum(values)) and smallest >= rule.least and smallest > rule.above
    return quick and (not rule.whole or all(map(float.is_integer, values)))


def _is_number(text: str, *, optional: bool) -> bool:
    try:
        float(text)
    except ValueError:
        return optional and not text
    return True
