"""What elastic policies share: the sizes of a job, and a plan that gives everyone one of them."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rota.core.jobs import Job, Request
from rota.core.plan import Plan
from rota.core.view import View

LESS = 1e-6  # sizes differ by more


@lru_cache(maxsize=4096)
def _sizes(request: Request, most: float) -> tuple[float, ...]:
    found = []
    size = request.within(min(most, request.sizes[1]))
    while size > 0:
        found.append(size)
        size = request.within(size - LESS)
    return tuple(reversed(found))


def sizes_of(job: Job, most: float) -> Sequence[float]:
    """The numbers of GPUs, up to so many, with which a job runs, from small to large."""
    return _sizes(job.shape.request, most)


def open_gpus(view: View) -> float:
    """GPUs of nodes on which jobs may be started."""
    return sum(node.gpus for node in view.topology.nodes if node.open)


def give(plan: Plan, shares: Iterable[tuple[Job, float]], *, most: float) -> None:
    """Run these jobs with so many GPUs each; where there is no room for it, with fewer.

    Nobody is moved: who stays as it is comes first, then who shrinks, who grows, and who starts.
    """
    for job, gpus in sorted(shares, key=lambda share: _turn(*share)):
        _give(plan, job, gpus, most)


def give_as_buddies(plan: Plan, shares: Iterable[tuple[Job, float]], *, most: float) -> None:
    """The same for sizes that are powers of two: on nodes that are, there is always room.

    Large ones come first: small ones move out of their way and find room in what is left.
    """
    for job, gpus in sorted(shares, key=lambda share: (-share[1], not share[0].running)):
        _give(plan, job, gpus, most)


def _turn(job: Job, gpus: float) -> int:
    if not job.running:
        return 3
    held = job.allocation.gpus
    return 0 if gpus == held else 1 if gpus < held else 2


def _give(plan: Plan, job: Job, gpus: float, most: float) -> None:
    for size in reversed(sizes_of(job, min(gpus, most))):
        if plan.place(job, gpus=size):
            return
    if job.running:
        plan.place(job)
