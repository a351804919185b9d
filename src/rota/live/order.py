"""In which order things happen that are heard of together, whoever tells them first."""

from typing import Any

from rota.core import events as ev
from rota.core.jobs import Job
from rota.live.inputs import Input
from rota.live.orders import NodeStatus

PAST = {"cancel": "cancelled", "hold": "held", "release": "released"}
WISHES = {"cancel": ev.JOB_CANCELLED, "hold": ev.JOB_HELD, "release": ev.JOB_RELEASED}


def about_nodes(message: Input) -> bool:
    """News of runs come before those of nodes."""
    return isinstance(message, NodeStatus)


def rank(found: tuple[int, Any]) -> tuple[int, int]:
    """Of a kind of event and its subject."""
    kind, subject = found
    return kind, subject.index if isinstance(subject, Job) else subject.id


def root(job: Job) -> int:
    """Tasks of a non-gang job are one thing for people."""
    return job.index if job.parent is None else job.parent.index
