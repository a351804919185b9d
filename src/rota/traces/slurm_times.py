"""Times as `sacct` prints them: local, without a zone, so that an hour in autumn is there twice.

With `tz=Europe/Berlin` they become seconds since 1970, and of a time that is there twice the one is
taken that fits the order of events and the elapsed time of the record. Without `tz` they are taken
as a clock that runs evenly. Seconds since 1970 (`SLURM_TIME_FORMAT=%s`) and times with an offset
are understood too.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rota.core.errors import OptionError
from rota.traces.slurm_words import MISSING

_MOST_DIGITS = 11


class Clock:
    """Turns texts into seconds since 1970."""

    def __init__(self, zone: str) -> None:
        self._zone: tzinfo = UTC if not zone else _zone(zone)
        self._double = bool(zone)
        self._known: dict[str, tuple[float, float] | None] = {}

    @property
    def zoned(self) -> bool:
        """Times are those of a zone, where an hour may be there twice."""
        return self._double

    def read(self, text: str) -> tuple[float, float] | None:
        """The time, and the time if the clock had been set back before it; None: no time."""
        text = text.strip()
        if text not in self._known:
            self._known[text] = self._parsed(text)
        return self._known[text]

    def _parsed(self, text: str) -> tuple[float, float] | None:
        if text.isdecimal() and len(text) <= _MOST_DIGITS:
            return (float(text), float(text)) if int(text) else None
        try:
            time = datetime.fromisoformat(text)
            if time.tzinfo is not None:
                return (time.timestamp(), time.timestamp())
            first = time.replace(tzinfo=self._zone).timestamp()
            second = time.replace(tzinfo=self._zone, fold=1).timestamp()
        except (ValueError, OverflowError):
            return None
        return first, max(first, second) if self._double else first

    def wrong(self, text: str) -> bool:
        """It is neither a time nor a word for none."""
        return text.strip() not in (*MISSING, "0") and self.read(text) is None

    def ordered(
        self, texts: Sequence[str], elapsed_s: float | None
    ) -> tuple[float | None, float | None, float | None, float | None]:
        """Submission, eligible, start, end: none before the one before it if it can be helped."""
        submit, eligible, start, end = texts
        submit_s = self._first(submit, None)
        eligible_s = self._first(eligible, submit_s)
        start_s = self._first(start, eligible_s if eligible_s is not None else submit_s)
        end_s = self._first(end, start_s)
        choices = self.read(end)
        if start_s is not None and choices and elapsed_s is not None:
            end_s = min(choices, key=lambda time_s: abs(time_s - start_s - elapsed_s))
        return submit_s, eligible_s, start_s, end_s

    def _first(self, text: str, after_s: float | None) -> float | None:
        choices = self.read(text)
        if choices is None:
            return None
        early_s, late_s = choices
        return late_s if after_s is not None and early_s < after_s <= late_s else early_s


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(
            f"format sacct: tz={name} is not a known time zone: write e.g. tz=Europe/Berlin"
        ) from error
