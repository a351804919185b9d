"""Why objects wait, told where their owners look: an event and a condition on the object.

Both are requests of their own, so what is told is chosen. That an object waits is told when it has
waited for `after_s`: most are started sooner, and nobody has to be told that they wait. A change of
the reason is told, too, but not before `6 after_s` have passed since the last one; and all together
are told at most one a second, the oldest first. What ends the waiting (it was refused, started, or
is over) is told at once.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from time import monotonic

import msgspec

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.api import CONFLICT, KubeApi, KubeError, KubeObject
from rota.live.drivers.kubernetes.cache import key_of

log = logging.getLogger("rota.kubernetes")
_LONGEST = 1_000  # letters of a message; Kubernetes takes 1,024
AGAIN = 6  # times `after_s`: so long a reason that changes is not told anew
A_SECOND = 1.0  # notes that are not urgent, of all objects together
BURST = 20.0


class _Noted(msgspec.Struct):
    """Since when an object is known to wait, and what was told of it when."""

    since_s: float
    told: tuple[str, str] = ("", "")
    told_s: float = -1.0e9


class ObjectNotes:
    """Tells news only. An object has at most one event for each reason: it is told anew.

    That a note cannot be written costs the note, nothing else.
    """

    def __init__(
        self, api: KubeApi, after_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.requests = 0
        self._api = api
        self._after_s = after_s
        self._clock = clock
        self._noted: dict[str, _Noted] = {}  # by uid
        self._left, self._left_s = BURST, clock()  # notes that may be written, and when that was
        self._lock = threading.Lock()

    def forget(self, there: Collection[str]) -> None:
        """All other objects are gone."""
        with self._lock:
            self._noted = {uid: noted for uid, noted in self._noted.items() if uid in there}

    def tell(
        self, version: str, kind: str, item: KubeObject, reason: str, message: str,
        condition: Callable[[Mapping[str, str]], None] | None = None, *, urgent: bool = False,
    ) -> None:  # fmt: skip
        """An object waits for this reason; `condition` writes it into its status.

        `urgent`: it will not be asked for again, or is more than a reason to wait.
        """
        uid = text(part(item, "metadata"), "uid")
        with self._lock:
            noted, now_s = self._noted.setdefault(uid, _Noted(self._clock())), self._clock()
            if noted.told == (reason, message) or not (urgent or self._due(noted, now_s)):
                return
            before = (noted.told, noted.told_s)
            noted.told, noted.told_s = (reason, message), now_s
        try:
            self.requests += 1
            self._event(version, kind, item, reason, message[:_LONGEST])
            if condition is not None:
                self.requests += 1
                condition({
                    "reason": reason, "message": message[:_LONGEST], "lastTransitionTime": _now()
                })  # fmt: skip
        except ClusterError as error:
            log.info("note on %s %s: %s", kind, "/".join(key_of(item)), error)
            if error.retryable or (isinstance(error, KubeError) and error.status == CONFLICT):
                with self._lock:
                    noted.told, noted.told_s = before

    def _due(self, noted: _Noted, now_s: float) -> bool:
        """Has it waited for long, is what was told last old, and may one more be written?"""
        told_s = AGAIN * self._after_s
        if now_s - noted.since_s < self._after_s or now_s - noted.told_s < told_s:
            return False
        left = min(BURST, self._left + A_SECOND * (now_s - self._left_s))
        self._left, self._left_s = left, now_s
        if left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _event(self, version: str, kind: str, item: KubeObject, reason: str, message: str) -> None:
        space, name = key_of(item)
        uid, now = text(part(item, "metadata"), "uid"), _now()
        path = f"/api/v1/namespaces/{space}/events"
        called = f"rota-{uid}-{reason.lower()}"
        body = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": called, "namespace": space},
            "involvedObject": {
                "apiVersion": version, "kind": kind, "namespace": space, "name": name, "uid": uid,
            },
            "type": "Normal", "reason": reason, "message": message, "count": 1,
            "source": {"component": "rota"}, "firstTimestamp": now, "lastTimestamp": now,
        }  # fmt: skip
        try:
            self._api.create(path, body)
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            self.requests += 1
            self._api.patch(f"{path}/{called}", {"message": message, "lastTimestamp": now})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
