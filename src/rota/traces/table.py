"""Tables: a CSV file as a series of frames with checked types, in bounded memory.

A `Layout` declares the columns of a format: their types, ranges and other titles. `Table` reads a
file by it, one Polars frame per block. Every row is counted: in a frame, or as dropped with a
reason. A cell that cannot be used is refused with file, line, column, value and remedy, unless the
user asked to drop such rows (`bad=drop`).

Blocks without quotes or other oddities are parsed by Polars, all others by the standard parser.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import msgspec

from rota.core.errors import InputError, TraceError
from rota.core.registry import unknown
from rota.core.workload import Quality
from rota.traces.sources import blocks, decode

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["text", "number", "time", "flag"]
Bad = Literal["refuse", "drop"]

MISSING = ("", "None", "NaN", "nan", "null", "NULL", "NA", "N/A", "Unknown")
_TEXT_MISSING = ("None", "null", "NULL")
_TIME = "%Y-%m-%d %H:%M:%S"
_EXAMPLE = "YYYY-MM-DD HH:MM:SS"
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_LONG = 60
MAX = 1e300


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: Kind = "text"
    required: bool = False  # every row must have a value; the column must be there in any case
    optional: bool = False  # the column may be absent (all rows lack a value then)
    key: bool = False  # no value occurs twice
    least: float = -inf  # of a number
    above: float = -inf
    most: float = inf
    whole: bool = False
    other: tuple[str, ...] = ()  # other titles of the same column


class Layout(msgspec.Struct, frozen=True):
    """The columns of a format, in the order that a file without a header has."""

    columns: tuple[Column, ...]
    separator: str = ","
    headerless: bool = False  # a file may come without its header
    strict: bool = False  # unknown titles and rows of another width are refused
    remedy: str = ""  # of a strict layout: how to go on in spite of an unknown title
    times: str = _TIME
    iso_times: bool = False  # other ISO 8601 times without a zone are understood, too
    missing: tuple[str, ...] = MISSING  # how a number or time that is not known is written
    no_text: tuple[str, ...] = _TEXT_MISSING  # and a text, beside an empty one

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the columns that must be there."""
        return tuple(column.name for column in self.columns if not column.optional)

    @property
    def titles(self) -> list[str]:
        """All titles that are understood."""
        return [*self.names, *(title for column in self.columns for title in column.other)]

    def names_of(self, titles: Sequence[str]) -> list[str]:
        """The name of the column behind each title; empty for one that is not known."""
        meaning = {
            title: column.name for column in self.columns for title in (column.name, *column.other)
        }
        return [meaning.get(title.strip(), "") for title in titles]


