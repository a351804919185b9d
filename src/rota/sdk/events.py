"""Rows of the event log as the API tells them."""

import msgspec

from rota.core.errors import RequestError


class Event(msgspec.Struct, kw_only=True):
    """One row; `number` counts from 1 and is where to continue after a break.

    `at` is the time in Unix seconds. What `ref`, `other`, `value` and `text` mean depends on
    `event`: see the reference of the event log.
    """

    number: int
    time_s: float
    at: float | None = None
    event: str
    job: str | None = None
    ref: int = 0
    other: int = 0
    value: float | None = None
    text: str | None = None


class EventPage(msgspec.Struct, kw_only=True):
    """A piece of the log; continue with `after` = `next`. `end`: there is no more yet."""

    events: list[Event]
    next: int
    end: bool = True


class Messages:
    """Server-sent events, line by line. `last` is where to continue after a break."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self._id: int | None = None
        self._data: list[str] = []

    def take(self, line: str) -> Event | None:
        """The event that this line completes, if it does."""
        if not line:
            data, self._data = "\n".join(self._data), []
            if not data:
                self.last = self.last if self._id is None else self._id
                return None
            try:
                event = msgspec.json.decode(data, type=Event)
            except msgspec.DecodeError as error:
                raise RequestError(f"an event cannot be read ({error}): update rota") from error
            self.last = event.number
            return event
        key, _, value = line.partition(":")
        if key == "data":
            self._data.append(value.removeprefix(" "))
        elif key == "id" and value.strip().isdecimal():
            self._id = int(value)
        return None

    def restart(self) -> None:
        """The connection broke: what was half told comes again."""
        self._data = []
