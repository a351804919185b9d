"""YAML (and JSON) as plain texts, so that `yes`, `1:30` or `0123` stay what was written.

Numbers are recognised later, by the key that holds them. A key that comes twice is an error: the
first value would be lost without a word.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from rota.core.errors import InputError
from rota.core.registry import unknown
from rota.jobfile.model import JobFile
from rota.jobfile.quantities import shown

_KEPT_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class TextLoader(yaml.SafeLoader):
    """Every plain scalar is a text, except null and the merge key."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag in _KEPT_TAGS]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the base's interface
        """As the base, but a key may come only once."""
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag not in _KEPT_TAGS:
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"the key {key.value!r} comes twice", key.start_mark
                        )
                    seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_documents(text: str, where: str) -> list[Any]:
    """All documents of a YAML text that are not empty; a list at the top is a list of documents."""
    try:
        found = list(yaml.load_all(text, TextLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise InputError(f"{where}:{line} is not YAML ({problem}): correct it") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:  # an explicit tag
        raise InputError(f"{where}: is not YAML ({error}): correct it") from error
    except RecursionError as error:
        raise InputError(f"{where}: is nested too deeply: a job file needs 3 levels") from error
    documents: list[Any] = []
    for document in found:
        if document is not None:
            documents += document if isinstance(document, list) else [document]
    return documents


def load_value(text: str, where: str) -> Any:
    """One value as it could stand behind a key: a text, a list or a mapping."""
    try:
        return yaml.load(text, TextLoader)  # noqa: S506 - derived from SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "bad value"
        raise InputError(f"{where} is {text[:60]!r}: {problem}: put it in quotes") from error


# --- What readers return --------------------------------------------------------------------------


class Translated(msgspec.Struct, frozen=True):
    """A job, and what of its description cannot be honoured."""

    job: JobFile
    warnings: tuple[str, ...] = ()


def convert(value: Any, to: Any, where: str) -> Any:
    """A value as the wanted type; texts are read as numbers or truth values where those belong."""
    if to is bool and isinstance(value, str):
        value = {"yes": True, "on": True, "no": False, "off": False}.get(value.lower(), value)
    try:
        return msgspec.convert(value, to, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        problem = str(error).replace("`", "").lower() or "too large"
        raise InputError(f"{where} is {shown(value)}: {problem}: correct it") from error


def check_keys(where: str, entry: Any, known: Sequence[str]) -> None:
    """Refuse what is never read."""
    if not isinstance(entry, dict):
        raise InputError(f"{where}: is {shown(entry)}: give keys, of {', '.join(known)}")
    for key in entry:
        if key not in known:
            raise InputError(f"{where}: {unknown('key', str(key)[:60], list(known))}")


def entry_of(where: str, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A mapping under a key; an absent or empty one is empty."""
    found = content.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{where}: {key} is {shown(found)}: give keys and values under it")
    return found


def list_of(where: str, content: Mapping[str, Any], key: str) -> list[Any]:
    """A list under a key; an absent one is empty."""
    found = content.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InputError(f"{where}: {key} is {shown(found)}: give a list, one entry per line")
    return found


def text_of(where: str, value: Any) -> str:
    """A single text (or number)."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where} is {shown(value)}: give a text")
