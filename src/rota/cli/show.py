"""Tables, JSON and YAML on stdout."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rota.study.comparison import Assumption

FORMAT = click.option(
    "-o", "--output", default="table", show_default=True,
    type=click.Choice(["table", "json", "yaml"]), help="Output format.",
)  # fmt: skip
WIDE = 200  # characters of a table that goes into a file or a pipe


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
    from rich import box
    from rich.console import Console
    from rich.table import Table

    terminal = terminal_width()
    width = terminal or WIDE
    gone = too_wide(headings, rows, width, spare)
    cut = bool(spare) and not numbers and terminal is not None  # one line for each row
    shown = [i for i, heading in enumerate(headings) if heading not in gone]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i in shown:
        right = numbers and i > 0
        made.add_column(
            headings[i],
            justify="right" if right else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=numbers or cut,
        )
    for row in rows:
        made.add_row(*(row[i] for i in shown))
    console = Console(width=WIDE if numbers else width, highlight=False, markup=False, emoji=False)
    console.print(made)
    return gone


def too_wide(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> list[str]:
    """Columns to leave out so that the rest fits."""
    need = {
        heading: max([len(heading), *(len(row[i]) for row in rows)]) + 3
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
