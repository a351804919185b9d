"""A YAML text as plain data that knows on which line each key stands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from yaml import MappingNode, Node, SequenceNode

from rota.core.errors import InputError
from rota.core.registry import unknown
from rota.core.yaml_text import YAMLError, YamlLoader
from rota.traces.sources import decode, read_bytes

Place = tuple[str | int, ...]
"""Keys and positions from the top."""


class SweepSource(msgspec.Struct, frozen=True):
    """A description of a sweep: `where` it is from, and the folder that its paths start at."""

    where: str
    base: Path
    data: Any
    lines: dict[Place, int] = {}

    def fail(self, place: Place, problem: str) -> NoReturn:
        """Refuse what stands at this place."""
        known = next((self.lines[p] for p in _upwards(place) if p in self.lines), None)
        line = f" line {known}:" if known else ""
        raise InputError(f"{self.where}:{line} {problem}")

    def check_keys(self, place: Place, data: Any, known: list[str], what: str = "key") -> None:
        """Refuse a key that is never read; it is often a typing error."""
        if not isinstance(data, dict):
            self.fail(place, f"{name(place)} is {data!r}: give keys and values")
        for key in data:
            if key not in known:
                self.fail((*place, key), f"{name(place)}: {unknown(what, str(key), known)}")


def _upwards(place: Place) -> Iterator[Place]:
    for length in range(len(place), -1, -1):
        yield place[:length]


def name(place: Place) -> str:
    """`workloads[2]`, `parameters.costs`; the top is the sweep."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the sweep"


def read_source(path: Path) -> SweepSource:
    """A file."""
    return parse_source(decode(read_bytes(path, InputError), path, InputError), path)


def parse_source(text: str, path: Path) -> SweepSource:
    """The text of a file."""
    loader = YamlLoader(text)
    try:
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
    except (YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}:{line} is not YAML ({problem}): correct it") from error
    finally:
        loader.dispose()
    lines: dict[Place, int] = {}
    if node is not None:
        _note(str(path), node, (), lines, set())
    return SweepSource(str(path), path.parent, data, lines)


def _note(where: str, node: Node, place: Place, lines: dict[Place, int], inside: set[int]) -> None:
    """Remember the lines of everything below a node; a key that is there twice is refused."""
    lines[place] = node.start_mark.line + 1
    if id(node) in inside:
        raise InputError(f"{where}: line {lines[place]}: refers to itself: write it out")
    within = inside | {id(node)}
    if isinstance(node, SequenceNode):
        for number, item in enumerate(node.value):
            _note(where, item, (*place, number), lines, within)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            below = (*place, str(key.value))
            if below in lines:
                raise InputError(
                    f"{where}: line {key.start_mark.line + 1}: {name(below)} is given twice "
                    f"(first on line {lines[below]}): keep one"
                )
            _note(where, value, below, lines, within)
            lines[below] = key.start_mark.line + 1
