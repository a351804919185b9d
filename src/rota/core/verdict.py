"""Why a job does not start: one reason, what shows it, and the smallest change that helps."""

import msgspec


class Remedy(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A change with which the job would start now; of the kind `wait`: when it starts without one.

    Submitted anew with this change, and without the job itself in the queue.
    """

    kind: str
    """`gpus`, `memory`, `type`, `queue`, `limit`, `release`, `after`, `wait` or `none`."""
    text: str
    gpus: float | None = None
    gpu_mem_gib: float | None = None
    gpu_type: str | None = None
    queue: str | None = None
    limit_s: float | None = None
    starts_in_s: float | None = None
    """Of `wait`: the median of the forecast."""


class Verdict(msgspec.Struct, kw_only=True):
    """The answer of `rota why`."""

    id: str
    state: str
    reason: str
    """The dominant one, by its name; empty: it does not wait."""
    text: str
    """One sentence for people."""
    evidence: list[str] = []
    """Numbers that show it."""
    ahead: list[str] = []
    """Jobs that are served first (the first few)."""
    ahead_count: int = 0
    remedy: Remedy | None = None
    """The smallest change; None: none is needed."""
    others: list[Remedy] = []
    """Further changes with which it would start now."""
