"""Short names of policies for legends and axes: what tells them apart stays."""

from collections import Counter
from collections.abc import Sequence

LONG = 22
"""Letters that fit into half a column of a paper."""
_CUT = "\u2026"


def short_names(names: Sequence[str], longest: int = LONG) -> dict[str, str]:
    """A label for every name; all differ if the names do.

    Folders go first unless they tell two names apart, then (of names that are still too long) the
    parameters that all names of the same policy share, then the middle.

    Args:
        names: Like `las`, `mine/srgt.py:aging=2,limit=8`.
        longest: Letters of a label, about.
    """
    heads = _heads(list(dict.fromkeys(name.partition(":")[0] for name in names)))
    found = {}
    for name in dict.fromkeys(names):
        head, colon, given = name.partition(":")
        label = heads[head] + colon + given
        if len(label) > longest:
            label = _with(heads[head], _telling(name, names))
        found[name] = label
    return _numbered(_apart(found, longest))


def cut(text: str, longest: int) -> str:
    """A text without its middle if it is too long: beginnings are often alike, ends are not."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}{_CUT}{text[len(text) - tail :]}"


def _heads(paths: list[str]) -> dict[str, str]:
    """Paths by as many of their last parts as tell them apart."""
    found = {}
    for path in paths:
        parts = path.split("/")
        for many in range(1, len(parts) + 1):
            found[path] = "/".join(parts[-many:])
            if not any(other != path and _ends(other, parts[-many:]) for other in paths):
                break
    return found


def _ends(path: str, parts: list[str]) -> bool:
    return path.split("/")[-len(parts) :] == parts


def _telling(name: str, names: Sequence[str]) -> list[str]:
    """The parameters of a name that not all names of the same policy have."""
    head = name.partition(":")[0]
    family = [set(_split(other)) for other in set(names) if other.partition(":")[0] == head]
    common = set.intersection(*family) if len(family) > 1 else set()
    return [item for item in _split(name) if item not in common]


def _split(name: str) -> list[str]:
    return [item for item in name.partition(":")[2].split(",") if item]


def _with(head: str, items: list[str]) -> str:
    return f"{head}:{','.join(items)}" if items else head


def _apart(labels: dict[str, str], longest: int) -> dict[str, str]:
    """Labels that are short; where that makes two the same, what both begin with goes instead."""
    short = {name: cut(label, longest) for name, label in labels.items()}
    for text in {text for text, many in Counter(short.values()).items() if many > 1}:
        same = [name for name, label in short.items() if label == text]
        begin = _shared([labels[name] for name in same])
        kept = min(begin, longest // 3)
        for name in same:
            rest = cut(labels[name][begin:], longest - kept - 1)
            short[name] = labels[name][:kept] + (_CUT if kept < begin else "") + rest
    return short


def _shared(texts: Sequence[str]) -> int:
    """How many letters all of them begin with."""
    alike = (len(set(letters)) == 1 for letters in zip(*texts, strict=False))
    return next((i for i, same in enumerate(alike) if not same), min(map(len, texts)))


def _numbered(labels: dict[str, str]) -> dict[str, str]:
    """Labels of which several are the same get a number."""
    many = Counter(labels.values())
    seen: Counter[str] = Counter()
    found = {}
    for name, label in labels.items():
        seen[label] += 1
        found[name] = f"{label} ({seen[label]})" if many[label] > 1 else label
    return found
