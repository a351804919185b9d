"""The lease of a job in a round: on what, with whom, until when; whole steps count."""

from collections.abc import Mapping, Sequence

from rota.core.jobs import Job
from rota.reproduce.gavel.pairs import number_of

Rates = Mapping[str, float]
"""Steps per second by type."""
Place = tuple[int, tuple[int, ...], int]
"""Position of the type, nodes (once for each GPU), number of the partner."""

UNKNOWN_STEP_S = 1e-3


class Entry:
    """A job with its steps: `work` is that of one, `speed` how many it makes per second by type.

    `done` counts those of the present lease as made. `partner` is the number of the job on the same
    GPUs, -1 if there is none; `beside` the steps per second that it makes then.
    """

    __slots__ = (
        "beside", "done", "end_s", "job", "kind", "nodes", "partner", "speed", "steps", "work",
    )  # fmt: skip

    def __init__(self, job: Job, kinds: Sequence[str], rates: Rates | None) -> None:
        speeds = job.behaviour.speeds or dict.fromkeys(kinds, 1.0)
        if rates is None:
            table = job.behaviour.sensitivity
            self.work = (table.step_s if table else 0.0) or UNKNOWN_STEP_S
            self.speed = [speeds.get(kind, 0.0) / self.work for kind in kinds]
        else:  # exactly those: some ties depend on the last digit
            known = max(rates, key=lambda kind: speeds.get(kind, 0.0))
            self.work = speeds[known] / rates[known]
            self.speed = [rates.get(kind, 0.0) for kind in kinds]
        self.job = job
        self.steps = max(1, round(job.work / self.work))
        self.done = 0
        self.kind = -1  # of its lease
        self.nodes: tuple[int, ...] = ()
        self.end_s = 0.0
        self.partner = -1
        self.beside = 0.0

    @property
    def place(self) -> Place:
        """Where its lease is: if it does not change, nothing happens to the job."""
        return self.kind, self.nodes, self.partner

    @property
    def guest(self) -> bool:
        """It uses the GPUs of a job that came before it."""
        return 0 <= self.partner < self.job.index

    @property
    def number(self) -> int:
        """Whose time its lease is: its own, or that of its pair."""
        return self.job.index if self.partner < 0 else number_of(self.job.index, self.partner)

    def rates(self, kinds: Sequence[str], round_s: float) -> dict[str, float]:
        """Work per second of the whole steps of a full round, by type."""
        return {
            kind: whole(speed, round_s) * self.work
            for kind, speed in zip(kinds, self.speed, strict=True)
        }

    def lease(self, kind: int, now_s: float, round_s: float, speed: float) -> None:
        """Whole steps until the end of the round at most."""
        count = min(max(1, int(speed * round_s)), self.steps - self.done)
        self.kind, self.end_s = kind, now_s + count / speed
        self.done += count


def whole(speed: float, round_s: float) -> float:
    """Steps per second, if only the whole ones of a full round count."""
    return min(max(1, int(speed * round_s)) / round_s, speed)


def all_free(nodes: tuple[int, ...], free: Mapping[int, int]) -> bool:
    """Whether these nodes have so many GPUs."""
    if len(nodes) == 1:
        return free[nodes[0]] > 0
    return all(nodes.count(node) <= free[node] for node in set(nodes))


def first_free(gpus: int, free: Mapping[int, int]) -> tuple[int, ...]:
    """Nodes for so many GPUs, in the order of the cluster; none if there are too few."""
    found: list[int] = []
    for node, room in free.items():
        if room:
            found += [node] * min(room, gpus - len(found))
            if len(found) == gpus:
                return tuple(found)
    return ()
