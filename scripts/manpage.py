"""Write the manual page `rota.1` from the commands themselves: `man build/man/rota.1`.

`make man` calls this, and `make dist` puts the page into the packages. It holds what `--help` says,
of all commands in one page, and depends on nothing but the source and a date.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from rota.cli.app import rota
from rota.core.version import VERSION

VERBATIM = "\b"  # click's mark of a paragraph whose lines stay as they are
SPEECH = {"\\": r"\e", "-": r"\-", "`": r"\(ga", "'": r"\(aq", "^": r"\(ha", "~": r"\(ti"}
EXIT_CODES = {
    "0": "All went well.",
    "1": "It failed.",
    "2": "Wrong usage, or wrong input.",
    "130": "It was interrupted.",
    "143": "It was terminated.",
}


def escaped(text: str) -> str:
    """The text as troff has to read it, so that commands can be copied from the page."""
    return "".join(SPEECH.get(character, character) for character in text)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; lines of examples stay lines."""
    for paragraph in text.partition("\f")[0].strip().split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == VERBATIM:
            yield ".PP\n.nf\n" + "\n".join(_line(line) for line in lines[1:]) + "\n.fi"
        else:
            yield ".PP\n" + _line(" ".join(line.strip() for line in lines))


def _line(text: str) -> str:
    """A line of text: a blank or a dot at its beginning would be a request."""
    return rf"\&{escaped(text)}"


def options(ctx: click.Context) -> Iterator[str]:
    """What may be given to a command, but `--help`."""
    for parameter in ctx.command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and record[1] and "--help" not in parameter.opts:
            yield f".TP\n.B {_line(record[0])}\n{_line(' '.join(record[1].split()))}"


def below(ctx: click.Context) -> Iterator[click.Context]:
    """The commands of a group, those of its groups included, in the order of its help."""
    if not isinstance(ctx.command, click.Group):
        return
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        if command is not None and not command.hidden:
            inner = click.Context(command, info_name=name, parent=ctx)
            yield inner
            yield from below(inner)


def usage(ctx: click.Context) -> str:
    """One line: the command and what follows it."""
    return " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])


def described(ctx: click.Context) -> Iterator[str]:
    """Text, options and last words of a command."""
    yield from paragraphs(ctx.command.help or "")
    yield from options(ctx)
    yield from paragraphs(ctx.command.epilog) if ctx.command.epilog else ()


def page(day: str) -> str:
    """The whole manual page."""
    top = click.Context(rota, info_name="rota", **rota.context_settings)
    parts = [
        f'.TH ROTA 1 "{day}" "rota {VERSION}" "User Commands"',
        ".nh\n.ad l",  # names of options are not to be broken
        rf".SH NAME{chr(10)}rota \- {escaped((rota.help or '').splitlines()[0].rstrip('.'))}",
        f".SH SYNOPSIS\n.B {_line(usage(top))}",
        ".SH DESCRIPTION",
        *described(top),
        ".SH COMMANDS",
    ]
    for ctx in below(top):
        parts += [f".SS {_line(usage(ctx))}", *described(ctx)]
    parts.append(".SH EXIT STATUS")
    parts += [f".TP\n.B {code}\n{text}" for code, text in EXIT_CODES.items()]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the page, dated by SOURCE_DATE_EPOCH, or today."""
    parser = argparse.ArgumentParser(description="Write the manual page of rota.")
    parser.add_argument("file", type=Path, help="where to, e.g. build/man/rota.1")
    target: Path = parser.parse_args().file
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(f"{now:%Y-%m-%d}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
