"""Browsers: a code that works once, or a log-in, becomes a session, and no token ever gets there.

Codes and sessions are kept in memory, as digests: a daemon that was started again knows none, so
what somebody caught who listened in its place is worth nothing.
"""

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rota.core.proof import token_digest, token_label
from rota.wire import Actor, SessionInfo

CODE_S, SESSION_S = 60.0, 12 * 3600.0
MOST, MOST_EACH = 1_000, 50  # codes or sessions, in all and of one name: the oldest go
VIA = "web"

Sender: TypeAlias = Callable[[], Actor | None]
"""Who it is, asked anew each time: a token may have been revoked meanwhile."""


def cookie_name(port: int, *, secure: bool, what: str = "session") -> str:
    """Browsers keep the cookies of all ports of a machine together: each daemon has its own."""
    return f"{'__Host-' if secure else ''}rota_{what}_{port}"


class _Expiring(msgspec.Struct, frozen=True):
    id: str
    name: str
    sender: Sender
    began_s: float
    until_s: float


class WebSessions:
    """Codes that were given out, and the sessions of browsers; safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[str, _Expiring] = {}
        self._sessions: dict[str, _Expiring] = {}

    def code(self, sender: Sender) -> str:
        """A code for this sender's browser."""
        return self._give(self._codes, sender, CODE_S)

    def begin(self, code: str) -> str | None:
        """Exchange a code for a session; None: it is too old, was used, or never was one."""
        with self._lock:
            entry = self._codes.pop(token_digest(code), None)
        if entry is None or entry.until_s < self._clock() or entry.sender() is None:
            return None
        return self.begin_for(entry.sender)

    def begin_for(self, sender: Sender, seconds: float = SESSION_S) -> str:
        """A session of somebody who has shown who they are."""
        return self._give(self._sessions, sender, seconds)

    def actor(self, session: str) -> Actor | None:
        """Whose session it is."""
        with self._lock:
            entry = self._sessions.get(token_digest(session))
        if entry is None or entry.until_s < self._clock():
            return None
        return entry.sender()

    def all(self, now_unix: float) -> list[SessionInfo]:
        """Those that are not over, oldest first."""
        now_s = self._clock()
        with self._lock:
            entries = [each for each in self._sessions.values() if each.until_s >= now_s]
        found = []
        for each in entries:
            actor = each.sender()
            if actor is not None:
                began_at, until = (now_unix + at - now_s for at in (each.began_s, each.until_s))
                found.append(
                    SessionInfo(
                        id=each.id, user=each.name, role=actor.role, via=VIA, began_at=began_at,
                        until=until,
                    )
                )  # fmt: skip
        return found

    def end(self, session: str) -> bool:
        """Log somebody out, by the id of the session; False if there is none."""
        with self._lock:
            gone = [key for key, entry in self._sessions.items() if entry.id == session]
            for key in gone:
                del self._sessions[key]
        return bool(gone)

    def _give(self, kept: dict[str, _Expiring], sender: Sender, seconds: float) -> str:
        secret, now_s = secrets.token_urlsafe(32), self._clock()
        actor = sender()
        name = actor.name if actor else ""
        digest = token_digest(secret)
        with self._lock:
            old = [key for key, entry in kept.items() if entry.until_s < now_s]
            theirs = [key for key, entry in kept.items() if entry.name == name]
            for key in {*old, *theirs[: max(0, len(theirs) + 1 - MOST_EACH)]}:
                del kept[key]
            while len(kept) >= MOST:
                del kept[next(iter(kept))]
            label = token_label(digest)[:12]
            kept[digest] = _Expiring(label, name, sender, now_s, now_s + seconds)
        return secret


def web_session_id(session: str) -> str:
    """By which people speak of a session."""
    return token_label(token_digest(session))[:12]
