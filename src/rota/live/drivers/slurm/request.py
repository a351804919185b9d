"""From the parts of a run to what sbatch is asked for."""

from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from rota.core.errors import ClusterError
from rota.live.driver import RunOrder, RunPart
from rota.live.drivers.slurm.layout import SeenNode
from rota.live.drivers.slurm.names import fingerprint, plain
from rota.live.drivers.slurm.options import SlurmOptions

MIB = 1024
MINUTE_S = 60.0


class Component(msgspec.Struct, frozen=True):
    """Nodes that give the same, and options of sbatch for them."""

    nodes: tuple[str, ...]
    options: tuple[str, ...]


class SbatchRequest(msgspec.Struct, frozen=True):
    """What sbatch is asked for, without names and paths.

    A run that takes unequal numbers of GPUs from its nodes is a *heterogeneous* job with a
    component for each number: Slurm has no other way to ask for amounts by node. Such a
    job is never requeued: its next run is a new Slurm job.
    """

    components: tuple[Component, ...]

    @property
    def reusable(self) -> bool:
        """Can the same Slurm job carry out another run on other nodes?"""
        return len(self.components) == 1

    @property
    def shape(self) -> str:
        """Equal for runs that the same Slurm job can carry out, one after the other."""
        return fingerprint(
            *(
                text
                for component in self.components
                for text in (str(len(component.nodes)), *component.options)
            )
        )

    def argv(self, common: Sequence[str]) -> list[str]:
        """Options of sbatch; `common` are for all components."""
        found: list[str] = ["--requeue" if self.reusable else "--no-requeue"]
        for number, component in enumerate(self.components):
            found += [":"] if number else []
            found += [*common, *component.options, f"--nodelist={','.join(component.nodes)}"]
        return found


def is_even(order: RunOrder) -> bool:
    """Does every node give the same number of GPUs?"""
    return len({part.gpus for part in order.parts}) == 1


def common_options(options: SlurmOptions, limit_s: float = 0.0) -> list[str]:
    """Options of every job; `limit_s`: its own time limit, which Slurm counts in minutes."""
    given = {
        "partition": options.partition, "account": options.account, "qos": options.qos,
        "time": str(max(1, ceil(limit_s / MINUTE_S))) if limit_s else options.time_limit,
    }  # fmt: skip
    return [f"--{name}={value}" for name, value in given.items() if value]


def make_request(
    order: RunOrder, options: SlurmOptions, machines: Mapping[str, SeenNode]
) -> SbatchRequest:
    """What to ask for; which type of GPUs, and how many shards make one, nodes know.

    Instances of MIG are GPUs of a type of their own for Slurm: `--gres=gpu:1g.10gb:2`.
    """
    nodes = [plain("node", part.node) for part in order.parts]
    if not nodes or len(set(nodes)) != len(nodes):
        raise ClusterError(f"run {order.run} names no node, or one twice")
    groups: dict[float, list[RunPart]] = {}
    for part in order.parts:
        node = machines.get(part.node)
        if part.gpus != int(part.gpus) and (part.gpus > 1 or node is None or not node.shards):
            raise ClusterError(
                f"run {order.run} asks for {part.gpus:g} GPUs of {part.node}: Slurm gives whole "
                f"GPUs there only (parts of one need gres/shard in its slurm.conf and gres.conf)"
            )
        groups.setdefault(part.gpus, []).append(part)
    limit_s = order.limit_s
    return SbatchRequest(
        tuple(_component(parts, options, machines, limit_s) for parts in groups.values())
    )


def _component(
    parts: Sequence[RunPart],
    options: SlurmOptions,
    machines: Mapping[str, SeenNode],
    limit_s: float,
) -> Component:
    gpus = parts[0].gpus
    cpus = max(max(ceil(part.cpus), part.processes) for part in parts)
    asked = [
        *common_options(options, limit_s),
        f"--nodes={len(parts)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
    ]
    memory = max(ceil(part.mem_gib * MIB) for part in parts)
    if memory:
        asked.append(f"--mem={memory}M")
    if gpus % 1:
        shards = machines[parts[0].node].shards
        asked.append(f"--gres=shard:{ceil(round(gpus * shards, 6))}")
    elif gpus:
        kinds = {machines[p.node].gpu_type if p.node in machines else "" for p in parts}
        kind = kinds.pop() if len(kinds) == 1 else ""
        asked.append(f"--gres=gpu:{plain('GPU type', kind) + ':' if kind else ''}{gpus:.0f}")
    return Component(tuple(part.node for part in parts), tuple(asked))
