"""What a job asks of HiveD: its virtual cluster, its priority, its pods in each chain of cells.

A job is an affinity group. One-GPU tasks, as traces have them, share pods that are as large as the
nodes of their virtual cluster; other tasks are pods of their own. A group lies in one chain. A job
that would not fit there if the virtual cluster were empty can never run as promised.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from rota.core.jobs import Job, Request, Shape
from rota.core.registry import nearest
from rota.policies.hived.algorithm import Hived
from rota.policies.hived.build import HivedCluster
from rota.policies.hived.pods import (
    HIGHEST_GUARANTEED,
    LOWEST_GUARANTEED,
    OPPORTUNISTIC,
    GroupSpec,
    Member,
    PodSpec,
)
from rota.policies.hived.topology_search import best_fit

EVERYONE = "everyone"
"""The virtual cluster of a configuration that is made up: all cells, for all tenants."""
HIGHEST = HIGHEST_GUARANTEED // 2 - 1
"""Of a job. In HiveD each priority has a second one above it: of jobs that go before others."""

Probe = Callable[[PodSpec, Shape], bool]
"""Whether an empty, healthy cluster would have a place."""


class AskedGroup(NamedTuple):
    """What becomes of a job."""

    place: tuple[str, int] | None
    """Virtual cluster and priority of a guaranteed job; None: opportunistic."""
    pods: tuple[PodSpec, ...]
    """What to try in this order, one for each chain; without the name of the group."""
    never: str = ""
    """Why it cannot run; empty if it can."""

    @property
    def choosy(self) -> bool:
        """Not every node of the right type will do."""
        return any(not spec.ignore_k8s_suggested_nodes for spec in self.pods)


class HivedRules(msgspec.Struct, frozen=True):
    """What holds for jobs that do not fit into the configuration."""

    made_up: bool
    """The configuration comes from quotas: a tenant without one was promised nothing."""
    refuses: bool
    """Jobs that their virtual cluster cannot hold are turned away; else they are opportunistic."""
    grows: bool
    """Nodes may come, and cells with them."""
    lazy: bool
    """Victims go on as opportunistic jobs where they can."""


class HivedRequests:
    """Jobs of equal tenant, priority and shape ask for the same."""

    def __init__(
        self,
        hived: Hived,
        chains: Mapping[str, Sequence[str]],
        rules: HivedRules,
        probe: Probe,
        choosy: Callable[[Shape], bool],
    ) -> None:
        """Ask on these cells; `chains` are the chains of each type of GPU.

        `choosy`: not every node of the right type will do for such a request.
        """
        self._hived = hived
        self._chains = chains
        self._rules = rules
        self._probe = probe
        self._choosy = choosy
        self._known: dict[tuple[str, int, int, bool], AskedGroup] = {}

    def of(self, job: Job) -> AskedGroup:
        """What this job asks for."""
        priority = max(min(job.spec.priority, HIGHEST), OPPORTUNISTIC)
        key = (job.tenant, priority, job.shape.number, job.started)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ask(job, priority)
        return known

    def _ask(self, job: Job, priority: int) -> AskedGroup:
        why = ""
        if priority >= LOWEST_GUARANTEED:
            place = self._place(job.tenant)
            if isinstance(place, tuple):
                vc, pinned = place
                base = PodSpec(vc, 2 * priority, 0, pinned_cell_id=pinned)
                pods = self._pods(base, job.shape)
                if pods:
                    return AskedGroup((vc, 2 * priority), pods)
                why = self._too_large(job, base)
            else:
                why = place
        if why and self._rules.refuses and not job.started and not self._waits_for_nodes():
            return AskedGroup(None, (), why)
        base = PodSpec(next(iter(self._hived.cells.vcs), EVERYONE), OPPORTUNISTIC, 0)
        pods = self._pods(base, job.shape)
        if pods or job.started or self._waits_for_nodes():
            return AskedGroup(None, pods)
        return AskedGroup(None, (), f"{_asks_for(job)}, and no chain of cells could hold it")

    def _waits_for_nodes(self) -> bool:
        return self._rules.grows and self._rules.made_up

    def _place(self, tenant: str) -> tuple[str, str] | str:
        """Virtual cluster and pinned cell of a tenant `VC` or `VC/CELL`, or why it has none."""
        vcs = self._hived.cells.vcs
        if self._rules.made_up and EVERYONE in vcs:
            return EVERYONE, ""
        if tenant in vcs:
            return tenant, ""
        name, _, pinned = tenant.partition("/")
        if name in vcs and pinned in vcs[name].pinned:
            return name, pinned
        if self._rules.made_up:
            return ""
        if name in vcs:
            cells = ", ".join(vcs[name].pinned) or "none"
            return f"virtual cluster {name!r} has no pinned cell {pinned!r}: it has {cells}"
        near = nearest(name, vcs)
        hint = f"did you mean {near!r}? " if near else ""
        return (
            f"there is no virtual cluster {tenant!r}: {hint}known: {', '.join(vcs) or 'none'}; "
            f"or give it a priority below 0 to run opportunistically"
        )

    def _too_large(self, job: Job, base: PodSpec) -> str:
        where = f"virtual cluster {base.virtual_cluster!r}"
        if base.pinned_cell_id:
            where = f"the pinned cell {base.pinned_cell_id!r} of {where}"
        holds = described(self._hived.cells.vcs[base.virtual_cluster], base.pinned_cell_id)
        return (
            f"{_asks_for(job)}, which {where} cannot hold in one chain even if it is empty ({holds}"
            "): ask for less, or give it a priority below 0 to run opportunistically"
        )

    def _pods(self, base: PodSpec, shape: Shape) -> tuple[PodSpec, ...]:
        """The pods in each chain that could hold them if it were empty."""
        found = []
        for kind in shape.types or self._chains:
            for chain in self._chains.get(kind, ()):
                spec = self._in_chain(base, shape, chain)
                if spec is not None and (not self._choosy(shape) or self._probe(spec, shape)):
                    found.append(spec)
        return tuple(found)

    def _in_chain(self, base: PodSpec, shape: Shape, chain: str) -> PodSpec | None:
        search = self._hived.search_of(base, chain)
        if search is None:
            return None
        apart = shape.request.apart
        rooms = sorted(
            (0 if apart and not node.at_node else node.leaves for node in search.nodes),
            reverse=True,
        )
        sizes = pod_sizes(shape.request, rooms)
        if best_fit(sorted(sizes), rooms, apart=apart) is None:
            return None
        return msgspec.structs.replace(
            base,
            leaf_cell_number=sizes[0],
            leaf_cell_type="" if base.pinned_cell_id else self._hived.cells.levels[chain].leaf,
            lazy_preemption_enable=self._rules.lazy,
            ignore_k8s_suggested_nodes=not self._choosy(shape),
            affinity_group=GroupSpec("", tuple(Member(1, size) for size in sizes)),
            chain=chain,
            apart=apart,
        )


def named(spec: PodSpec, job: Job) -> PodSpec:
    """The request as that of a certain job."""
    members = spec.affinity_group.members if spec.affinity_group is not None else ()
    return msgspec.structs.replace(spec, affinity_group=GroupSpec(f"{job.index}", members))


def pod_sizes(request: Request, rooms: Sequence[int]) -> list[int]:
    """GPUs of each pod; `rooms` are the sizes of the nodes, the largest first.

    A fraction of a GPU takes a whole one, and so does a task without any.
    """
    sizes: list[int] = []
    for group in request.groups:
        if group.gpus == 1 and not request.apart:
            sizes += _cut(group.count, rooms)
        else:
            sizes += [max(1, ceil(group.gpus))] * group.count
    return sizes


def _cut(gpus: int, rooms: Sequence[int]) -> list[int]:
    """One-GPU tasks in as few pods as there can be."""
    sizes = []
    for room in rooms:
        if gpus > 0:
            sizes.append(min(room, gpus))
            gpus -= room
    return sizes + [gpus] * (gpus > 0)


def described(vc: HivedCluster, pinned: str) -> str:
    """The cells of a virtual cluster, or a pinned cell of it, e.g. `2 x node with 8 leaf cells`."""
    if pinned:
        tops = vc.pinned[pinned][max(vc.pinned[pinned])]
    else:
        tops = [t for by_level in vc.free_tops.values() for held in by_level.values() for t in held]
    counts = Counter((top.type_name, top.leaves) for top in tops)
    texts = [
        f"{number} x {name} with {leaves} leaf cell{'s' * (leaves > 1)}"
        for (name, leaves), number in counts.items()
    ]
    return ", ".join(texts) or "it has no cells"


def _asks_for(job: Job) -> str:
    return f"asks for {job.shape.describe()}"
