"""Big tables in bounded memory: a CSV file as a series of frames with checked types.

`read_chunks` yields one Polars frame per block of the file. Every row is counted: in a frame, or as
dropped with a reason. A cell that cannot be used is refused with file, line, column, value and
remedy, unless the user asked to drop such rows (`bad=drop`).
"""

import csv
import io
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import msgspec

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.format import decode
from rota.traces.sources import blocks

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["text", "number", "time"]
Bad = Literal["refuse", "drop"]

MISSING = ("", "None", "NaN", "nan", "null", "NULL", "NA", "N/A", "Unknown")
_TEXT_MISSING = ("None", "null", "NULL")
_TIME = "%Y-%m-%d %H:%M:%S"
_EXAMPLE = "YYYY-MM-DD HH:MM:SS"
MAX = 1e300


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: Kind = "text"
    required: bool = False  # every row must have a value; the column must be there in any case
    optional: bool = False  # the column may be absent (all rows lack a value then)
    least: float = -inf  # of a number
    most: float = inf
    other: tuple[str, ...] = ()  # other titles of the same column


class Layout(msgspec.Struct, frozen=True):
    """The columns of a format, in the order that a file without a header has."""

    columns: tuple[Column, ...]
    separator: str = ","
    headerless: bool = False  # a file may come without its header
    times: str = _TIME
    missing: tuple[str, ...] = MISSING  # how a number or time that is not known is written
    no_text: tuple[str, ...] = _TEXT_MISSING  # and a text, beside an empty one

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def names_of(self, titles: Sequence[str]) -> list[str]:
        """The name of the column behind each title; empty for one that is not known."""
        meaning = {
            title: column.name for column in self.columns for title in (column.name, *column.other)
        }
        return [meaning.get(title.strip(), "") for title in titles]


