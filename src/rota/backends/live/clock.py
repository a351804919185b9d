"""Time on a living cluster: seconds since its beginning, never backwards."""

from time import monotonic, time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and how long to sleep until one."""

    def now_s(self) -> float:
        """Seconds since the cluster began."""
        ...

    def wait_s(self, until_s: float) -> float:
        """Real seconds until then."""
        ...


class WallClock:
    """Real time. A step of the system's clock moves it only between two lives of a daemon.

    Args:
        epoch_unix: When the cluster began.
        not_before_s: What the former daemon had reached; time never goes back behind it.
        speed: Seconds of the cluster per real second (for rehearsals).
    """

    def __init__(self, epoch_unix: float, not_before_s: float = 0.0, *, speed: float = 1.0) -> None:
        self._speed = speed
        self._offset_s = max(not_before_s, (time() - epoch_unix) * speed)
        self._origin = monotonic()

    def now_s(self) -> float:
        """Seconds since the cluster began."""
        return self._offset_s + (monotonic() - self._origin) * self._speed

    def wait_s(self, until_s: float) -> float:
        """Real seconds until then."""
        return (until_s - self.now_s()) / self._speed
