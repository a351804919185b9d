"""What a job used of what it asked for, and what that suggests."""

from collections.abc import Sequence
from math import ceil

import msgspec

LEAST_SAMPLES = 3  # from fewer nothing follows
SPARE = 1.25  # of the peak: what is suggested
IDLE = 0.01  # a GPU that is busy for a smaller share of the time
SELDOM = 0.3


class JobUsage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Measured now and then while it ran, on all its nodes together; None: nobody knows.

    `series` are (Unix seconds, CPUs, GiB, share of the time for which its GPUs were busy or None).
    """

    samples: int = 0
    cpus_asked: float = 0.0
    cpus_mean: float = 0.0
    cpus_peak: float = 0.0
    mem_asked_gib: float = 0.0
    mem_mean_gib: float = 0.0
    mem_peak_gib: float = 0.0
    gpus_asked: float = 0.0
    gpu_busy: float | None = None  # share of the time, mean of its GPUs
    gpus_idle: float | None = None  # of its GPUs, on average
    series: Sequence[Sequence[float | None]] = ()
    advice: Sequence[str] = ()

    def words(self) -> str:
        """`used 1.2 of 8 CPUs, 3.1 of 64 GiB, GPUs busy 85%`; empty: nothing is known."""
        if not self.samples:
            return ""
        told = [
            f"{self.cpus_mean:.2g}{_of(self.cpus_asked)} CPUs",
            f"at most {self.mem_peak_gib:.2g}{_of(self.mem_asked_gib)} GiB",
        ]
        if self.gpu_busy is not None and self.gpus_asked:
            told.append(f"GPUs busy {self.gpu_busy:.0%}")
        return "used " + ", ".join(told)


def _of(asked: float) -> str:
    return f" of {asked:g}" if asked else ""


def advice(used: JobUsage) -> list[str]:
    """What its owner could ask for instead, with numbers."""
    if used.samples < LEAST_SAMPLES:
        return []
    told = []
    if used.gpus_idle is not None and used.gpus_asked and round(used.gpus_idle) >= 1:
        idle = round(used.gpus_idle)
        were = "1 was idle" if idle == 1 else f"{idle} were idle"
        told.append(f"you asked for {used.gpus_asked:g} GPUs, {were}")
    elif used.gpu_busy is not None and used.gpus_asked and used.gpu_busy < SELDOM:
        told.append(f"its GPUs were busy {used.gpu_busy:.0%} of the time")
    if used.mem_asked_gib and used.mem_peak_gib <= used.mem_asked_gib / 2:
        enough = max(1, ceil(used.mem_peak_gib * SPARE))
        if enough < used.mem_asked_gib:
            told.append(
                f"it used at most {used.mem_peak_gib:.2g} of {used.mem_asked_gib:g} GiB: "
                f"{enough:g} GiB would do"
            )
    if used.cpus_asked > 1 and used.cpus_peak <= used.cpus_asked / 2:
        enough = max(1, ceil(used.cpus_peak * SPARE))
        told.append(
            f"it used at most {used.cpus_peak:.2g} of {used.cpus_asked:g} CPUs: {enough:g} would do"
        )
    return told
