"""Ways to compare what came out with what was published.

Every function takes `known`: the reason for a difference that is understood. With it a check that
does not hold `deviates`, without it `fails`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rota.reproduce.base import Check, Value, Verdict

SHOWN = 3  # differing rows that are named
LARGE = 1_000  # numbers without digits after the point


def _verdict(*, holds: bool, known: str) -> Verdict:
    if holds:
        return Verdict.AGREES
    return Verdict.DEVIATES if known else Verdict.FAILS


def holds(
    quantity: str, expected: str, ours: Value, *, ok: bool, theirs: Value = None, known: str = ""
) -> Check:
    """Any claim, decided by the caller.

    Args:
        quantity: What is looked at.
        expected: The claim, in words.
        ours: What came out.
        ok: Does it hold?
        theirs: What was published, if a number was.
        known: Why it may not hold.
    """
    return Check(
        quantity=quantity, theirs=theirs, ours=ours, expected=expected,
        verdict=_verdict(holds=bool(ok), known=known), reason="" if ok else known,
    )  # fmt: skip


def within(
    quantity: str,
    ours: float,
    theirs: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    known: str = "",
) -> Check:
    """A number near the published one: by at most `absolute`, or that part of it."""
    far = abs(ours - theirs)
    parts = [f"± {100 * relative:g} %"] if relative else []
    parts += [f"± {absolute:g}"] if absolute else []
    return holds(
        quantity,
        " or ".join(parts) or "equal",
        ours,
        ok=far <= max(absolute, relative * abs(theirs)),
        theirs=theirs,
        known=known,
    )


def between(quantity: str, ours: float, low: float, high: float, *, known: str = "") -> Check:
    """A number inside an interval."""
    return holds(quantity, f"{low:g} to {high:g}", ours, ok=low <= ours <= high, known=known)


def ordered(
    quantity: str, values: Mapping[str, float], *, slack: float = 0.0, known: str = ""
) -> Check:
    """Values that do not fall, in the order given; each may be below the one before by `slack`."""
    numbers = list(values.values())
    ok = all(a <= b * (1 + slack) for a, b in itertools.pairwise(numbers))
    expected = " <= ".join(values) + (f" (to within {100 * slack:g} %)" if slack else "")
    ours = ", ".join(f"{name} {_text(number)}" for name, number in values.items())
    return holds(quantity, expected, ours, ok=ok, known=known)


def _text(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= LARGE else f"{number:.3g}"


def same_rows(
    quantity: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    known: Mapping[str, str] | None = None,
) -> Check:
    """Job by job equality.

    Args:
        quantity: What is equal, e.g. `fifo: end_s`.
        ours: By job; jobs that are only here count as different.
        theirs: By job.
        known: Jobs that cannot be equal, and why.
    """
    known = known or {}
    jobs = list(dict.fromkeys([*theirs, *ours]))
    odd = [job for job in jobs if job not in ours or job not in theirs or ours[job] != theirs[job]]
    unknown = [job for job in odd if job not in known]
    reasons = list(dict.fromkeys(known[job] for job in odd if job in known))
    if unknown:
        reasons.append("different: " + _named(unknown, ours, theirs))
    if not theirs:
        unknown, reasons = ["none"], [*reasons, "there is nothing to compare with"]
    ok = bool(theirs) and not odd
    verdict = _verdict(holds=ok, known="" if unknown else "; ".join(reasons))
    return Check(
        quantity=quantity,
        theirs=f"{len(theirs):,} jobs",
        ours=f"{len(jobs) - len(odd):,} of {len(jobs):,} equal",
        expected="equal job by job",
        verdict=verdict,
        reason="; ".join(reasons),
    )


def _named(jobs: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    told = [
        f"job {job}: ours {ours.get(job, 'missing')}, theirs {theirs.get(job, 'missing')}"
        for job in jobs[:SHOWN]
    ]
    more = [f"and {len(jobs) - SHOWN:,} more"] if len(jobs) > SHOWN else []
    return "; ".join([*told, *more])
