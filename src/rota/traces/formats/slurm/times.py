"""Times as `sacct` prints them: local, without a zone, so that an hour in autumn is there twice.

With `tz=Europe/Berlin` they become seconds since 1970, and of a time that is there twice the one is
taken that fits the elapsed time of the record (`ElapsedRaw`), or the order of events where that
says nothing. Without `tz` they are taken as a clock that runs evenly. Where start and end then
differ from the elapsed time by an hour, the report suggests a zone that would explain it, and with
`tz` it counts times that the zone does not have. Seconds since 1970 (`SLURM_TIME_FORMAT=%s`) and
times with an offset are understood too.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from itertools import product
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rota.core.errors import OptionError
from rota.traces.formats.slurm.words import MISSING

_MOST_DIGITS = 11
_HOUR_S = 3_600.0
_NEAR_S = 2.0
_LOOKED_AT = 500
_USUAL = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Helsinki", "America/New_York",
    "America/Chicago", "America/Denver", "America/Los_Angeles", "Australia/Sydney",
)  # fmt: skip
"""Zones to suggest: those whose clocks change at different moments."""


class Clock:
    """Turns texts into seconds since 1970."""

    def __init__(self, zone: str) -> None:
        self._zone: tzinfo = UTC if not zone else _zone(zone)
        self._double = bool(zone)
        self._known: dict[str, tuple[float, float] | None] = {}
        self.skipped: set[str] = set()
        """Times that were read although there is no such time: the clock was set forward."""

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
        if second < first:
            self.skipped.add(text)
        return first, max(first, second) if self._double else first

    def wrong(self, text: str) -> bool:
        """It is neither a time nor a word for none."""
        return text.strip() not in (*MISSING, "0") and self.read(text) is None

    def ordered(
        self, texts: Sequence[str], elapsed_s: float | None
    ) -> tuple[float | None, float | None, float | None, float | None]:
        """Submission, eligible, start, end: as long as it took, and in order if possible."""
        submit, eligible, start, end = texts
        submit_s = self._first(submit, None)
        eligible_s = self._first(eligible, submit_s)
        after_s = eligible_s if eligible_s is not None else submit_s
        starts_s, ends_s = self.read(start), self.read(end)
        if starts_s is None or ends_s is None or elapsed_s is None:
            start_s = self._first(start, after_s)
            return submit_s, eligible_s, start_s, self._first(end, start_s)

        def misfit(span: tuple[float, float]) -> tuple[bool, float, bool]:
            off_s = span[1] - span[0] - elapsed_s
            return off_s < -_NEAR_S, abs(off_s), after_s is not None and span[0] < after_s

        start_s, end_s = min(product(starts_s, ends_s), key=misfit)
        return submit_s, eligible_s, start_s, end_s

    def _first(self, text: str, after_s: float | None) -> float | None:
        choices = self.read(text)
        if choices is None:
            return None
        early_s, late_s = choices
        return late_s if after_s is not None and early_s < after_s <= late_s else early_s


Ran = tuple[float, float, float]
"""Start, end and seconds that passed in between."""


def hour_off(ran: Ran) -> bool:
    """It is an hour too long or too short."""
    return abs(abs(ran[1] - ran[0] - ran[2]) - _HOUR_S) <= _NEAR_S


def suggested(those: Sequence[Ran], zone: str) -> str:
    """A note on runs that are an hour off, if another zone than this would explain some of them."""
    known = ZoneInfo(zone) if zone else UTC
    some = those[:: 1 + len(those) // _LOOKED_AT]
    spans = [[_local(time_s, known) for time_s in ran[:2]] for ran in some]
    best, most = "", 0
    for name in _USUAL:
        try:
            clock = Clock(name)
        except OptionError:  # this machine does not know it
            continue
        fits = 0
        for (start, end), (_, _, took_s) in zip(spans, some, strict=True):
            _, _, start_s, end_s = clock.ordered(("", "", start, end), took_s)
            fits += abs((end_s or 0.0) - (start_s or 0.0) - took_s) <= _NEAR_S
        if fits > most and not clock.skipped:
            best, most = name, fits
    if not most:
        return ""
    return (
        f"{len(those):,} runs take an hour more or less from start to end than ElapsedRaw says, as "
        f"where clocks are changed: a time zone would explain {most:,} of {len(some):,} looked at, "
        f"e.g. tz={best}"
    )


def _local(time_s: float, zone: tzinfo) -> str:
    try:
        return datetime.fromtimestamp(time_s, zone).replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(
            f"format sacct: tz={name} is not a known time zone: write e.g. tz=Europe/Berlin"
        ) from error