class Chunks:
    """A table that is being read.

    `quality` counts its rows, `titles` are those of its columns, `unused` those without a use here.
    """

    def __init__(
        self, path: Path, layout: Layout, *, bad: Bad = "refuse", quality: Quality | None = None
    ) -> None:
        self.path = path
        self.layout = layout
        self.bad = bad
        self.quality = Quality() if quality is None else quality
        self.unused: list[str] = []
        self.titles: list[str] = []
        self._names: list[str] = []
        self._line = 1  # of the file, on which the present block starts
        self._block = b""

    def __iter__(self) -> "Iterator[pl.DataFrame]":
        for number, block in enumerate(blocks(self.path, TraceError)):
            decode(block, self.path, TraceError)
            self._block = block
            if not number:
                self._start(block)
            if self._block.strip():
                quick = self._quickly()
                yield self._typed(self._cells()) if quick is None else quick
            self._line += self._block.count(b"\n")
        if not self._names:
            raise TraceError(f"{self.path}: is empty: it needs at least one row")
        if not self.quality.rows:
            raise TraceError(f"{self.path}: has a header but no rows: add at least one")

    # --- the header ---------------------------------------------------------------------------

    def _start(self, block: bytes) -> None:
        """Find out what the columns are; the block goes on after the header."""
        skipped = len(block) - len(block.lstrip(b"\r\n"))
        end = block.find(b"\n", skipped)
        end = len(block) if end < 0 else end + 1
        first = next(iter(self._records(block[skipped:end])), [])
        names = self.layout.names_of(first)
        self._line += block.count(b"\n", 0, skipped)
        if any(names) or not self.layout.headerless:
            self.titles = [title.strip() for title in first]
            self._names = names
            self._line += 1
            self._block = block[end:]
        else:
            self._headerless(first)
            self._block = block[skipped:]
        self._check_header()

    def _headerless(self, first: list[str]) -> None:
        wanted = list(self.layout.names)
        while len(first) > len(wanted) and not first[-1].strip():
            first = first[:-1]
        if len(first) != len(wanted):
            raise TraceError(
                f"{self.path}: line {self._line}: has {len(first)} fields, but this table has "
                f"{len(wanted)} ({', '.join(wanted)}): check that it is the right file"
            )
        self.titles = self._names = wanted

    def _check_header(self) -> None:
        named = list(filter(None, self._names))
        for name in named:
            if named.count(name) > 1:
                raise TraceError(
                    f"{self.path}: line {self._line - 1}: column {name!r} is there twice: keep one"
                )
        for column in self.layout.columns:
            if column.name not in named and not column.optional:
                raise TraceError(
                    f"{self.path}: line {max(1, self._line - 1)}: there is no column "
                    f"{column.name!r}: add it (the file has {', '.join(self.titles[:20])})"
                )
        pairs = zip(self.titles, self._names, strict=True)
        self.unused = [title for title, name in pairs if title and not name]

    # --- cells --------------------------------------------------------------------------------

    def _quickly(self) -> "pl.DataFrame | None":
        """The block as values when there is nothing odd in it; None when there is."""
        import polars as pl

        numbers = [column for column in self.layout.columns if column.kind == "number"]
        cells = self._parsed([column.name for column in numbers])
        if cells is None or cells.select(pl.all_horizontal(pl.all().is_null()).any()).item():
            return None
        values = self._values(cells)
        for column in self.layout.columns:
            if column.name in cells.columns and not _clean(
                values[column.name], column, gaps=column.kind == "number" and not column.required
            ):
                return None
        self.quality.rows += values.height
        return values

    def _cells(self) -> "pl.DataFrame":
        """The block as texts; with the standard parser when there is anything odd."""
        frame = self._parsed(())
        return self._slowly(self._columns()) if frame is None else self._without_blanks(frame)

    def _columns(self) -> list[str]:
        return [name or f"_unused{index}" for index, name in enumerate(self._names)]

    def _parsed(self, numbers: Sequence[str]) -> "pl.DataFrame | None":
        """The block by the quick parser, these columns as numbers; None when it cannot do it."""
        import polars as pl

        block = self._block
        names = self._columns()
        odd = b'"' in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n"))
        if odd or len(names) == 1:
            return None
        head = self.layout.separator.join(names).encode() + b"\n"
        try:
            frame = pl.read_csv(
                head + block,
                separator=self.layout.separator,
                quote_char=None,
                infer_schema=False,
                schema_overrides={name: pl.Float64 for name in numbers if name in names},
            )
        except pl.exceptions.PolarsError:
            return None
        return frame.select(self._known(frame))

    @staticmethod
    def _known(frame: "pl.DataFrame") -> list[str]:
        return [name for name in frame.columns if not name.startswith("_unused")]

    def _without_blanks(self, frame: "pl.DataFrame") -> "pl.DataFrame":
        """Empty lines are no rows; a row of nothing but separators is one, and refused later."""
        import polars as pl

        empty = pl.all_horizontal(pl.all().is_null())
        if frame.select(empty.any()).item():
            lines = self._block.splitlines()
            blank = pl.Series([not line.strip() for line in lines], dtype=pl.Boolean)
            if len(blank) == frame.height:
                frame = frame.filter(~blank)
        self.quality.rows += frame.height
        return frame

    def _slowly(self, names: list[str]) -> "pl.DataFrame":
        import polars as pl

        width = len(names)
        rows: list[list[str]] = []
        wrong = 0
        for number, record in enumerate(self._records(self._block)):
            if len(record) > width and any(cell.strip() for cell in record[width:]):
                if self.bad == "refuse":
                    self._refuse_width(number, len(record))
                wrong += 1
                continue
            rows.append((record + [""] * width)[:width])
        self.quality.rows += len(rows) + wrong
        self._drop("more fields than the header", wrong)
        frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
        return frame.select(self._known(frame))

    def _records(self, block: bytes) -> Iterator[list[str]]:
        text = io.StringIO(block.decode(), newline="")
        reader = csv.reader(text, delimiter=self.layout.separator, skipinitialspace=True)
        try:
            yield from (record for record in reader if record)
        except csv.Error as problem:
            line = self._line + reader.line_num
            raise TraceError(
                f"{self.path}: line {line}: is not CSV ({problem}): close every quote"
            ) from problem

    def _refuse_width(self, number: int, fields: int) -> NoReturn:
        raise TraceError(
            f"{self.path}: line {self._line_of(number)}: has {fields} fields but the table has "
            f"{len(self._names)} columns: correct it, or drop such rows with the option bad=drop"
        )

    # --- types --------------------------------------------------------------------------------

    def _typed(self, cells: "pl.DataFrame") -> "pl.DataFrame":
        """Values instead of texts; rows with an unusable cell are refused or dropped."""
        import polars as pl

        values = self._values(cells)
        both = cells.with_columns(values.rename("{}#".format))
        doubtful = [
            column
            for column in self.layout.columns
            if column.name in cells.columns and not _clean(values[column.name], column)
        ]
        problems = both.select(
            problem.fill_null(value=False).alias(f"{column.name}|{what}")
            for column in doubtful
            for what, problem in _problems(column, self.layout.missing)
        )
        sums = problems.sum().row(0) if problems.width else ()
        if not any(sums):
            return values
        if self.bad == "refuse":
            self._refuse(cells, problems)
        fine = pl.Series([True] * cells.height, dtype=pl.Boolean)
        for name in problems.columns:
            self._drop(name.replace("|", " "), int((problems[name] & fine).sum()))
            fine &= ~problems[name]
        return values.filter(fine)

    def _values(self, cells: "pl.DataFrame") -> "pl.DataFrame":
        return cells.select(
            self._value(column, cells).alias(column.name) for column in self.layout.columns
        )

    def _value(self, column: Column, cells: "pl.DataFrame") -> "pl.Expr":
        import polars as pl

        if column.name not in cells:
            return pl.lit("" if column.kind == "text" else None, _dtype(column.kind))
        if cells[column.name].dtype == pl.Float64:
            return pl.col(column.name)
        text = pl.col(column.name).str.strip_chars()
        if column.kind == "text":
            text = text.fill_null("")
            return text.replace(self.layout.no_text, "") if self.layout.no_text else text
        if column.kind == "number":
            return text.cast(pl.Float64, strict=False).fill_nan(None)
        time = text.str.strptime(pl.Datetime("ms"), self.layout.times, strict=False, exact=True)
        return time.dt.epoch("ms") / 1_000

    def _refuse(self, cells: "pl.DataFrame", problems: "pl.DataFrame") -> NoReturn:
        rows = {name: problems[name].arg_max() for name in problems.columns if problems[name].any()}
        where = min(rows, key=lambda name: (rows[name], problems.columns.index(name)))
        name, problem = where.split("|")
        row = rows[where] or 0
        title = self.titles[self._names.index(name)]
        raise TraceError(
            f"{self.path}: line {self._line_of(row)}, column {title!r}: "
            f"{cells[name][row] or ''!r} {problem}: correct it, or drop such rows with the "
            f"option bad=drop"
        )

    def _line_of(self, row: int) -> int:
        """The line of the file on which a record of the present block starts."""
        text = io.StringIO(self._block.decode(), newline="")
        reader = csv.reader(text, delimiter=self.layout.separator)
        before = number = 0
        for record in reader:
            if record:
                if number == row:
                    break
                number += 1
            before = reader.line_num
        return self._line + before

    def _drop(self, why: str, count: int) -> None:
        if count:
            self.quality.dropped[why] = self.quality.dropped.get(why, 0) + count