class Table:
    """A table that is being read.

    `quality` counts its rows, `titles` are those of its columns, `unused` those without a use here.
    """

    def __init__(
        self,
        path: Path,
        layout: Layout,
        *,
        bad: Bad = "refuse",
        ignore: bool = False,
        quality: Quality | None = None,
        error: type[InputError] = TraceError,
    ) -> None:
        """Prepare to read; the file is opened by the iteration.

        Args:
            path: The file.
            layout: What its columns are.
            bad: What to do with a row that has an unusable cell.
            ignore: Ignore unknown titles although the layout is strict.
            quality: Counts the rows.
            error: What is raised.
        """
        self.path = path
        self.layout = layout
        self.bad = bad
        self.quality = Quality() if quality is None else quality
        self.unused: list[str] = []
        self.titles: list[str] = []
        self._ignore = ignore or not layout.strict
        self._error = error
        self._names: list[str] = []
        self._has_header = True
        self._line = 1  # of the file, on which the present block starts
        self._block = b""

    def __iter__(self) -> "Iterator[pl.DataFrame]":
        before = 0
        for block in blocks(self.path, self._error):
            decode(block, self.path, self._error, start=before)
            before += len(block)
            self._block = block
            if not self._names and block.strip():
                self._start(block)
            lines = self._block.count(b"\n")
            self._block = self._block.rstrip(b"\r\n")  # blank lines at the end are usual
            if self._block.strip():
                quick = self._quickly()
                yield self._typed(self._cells()) if quick is None else quick
            self._line += lines
        if not self._names:
            raise self._error(f"{self.path}: is empty: it needs a header line and at least one row")
        if not self.quality.rows:
            raise self._error(f"{self.path}: has a header but no rows: add at least one")

    @property
    def names(self) -> list[str]:
        """The columns that the file has."""
        return [name for name in self._names if name]

    def whole(self) -> "pl.DataFrame":
        """All rows as one frame; keys are checked."""
        import polars as pl

        frame = pl.concat(list(self))
        for column in self.layout.columns:
            if column.key and frame[column.name].n_unique() < frame.height:
                self._refuse_twin(column.name, frame[column.name])
        return frame

    def refuse(self, frame: "pl.DataFrame", name: str, wrong: "pl.Expr", problem: str) -> None:
        """Fail at the first row of the whole table that is wrong, if any."""
        rows = frame.select(wrong.fill_null(value=False).arg_true()).to_series()
        if len(rows):
            self.fail(rows[0], name, problem)

    def fail(self, row: int, name: str, problem: str) -> NoReturn:
        """Refuse a cell of the whole table; rows count from 0 without the header."""
        line, cells = self._record(row)
        place = self._names.index(name)
        raise self._error(
            f"{self.path}: line {line}, column {self.titles[place]!r}: "
            f"{shortened(cells[place])!r} {problem}"
        )

    def line(self, row: int) -> int:
        """The line of the file on which a row starts."""
        return self._record(row)[0]

    def _record(self, row: int) -> tuple[int, list[str]]:
        """A row is looked up in the file once more: that is needed only when something is wrong."""
        before, left = 1, row + self._has_header
        for block in blocks(self.path, self._error):
            for line, cells in self._records(block, first=before):
                if not left:
                    return line, cells
                left -= 1
            before += block.count(b"\n")
        raise AssertionError("no such row")  # pragma: no cover - it was read before

    # --- the header ---------------------------------------------------------------------------

    def _start(self, block: bytes) -> None:
        """Find out what the columns are; the block goes on after the header."""
        skipped = len(block) - len(block.lstrip())
        skipped = max(block.rfind(b"\n", 0, skipped), block.rfind(b"\r", 0, skipped)) + 1
        line = block[skipped:].splitlines(keepends=True)[:1]
        end = skipped + sum(map(len, line))
        self._line += block.count(b"\n", 0, skipped)
        first = next((cells for _, cells in self._records(block[skipped:end], first=1)), [])
        names = self.layout.names_of(first)
        if any(names) or not self.layout.headerless:
            self.titles = [title.strip() for title in first]
            self._names = names
            self._check_header()
            self._line += 1
            self._block = block[end:]
        else:
            self._headerless(first)
            self._block = block[skipped:]

    def _headerless(self, first: list[str]) -> None:
        wanted = list(self.layout.names)
        while len(first) > len(wanted) and not first[-1].strip():
            first = first[:-1]
        if len(first) != len(wanted):
            raise self._error(
                f"{self.path}: line {self._line}: has {len(first)} fields, but this table has "
                f"{len(wanted)} ({', '.join(wanted)}): check that it is the right file"
            )
        self.titles = self._names = wanted
        self._has_header = False

    def _check_header(self) -> None:
        pairs = list(zip(self.titles, self._names, strict=True))
        self.unused = [title for title, name in pairs if title and not name]
        where = f"{self.path}: line {self._line}"
        if not self._ignore and not all(self._names):
            self._refuse_title(where, next(title for title, name in pairs if not name))
        first: dict[str, str] = {}
        for title, name in pairs:
            if not name:
                continue
            if first.setdefault(name, title) is not title:
                twice = f"columns {first[name]!r} and {title!r} mean the same"
                if first[name] == title:
                    twice = f"column {title!r} is there twice"
                raise self._error(f"{where}: {twice}: keep one")
        for name in self.layout.needed:
            if name not in first:
                raise self._error(
                    f"{where}: there is no column {name!r}: add it "
                    f"(the file has {', '.join(self.titles[:20])})"
                )

    def _refuse_title(self, where: str, title: str) -> NoReturn:
        if separated(title):
            raise self._error(f"{where}: {separated(title)}")
        missing = [name for name in self.layout.needed if name not in self._names]
        remedy = f"; or {self.layout.remedy}" if self.layout.remedy else ""
        if missing:  # to ignore columns would not help
            remedy = f"; there is no column {missing[0]!r}: add it or rename one"
        message = unknown("column", title, self.layout.titles, likely=missing)
        raise self._error(f"{where}: {message}{remedy}")

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

        block, separator = self._block, self.layout.separator
        names = self._columns()
        odd = b'"' in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n"))
        if odd or len(names) == 1:
            return None
        head = separator.join(names).encode() + b"\n"
        try:
            frame = pl.read_csv(
                head + block,
                separator=separator,
                quote_char=None,
                infer_schema=False,
                schema_overrides={name: pl.Float64 for name in numbers if name in names},
            )
        except pl.exceptions.PolarsError:
            return None
        if self.layout.strict:
            blank = frame.select(pl.all_horizontal(pl.all().is_null()).sum()).item()
            if block.count(separator.encode()) != (frame.height - blank) * (len(names) - 1):
                return None  # a row is too short
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
        for line, record in self._records(self._block, first=self._line):
            long = len(record) > width and any(cell.strip() for cell in record[width:])
            if long or (self.layout.strict and len(record) != width):
                if self.bad == "refuse":
                    self._refuse_width(line, len(record))
                wrong += 1
                continue
            rows.append((record + [""] * width)[:width])
        self.quality.rows += len(rows) + wrong
        self.quality.drop("more fields than the header", wrong)
        frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
        return frame.select(self._known(frame))

    def _records(self, block: bytes, *, first: int) -> Iterator[tuple[int, list[str]]]:
        """The records of a block with their lines (the first is given), by the standard parser."""
        text = io.StringIO(block.decode(), newline="")
        reader = csv.reader(
            text, delimiter=self.layout.separator, skipinitialspace=True, strict=self.layout.strict
        )
        before = 0
        try:
            for record in reader:
                start, before = before, reader.line_num
                if record and (len(self._names) == 1 or _some(record)):
                    yield first + start, record
        except csv.Error as problem:
            line = first + reader.line_num - 1
            raise self._error(
                f"{self.path}: line {line}: is not CSV ({problem}): close every quote"
            ) from problem

    def _refuse_width(self, line: int, fields: int) -> NoReturn:
        where = f"{self.path}: line {line}: has {fields} fields but the"
        if self.layout.strict:
            raise self._error(
                f"{where} header has {len(self._names)}: complete the line, and quote fields that "
                f"contain commas"
            )
        raise self._error(
            f"{where} table has {len(self._names)} columns: correct it, or drop such rows with the "
            f"option bad=drop"
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
        found = {
            (column.name, what): (remedy, wrong)
            for column in doubtful
            for what, remedy, wrong in _problems(column, self.layout.missing)
        }
        problems = both.select(
            wrong.fill_null(value=False).alias(f"{name}|{what}")
            for (name, what), (_, wrong) in found.items()
        )
        sums = problems.sum().row(0) if problems.width else ()
        if not any(sums):
            return values
        if self.bad == "refuse":
            self._refuse(cells, problems, [remedy for remedy, _ in found.values()])
        fine = pl.Series([True] * cells.height, dtype=pl.Boolean)
        for name in problems.columns:
            self.quality.drop(name.replace("|", " "), int((problems[name] & fine).sum()))
            fine &= ~problems[name]
        return values.filter(fine)

    def _values(self, cells: "pl.DataFrame") -> "pl.DataFrame":
        return cells.select(
            self._value(column, cells).alias(column.name) for column in self.layout.columns
        )

    def _value(self, column: Column, cells: "pl.DataFrame") -> "pl.Expr | pl.Series":
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
        if column.kind == "flag":
            lower = text.str.to_lowercase()
            return lower.replace_strict(_FLAGS, default=None, return_dtype=pl.Boolean)
        return self._time(column.name, cells)

    def _time(self, name: str, cells: "pl.DataFrame") -> "pl.Series":
        """Seconds since 1970."""
        import polars as pl

        text = cells[name].str.strip_chars()
        time = text.str.strptime(pl.Datetime("ms"), self.layout.times, strict=False, exact=True)
        seconds = time.dt.epoch("ms") / 1_000
        if not self.layout.iso_times or not seconds.null_count():
            return seconds
        others = text.filter(seconds.is_null()).drop_nulls().unique()
        known = {other: since_1970(other) for other in others}
        if not known:
            return seconds
        return seconds.fill_null(text.replace_strict(known, default=None, return_dtype=pl.Float64))

    def _refuse(
        self, cells: "pl.DataFrame", problems: "pl.DataFrame", remedies: Sequence[str]
    ) -> NoReturn:
        rows = [problems[name].arg_true() for name in problems.columns]
        row, which = min((int(where[0]), n) for n, where in enumerate(rows) if len(where))
        name, problem = problems.columns[which].split("|")
        title = self.titles[self._names.index(name)]
        line = next(
            line
            for number, (line, _) in enumerate(self._records(self._block, first=self._line))
            if number == row
        )
        drop = "" if self.layout.strict else ", or drop such rows with the option bad=drop"
        raise self._error(
            f"{self.path}: line {line}, column {title!r}: {shortened(cells[name][row] or '')!r} "
            f"{problem}: {remedies[which]}{drop}"
        )

    def _refuse_twin(self, name: str, values: "pl.Series") -> NoReturn:
        row = int((~values.is_first_distinct()).arg_true()[0])
        first = int((values == values[row]).arg_true()[0])
        self.fail(
            row, name, f"occurs twice (first on line {self.line(first)}): give every row its own"
        )


def since_1970(text: str) -> float | None:
    """An ISO 8601 time without a zone in seconds; None when it is not one."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo else time.replace(tzinfo=UTC).timestamp()


def shortened(text: str) -> str:
    """A value for a message; of a long one only its beginning."""
    return text if len(text) <= _LONG else f"{text[:20]}... ({len(text)} characters)"


def separated(header: str) -> str:
    """What is wrong with a header that should be divided by commas, and is not; empty: nothing."""
    for mark, called in ((";", "';'"), ("\t", "tabs")):
        if mark in header:
            return (
                f"columns seem to be separated by {called} ({shortened(header)!r}): separate them "
                "by commas, and write numbers with a decimal point"
            )
    return ""


def _some(record: list[str]) -> bool:
    """It is not just a line of blanks."""
    return len(record) > 1 or bool(record[0].strip())


def _dtype(kind: Kind) -> "pl.DataType":
    import polars as pl

    return {"text": pl.String(), "flag": pl.Boolean()}.get(kind, pl.Float64())


def _clean(values: "pl.Series", column: Column, *, gaps: bool = False) -> bool:
    """A quick look at a whole column: nothing can be wrong with it. Gaps: nulls are fine."""
    if column.kind == "text":
        return not column.required or not (values == "").any()
    if values.null_count() == len(values):
        return gaps or not len(values)
    if values.null_count() and not gaps:
        return False
    if column.kind == "flag":
        return True
    if values.is_nan().any():
        return False
    least, most = float(values.min()), float(values.max())  # type: ignore[arg-type]  # numbers
    inside = max(column.least, -MAX) <= least > column.above and most <= min(column.most, MAX)
    return inside and (not column.whole or bool((values == values.floor()).all()))


def _problems(column: Column, missing: tuple[str, ...]) -> "list[tuple[str, str, pl.Expr]]":
    """What may be wrong with a cell: (what, remedy, where)."""
    import polars as pl

    text = pl.col(column.name).str.strip_chars()
    value = pl.col(f"{column.name}#")
    said = text.is_not_null() & ~text.is_in(missing)
    out = []
    if column.required:
        empty = (value == "") if column.kind == "text" else (value.is_null() & ~said)
        remedy = "give a number" if column.kind == "number" else "give one"
        remedy = "give every row its own" if column.key else remedy
        out.append(("is missing", remedy, empty | text.is_null()))
    if column.kind == "time":
        remedy = "write one, without a zone"
        out.append((f"is not a time {_EXAMPLE}", remedy, said & value.is_null()))
    if column.kind == "flag":
        remedy = "give one of them"
        out.append(("is neither true nor false", remedy, said & value.is_null()))
    if column.kind == "number":
        remedy = "give a plain number"
        out.append(("is not a number", remedy, said & value.is_null()))
        out.append(("is not a finite number", remedy, said & (value.abs() > MAX)))
        least, above, most = column.least, column.above, column.most
        if least > -inf:
            out.append((f"is less than {least:g}", f"give {least:g} or more", value < least))
        if above > -inf:
            remedy = f"give more than {above:g}"
            out.append((f"is not more than {above:g}", remedy, value <= above))
        if most < inf:
            out.append((f"is more than {most:g}", f"give {most:g} at most", value > most))
        if column.whole:
            out.append(("is not a whole number", "give one", value != value.floor()))
    return out
