"""Scenarios in which the engine once departed from the reference, made as small as possible."""

from rota.core.registry import POLICIES, load
from rota.testing.scenario import Fixed, Item, Outage, Scenario


def made(name, **params):
    """A maker of a registered policy."""
    kind = load(POLICIES, name)
    return lambda: kind(kind.Parameters(**params))


def jobs(*items):
    return tuple(Item(*item) for item in items)


SRTF = made("srtf")
LEARNING = made("gittins", warmup=2)
ELAS = made("elas", limits=(12.0, 36.0))
TIRESIAS = made("tiresias", limits=(4.0, 12.0))

REGRESSIONS = {
    "rounding makes a newcomer look worse than a later head of the same key": (
        SRTF,
        Scenario(jobs((6, 1, 2), (6, 2, 2)), (1, 1), "count", round_s=0.7),
    ),
    "a start that waits is stopped before it began": (
        SRTF,
        Scenario(jobs((0, 1, 20), (1, 1, 5), (2, 1, 2)), (1,), costs=Fixed(stop_s=10)),
    ),
    "a dead node's GPUs are not free for a start that waits": (
        SRTF,
        Scenario(
            jobs((0, 1, 10), (0, 1, 10), (5, 1, 2)),
            (1, 1),
            costs=Fixed(stop_s=3),
            outages=(Outage(2, 1, up=False), Outage(50, 1, up=True)),
        ),
    ),
    "a start that waited is keyed when it begins": (
        TIRESIAS,
        Scenario(jobs((0, 5, 1), (0, 2, 7)), (1, 2, 2), "consolidate", Fixed(stop_s=1)),
    ),
    "a move that loses work is keyed again": (
        SRTF,
        Scenario(
            jobs((5, 3, 1), (0, 1, 9), (5, 1, 2), (4, 5, 3)), (3, 3), "consolidate", Fixed(lost=1)
        ),
    ),
    "outages overlap": (
        made("fifo"),
        Scenario(
            jobs((5, 2, 1)),
            (1, 1),
            outages=(Outage(1, 0, up=False), Outage(2, 0, up=False), Outage(3, 0, up=True)),
        ),
    ),
    "the end of a stop and of a node fall together": (
        SRTF,
        Scenario(
            jobs((5, 1, 1), (0, 1, 6)),
            (1,),
            "consolidate",
            Fixed(stop_s=1),
            (Outage(6, 0, up=False), Outage(9, 0, up=True)),
        ),
    ),
    "a newcomer ranks before the head that blocks a strict queue": (
        made("qssf"),
        Scenario(jobs((0, 2, 5), (1, 1, 1), (0, 1, 2)), (2,)),
    ),
    "a known failure is forgotten while a job is away": (
        ELAS,
        Scenario(
            jobs((34, 3, 5), (23, 1, 12), (37, 2, 1), (27, 4, 8), (33, 1, 12), (36, 2, 9)),
            (4, 4),
            "consolidate",
            Fixed(stop_s=3),
        ),
    ),
    "a displaced job gets what a later displacement leaves over": (
        SRTF,
        Scenario(
            jobs((5, 1, 1), (1, 3, 2), (5, 1, 1), (5, 2, 1), (1, 3, 2), (0, 1, 2)),
            (1, 1, 4),
            costs=Fixed(start_s=1),
            outages=(Outage(3, 0, up=False),),
        ),
    ),
    "the same without costs": (
        LEARNING,
        Scenario(
            jobs((0, 1, 1), (0, 1, 2), (0, 4, 2), (1, 2, 1), (0, 1, 1), (0, 3, 1), (0, 1, 2)),
            (2, 2, 2, 2),
        ),
    ),
    "a mover that has arrived is keyed again": (
        LEARNING,
        Scenario(
            jobs((2, 1, 1), (0, 2, 2), (0, 2, 1), (2, 2, 1), (1, 4, 1), (0, 1, 1), (0, 1, 3)),
            (2, 2, 2, 2),
            "consolidate",
            Fixed(start_s=2, stop_s=1),
        ),
    ),
    "work that takes no time after a start that does": (
        made("fifo"),
        Scenario(jobs((0, 1, 0)), costs=Fixed(start_s=1)),
    ),
}