def read_all(chunks: Chunks) -> "pl.DataFrame":
    """All chunks as one frame: for tables that are known to be small."""
    import polars as pl

    return pl.concat(list(chunks))


def _dtype(kind: Kind) -> "pl.DataType":
    import polars as pl

    return pl.String() if kind == "text" else pl.Float64()


def _clean(values: "pl.Series", column: Column, *, gaps: bool = False) -> bool:
    """A quick look at a whole column: nothing can be wrong with it. Gaps: nulls are fine."""
    if column.kind == "text":
        return not column.required or not (values == "").any()
    if values.null_count() == len(values):
        return gaps or not len(values)
    if values.null_count() and not gaps:
        return False
    if values.is_nan().any():
        return False
    least, most = float(values.min()), float(values.max())  # type: ignore[arg-type]  # numbers
    return max(column.least, -MAX) <= least and most <= min(column.most, MAX)


def _problems(column: Column, missing: tuple[str, ...]) -> "list[tuple[str, pl.Expr]]":
    """What may be wrong with a cell: (what, where)."""
    import polars as pl

    text = pl.col(column.name).str.strip_chars()
    value = pl.col(f"{column.name}#")
    said = text.is_not_null() & ~text.is_in(missing)
    out = []
    if column.required:
        empty = (value == "") if column.kind == "text" else (value.is_null() & ~said)
        out.append(("is missing", empty | text.is_null()))
    if column.kind == "time":
        out.append((f"is not a time {_EXAMPLE}", said & value.is_null()))
    if column.kind == "number":
        out.append(("is not a finite number", said & (value.is_null() | (value.abs() > MAX))))
        if column.least > -inf:
            out.append((f"is less than {column.least:g}", value < column.least))
        if column.most < inf:
            out.append((f"is more than {column.most:g}", value > column.most))
    return out
