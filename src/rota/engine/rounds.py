"""Rounds: multiples of a length, which are not exact in floating point."""

SLACK = 1e-9  # rounds
ULPS = 2.0**-50  # of the number of rounds: what a product and a quotient may be off


def next_boundary(now_s: float, every_s: float) -> float:
    """The next multiple of the round that is later than now."""
    rounds = now_s / every_s
    return (int(rounds + max(SLACK, rounds * ULPS)) + 1) * every_s


def on_boundary(now_s: float, every_s: float) -> bool:
    """Is now a multiple of the round?"""
    rounds = now_s / every_s
    return abs(rounds - round(rounds)) <= max(SLACK, rounds * ULPS)
