"""Recorded allocations in the place of a policy's: only the rounds are ours then.

The file is a list of [seconds, {job: {GPU type: share}}], as JSON, also compressed with gzip; jobs
are numbered in the order of the trace.
"""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rota.core.errors import InputError
from rota.reproduce.gavel.rounds import Array, Question

NEAR_S = 1e-3
_GZIP = b"\x1f\x8b"

Entries = list[tuple[float, dict[str, dict[str, float]]]]


class Recorded:
    """Answers each question with the next entry; a question at another time is an error."""

    def __init__(self, path: Path, types: Sequence[str]) -> None:
        self._path, self._types = path, list(types)
        self._entries = _read(path)
        self.memory: dict[str, Any] = {"next": 0}

    def allocate(self, question: Question) -> Array:
        """The shares of the jobs that are there."""
        number = self.memory["next"]
        if number == len(self._entries):
            raise InputError(
                f"{self._path} has {number} allocations, and one more is needed at "
                f"{question.now_s:g} s: give the file that was recorded with this trace and cluster"
            )
        at_s, shares = self._entries[number]
        names = [str(job) for job in question.jobs]
        odd = [name for name in names if name not in shares]
        if abs(at_s - question.now_s) > NEAR_S or odd:
            raise InputError(
                f"{self._path}: allocation {number} is for {len(shares)} jobs at {at_s:g} s, and "
                f"here are {len(names)} at {question.now_s:g} s: give the file that was recorded "
                f"with this trace, cluster and policy"
            )
        self.memory["next"] = number + 1
        rows = [[shares[name].get(kind, 0.0) for kind in self._types] for name in names]
        return np.array(rows)


def _read(path: Path) -> Entries:
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return msgspec.json.decode(data, type=Entries)
    except (OSError, EOFError, msgspec.DecodeError) as problem:
        raise InputError(
            f"{path}: no recorded allocations ({problem}): give a list of "
            f"[seconds, {{job: {{type: share}}}}]"
        ) from problem
