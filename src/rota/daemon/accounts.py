"""Whom the jobs of each user run as on the machines: an account there, or a number of their own."""

from collections.abc import Mapping
from threading import Lock

import msgspec

from rota.core.errors import ConflictError
from rota.daemon.settings import IsolationSettings
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.live.driver import RunOrder
from rota.wire import ADMIN, TOKEN_NAME, Actor

FACT, OWNER_FACT = "accounts", "owner"
LOCAL = "local"
"""Who owns the daemon where their own name cannot be had; before, always."""


class GivenNumber(msgspec.Struct, frozen=True, array_like=True):
    """The uid of a user's jobs after a job's number: a later holder of the name has another one."""

    user: str
    after_job: int
    uid: int


class KnownOwner(msgspec.Struct, frozen=True):
    """Who owns the daemon, and after which job."""

    name: str = LOCAL
    after_job: int = 0


def find_owner(store: Store, tokens: Tokens, name: str) -> Actor:
    """Whoever runs the daemon, by the name of their account; nobody else can have it then.

    One that a token, a machine or a person has already stays theirs.
    """
    known = msgspec.json.decode(store.fact(OWNER_FACT, "{}"), type=KnownOwner)
    free = TOKEN_NAME.fullmatch(name) is not None and not tokens.has(name)
    if known.name != name and free:
        known = KnownOwner(name, store.job_number)
        store.change_fact(OWNER_FACT, msgspec.json.encode(known).decode())
    owner = Actor(name, ADMIN, known.after_job) if known.name == name else Actor(LOCAL, ADMIN)
    tokens.people.reserved = frozenset({LOCAL, owner.name})
    return owner


class Accounts:
    """Numbers are given once and never again, so that no job finds another user's files.

    `owner` is whoever runs the daemon.
    """

    def __init__(
        self, store: Store, settings: IsolationSettings, others: Mapping[str, str], owner: Actor
    ) -> None:
        self._store = store
        self._owner = owner
        self._said = {name: name for name in others}
        self._said |= {name: str(account) for name, account in settings.users.items()}
        self._first, self._last = settings.range
        self._lock = Lock()
        self._given = msgspec.json.decode(store.fact(FACT, "[]"), type=list[GivenNumber])

    def ensure(self, actor: Actor) -> None:
        """Give the jobs that an actor submits from now on a number, if they need one."""
        if actor.name not in self._said:
            self._number(actor.name, actor.after_job)

    def of(self, order: RunOrder) -> tuple[str, bool]:
        """The account of a run, and is it of the daemon's owner?"""
        of_owner = self._is_owners(order)
        if order.user in self._said:
            return self._said[order.user], of_owner
        number = int(order.job) if order.job.isdecimal() else 0
        found = [each for each in self._given if each.user == order.user]
        fitting = [each for each in found if each.after_job < number]
        newest = max(fitting, key=lambda each: each.after_job, default=None)
        uid = newest.uid if newest is not None else self._number(order.user, 0)
        return str(uid), of_owner

    def _is_owners(self, order: RunOrder) -> bool:
        """Somebody else may have had the name before."""
        number = int(order.job) if order.job.isdecimal() else 0
        later = self._owner.after_job == 0 or number > self._owner.after_job
        return order.user == LOCAL or (order.user == self._owner.name and later)

    def _number(self, user: str, after_job: int) -> int:
        with self._lock:
            for each in self._given:
                if (each.user, each.after_job) == (user, after_job):
                    return each.uid
            uid = 1 + max((each.uid for each in self._given), default=self._first - 1)
            uid = max(uid, self._first)
            if uid > self._last:
                raise ConflictError(
                    f"isolation.uids {self._first}-{self._last}: all numbers are given, none is "
                    f"left for user {user!r}: give a larger range"
                )
            given = [*self._given, GivenNumber(user, after_job, uid)]
            self._store.change_fact(FACT, msgspec.json.encode(given).decode())
            self._given = given
        return uid
