"""How good a forecast was on the past."""

from math import sqrt

import msgspec

LEAST = 10  # jobs, for a share of them to mean something
_SURPRISE = 2.5  # standard errors


class Backtest(msgspec.Struct, kw_only=True, frozen=True):
    """Run times of jobs that are over, each foreseen from what was known when it started."""

    jobs: int
    """That were foreseen; the latest that have ended."""
    share_inside: float | None
    """Of them, how many ran as long as their interval says; None: too few jobs."""
    nominal: float = 0.8
    """How many should."""

    def __str__(self) -> str:
        """In words."""
        if self.share_inside is None:
            return (
                f"not possible yet: {self.jobs} finished jobs could be foreseen from earlier ones, "
                f"{LEAST} are needed"
            )
        text = (
            f"of the last {self.jobs} finished jobs, {self.share_inside * 100:.0f} % had a run "
            f"time in the {self.nominal * 100:.0f} % interval foreseen at their start"
        )
        error = sqrt(self.nominal * (1 - self.nominal) / self.jobs)
        if self.share_inside < self.nominal - _SURPRISE * error:
            text += "; too few: run times here are not like earlier ones, trust the answer less"
        return text
