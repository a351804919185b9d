"""A collection of objects as the API server has it, kept up to date by a thread that watches."""

import logging
import threading
from collections.abc import Callable
from time import monotonic

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.api import GONE, OPENED, KubeApi, KubeError, KubeObject

log = logging.getLogger("rota.kubernetes")
FIRST_NAP_S, LONGEST_NAP_S = 0.2, 15.0


class ObjectCache:
    """Lists a collection, then watches it from there; lists it anew when its place is forgotten.

    Args:
        api: The server.
        path: Of the collection.
        changed: Called after each change, in the thread that watches, with (namespace, name).
        query: Selectors.

    `get` and `values` give what was seen last; an object that we made or changed ourselves is
    entered at once (`enter`), so that nobody decides by what was before.
    """

    def __init__(
        self, api: KubeApi, path: str, changed: Callable[[tuple[str, str]], None], **query: str
    ) -> None:
        self.lists = 0
        self.trouble = ""
        self.unheard_since_s: float | None = None
        self._api = api
        self._path = path
        self._query = query
        self._changed = changed
        self._objects: dict[tuple[str, str], KubeObject] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rota-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the thread ends with its present request."""
        self._closing.set()

    def join(self) -> None:
        """Until the thread has ended; the connections must be closed."""
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it was listed once."""
        return self._listed.wait(timeout_s)

    @property
    def listed(self) -> bool:
        """Was it listed once?"""
        return self._listed.is_set()

    # --- what there is ----------------------------------------------------------------------------

    def get(self, key: tuple[str, str]) -> KubeObject | None:
        """One object, by (namespace, name)."""
        with self._lock:
            return self._objects.get(key)

    def values(self) -> list[KubeObject]:
        """All of them."""
        with self._lock:
            return list(self._objects.values())

    def enter(self, item: KubeObject) -> None:
        """An object that the server has just told us about."""
        key = key_of(item)
        with self._lock:
            known = self._objects.get(key)
            if known is not None and _version(known) > _version(item):
                return
            self._objects[key] = item
        self._changed(key)

    def drop(self, key: tuple[str, str]) -> None:
        """An object that the server has just told us is gone."""
        with self._lock:
            known = self._objects.pop(key, None)
        if known is not None:
            self._changed(key)

    # --- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        version, nap_s = "", FIRST_NAP_S
        while not self._closing.is_set():
            try:
                if not version:
                    version = self._list()
                heard = False
                for kind, item in self._api.watch(self._path, version, **self._query):
                    if self._closing.is_set():
                        return
                    self.trouble, self.unheard_since_s = "", None
                    if kind == OPENED:
                        continue
                    version = text(part(item, "metadata"), "resourceVersion") or version
                    self._take(kind, item)
                    heard, nap_s = True, FIRST_NAP_S
                if not heard:  # a server that ends watches at once is not asked without a pause
                    self._closing.wait(nap_s)
                    nap_s = min(2 * nap_s, LONGEST_NAP_S)
            except ClusterError as error:
                if isinstance(error, KubeError) and error.status == GONE:
                    log.info("the watch of %s is too old: it is listed anew", self._path)
                    version = ""
                    continue
                self._stumble(error, nap_s)
                nap_s = min(2 * nap_s, LONGEST_NAP_S)
            except Exception:
                log.exception("the watch of %s stumbled; it goes on", self._path)
                version = ""
                self._closing.wait(nap_s)

    def _stumble(self, error: ClusterError, nap_s: float) -> None:
        self.trouble = str(error)
        if self.unheard_since_s is None:
            self.unheard_since_s = monotonic()
            log.warning("%s", error)
        self._closing.wait(nap_s)

    def _list(self) -> str:
        items, version = self._api.pages(self._path, **self._query)
        fresh = {key_of(item): item for item in items}
        with self._lock:
            for key, known in self._objects.items():  # what we did while the list was on its way
                if _version(known) > max(_version(fresh.get(key)), _number(version)):
                    fresh[key] = known
            changed = [
                key
                for key in fresh.keys() | self._objects.keys()
                if _version(fresh.get(key)) != _version(self._objects.get(key))
            ]
            self._objects = fresh
        self.lists += 1
        self.trouble, self.unheard_since_s = "", None
        self._listed.set()
        for key in sorted(changed):
            self._changed(key)
        if not changed:
            self._changed(("", ""))
        return version

    def _take(self, kind: str, item: KubeObject) -> None:
        if kind in ("ADDED", "MODIFIED"):
            self.enter(item)
        elif kind == "DELETED":
            key = key_of(item)
            known = self.get(key)
            if known is None or _uid(known) == _uid(item):
                self.drop(key)


def key_of(item: KubeObject) -> tuple[str, str]:
    """Namespace (empty for nodes) and name."""
    about = part(item, "metadata")
    return text(about, "namespace"), text(about, "name")


def _uid(item: KubeObject) -> str:
    return text(part(item, "metadata"), "uid")


def _version(item: KubeObject | None) -> int:
    """Versions of one object grow; that they are numbers is how the server's own client does it."""
    return _number(text(part(item, "metadata"), "resourceVersion")) if item is not None else 0


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
