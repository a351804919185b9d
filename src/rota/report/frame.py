"""The one design of all reports: a verdict, tiles, contents, sections, and the command again."""

import base64
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import NamedTuple

from rota.core.errors import OutputError
from rota.core.unfinished import write_whole
from rota.core.version import VERSION
from rota.web import asset, bundle

SHEET = "sheet.js"
"""The script of pages whose pictures need none."""


class ReportTile(NamedTuple):
    """A number that matters: what it is, its value, and how sure that is.

    `kind`: `better` or `worse` where that is proven, else empty.
    """

    label: str
    value: str
    note: str = ""
    kind: str = ""
    strip: str = ""  # HTML: its interval as a picture


class PageSection(NamedTuple):
    """A part of a page: its name in addresses, its heading, its content as HTML."""

    key: str
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A page that is one file. Texts are texts, but for sections and tables, which are HTML."""

    kind: str
    title: str
    verdict: str
    more: Sequence[str] = ()
    warnings: Sequence[str] = ()
    tiles: Sequence[ReportTile] = ()
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[PageSection] = ()
    command: str = ""
    script: str = SHEET
    data: object = None
    footer: str = ""
    styles: Sequence[str] = field(default=("base.css", "report.css"))

    def html(self) -> str:
        """All of it; sections without content are left out."""
        shown = [section for section in self.sections if section.body]
        if self.command:
            shown.append(PageSection("again", "Do it again", command_box(self.command)))
        script = bundle(self.script) if self.command or self.data is not None else ""
        css = "\n".join(asset(name).decode() for name in self.styles)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"{policy_of(script)}"
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f'<meta name="generator" content="Rota {escape(VERSION)}">\n'
            f'<title>{escape(self.title)}</title>\n<link rel="icon" href="data:,">\n'
            f"<style>\n{css}\n</style>\n</head>\n<body>\n"
            '<a class="skip" href="#main">Skip to the content</a>\n'
            f'<div class="paper">\n{_contents(shown)}<main id="main" class="sheet">\n'
            f"{self._head()}{''.join(map(_section, shown))}"
            f"<footer>{self.footer}Made by Rota {escape(VERSION)}. This page is one file: it asks "
            "for nothing.</footer>\n</main>\n</div>\n"
            f"{_data(self.data)}{_code(script)}"
            "</body>\n</html>\n"
        )

    def _head(self) -> str:
        facts = "".join(
            f"<li>{escape(name)} <b>{escape(text)}</b></li>" for name, text in self.facts if text
        )
        more = "".join(f"<p>{escape(text)}</p>" for text in self.more)
        warnings = "".join(
            f'<p class="alert warn" role="note"><b>!</b> {escape(text)}</p>'
            for text in self.warnings
        )
        return (
            f'<header class="top-of-page"><p class="kind">{escape(self.kind)}</p>'
            f"<h1>{escape(self.title)}</h1>"
            f"{f'<ul class=facts>{facts}</ul>' if facts else ''}</header>\n"
            f'<section class="answer" aria-label="The answer"><p class="verdict">'
            f"{escape(self.verdict)}</p>{more}{warnings}</section>\n{_tiles(self.tiles)}"
        )


def policy_of(script: str, *, asks: bool = False) -> str:
    """What the page may do: run this one script, if there is one, and nothing else.

    A page that `asks` may also do that: only who served it, for what is new.
    """
    digest = base64.b64encode(sha256(f"\n{script}\n".encode()).digest()).decode("ascii")
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    if asks:
        allowed += "connect-src 'self'; "
    return (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; {allowed}img-src data:\">\n"
    )


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(data: object) -> str:
    if data is None:
        return ""
    return f'<script type="application/json" id="data">{embedded(data)}</script>\n'


def _code(script: str) -> str:
    return f"<script>\n{script}\n</script>\n" if script else ""


def _contents(sections: Sequence[PageSection]) -> str:
    links = "".join(
        f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in sections
    )
    return (
        '<nav class="toc" aria-label="Contents"><p class="brand"><b>Rota</b></p>'
        f'<ol><li><a href="#main">The answer</a></li>{links}</ol></nav>\n'
    )


def _section(section: PageSection) -> str:
    return (
        f'<section class="card" id="{section.key}" aria-labelledby="h-{section.key}">'
        f'<h2 id="h-{section.key}">{escape(section.title)}</h2>{section.body}</section>\n'
    )


def _tiles(tiles: Sequence[ReportTile]) -> str:
    if not tiles:
        return ""
    made = "".join(
        f'<div class="tile {tile.kind}"><div class="label">{escape(tile.label)}</div>'
        f'<div class="value">{escape(tile.value)}</div>{tile.strip}'
        f'<div class="note">{escape(tile.note)}</div></div>'
        for tile in tiles
    )
    return f'<div class="tiles">{made}</div>\n'


def command_box(command: str, key: str = "command") -> str:
    """A command with a button that copies it."""
    return (
        f'<div class="command-box"><pre class="command" id="{key}" tabindex="0">{escape(command)}'
        f'</pre><button type="button" data-copy="{key}" hidden>Copy</button></div>'
    )


def as_typed(words: Iterable[str]) -> str:
    """A command line, as one would type it."""
    return shlex.join(words)


def folded(title: str, body: str, *, opened: bool = False, printed: bool = False) -> str:
    """Details that are shown on request."""
    marks = f"{' open' if opened else ''}{' data-print' if printed else ''}"
    return f"<details{marks}><summary>{escape(title)}</summary>{body}</details>"


def scrolling(table: str, label: str) -> str:
    """A table that scrolls by itself where it is too wide, with the keyboard, too."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'
    )


def write_whole_page(to: Path, text: str, *, option: str) -> None:
    """Write a page, in one step; a file that is there is replaced. `option`: what names it."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        write_whole(to, text)
    except OSError as error:
        raise OutputError(
            f"{to}: cannot be written ({error.strerror}): name another file with {option}"
        ) from error
