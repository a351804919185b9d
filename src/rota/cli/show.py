"""Tables, JSON and YAML on stdout."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rota.study.compare_file import Assumption

IDLE = "nobody waited"
"""In the place of a ratio where every policy serves everybody at once."""

FORMAT = click.option(
    "-o", "--output", default="table", show_default=True,
    type=click.Choice(["table", "json", "yaml"]), help="Output format.",
)  # fmt: skip
WIDE = 200  # characters of a table that goes into a file or a pipe
GAP = 3  # spaces between columns


def emit(data: Any, style: str) -> None:
    """Data as JSON or YAML."""
    if style == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)


def listing(rows: Sequence[Mapping[str, Any]], style: str, *, spare: Sequence[str] = ()) -> None:
    """Rows with the same keys; `spare` as for `table`."""
    if style != "table":
        emit([dict(row) for row in rows], style)
        return
    cells = [[str(cell) for cell in row.values()] for row in rows]
    table([*rows[0]] if rows else [], cells, spare=spare)


def terminal_width() -> int | None:
    """Characters in a line; None: it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str, indent: int = 2) -> None:
    """A line, or several on a narrow terminal."""
    width = terminal_width()
    lines = [text]
    if width is not None:
        lines = textwrap.wrap(
            text, max(width, 2 * indent), subsequent_indent=" " * indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    click.echo("\n".join(lines))


def second(at_s: float) -> str:
    """A moment of a simulation."""
    return f"{round(at_s, 3):.15g}"


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: bool = False,
    spare: Sequence[str] = (),
) -> list[str]:
    """A table for people; returns the headings that had to go.

    `numbers`: every column but the first is aligned to the right, and nothing is folded; columns of
    `spare` are left out, in this order, while the terminal is too narrow. With `spare` a row is one
    line on a terminal: what is still too long is cut.
    """
    terminal = terminal_width()
    width = terminal or WIDE
    gone = too_wide(headings, rows, width, spare)
    cut = bool(spare) and terminal is not None  # one line for each row
    shown = [i for i, heading in enumerate(headings) if heading not in gone]
    lines = [[headings[i] for i in shown], *([row[i] for i in shown] for row in rows)]
    widths = [max(map(_cells, column)) for column in zip(*lines, strict=True)]
    if not numbers:
        widths = _narrowed(widths, width - 2 - GAP * (len(widths) - 1))
    head, *body = (_line(line, widths, numbers=numbers, cut=cut) for line in lines)
    inside = sum(widths) + GAP * (len(widths) - 1)
    blank, rule = " " * (inside + 2), f" {_rule() * inside} "
    click.echo(
        "\n".join([blank, click.style(head, bold=True), rule, *body, blank] if shown else [""])
    )
    return gone


def _narrowed(widths: Sequence[int], most: int) -> list[int]:
    """The widest columns give way until all of them fit."""
    made = list(widths)
    while sum(made) > most and max(made, default=0) > 1:
        made[made.index(max(made))] -= 1
    return made


def _line(cells: Sequence[str], widths: Sequence[int], *, numbers: bool, cut: bool) -> str:
    """A row: one line, or several if a cell is folded."""
    folded = [_folded(cell, width, cut=cut) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for parts in zip_longest(*folded, fillvalue=""):
        padded = []
        for i, (part, width) in enumerate(zip(parts, widths, strict=True)):
            space = " " * (width - _cells(part))
            padded.append(space + part if numbers and i > 0 else part + space)
        lines.append(f" {(' ' * GAP).join(padded)} ")
    return "\n".join(lines)


def _folded(text: str, width: int, *, cut: bool) -> list[str]:
    """The lines of a cell."""
    if _cells(text) <= width and "\n" not in text:
        return [text]
    if cut:
        return [_cut(text.replace("\n", " "), width)]
    return [part for line in text.expandtabs().split("\n") for part in _wrapped(line, width)]


def _wrapped(text: str, width: int) -> list[str]:
    """Broken between words, and in words that are too long; `textwrap` counts characters."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _cells(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for one in word:
            if _cells(lines[-1] + one) > width:
                lines.append("")
            lines[-1] += one
    return lines


def _cut(text: str, width: int) -> str:
    while _cells(text) >= width and text:
        text = text[:-1]
    return f"{text}…"


def _cells(text: str) -> int:
    """Places on a terminal; Chinese characters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 1 + (east_asian_width(one) in "WF") for one in text)


def _rule() -> str:
    return "─" if "utf" in (sys.stdout.encoding or "utf-8").lower() else "-"


def too_wide(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> list[str]:
    """Columns to leave out so that the rest fits."""
    need = {
        heading: max([len(heading), *(len(row[i]) for row in rows)]) + GAP
        for i, heading in enumerate(headings)
    }
    gone: list[str] = []
    for heading in spare:
        if sum(size for name, size in need.items() if name not in gone) <= width:
            break
        gone.append(heading)
    return gone


def tell(text: str, indent: int = 2) -> None:
    """Folded on stderr, so that a table can go elsewhere alone."""
    width = min(shutil.get_terminal_size().columns, WIDE // 2)
    folded = textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    click.echo(folded, err=True)


def tell_notes(notes: Iterable[str]) -> None:
    """What a careful reader must know; a warning where it makes the result useless."""
    from rota.study.notes import LOUD

    for note in notes:
        tell(f"{'warning' if note.startswith(LOUD) else 'note'}: {note}")


def tell_assumptions(assumptions: "Sequence[Assumption]") -> None:
    """What differs between policies, and what is the same for all."""
    from rota.study.table import common, differing

    differs = differing(assumptions)
    if differs:
        tell("assumptions that differ:")
        for key, text in differs:
            tell(f"  {key}: {text}", indent=4)
    shared = "; ".join(f"{key}: {text}" for key, text in common(assumptions))
    tell(f"the same for all: {shared}", indent=2)


def warn(message: str) -> None:
    """Something that the user should know, on stderr."""
    click.echo(f"warning: {message}", err=True)


def warn_about(messages: Iterable[str]) -> None:
    """Each once, in their order."""
    for message in dict.fromkeys(messages):
        warn(message)
