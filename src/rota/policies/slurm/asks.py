"""What a job is to Slurm: its partition, QOS and account, its limits, and its fixed priority."""

from collections.abc import Iterator
from math import ceil

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.spec import MARK
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.policies.slurm.params import (
    NOTHING,
    Association,
    Partition,
    Qos,
    SlurmPolicyParams,
    Tres,
)

NO_QOS = Qos(name="")
NO_PARTITION = Partition(name="")


class Limit:
    """How many jobs with these in common may run, and what they may hold together."""

    __slots__ = ("jobs", "key", "tres")

    def __init__(self, key: tuple[str, ...], jobs: float, tres: Tres) -> None:
        self.key = key
        self.jobs = jobs
        self.tres = tres


class Ask:
    """A job in Slurm's terms. `nodes` are sets: bit i is node i."""

    __slots__ = (
        "account", "amounts", "base", "each", "job", "key", "limit_s", "limits", "nodes",
        "partition", "preempts", "priority", "qos", "rate", "since_s", "whole",
    )  # fmt: skip

    def __init__(self, job: Job, partition: Partition, qos: Qos, account: str) -> None:
        self.job = job
        self.partition = partition
        self.qos = qos
        self.account = account
        self.limit_s = INF
        self.nodes = 0  # on which it may run
        self.whole = 0  # of its partition
        self.amounts = NOTHING
        self.each = NOTHING  # on each of `amounts.node` nodes
        self.rate = 0.0  # usage per second
        self.base = 0.0  # the part of its priority that never changes
        self.preempts: frozenset[str] = frozenset()  # QOS
        self.limits: tuple[Limit, ...] = ()
        self.since_s = 0.0  # waiting in the queue
        self.priority = 0
        self.key: tuple[int, int, int, float, int] = (0, 0, 0, 0.0, 0)

    def rank(self, priority: int) -> None:
        """Take a place in the queue: who may preempt, tier, priority, age, number."""
        self.priority = priority
        self.key = (
            0 if self.preempts else 1, -self.partition.priority_tier, -priority, self.since_s,
            self.job.index,
        )  # fmt: skip


