"""A run that can be followed while it is simulated: its log so far, for who asks for it.

A simulation keeps its log in memory and writes it when it is done. Beside the folder that it will
write there is a small one (`.NAME.PID.live`) with what it is about. Whoever wants to see the run
puts a file there; from then on, and only then, the simulation adds the rows since the last time,
as one more Parquet file, about once in a second. The folder goes when the results are there.

The lock of `about.json` says whether the simulation still lives: it ends with its process.
"""

import fcntl
import glob
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Self

import msgspec
import polars as pl

from rota.engine.log import Log, write_frame
from rota.study.config import RunConfig

EVERY_S = 1.0
ABOUT, ASKED, LIVE = "about.json", "asked", ".live"


class FollowedRun(msgspec.Struct, frozen=True):
    """What is simulated."""

    policy: str
    trace: str
    cluster: str
    seed: int = 0


class LiveLog:
    """A context: the side of the simulation. If it cannot write, nobody can follow: it runs on.

    Args:
        target: The folder that the run will be written to.
        config: The run.
        clock: Seconds that pass.
    """

    def __init__(
        self, target: Path, config: RunConfig, clock: Callable[[], float] = monotonic
    ) -> None:
        self._target = target
        self.place = target.parent / f".{target.name}.{os.getpid()}{LIVE}"
        self._about = FollowedRun(config.policy, config.trace, str(config.cluster), config.seed)
        self._clock = clock
        self._lock: IO[bytes] | None = None
        self._made: list[Path] = []
        self._rows = 0
        self._pieces = 0
        self._next_s = -1.0

    def __enter__(self) -> Self:
        for left in _places(self._target):  # of a process that was killed
            if not is_alive(left):
                shutil.rmtree(left, ignore_errors=True)
        try:
            for folder in [*reversed(self.place.parents), self.place]:
                if not folder.exists():
                    folder.mkdir()
                    self._made.append(folder)
            lock = (self.place / ABOUT).open("wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(msgspec.json.encode(self._about))
            lock.flush()
            self._lock = lock
        except OSError:
            self._end()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.place, ignore_errors=True)
            self._lock.close()
            self._lock = None
        for folder in reversed(self._made):
            with suppress(OSError):  # what is not empty stays
                folder.rmdir()
        self._made = []

    def look(self, log: Log) -> None:
        """Write the rows since the last time, if somebody asked and it is time."""
        now_s = self._clock()
        if self._lock is None or now_s < self._next_s or not (self.place / ASKED).exists():
            return
        frame = log.since(self._rows)
        if frame.height:
            try:
                write_frame(frame, self.place / f"{self._pieces:06}.parquet")
            except OSError:
                self._end()
                return
            self._pieces += 1
            self._rows += frame.height
        self._next_s = self._clock() + EVERY_S


class LiveReader:
    """The side of who looks at a run that is simulated: asks for its rows, and gathers them."""

    def __init__(self, place: Path, about: FollowedRun) -> None:
        self.place = place
        self.about = about
        self._frames: list[pl.DataFrame] = []

    @property
    def lives(self) -> bool:
        """It is still being simulated."""
        return is_alive(self.place)

    @property
    def rows(self) -> int:
        """How many there are so far."""
        return sum(frame.height for frame in self._frames)

    def ask(self) -> None:
        """Let the simulation write what it has."""
        try:
            (self.place / ASKED).touch()
        except OSError:
            return  # it has just ended

    def read(self) -> pl.DataFrame | None:
        """The log so far; None: there is nothing yet."""
        while True:
            try:
                frame = pl.read_parquet(self.place / f"{len(self._frames):06}.parquet", glob=False)
            except OSError:
                break
            self._frames.append(frame)
        return pl.concat(self._frames) if self._frames else None


def find_live(target: Path) -> LiveReader | None:
    """The simulation that will write this folder; None: there is none."""
    for place in _places(target):
        try:
            about = msgspec.json.decode((place / ABOUT).read_bytes(), type=FollowedRun)
        except (OSError, msgspec.DecodeError):
            continue
        found = LiveReader(place, about)
        if found.lives:
            return found
    return None


def is_alive(place: Path) -> bool:
    """Whether the process that made this folder still runs."""
    try:
        with (place / ABOUT).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _places(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f".{glob.escape(target.name)}.*{LIVE}"))
