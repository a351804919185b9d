"""Who has GPUs in the present round, and what everyone got so far.

A job that has spent more time on being started than on running keeps its GPUs beyond the end of a
round: else starts that take longer than a round would eat all the time.

Jobs that no single type can serve are not part of the problem of shares. They take turns with all
others: each is owed its part of the cluster, which is the same for everyone, and goes first when it
has got less.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from rota.core.jobs import Job
from rota.policies._dispatch import Dispatcher

ANYWHERE = -1  # instead of a type


class Seat(NamedTuple):
    """The type that a job is placed on, the one that it counts as, and for whom it counts.

    That is the job itself, the number of a pair, or nobody: of a pair one job speaks for both.
    """

    kind: int
    counts: int
    account: int | None


class Lease(msgspec.Struct):
    """On which type and for whom the GPUs of a job count, and since when that is not written down.

    `began_s` and `ran_s` are the time, and the job's time of progress, when it got them.
    """

    kind: int
    account: int | None
    since_s: float
    began_s: float
    ran_s: float


class Leases:
    """The leases of all jobs, by their numbers, and what those without a type are owed."""

    def __init__(self) -> None:
        self.held: dict[int, Lease] = {}
        self.owed_s: dict[int, float] = {}

    def give(self, job: Job, seat: Seat, now_s: float) -> None:
        """The job has GPUs from now on."""
        ran_s = job.executed_s(now_s)
        self.held[job.index] = Lease(seat.counts, seat.account, now_s, now_s, ran_s)

    def change(self, index: int, seat: Seat, now_s: float, books: Dispatcher) -> None:
        """It stays where it is, but what it gets may count otherwise."""
        lease = self.held[index]
        if (lease.kind, lease.account) != seat[1:]:
            self._write(index, lease, now_s, books)
            lease.kind, lease.account = seat.counts, seat.account

    def unpaid(self, job: Job, now_s: float) -> bool:
        """It took longer to start it than it has run since."""
        lease = self.held.get(job.index)
        if lease is None:
            return False
        return now_s - lease.began_s > 2.0 * (job.executed_s(now_s) - lease.ran_s)

    def end(self, indices: Iterable[int], now_s: float, books: Dispatcher) -> None:
        """These have no GPUs any more."""
        for index in indices:
            self._write(index, self.held.pop(index), now_s, books)

    def account(self, now_s: float, books: Dispatcher) -> None:
        """Write down what everyone got so far."""
        for index, lease in self.held.items():
            self._write(index, lease, now_s, books)

    def _write(self, index: int, lease: Lease, now_s: float, books: Dispatcher) -> None:
        seconds, lease.since_s = now_s - lease.since_s, now_s
        if lease.kind == ANYWHERE:
            self.owed_s[index] = self.owed_s.get(index, 0.0) - seconds
        elif lease.account is not None and lease.account in books:
            books.record(lease.account, lease.kind, seconds)

    def owe(self, parts: Mapping[int, float], seconds: float) -> list[int]:
        """So much time has passed, of which each of these should have had a part.

        Returns:
            Whose turn it is, the longest owed first.
        """
        self.owed_s = {
            index: self.owed_s.get(index, 0.0) + part * seconds for index, part in parts.items()
        }
        owed = [(-mine_s, index) for index, mine_s in self.owed_s.items() if mine_s > 0]
        return [index for _, index in sorted(owed)]

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "held": [
                (index, *msgspec.structs.astuple(lease)) for index, lease in self.held.items()
            ],
            "owed": list(self.owed_s.items()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.held = {index: Lease(*rest) for index, *rest in state["held"]}
        self.owed_s = dict(state["owed"])