class SlurmRequests:
    """Makes them."""

    def __init__(self, params: SlurmPolicyParams, topology: Topology) -> None:
        self._params = params
        self._topology = topology
        self._partitions = {one.name: one for one in params.partitions}
        self._default = next((one for one in params.partitions if one.default), None)
        self._qos = {one.name: one for one in params.qos}
        self._assoc = {(one.account, one.user): one for one in params.associations}
        self._most_factor = max((one.priority_job_factor for one in params.partitions), default=0)
        self._most_qos = max((one.priority for one in params.qos), default=0)
        self._by_label: dict[str, int] = {}
        self._by_kind: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
        self._seen = 0  # nodes

    def of(self, job: Job) -> Ask:
        """The job with everything that the configuration says about it."""
        spec = job.spec
        if self._seen != len(self._topology.nodes):  # the cluster has grown
            self._by_label, self._by_kind = {}, {}
            self._seen = len(self._topology.nodes)
        account = spec.account or spec.tenant
        partition = self._partition(job)
        ask = Ask(job, partition, self._quality(job, account), account)
        ask.since_s = spec.submit_s
        ask.nodes = self._matching(job)
        ask.whole = self._labelled(partition.name) or ask.nodes
        self._measure(ask)
        ask.limit_s = self._limit_s(job, partition)
        ask.rate = self._billing(ask) * ask.qos.usage_factor
        ask.base = self._base(ask)
        if self._params.preempt == "qos":
            ask.preempts = frozenset(ask.qos.preempt)
        elif self._params.preempt == "partition_prio":
            ask.preempts = frozenset(
                one.name
                for one in self._partitions.values()
                if one.priority_tier < partition.priority_tier
            )
        if self._params.enforce_limits:
            ask.limits = tuple(self._limits(ask))
        return ask

    # --- who it is --------------------------------------------------------------------------------

    def _partition(self, job: Job) -> Partition:
        name = job.spec.partition or next(
            (label for label in job.shape.labels if label in self._partitions), ""
        )
        if not name:
            return self._default or NO_PARTITION
        return self._partitions.get(name) or Partition(name=name)

    def _quality(self, job: Job, account: str) -> Qos:
        name = job.spec.qos
        if not name:
            for key in ((account, job.spec.user), (account, "")):
                found = self._assoc.get(key)
                if found is not None and found.default_qos:
                    name = found.default_qos
                    break
        known = self._qos.get(name) or (self._qos.get("normal") if not name else None)
        return known or (Qos(name=name) if name else NO_QOS)

    def _limit_s(self, job: Job, partition: Partition) -> float:
        estimate_s = job.estimate_s()
        if estimate_s < INF:
            return estimate_s
        if partition.default_time_s is not None:
            return partition.default_time_s
        return partition.max_time_s

    # --- where ------------------------------------------------------------------------------------

    def _labelled(self, name: str) -> int:
        if name not in self._by_label:
            self._by_label[name] = sum(
                1 << i for i, node in enumerate(self._topology.nodes) if name in node.labels
            )
        return self._by_label[name]

    def _matching(self, job: Job) -> int:
        shape = job.shape
        labels = tuple(label for label in shape.labels if not label.startswith(MARK))
        found = self._by_kind.get((shape.types, labels))
        if found is None:
            found = sum(
                1 << i
                for i, node in enumerate(self._topology.nodes)
                if (not shape.types or node.gpu_type in shape.types)
                and all(label in node.labels for label in labels)
            )
            self._by_kind[shape.types, labels] = found
        return found

    def _measure(self, ask: Ask) -> None:
        """On how many nodes it runs, and what it needs on each: as few as can hold it."""
        shape = ask.job.shape
        count = shape.apart
        if not count:
            most = max((_times(node, ask.job) for node in self._on(ask.nodes)), default=0.0)
            count = max(1, ceil(1 / most - 1e-9)) if most else 1
        ask.amounts = Tres(shape.cpus, shape.mem_gib, count, shape.gpus)
        ask.each = Tres(shape.cpus / count, shape.mem_gib / count, 1, ceil(shape.gpus / count)
                        if shape.gpus >= 1 else shape.gpus)  # fmt: skip

    def _on(self, nodes: int) -> Iterator[Vertex]:
        return (node for i, node in enumerate(self._topology.nodes) if nodes >> i & 1)

    # --- what it counts ---------------------------------------------------------------------------

    def _billing(self, ask: Ask) -> float:
        weights = ask.partition.billing
        if weights is None:
            return ask.amounts.cpu or ask.amounts.gpu
        return product(weights, ask.amounts)

    def _base(self, ask: Ask) -> float:
        params = self._params
        total = params.weight_job_size * self._size(ask) if params.weight_job_size else 0.0
        if self._most_factor:
            total += params.weight_partition * (
                ask.partition.priority_job_factor / self._most_factor
            )
        if self._most_qos:
            total += params.weight_qos * ask.qos.priority / self._most_qos
        if params.weight_tres != NOTHING:
            there = self._capacity(ask.whole)
            for name in ("cpu", "mem_gib", "node", "gpu"):
                whole = getattr(there, name)
                if whole:
                    weight: float = getattr(params.weight_tres, name)
                    total += weight * min(getattr(ask.amounts, name) / whole, 1.0)
        return total

    def _size(self, ask: Ask) -> float:
        """The mean of its parts of all nodes and of all CPUs (GPUs where no node has CPUs)."""
        there = self._capacity((1 << len(self._topology.nodes)) - 1)
        nodes = ask.amounts.node / there.node if there.node else 0.0
        if there.cpu:
            work = ask.amounts.cpu / there.cpu
        else:
            work = ask.amounts.gpu / there.gpu if there.gpu else 0.0
        if self._params.favor_small:
            return max(1.0 - (nodes + work) / 2, 0.0)
        return min((nodes + work) / 2, 1.0)

    def _capacity(self, nodes: int) -> Tres:
        there = list(self._on(nodes))
        return Tres(
            ordered_sum(node.cpus for node in there),
            ordered_sum(node.mem_gib for node in there),
            len(there),
            ordered_sum(node.gpus for node in there),
        )

    # --- what limits it ---------------------------------------------------------------------------

    def _limits(self, ask: Ask) -> Iterator[Limit]:
        """All limits on jobs that run at once; those of its partition's QOS instead of its own."""
        user, account = ask.job.spec.user, ask.account
        for qos in filter(None, (self._qos.get(ask.partition.qos), ask.qos)):
            for key, jobs, tres in (
                (("qos", qos.name), qos.grp_jobs, qos.grp_tres),
                (("qos", qos.name, "user", user), qos.max_jobs_per_user, qos.max_tres_per_user),
                (("qos", qos.name, "account", account), qos.max_jobs_per_account,
                 qos.max_tres_per_account),
            ):  # fmt: skip
                if jobs < INF or finite(tres):
                    yield Limit(key, jobs, tres)
        mine = self._assoc.get((account, user))
        if mine is not None:
            jobs = min(mine.max_jobs, mine.grp_jobs)
            if jobs < INF or finite(mine.grp_tres):
                yield Limit(("user", account, user), jobs, mine.grp_tres)
        seen: set[str] = set()
        above = self._assoc.get((account, ""))
        while above is not None and above.account not in seen:
            seen.add(above.account)
            if above.grp_jobs < INF or finite(above.grp_tres):
                yield Limit(("account", above.account), above.grp_jobs, above.grp_tres)
            above = self._assoc.get((above.parent, ""))

    def never(self, ask: Ask) -> str:
        """Why it may never run with these settings; empty: it may."""
        limited = self._params.enforce_limits
        return self._kept_out(ask) or (self._too_large(ask) if limited else "")

    @staticmethod
    def _kept_out(ask: Ask) -> str:
        """By its partition."""
        partition, limit_s = ask.partition, ask.limit_s
        where = f"partition {partition.name}"
        if limit_s > partition.max_time_s:
            most_s = partition.max_time_s
            return f"its limit of {limit_s:g} s is above MaxTime={most_s:g} s of {where}"
        if ask.amounts.node > partition.max_nodes:
            nodes = ask.amounts.node
            return f"it needs {nodes:g} nodes, above MaxNodes={partition.max_nodes:g} of {where}"
        for name, allowed, denied, what in (
            (ask.qos.name, partition.allow_qos, partition.deny_qos, "QOS"),
            (ask.account, partition.allow_accounts, partition.deny_accounts, "account"),
        ):
            if (allowed and name not in allowed) or name in denied:
                return f"{where} does not allow {what} {name!r}"
        return ""

    def _too_large(self, ask: Ask) -> str:
        """For the limits of its QOS and its association."""
        qos, limit_s = ask.qos, ask.limit_s
        if limit_s > qos.max_wall_s:
            most_s = qos.max_wall_s
            return f"its limit of {limit_s:g} s is above MaxWall={most_s:g} s of QOS {qos.name}"
        for tres, what in self._most(ask):
            over = exceeded(ask.amounts, tres)
            if over:
                return f"it asks for more {over} than {what} allows"
        return ""

    def _most(self, ask: Ask) -> Iterator[tuple[Tres, str]]:
        yield ask.qos.max_tres, f"MaxTRES of QOS {ask.qos.name}"
        for key in ((ask.account, ask.job.spec.user), (ask.account, "")):
            found: Association | None = self._assoc.get(key)
            if found is not None:
                yield found.max_tres, f"MaxTRES of {'/'.join(filter(None, key))}"
        for limit in ask.limits:
            yield limit.tres, f"the limit of {' '.join(limit.key)}"


def product(weights: Tres, amounts: Tres) -> float:
    """The weighted sum."""
    return (
        weights.cpu * amounts.cpu
        + weights.mem_gib * amounts.mem_gib
        + weights.node * amounts.node
        + weights.gpu * amounts.gpu
    )


def finite(tres: Tres) -> bool:
    """It limits anything."""
    return min(tres.cpu, tres.mem_gib, tres.node, tres.gpu) < INF


def exceeded(amounts: Tres, most: Tres) -> str:
    """What there is too much of; empty: nothing."""
    for name, word in (("cpu", "CPUs"), ("mem_gib", "memory"), ("node", "nodes"), ("gpu", "GPUs")):
        if getattr(amounts, name) > getattr(most, name) + 1e-9:
            return word
    return ""


def _times(node: Vertex, job: Job) -> float:
    """How many times the whole job would go on a node, at most 1."""
    shape = job.shape
    parts = [1.0]
    for need, have in (
        (shape.gpus, node.gpus),
        (shape.cpus, node.cpus),
        (shape.mem_gib, node.mem_gib),
    ):
        if need and (have or need is shape.gpus):
            parts.append(have / need)
    return min(parts)
