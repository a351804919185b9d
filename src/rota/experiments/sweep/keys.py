"""Content addresses: two runs with the same key give the same result.

A key is a hash of the configuration of a run, in which every file stands for its content (where it
lies and what it is called does not matter), and of the code that turns configurations into results:
Rota's own, and what Python files import from the folder in which they are.
"""

import ast
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

import rota
from rota.engine.log import SCHEMA_VERSION
from rota.experiments.config import RunConfig
from rota.experiments.inputs import OPTIONS, InputFile, find_inputs, hash_file

KEY_VERSION = 1
KEY_LENGTH = 32
_CODE = (
    "core", "dialects", "engine", "metrics", "placement", "policies", "rates", "sim", "solvers",
    "traces", "experiments/build.py", "experiments/config.py", "experiments/rough.py",
    "experiments/run.py", "experiments/workloads.py",
)  # fmt: skip


@cache
def code_version() -> str:
    """Rota's version and a hash of all code that a result depends on: an edit makes new keys."""
    root = Path(rota.__file__).parent
    digest = sha256()
    for part in _CODE:
        place = root / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if path.is_file():
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
                digest.update(path.read_bytes() + b"\0")
    return f"{rota.__version__}+{digest.hexdigest()[:16]}"


class Inputs:
    """Finds the files that configurations name; each is hashed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[InputFile]] = {}

    def of(self, config: RunConfig) -> list[InputFile]:
        """Those of one run."""
        found = []
        for name in OPTIONS:
            text = getattr(config, name)
            if text:
                found += self._named(name, text)
        return found

    def _named(self, name: str, text: str) -> list[InputFile]:
        if (name, text) not in self._known:
            alone: Any = {"trace": "", "cluster": "", "policy": "", name: text}
            self._known[name, text] = find_inputs(RunConfig(**alone))
        return self._known[name, text]


def longest_first(inputs: list[InputFile]) -> list[InputFile]:
    """In an order in which names can be replaced: no name is a part of a later one."""
    return sorted(inputs, key=lambda file: -len(file.given))


def imported_beside(path: Path) -> list[Path]:
    """Python files in the same folder that a Python file imports, directly or through others."""
    found: list[Path] = []
    ahead = [path] if path.suffix == ".py" else []
    while ahead:
        for name in _imports(ahead.pop()):
            other = path.parent / f"{name}.py"
            if other != path and other not in found and other.is_file():
                found.append(other)
                ahead.append(other)
    return sorted(found)


def _imports(path: Path) -> list[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []  # whoever runs it says what is wrong
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name.partition(".")[0] for name in names]


def make_key(config: RunConfig, inputs: list[InputFile]) -> str:
    """The address of a run."""
    said = config.as_dict()
    for file in longest_first(inputs):
        said[file.option] = said[file.option].replace(file.given, f"sha256:{file.sha256}")
    canonical: dict[str, Any] = {
        "key": KEY_VERSION,
        "code": code_version(),
        "schema": SCHEMA_VERSION,
        "config": said,
    }
    beside = [hash_file(path) for file in inputs for path in imported_beside(Path(file.path))]
    if beside:
        canonical["beside"] = beside
    return sha256(msgspec.json.encode(canonical, order="deterministic")).hexdigest()[:KEY_LENGTH]
