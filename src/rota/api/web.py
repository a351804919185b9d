"""Browsers: a code that works once, or a log-in, becomes a session, and no token ever gets there.

Codes and sessions are kept in memory, as digests: a daemon that was started again knows none, so
what somebody caught who listened in its place is worth nothing. A browser that has a key comes
again by itself: it signs a challenge of the new daemon, and the port on which it talks to it, so
that an answer that somebody passes on from another port is worth nothing either.
"""

import base64
import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from rota.core.proof import token_digest, token_label
from rota.wire import Actor, KeptBrowser, SessionBasis, SessionInfo

CODE_S, SESSION_S = 60.0, 12 * 3600.0
MOST, MOST_EACH = 1_000, 50  # codes or sessions, in all and of one name: the oldest go
VIA = "web"

Sender: TypeAlias = Callable[[SessionBasis], Actor | None]
"""Who it is, asked anew each time: a token may have been revoked meanwhile."""


def cookie_name(port: int, *, secure: bool, what: str = "session") -> str:
    """Browsers keep the cookies of all ports of a machine together: each daemon has its own."""
    return f"{'__Host-' if secure else ''}rota_{what}_{port}"


def is_signed(key: str, signature: str, challenge: str, port: int) -> bool:
    """Did the holder of this key sign this challenge, for a daemon at this port?"""
    point, pair = _unpacked(key), _unpacked(signature)
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        der = encode_dss_signature(int.from_bytes(pair[:32]), int.from_bytes(pair[32:]))
        public.verify(der, resume_text(challenge, port), ec.ECDSA(SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


def resume_text(challenge: str, port: int) -> bytes:
    """What a browser signs."""
    return f"rota resume {challenge} {port}".encode()


def _unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class _Expiring(msgspec.Struct, frozen=True):
    id: str
    name: str
    basis: SessionBasis
    began_s: float
    until_s: float


class WebSessions:
    """Codes that were given out, and the sessions of browsers; safe from any thread."""

    def __init__(self, sender: Sender, clock: Callable[[], float] = time.monotonic) -> None:
        self._sender = sender
        self._clock = clock
        self._lock = threading.Lock()
        self._challenges: dict[str, float] = {}  # until when
        self._codes: dict[str, _Expiring] = {}
        self._sessions: dict[str, _Expiring] = {}

    def code(self, basis: SessionBasis) -> str:
        """A code for this sender's browser."""
        return self._give(self._codes, basis, CODE_S)

    def challenge(self) -> str:
        """Something new that a browser may sign."""
        made, now_s = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            for old in [each for each, until_s in self._challenges.items() if until_s < now_s]:
                del self._challenges[old]
            while len(self._challenges) >= MOST:
                del self._challenges[next(iter(self._challenges))]
            self._challenges[made] = now_s + CODE_S
        return made

    def answered(self, challenge: str) -> bool:
        """Was this asked, not long ago? It is over now."""
        with self._lock:
            return self._challenges.pop(challenge, -1.0) >= self._clock()

    def begin(self, code: str) -> str | None:
        """Exchange a code for a session; None: it is too old, was used, or never was one."""
        with self._lock:
            entry = self._codes.pop(token_digest(code), None)
        if entry is None or entry.until_s < self._clock() or self._sender(entry.basis) is None:
            return None
        return self.begin_for(entry.basis)

    def begin_for(self, basis: SessionBasis, seconds: float = SESSION_S) -> str:
        """A session of somebody who has shown who they are."""
        return self._give(self._sessions, basis, seconds)

    def actor(self, session: str) -> Actor | None:
        """Whose session it is."""
        entry = self._find(session)
        return None if entry is None else self._sender(entry.basis)

    def basis(self, session: str) -> SessionBasis | None:
        """By what its holder was recognised."""
        entry = self._find(session)
        return None if entry is None else entry.basis

    def kept(self, session: str, key: str, now_unix: float) -> KeptBrowser | None:
        """What has to be known of a session for its browser to come again with this key."""
        entry = self._find(session)
        if entry is None:
            return None
        until = now_unix + entry.until_s - self._clock()
        return KeptBrowser(key, entry.id, entry.basis, until)

    def _find(self, session: str) -> _Expiring | None:
        with self._lock:
            entry = self._sessions.get(token_digest(session))
        return None if entry is None or entry.until_s < self._clock() else entry

    def all(self, now_unix: float) -> list[SessionInfo]:
        """Those that are not over, oldest first."""
        now_s = self._clock()
        with self._lock:
            entries = [each for each in self._sessions.values() if each.until_s >= now_s]
        found = []
        for each in entries:
            actor = self._sender(each.basis)
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

    def _give(self, kept: dict[str, _Expiring], basis: SessionBasis, seconds: float) -> str:
        secret, now_s = secrets.token_urlsafe(32), self._clock()
        actor = self._sender(basis)
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
            kept[digest] = _Expiring(label, name, basis, now_s, now_s + seconds)
        return secret


def web_session_id(session: str) -> str:
    """By which people speak of a session."""
    return token_label(token_digest(session))[:12]
