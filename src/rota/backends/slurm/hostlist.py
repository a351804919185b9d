"""Slurm's short form of lists of nodes: `n[1-3,07],gpu12`."""

from collections.abc import Iterator

from rota.core.errors import ClusterError


def expand(text: str) -> tuple[str, ...]:
    """The names in a list, in its order."""
    return tuple(name for piece in _pieces(text) for name in _names(piece))


def _pieces(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, piece = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            yield piece
            piece = ""
        else:
            piece += letter
    if depth:
        raise ClusterError(f"cannot read the node list {text!r}: its brackets do not match")
    if piece:
        yield piece


def _names(piece: str) -> Iterator[str]:
    head, bracket, rest = piece.partition("[")
    if not bracket:
        yield piece
        return
    numbers, _, tail = rest.partition("]")
    for number in _numbers(numbers):
        for end in _names(tail) if tail else ("",):
            yield f"{head}{number}{end}"


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield part
            continue
        if not (first.isdecimal() and last.isdecimal()):
            raise ClusterError(f"cannot read the range {part!r} of a node list")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"
