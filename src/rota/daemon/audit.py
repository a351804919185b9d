"""Who did what, in a chain: each line has the digest of itself and of the line before it.

A line that is changed, removed or slipped in breaks the chain from there on. Lines that are cut off
at the end are noticed by the seal, which knows the last digest and is not in the database.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256

import msgspec

from rota.core.words import counted
from rota.live.inputs import (
    Input,
    JobRequest,
    NodeRequest,
    Noted,
    Reconfigured,
    Submitted,
    WindowChange,
)

BEGINNING = ""  # the digest before the first line


class AuditLine(msgspec.Struct, frozen=True):
    """What somebody did; `actor` is empty where the text of a note names who it was."""

    number: int
    at_unix: float
    actor: str
    act: str
    digest: str

    @classmethod
    def after(cls, digest: str, number: int, at_unix: float, actor: str, act: str) -> "AuditLine":
        """The line that follows the one with this digest."""
        return cls(number, at_unix, actor, act, _digest(digest, number, at_unix, actor, act))


def _digest(before: str, number: int, at_unix: float, actor: str, act: str) -> str:
    told = msgspec.json.encode([before, number, at_unix, actor, act])
    return sha256(told).hexdigest()


def acts_of(inputs: Iterable[Input], owners: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Who asked for what in a batch; `owners`: of the jobs that come with it."""
    for item in inputs:
        match item:
            case Submitted(first, count):
                last = first + count - 1
                jobs = f"job {first}" if count == 1 else f"jobs {first} to {last}"
                yield owners.get(first, ""), f"submit {jobs}"
            case JobRequest(what, job, by):
                yield by, f"{what} job {job}"
            case NodeRequest(what, node, by):
                yield by, f"{what} node {node}"
            case WindowChange(by, window, _) if window is not None:
                yield by, f"add {window.kind} {window.name}"
            case WindowChange(by, remove=name):
                yield by, f"remove maintenance or reservation {name}"
            case Reconfigured(config, _, by) if config is not None:
                yield by, "change the configuration"
            case Reconfigured(forget=gone, by=by) if gone:
                count = sum(last - first + 1 for first, last in gone)
                yield by, f"forget up to {counted(count, 'job')} that ended, {gone[0][0]} and later"
            case Noted(text):
                yield "", text
            case _:
                continue


def broken_at(lines: Iterable[AuditLine], before: str = BEGINNING, first: int = 1) -> int:
    """The number of the first line that does not follow from the one before it; 0: all do.

    Lines from number `first` on; `before` is the digest of the line before it.
    """
    for number, line in enumerate(lines, first):
        told = _digest(before, line.number, line.at_unix, line.actor, line.act)
        if line.number != number or line.digest != told:
            return number
        before = line.digest
    return 0
