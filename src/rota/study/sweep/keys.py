"""Content addresses: two runs with the same key give the same result.

A key is a hash of the configuration of a run, in which every file stands for its content (where it
lies and what it is called does not matter), of the files that are read along with them, and of the
code that turns configurations into results.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from rota.core import version
from rota.core.log import SCHEMA_VERSION
from rota.study.config import RunConfig
from rota.study.inputs import OPTIONS, InputFile, named_inputs, with_names

KEY_VERSION = 1
KEY_LENGTH = 32
CODE = (
    "core", "engine", "metrics", "models", "placement", "policies", "reproduce", "sim", "solvers",
    "study", "traces",
)  # fmt: skip
"""Packages that turn configurations into results."""


@cache
def code_version() -> str:
    """Rota's version and a hash of all code that a result depends on: an edit makes new keys."""
    root = Path(version.__file__).parents[1]
    digest = sha256()
    for package in CODE:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(path.read_bytes() + b"\0")
    return f"{version.VERSION}+{digest.hexdigest()[:16]}"


class Inputs:
    """Finds the files that configurations name; each is hashed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], list[InputFile]] = {}

    def of(self, config: RunConfig) -> list[InputFile]:
        """Those of one run."""
        found = []
        for name in OPTIONS:
            text = getattr(config, name)
            if text:
                found += self._named(name, text, config.format if name == "trace" else None)
        return found

    def _named(self, name: str, text: str, format_text: str | None) -> list[InputFile]:
        key = (name, text, format_text)
        if key not in self._known:
            self._known[key] = named_inputs(name, text, format_text)
        return self._known[key]


def make_key(config: RunConfig, inputs: list[InputFile]) -> str:
    """The address of a run."""
    named = [(file, f"sha256:{file.sha256}") for file in inputs]
    said = with_names(config, named).as_dict()
    canonical: dict[str, Any] = {
        "key": KEY_VERSION,
        "code": code_version(),
        "schema": SCHEMA_VERSION,
        "config": said,
    }
    beside = [(Path(file.path).name, file.sha256) for file in inputs if not file.given]
    if beside:
        canonical["beside"] = beside
    return sha256(msgspec.json.encode(canonical, order="deterministic")).hexdigest()[:KEY_LENGTH]
