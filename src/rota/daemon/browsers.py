"""Browsers that may come again after a restart of the daemon, each with a key of its own."""

import time
from collections.abc import Callable
from threading import Lock

import msgspec

from rota.daemon.store import Store
from rota.wire import KeptBrowser

FACT = "browsers"
MOST = 500  # the oldest are forgotten


class Browsers:
    """Kept in the store: a daemon that takes over knows them, too. `clock`: Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        kept = msgspec.json.decode(store.fact(FACT, "[]"), type=list[KeptBrowser])
        self._kept = {each.key: each for each in kept}

    def find(self, key: str) -> KeptBrowser | None:
        """The session that the holder of this key may take up again."""
        found = self._kept.get(key)
        return None if found is None or found.until <= self._clock() else found

    def keep(self, browser: KeptBrowser) -> None:
        """Let the holder of a key come again as long as its session would have lasted."""
        with self._lock:
            if self._kept.get(browser.key) == browser:
                return
            self._kept.pop(browser.key, None)
            self._kept[browser.key] = browser
            now = self._clock()
            alive = [each for each in self._kept.values() if each.until > now]
            self._save(alive[-MOST:])

    def forget(self, session: str) -> None:
        """The session was ended, by its id: its browser has to log in again."""
        with self._lock:
            left = [each for each in self._kept.values() if each.session != session]
            if len(left) < len(self._kept):
                self._save(left)

    def _save(self, kept: list[KeptBrowser]) -> None:
        self._kept = {each.key: each for each in kept}
        self._store.change_fact(FACT, msgspec.json.encode(kept).decode())
