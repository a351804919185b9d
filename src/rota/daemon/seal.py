"""How far a store had come, kept outside of it: a store that went back in time is noticed.

A backup that was put back, a write-ahead log that was cut off, a file that was replaced: the store
looks sound, but jobs that were accepted are missing, their numbers would be given again, and what
still runs of them would be ended as unknown. The seal is written in place after every commit, so it
is never ahead of a store that lost nothing (a loss of power without `durable` may lose commits).

It also shows whether somebody set the clock of the machine meanwhile.

A daemon that stands by does not commit, but it looks at the database: it notes what it saw there.
"""

import os
from pathlib import Path

import msgspec

WIDTH = 512  # bytes: always the same, so that a full disk is no trouble


class Counters(msgspec.Struct, frozen=True):
    """Of a store, by its id; and when it was written last, by three clocks.

    `reached_s` is the time of the cluster, `up_s` the time since `boot`, which nobody can set.
    """

    store: str
    journal: int
    jobs: int
    log: int
    reached_s: float = 0.0
    boot: str = ""
    up_s: float = 0.0
    audit: int = 0
    audit_digest: str = ""  # of the last line

    def missing(self, later: "Counters") -> str:
        """What these have and the later ones have not, in words; empty: nothing."""
        if self.store != later.store:
            return f"it is another store than the one that gave numbers to {self.jobs:,} jobs"
        missing = [
            f"{before - now:,} of {before:,} {what}"
            for before, now, what in (
                (self.jobs, later.jobs, "jobs"),
                (self.journal, later.journal, "batches of inputs"),
                (self.log, later.log, "rows of the log"),
                (self.audit, later.audit, "lines of the audit log"),
            )
            if before > now
        ]
        return f"missing: {', '.join(missing)}" if missing else ""


class Seal:
    """A small file beside the store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Counters | None:
        """What was written last; None: nothing that can be read."""
        try:
            return msgspec.json.decode(os.pread(self._file, WIDTH, 0).strip(), type=Counters)
        except msgspec.DecodeError:
            return None

    def write(self, counters: Counters) -> None:
        """Replace it."""
        os.pwrite(self._file, msgspec.json.encode(counters).ljust(WIDTH), 0)

    def witness(self, seen: Counters) -> str:
        """Note how far the store has come that another daemon writes; what is missing in it.

        The clocks stay as they are: they are those of the last write of this daemon.
        """
        known = self.read()
        if known is None:
            self.write(seen)
            return ""
        missing = known.missing(seen)
        if not missing and (known.journal, known.log, known.audit) != (
            seen.journal, seen.log, seen.audit,
        ):  # fmt: skip
            clocks = {key: getattr(known, key) for key in ("reached_s", "boot", "up_s")}
            self.write(msgspec.structs.replace(seen, **clocks))
        return missing

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)
