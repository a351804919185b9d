"""A list of pods shuffled and inflated to a load, exactly as in the published runs of FGD.

The published simulator draws with Go's generator: one number is lost, the pods (sorted by name) are
shuffled; then clones of pods drawn by position in the *sorted* list are appended until the next one
would exceed the load, or pods are removed at random positions until the load is low enough. Before
the nodes are ranked, ten more numbers are lost. A clone counts once its share of one GPU, however
many GPUs it asks for.
"""

import msgspec

from rota.core.errors import OptionError
from rota.traces.formats.go_random import GoRandom

_LOST_BEFORE_NODES = 10
MOST_CLONES = 1_000_000


class Inflation(msgspec.Struct, frozen=True):
    """Pods sorted by name: what each asks for per GPU (thousandths) and how many GPUs."""

    names: list[str]
    gpu_milli: list[int]
    num_gpu: list[int]


def inflate(pods: Inflation, target_milli: float, seed: int) -> tuple[list[str], GoRandom]:
    """The names in their order of arrival, clones as NAME-tuned-N; and the generator after it."""
    random = GoRandom(seed)
    random.word()
    order = list(range(len(pods.names)))
    random.shuffle(order)
    total = sum(milli * many for milli, many in zip(pods.gpu_milli, pods.num_gpu, strict=True))
    if total > target_milli:
        while order and total > target_milli:
            gone = order.pop(random.below(len(order)))
            total -= pods.gpu_milli[gone] * pods.num_gpu[gone]
        return [pods.names[pod] for pod in order], random
    names = [pods.names[pod] for pod in order]
    if any(pods.gpu_milli):
        _clone(pods, names, target_milli - total, random)
    return names, random


def _clone(pods: Inflation, names: list[str], room_milli: float, random: GoRandom) -> None:
    count = 0
    while True:
        pod = random.below(len(pods.names))
        if count >= MOST_CLONES:
            raise OptionError(
                f"format openb: the load needs more than {MOST_CLONES:,} clones of pods: "
                f"give a smaller ratio, fewer GPUs, or pods that ask for more"
            )
        if pods.gpu_milli[pod] > room_milli:
            return
        room_milli -= pods.gpu_milli[pod] * pods.num_gpu[pod]
        names.append(f"{pods.names[pod]}-tuned-{count}")
        count += 1


def node_order(names: list[str], random: GoRandom) -> list[str]:
    """The names of the nodes by rank (the first wins ties), after `inflate` has drawn."""
    for _ in range(_LOST_BEFORE_NODES):
        random.word()
    ranks = random.permutation(len(names))
    return [name for _, name in sorted(zip(ranks, sorted(names), strict=True))]
