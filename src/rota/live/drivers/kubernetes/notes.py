"""Why objects wait, told where their owners look: an event and a condition on the object."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.api import CONFLICT, KubeApi, KubeError, KubeObject
from rota.live.drivers.kubernetes.cache import key_of

log = logging.getLogger("rota.kubernetes")
_LONGEST = 1_000  # letters of a message; Kubernetes takes 1,024


class ObjectNotes:
    """Tells news only. An object has at most one event for each reason: it is told anew.

    That a note cannot be written costs the note, nothing else.
    """

    def __init__(self, api: KubeApi) -> None:
        self.requests = 0
        self._api = api
        self._told: dict[str, tuple[str, str]] = {}  # by uid
        self._lock = threading.Lock()

    def forget(self, there: Collection[str]) -> None:
        """All other objects are gone."""
        with self._lock:
            self._told = {uid: told for uid, told in self._told.items() if uid in there}

    def tell(
        self, version: str, kind: str, item: KubeObject, reason: str, message: str,
        condition: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:  # fmt: skip
        """An object waits for this reason; `condition` writes it into its status."""
        uid = text(part(item, "metadata"), "uid")
        with self._lock:
            if self._told.get(uid) == (reason, message):
                return
            self._told[uid] = (reason, message)
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
                    self._told.pop(uid, None)

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
