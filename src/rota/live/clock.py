"""Time on a living cluster: seconds since its beginning, never backwards."""

from time import CLOCK_BOOTTIME, clock_gettime, monotonic, time
from typing import Protocol


def boot_time_s() -> float:
    """Seconds since this machine was switched on, also while it slept; no step of the time of day.

    By this clock drivers say when something happened, shims measure runs, and leases end.
    """
    return clock_gettime(CLOCK_BOOTTIME)


class ClusterClock(Protocol):
    """Tells the time, and how long to sleep until one."""

    def now_s(self) -> float:
        """Seconds since the cluster began."""
        ...

    def wait_s(self, until_s: float) -> float:
        """Real seconds until then."""
        ...

    def at_s(self, moment_s: float) -> float:
        """What it showed at a moment of the past (`boot_time_s`)."""
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

    def at_s(self, moment_s: float) -> float:
        """What it showed (or would have shown) at a moment of the past."""
        return self.now_s() - (boot_time_s() - moment_s) * self._speed
