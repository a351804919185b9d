"""A steady-state window: which jobs a summary is about."""

import math
import re

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import OptionError
from rota.core.eventlog import Bools

_IDS = re.compile(r"(\d*):(\d*)")
_REMEDY = (
    "write ids=A:B (job ids from A up to, not including, B) or after=T (submitted from T s on)"
)


class Window(msgspec.Struct, frozen=True):
    """Jobs with ids from `first_id` up to `end_id` (not included), submitted at `after_s` or later.

    By default all jobs. Ids are compared as whole numbers, whatever the order of the trace.
    """

    first_id: int | None = None
    end_id: int | None = None
    after_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Window":
        """From `ids=A:B` or `after=T`; either side of the colon may be left out."""
        key, _, value = text.partition("=")
        match = _IDS.fullmatch(value)
        if key == "ids" and match and value != ":":
            first, end = (int(part) if part else None for part in match.groups())
            if first is not None and end is not None and first >= end:
                raise OptionError(f"measure {text!r}: holds no job: {_REMEDY}")
            return cls(first_id=first, end_id=end)
        if key == "after":
            try:
                after_s = float(value)
            except ValueError:
                after_s = math.nan
            if math.isfinite(after_s) and after_s >= 0:
                return cls(after_s=after_s)
        raise OptionError(f"measure {text!r} is not understood: {_REMEDY}")

    @property
    def whole(self) -> bool:
        """It leaves nothing out."""
        return self == Window()

    def describe(self) -> str:
        """As the user wrote it."""
        if self.after_s is not None:
            return f"after={self.after_s:g}"
        if self.whole:
            return "all"
        first = "" if self.first_id is None else self.first_id
        end = "" if self.end_id is None else self.end_id
        return f"ids={first}:{end}"

    def chooses(self, jobs: pl.DataFrame) -> Bools:
        """Which rows of the table of jobs belong to it."""
        chosen: Bools = np.ones(jobs.height, dtype=np.bool_)
        if self.after_s is not None:
            chosen &= jobs["submit_s"].to_numpy() >= self.after_s
        if self.first_id is not None or self.end_id is not None:
            ids = _numbers(jobs["job_id"])
            if self.first_id is not None:
                chosen &= ids >= self.first_id
            if self.end_id is not None:
                chosen &= ids < self.end_id
        if not chosen.any() and jobs.height:
            raise OptionError(f"measure {self.describe()}: no job of the trace is in this window")
        return chosen


def _numbers(ids: pl.Series) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    numbers = ids.cast(pl.Int64, strict=False)
    if numbers.null_count():
        bad = ids.filter(numbers.is_null())[0]
        raise OptionError(
            f"measure ids=A:B needs whole numbers as job ids, but one is {bad!r}: use after=T"
        )
    return numbers.to_numpy()
