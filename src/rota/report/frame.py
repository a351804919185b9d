"""The frame of pages without scripts: everything but what they say."""

from collections.abc import Sequence
from html import escape

from rota.core.version import VERSION


def framed(title: str, css: str, facts: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page; empty sections are left out.

    Args:
        title: As text.
        css: Its style.
        facts: Below the title, as HTML.
        sections: Headings as text, contents as HTML.
    """
    body = "".join(
        f'<section aria-labelledby="h-{number}"><h2 id="h-{number}">{escape(name)}</h2>{text}'
        f"</section>\n"
        for number, (name, text) in enumerate(sections)
        if text
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="Rota {escape(VERSION)}">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{css}\n</style>\n</head>\n<body>\n<header>\n<h1>{escape(title)}</h1>\n"
        f"{facts}</header>\n<main>\n{body}</main>\n"
        f"<footer>Rota {escape(VERSION)}</footer>\n</body>\n</html>\n"
    )
