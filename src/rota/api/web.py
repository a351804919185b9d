"""Browsers: a code that works once becomes a session, and no token ever gets there.

Codes and sessions are kept in memory, as digests: a daemon that was started again knows none, so
what somebody caught who listened in its place is worth nothing.
"""

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rota.core.proof import token_digest
from rota.wire import Actor

CODE_S, SESSION_S = 60.0, 12 * 3600.0
MOST = 1_000  # codes or sessions: the oldest go
COOKIE = "rota_session"

Sender: TypeAlias = Callable[[], Actor | None]
"""Who it is, asked anew each time: a token may have been revoked meanwhile."""


class _Expiring(msgspec.Struct, frozen=True):
    sender: Sender
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
        return self._give(self._sessions, entry.sender, SESSION_S)

    def actor(self, session: str) -> Actor | None:
        """Whose session it is."""
        with self._lock:
            entry = self._sessions.get(token_digest(session))
        if entry is None or entry.until_s < self._clock():
            return None
        return entry.sender()

    def end(self, session: str) -> None:
        """Log out."""
        with self._lock:
            self._sessions.pop(token_digest(session), None)

    def _give(self, kept: dict[str, _Expiring], sender: Sender, seconds: float) -> str:
        secret, now_s = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            for old in [key for key, entry in kept.items() if entry.until_s < now_s]:
                del kept[old]
            while len(kept) >= MOST:
                del kept[next(iter(kept))]
            kept[token_digest(secret)] = _Expiring(sender, now_s + seconds)
        return secret
