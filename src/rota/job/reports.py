"""Telling the scheduler how the job gets on."""

from __future__ import annotations

import os
from math import inf, isfinite
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from rota.job.environment import info

if TYPE_CHECKING:
    from pathlib import Path
    from typing import SupportsFloat

EVERY_S = 1.0
"""Reports that follow the last one sooner are left out."""
LONGEST = 4095
"""Bytes of a line: what fits a page is appended in one piece, also by several writers."""


class _Reporter:
    """Appends lines to the file of this run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last_s = -inf
        self._torn = False  # the last line was cut off by a full disk

    def due(self, *, force: bool) -> bool:
        """May it be written now? Then the next one has to wait."""
        with self._lock:
            now_s = monotonic()
            if not force and now_s - self._last_s < EVERY_S:
                return False
            self._last_s = now_s
            return True

    def append(self, path: Path, line: bytes) -> bool:
        """Write one line; False if the system refused."""
        with self._lock:
            if self._torn:
                line = b"\n" + line
            try:
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                return False
            try:
                written = os.write(file, line)
            except OSError:
                return False
            finally:
                os.close(file)
            self._torn = written < len(line)
            return not self._torn


_reporter = _Reporter()


def report(
    step: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    throughput: SupportsFloat | None = None,
    *,
    force: bool = False,
    **numbers: SupportsFloat,
) -> bool:
    """Tell numbers about the progress of the whole job; policies and `rota show` see the last ones.

    Cheap enough for every step: at most one report a second is written, the others are left out
    without looking at their numbers. Only rank 0 writes, so all ranks may call it. Outside Rota it
    does nothing. A full disk never disturbs the job.

    Args:
        step: Steps done.
        loss: The present loss.
        throughput: Samples (or tokens, ...) per second, of all processes together.
        force: Write it even if the last report was just now.
        numbers: Anything else, by name. What is not finite is left out.

    Returns:
        Whether it was written.

    Raises:
        TypeError: Something is no number.
        ValueError: The report is longer than 4 KiB.
    """
    about = info()
    if about.report_file is None or not about.is_first or not _reporter.due(force=force):
        return False
    import json

    given = {"step": step, "loss": loss, "throughput": throughput, **numbers}
    plain = {name: float(value) for name, value in given.items() if value is not None}
    values = {name: value for name, value in plain.items() if isfinite(value)}
    if not values:
        return False
    line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
    if len(line) > LONGEST:
        raise ValueError(f"a report of {len(line)} bytes is too long: report fewer numbers")
    return _reporter.append(about.report_file, line)
