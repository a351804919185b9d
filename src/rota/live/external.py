"""Work that others brought to the platform, and that Rota is to start and end.

Its owners make it with the tools of the platform, for instance pods of Kubernetes; Rota makes a job
of each, starts it where the policy wants it, and tells why it waits. Who asks holds nothing that
the platform does not know: after a restart the same work is offered again, under the same key.
"""

from collections.abc import Collection
from typing import Protocol

import msgspec

OVER = "RotaEnded"
"""The reason of work that waits and will not be started any more: its job is over."""


class ExternalWork(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits to be started.

    `key` is the same whenever it is offered, and never that of anything else. `origin` is whoever
    makes another one in place of one that was stopped; if nobody does, it is its own.
    """

    key: str
    origin: str
    owner: str  # the user that it counts for
    name: str
    what: str  # for people: `pod default/train-0`
    queue: str = ""
    priority_class: str = ""
    gpus: float = 0.0  # of each part
    parts: int = 1  # all of them or none; they may share nodes
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    grace_s: float = 30.0
    repeated: bool = False  # who stops it gets another one: it can be preempted
    resumed: bool = False  # stopped, it waits until it is started again: it can be preempted
    refused: str = ""  # why it cannot be started at all


class ExternalSource(Protocol):
    """Where such work comes from. Any thread may ask."""

    successor_s: float
    """So long a job waits for another one in place of the work that it lost."""

    def claims(self, origin: str) -> bool:
        """Is work of this origin from here?"""
        ...

    def ready(self) -> bool:
        """Is everything known that is out there?"""
        ...

    def recall(self, job: str, origin: str) -> None:
        """A job of before a restart is still of work of this origin."""
        ...

    def offers(self) -> list[ExternalWork]:
        """What waits and is assigned to no job."""
        ...

    def assign(self, key: str, job: str) -> None:
        """This work is that job."""
        ...

    def alive(self, job: str) -> bool:
        """Is there work of this job that waits or runs?"""
        ...

    def explain(self, key: str, reason: str, text: str) -> None:
        """Tell its owner why work that is assigned to no job waits; only news are told."""
        ...

    def explain_job(self, job: str, reason: str, text: str) -> None:
        """Tell the owner of the work of a job why it waits; only news are told."""
        ...

    def forget_jobs(self, kept: Collection[str]) -> None:
        """All other jobs are over."""
        ...


def external_text(work: ExternalWork) -> str:
    """As a job keeps it: where it is from, and what becomes of it if it is stopped."""
    again = "repeated" if work.repeated else "resumed" if work.resumed else "once"
    return f"{again} {work.origin}"


def origin_of(external: str) -> str:
    """Where the work of a job is from."""
    return external.partition(" ")[2]


def is_repeated(external: str) -> bool:
    """Does its origin make another one if it is stopped?"""
    return external.startswith("repeated ")
