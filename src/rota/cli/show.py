"""Tables, JSON and YAML on stdout."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

FORMAT = click.option(
    "-o", "--output", default="table", show_default=True,
    type=click.Choice(["table", "json", "yaml"]), help="Form of the listing.",
)  # fmt: skip
WIDE = 200  # characters of a table that goes into a file or a pipe


def emit(data: Any, style: str) -> None:
    """Data as JSON or YAML."""
    if style == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)


def listing(rows: Sequence[Mapping[str, Any]], style: str) -> None:
    """Rows with the same keys."""
    if style != "table":
        emit([dict(row) for row in rows], style)
        return
    table([*rows[0]] if rows else [], [[str(cell) for cell in row.values()] for row in rows])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> None:
    """A table for people; `numbers`: every column but the first is aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        right = numbers and number > 0
        made.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
    Console(width=width, highlight=False, markup=False, emoji=False).print(made)


def warn(message: str) -> None:
    """Something that the user should know, on stderr."""
    click.echo(f"warning: {message}", err=True)
