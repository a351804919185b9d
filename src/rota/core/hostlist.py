"""Slurm's short form of lists of nodes: `n[1-3,07],gpu12`."""

from collections.abc import Iterator

from rota.core.errors import ClusterError, RotaError

MOST = 1_000_000  # names in one list


def expand(text: str, error: type[RotaError] = ClusterError) -> tuple[str, ...]:
    """The names in a list, in its order; whatever is wrong with it is raised as `error`."""
    found: list[str] = []
    for piece in split_list(text, error):
        for name in _names(piece, error):
            if len(found) >= MOST:
                raise error(f"the node list {text[:60]!r} has more than {MOST:,} names")
            found.append(name)
    return tuple(found)


def split_list(text: str, error: type[RotaError] = ClusterError) -> Iterator[str]:
    """The parts of a list, brackets still closed: split at the commas outside them."""
    depth, piece = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            yield piece
            piece = ""
        else:
            piece += letter
    if depth:
        raise error(f"cannot read the node list {text!r}: its brackets do not match")
    if piece:
        yield piece


def _names(piece: str, error: type[RotaError]) -> Iterator[str]:
    """One name after the other; brackets are multiplied out from the left."""
    ready: list[Iterator[tuple[str, str]]] = [iter((("", piece),))]
    while ready:
        step = next(ready[-1], None)
        if step is None:
            ready.pop()
            continue
        done, rest = step
        if "[" in rest:
            ready.append(_opened(done, rest, error))
        else:
            yield done + rest


def _opened(done: str, rest: str, error: type[RotaError]) -> Iterator[tuple[str, str]]:
    """The name so far and what is still to be read, for every number in the first brackets."""
    head, _, more = rest.partition("[")
    numbers, _, tail = more.partition("]")
    for number in _numbers(numbers, error):
        yield done + head + number, tail


def _numbers(text: str, error: type[RotaError]) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield part
            continue
        if not (first.isdecimal() and last.isdecimal()):
            raise error(f"cannot read the range {part!r} of a node list")
        if int(first) > int(last):
            raise error(f"the range {part!r} of a node list is empty: give its lower end first")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"
