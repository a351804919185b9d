"""Pages for browsers: HTML, style sheets and scripts, as files of this package.

The scripts are plain ES modules without a build step. `bundle` makes one script of a module and all
that it imports, for pages that are a single file.
"""

import re
from functools import cache
from importlib.resources import files

MEDIA = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([a-z-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)


@cache
def asset(name: str) -> bytes:
    """A file of this package.

    Raises:
        FileNotFoundError: There is no such file for browsers.
    """
    if "/" in name or name.rpartition(".")[2] not in MEDIA:
        raise FileNotFoundError(name)
    return files(__name__).joinpath(name).read_bytes()


def asset_names() -> list[str]:
    """All files for browsers."""
    names = (entry.name for entry in files(__name__).iterdir())
    return sorted(name for name in names if name.rpartition(".")[2] in MEDIA)


def media_type(name: str) -> str:
    """What browsers call it."""
    return MEDIA[name.rpartition(".")[2]]


@cache
def bundle(*names: str) -> str:
    """One script of these modules and all that they import; what they export are its variables.

    Names at the top of our modules differ, so they can stand side by side (a test compares them).
    """
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        text = asset(name).decode()
        for needed in _IMPORT.findall(text):
            add(needed)
        if name not in order:
            order.append(name)

    for name in names:
        add(name)
    pieces = (_EXPORT.sub("", _IMPORT.sub("", asset(name).decode())) for name in order)
    return "\n".join(pieces)
