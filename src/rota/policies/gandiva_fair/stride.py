"""Stride scheduling with gangs: who is served in the next quantum, in proportion to tickets.

Everybody has a pass, which grows by (GPU-seconds received) / tickets; the smallest pass is served
next. A gang that does not fit into what is left keeps its pass and is served first in the next
quantum, when everything is dealt out anew; until then smaller ones use what is left. So large gangs
are not starved, small ones are not blocked, and nothing idles: in each quantum the smallest pass is
served. Those who always want more than they get, with gangs that leave no GPU idle, are never
further apart, in GPU-seconds per ticket, than two gangs for one quantum. Where gangs leave GPUs
idle, those who can use them get more than their share, and nobody less.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)


class Stride(msgspec.Struct, Generic[K]):
    """The passes of all who compete."""

    passes: dict[K, float] = {}

    def present(self, members: Collection[K]) -> None:
        """These compete now. Newcomers have neither saved up nor owe anything; others are gone."""
        kept = {member: self.passes[member] for member in members if member in self.passes}
        start = min(kept.values(), default=0.0)
        self.passes = {member: kept.get(member, start) for member in members}

    def charge(self, member: K, amount: float) -> None:
        """It has received so much per ticket; nothing happens to those who are gone."""
        if member in self.passes:
            self.passes[member] += amount

    def settle(self, hungry: Collection[K]) -> None:
        """A tenant that has all it asks for saves up nothing while others lack GPUs."""
        least = min((self.passes[member] for member in hungry), default=None)
        if least is None:
            return
        for member, value in self.passes.items():
            if value < least:
                self.passes[member] = least


def deal(
    passes: Mapping[str, float],
    tickets: Mapping[str, float],
    queues: Mapping[str, Sequence[tuple[int, float]]],
    room: float,
    quantum_s: float,
) -> Iterator[int]:
    """The jobs that share `room` GPUs for the next quantum, the first to be served first.

    `queues` are each user's jobs in its own order, with the GPUs of each. Users without tickets
    come last, for what is left over.
    """
    expected = {user: passes.get(user, 0.0) for user in queues}
    at = dict.fromkeys(queues, 0)
    while room > 0:
        open_users = [user for user, queue in queues.items() if at[user] < len(queue)]
        if not open_users:
            return
        user = min(open_users, key=lambda user: (tickets.get(user, 0.0) <= 0, expected[user]))
        job, gpus = queues[user][at[user]]
        at[user] += 1
        if gpus > room + 1e-9:
            continue
        room -= gpus
        expected[user] += gpus * quantum_s / max(tickets.get(user, 0.0), 1e-9)
        yield job
