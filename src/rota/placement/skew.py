"""Tiresias' placement (Gu et al., NSDI 2019): consolidate only models that suffer from spreading.

The paper finds that models whose size is concentrated in one tensor ("skewed") lose speed when they
are spread over machines, because a parameter server that holds the big tensor becomes a bottleneck,
while others do not care. Skewed models are placed as by `consolidate`; all others take any free
GPUs, node by node in order, and so fill the gaps.

The default list is the skewed part of the nine models in the simulator of the paper's authors: the
largest tensor is 61 to 77 % of alexnet, vgg11, vgg16 and vgg19, and at most 14 % of the resnets and
inceptions. Names are compared without case and punctuation: VGG-16 is vgg16.

Departs from the paper: there the skew of a job is measured while it runs for a short while on trial
machines; here the name of the model says it. A job without a model name counts as not skewed.
"""

import msgspec

from rota.core.jobs import Job, JobSpec, Request, Shape
from rota.core.policy import Params
from rota.core.spec import MARK
from rota.core.topology import Topology
from rota.placement.base import Room
from rota.placement.choices import Choice, enough, in_order
from rota.placement.consolidate import SearchingConsolidate

SKEWED = MARK + "skewed"
"""Marks the requests of skewed models."""


class SkewParams(Params, frozen=True):
    """Names of the models to consolidate, written a/b/c on the command line."""

    models: tuple[str, ...] = ("alexnet", "vgg11", "vgg16", "vgg19")


class Skew(SearchingConsolidate):
    """Consolidate skewed models, put the others anywhere."""

    name = "skew"
    splits = True
    Parameters = SkewParams

    def __init__(
        self, topology: Topology, params: SkewParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        self._models = {_letters(name) for name in (params or SkewParams()).models}
        self._marked: dict[Request, Request] = {}

    def refine(self, spec: JobSpec) -> Request:
        """Mark the request of a skewed model."""
        request = spec.request
        if not spec.model or _letters(spec.model) not in self._models:
            return request
        marked = self._marked.get(request)
        if marked is None:
            marked = msgspec.structs.replace(request, labels=(*request.labels, SKEWED))
            self._marked[request] = marked
        return marked

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """As `consolidate` if the request is marked or cannot be divided, else nodes in order."""
        if SKEWED in shape.labels or shape.gpus < 1:
            return super().choose(shape, room, job)
        offers = room.offers(shape)
        for positions in self.kinds:
            choice = in_order(shape.gpus, positions, offers)
            if choice is not None:
                return choice
        return None

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Enough in total is enough for a request that is not marked."""
        if SKEWED in shape.labels or shape.gpus < 1:
            return super().feasible(shape, room)
        return enough(shape.gpus, self.kinds, room.offers(shape))


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
