"""Servers of which one leads at a time: whom to ask next."""

from collections.abc import Sequence

LEADER = "Rota-Leader"
"""A header: the URL of the one that leads."""
MISDIRECTED = 421
"""The HTTP status of one that does not."""


class Turns:
    """Remembers who led last. Safe from several threads."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)
        self.current = self.urls[0]

    def leave(self, url: str, leader: str = "") -> None:
        """This one does not lead, or does not answer.

        Args:
            url: Who was asked.
            leader: Who leads, as that one says. Only an address that was given is believed: a token
                must not go anywhere else.
        """
        if self.current == url:  # else another thread has moved already
            after = self.urls[(self.urls.index(url) + 1) % len(self.urls)]
            self.current = leader if leader in self.urls else after
