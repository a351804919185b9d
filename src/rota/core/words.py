"""Words for people: what a reason means, and how long something took."""

from rota.core.reasons import Reason

TEXTS = {
    Reason.ORDER: "others are served first",
    Reason.CAPACITY: "fewer GPUs are free than it asks for",
    Reason.FRAGMENTATION: "enough GPUs are free, but not in places where it could run",
    Reason.QUOTA: "its queue has used what it may",
    Reason.GANG: "only a part of it could start",
    Reason.CONSTRAINT: "what it requires (GPU type, label) is not there",
    Reason.ADMISSION: "it is kept out of the queue",
    Reason.DEPENDENCY: "it waits for another job",
    Reason.OVERHEAD: "it was being started, stopped or moved",
    Reason.DOWN: "the node under it failed",
}
"""What each reason means, while it holds."""


def spell(seconds: float) -> str:
    """`14 s`, `1 min 55 s`, `35 min`, `2 h 10 min`, `3 d 4 h`: rounded, never cut."""
    if seconds < 90:  # noqa: PLR2004 - reads better than minutes
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:  # noqa: PLR2004 - parts of a wait still add up to the second
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:  # noqa: PLR2004 - two days
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
