"""What queues of Kueue and KAI are promised, as tenants of Rota; what has no counterpart is told.

*Kueue.* A ClusterQueue is a tenant: `nominalQuota` is its quota, `borrowingLimit` what it may use
beyond it, `lendingLimit` what it lends. A Cohort is a tenant above its members: they borrow from
each other, and all together have what they and the cohort itself were given, unless the cohort is
below another one. A ClusterQueue without a cohort neither borrows nor lends. Only GPUs are counted.

*Flavours.* A quota is of one flavour. If there are several with GPUs, each has a tree of its own
(`team/a100` below `cohort:lab/a100`), and a job belongs to the flavour that it was admitted with. A
flavour whose labels nodes have is a label of these nodes, and its jobs run nowhere else.

*KAI.* A Queue is a tenant below its `parentQueue`: `quota` of GPUs, `limit`, `overQuotaWeight`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.events import INF
from rota.core.kubernetes import gpus_of, is_gpu, is_quantity, part, parts, text
from rota.core.sums import ordered_sum
from rota.core.tenants import Tenant
from rota.traces.imported import SiteQueues

COHORT = "cohort:"
NEVER = "Never"


class FlavorQuota(msgspec.Struct):
    """GPUs of one flavour: what is promised, borrowed at most, lent at most."""

    nominal: float = 0.0
    borrow: float = INF
    lend: float = INF


class KueueNode(msgspec.Struct):
    """A ClusterQueue or a Cohort: what stands above it, and its quotas by flavour."""

    name: str
    parent: str  # a cohort, or nothing
    quotas: dict[str, FlavorQuota]
    weight: float = 1.0


class Kueue:
    """The queues of a list of objects; `told`: what a replay cannot keep, for people."""

    def __init__(self, items: Sequence[Mapping[str, Any]], mig: str) -> None:
        self._mig = mig
        found = Counter(text(item, "kind") for item in items)
        self._many = found
        self.wrong: list[str] = []
        """Amounts that cannot be read: `ClusterQueue team: nvidia.com/gpu: nominalQuota is 'x'`."""
        self._queues = self._nodes(items, "ClusterQueue")
        self._cohorts = self._nodes(items, "Cohort")
        for node in (*self._queues.values(), *list(self._cohorts.values())):
            if node.parent:  # a cohort may exist by its name alone
                self._cohorts.setdefault(node.parent, KueueNode(node.parent, "", {}))
        self._local = {
            (text(part(item, "metadata"), "namespace"), text(part(item, "metadata"), "name")): text(
                part(item, "spec"), "clusterQueue"
            )
            for item in items
            if text(item, "kind") == "LocalQueue"
        }
        self._labels = {
            text(part(item, "metadata"), "name"): dict(part(item, "spec", "nodeLabels"))
            for item in items
            if text(item, "kind") == "ResourceFlavor"
        }
        above = _without_cycles({name: node.parent for name, node in self._cohorts.items()})
        for name, node in self._cohorts.items():
            node.parent = above[name]
        nodes = (*self._queues.values(), *self._cohorts.values())
        self._flavors = sorted({flavor for node in nodes for flavor in node.quotas})
        self._specs = [part(item, "spec") for item in items if item.get("kind") == "ClusterQueue"]

    def __bool__(self) -> bool:
        return bool(self._flavors)

    def _nodes(self, items: Iterable[Mapping[str, Any]], kind: str) -> dict[str, KueueNode]:
        found = {}
        for item in items:
            name = text(part(item, "metadata"), "name")
            if text(item, "kind") != kind or not name:
                continue
            spec = part(item, "spec")
            keys = ("cohortName", "cohort") if kind == "ClusterQueue" else ("parentName", "parent")
            above = next((text(spec, key) for key in keys if text(spec, key)), "")
            weight = part(spec, "fairSharing").get("weight")
            share = gpus_of({"nvidia.com/gpu": weight}, "whole") or 1.0
            found[name] = KueueNode(name, above, self._quotas(f"{kind} {name}", spec), share)
        return found

    def _quotas(self, where: str, spec: Mapping[str, Any]) -> dict[str, FlavorQuota]:
        found: dict[str, FlavorQuota] = {}
        for group in parts(spec, "resourceGroups"):
            for flavor in parts(group, "flavors"):
                for one in parts(flavor, "resources"):
                    resource = text(one, "name")
                    if is_gpu(resource):
                        quota = self._quota(where, resource, one)
                        name = text(flavor, "name")
                        found[name] = _added(found[name], quota) if name in found else quota
        return found

    def _quota(self, where: str, resource: str, one: Mapping[str, Any]) -> FlavorQuota:
        amounts = []
        for key, missing in (("nominalQuota", 0.0), ("borrowingLimit", INF), ("lendingLimit", INF)):
            value = one.get(key)
            if not is_quantity(value):
                self.wrong.append(f"{where}: {resource}: {key} is {str(value)[:40]!r}")
            given = value is not None and is_quantity(value)
            amounts.append(gpus_of({resource: value}, self._mig) if given else missing)
        return FlavorQuota(*amounts)

    # --- whose a job is ---------------------------------------------------------------------------

    def queue_of(self, namespace: str, local: str) -> str:
        """The ClusterQueue of a LocalQueue; where none is listed, one of the same name."""
        named = self._local.get((namespace, local), "")
        if named in self._queues:
            return named
        return local if local in self._queues and (namespace, local) not in self._local else ""

    def flavors_of(self, labels: Mapping[str, Any]) -> list[str]:
        """The flavours that a node with these labels has, of those with GPUs."""
        if len(self._flavors) < 2:  # noqa: PLR2004 - one tells nothing apart
            return []
        return [
            name
            for name in self._flavors
            if (wanted := self._labels.get(name))
            and all(labels.get(key) == value for key, value in wanted.items())
        ]

    def tenant(self, queue: str, flavor: str) -> str:
        """Whose a job of a ClusterQueue is; nothing: it cannot be told."""
        quotas = self._queues[queue].quotas if queue in self._queues else {}
        if len(quotas) == 1 and not flavor:
            flavor = next(iter(quotas))
        return self._named(queue, flavor) if flavor in quotas else ""

    def _named(self, name: str, flavor: str) -> str:
        return f"{name}/{flavor}" if len(self._flavors) > 1 else name

    # --- the tree ---------------------------------------------------------------------------------

    def shares(self) -> SiteQueues:
        """All tenants, and the policy that keeps their quotas as Kueue does."""
        tenants = []
        for flavor in self._flavors:
            for cohort in self._cohorts.values():
                promised = self._promised(cohort.name, flavor, set())
                if promised:
                    tenants.append(self._cohort(cohort, flavor, promised))
            shown = {tenant.name for tenant in tenants}
            for queue in self._queues.values():
                quota = queue.quotas.get(flavor)
                if quota is not None:
                    tenants.append(self._tenant(queue, flavor, quota, shown))
        return SiteQueues(tuple(tenants), self._policy())

    def _cohort(self, cohort: KueueNode, flavor: str, promised: float) -> Tenant:
        own = cohort.quotas.get(flavor, FlavorQuota())
        above = cohort.parent if self._promised(cohort.parent, flavor, set()) else ""
        return Tenant(
            self._named(COHORT + cohort.name, flavor),
            self._named(COHORT + above, flavor) if above else "",
            promised,
            promised + own.borrow if above else promised,
            cohort.weight,
            own.lend,
        )

    def _tenant(
        self, queue: KueueNode, flavor: str, quota: FlavorQuota, shown: Iterable[str]
    ) -> Tenant:
        above = self._named(COHORT + queue.parent, flavor) if queue.parent else ""
        above = above if above in shown else ""
        most = quota.nominal + (quota.borrow if above else 0.0)
        name = self._named(queue.name, flavor)
        return Tenant(name, above, quota.nominal, most, queue.weight, quota.lend)

    def _promised(self, cohort: str, flavor: str, seen: set[str]) -> float:
        """To a cohort and to all below it; a cycle of cohorts counts once."""
        if cohort not in self._cohorts or cohort in seen:
            return 0.0
        seen.add(cohort)
        own = self._cohorts[cohort].quotas.get(flavor, FlavorQuota()).nominal
        members = [
            queue.quotas.get(flavor) for queue in self._queues.values() if queue.parent == cohort
        ]
        below = [one.name for one in self._cohorts.values() if one.parent == cohort]
        return (
            own
            + ordered_sum(quota.nominal for quota in members if quota is not None)
            + ordered_sum(self._promised(name, flavor, seen) for name in below)
        )

    def _policy(self) -> str:
        said = [part(spec, "preemption") for spec in self._specs]
        strict = [text(spec, "queueingStrategy") == "StrictFIFO" for spec in self._specs]
        wanted = ["preset=kueue"]
        for key, name in (("reclaimWithinCohort", "reclaim"), ("withinClusterQueue", "within")):
            if all((text(one, key) or NEVER) == NEVER for one in said):
                wanted.append(f"{name}=no")
        if strict and all(strict):
            wanted.append("inside=fifo")
        return f"capacity:{','.join(wanted)}"

    def told(self, mapped: Iterable[str]) -> list[str]:
        """What is in force, and what of it is lost. `mapped`: flavours that nodes have."""
        shares = self.shares()
        quotas = ", ".join(
            f"{tenant.name}={tenant.quota:g}"
            for tenant in shares.tenants
            if not tenant.name.startswith(COHORT)
        )
        many = self._many["ClusterQueue"]
        told = (
            f"{many:,} ClusterQueue: their quotas of GPUs, as they are now ({quotas}), are in "
            f"force under policies with queues: --policy {shares.policy}"
        )
        notes = [told]
        if len(self._flavors) > 1:
            free = sorted({*self._flavors} - {*mapped})
            lost = f"; no node is known by the labels of {', '.join(free)}" if free else ""
            notes.append(
                f"{len(self._flavors):,} flavours with GPUs: a job keeps the one that it was "
                f"admitted with, where Kueue would try others{lost}"
            )
        notes += self._lost()
        if self._many["Topology"]:
            notes.append(
                f"{self._many['Topology']:,} Topology: its levels are not read: describe them in a "
                "cluster file"
            )
        return notes

    def _lost(self) -> list[str]:
        lost = ["quotas of CPUs and memory", "admission checks", "stop policies"]
        said = [part(spec, "preemption") for spec in self._specs]
        for key in ("reclaimWithinCohort", "withinClusterQueue"):
            words = {text(one, key) or NEVER for one in said}
            if len(words) > 1:
                lost.append(f"that queues differ in {key} ({', '.join(sorted(words))})")
            elif words == {"LowerPriority"} and key == "reclaimWithinCohort":
                lost.append("that only lower priorities are reclaimed from")
        if any((text(part(one, "borrowWithinCohort"), "policy") or NEVER) != NEVER for one in said):
            lost.append("preemption by queues that borrow (borrowWithinCohort)")
        if len({text(spec, "queueingStrategy") == "StrictFIFO" for spec in self._specs}) > 1:
            lost.append("that some queues are StrictFIFO")
        if any(node.weight != 1 for node in (*self._queues.values(), *self._cohorts.values())):
            lost.append("fair sharing by weight (--policy hierarchical-fair:preset=kueue has it)")
        return [f"not kept of Kueue: {', '.join(lost)}"]


def _added(one: FlavorQuota, other: FlavorQuota) -> FlavorQuota:
    """Of two resources that stand for GPUs."""
    return FlavorQuota(
        one.nominal + other.nominal, one.borrow + other.borrow, one.lend + other.lend
    )


# --- KAI ------------------------------------------------------------------------------------------

KAI_POLICY = "hierarchical-fair:half_life_s=0,inside=fifo-skip"


class Kai:
    """The queues of KAI in a list of objects."""

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self._specs = {
            text(part(item, "metadata"), "name"): part(item, "spec")
            for item in items
            if text(item, "kind") == "Queue"
            and text(part(item, "metadata"), "name")
            and text(item, "apiVersion").split("/")[0] in ("", "scheduling.run.ai")
        }
        self.wrong: list[str] = []
        """Amounts that cannot be read."""
        self._endless: list[str] = []
        self._tenants = self._read()

    def __bool__(self) -> bool:
        return bool(self._specs)

    def _read(self) -> tuple[Tenant, ...]:
        parents = {name: text(spec, "parentQueue") for name, spec in self._specs.items()}
        parents = _without_cycles(
            {name: above if above in parents else "" for name, above in parents.items()}
        )
        tenants = []
        for name, spec in self._specs.items():
            gpu = part(spec, "resources", "gpu")
            quota = self._number(name, gpu, "quota", 0.0)
            limit = self._number(name, gpu, "limit", -1.0)
            weight = self._number(name, gpu, "overQuotaWeight", 1.0)
            if quota < 0:
                self._endless.append(name)
            promised = max(quota, 0.0)
            made = Tenant(
                name,
                parents[name],
                promised,
                INF if limit < 0 else max(limit, promised),
                weight if weight > 0 else 1.0,
                borrow=INF if weight > 0 else 0.0,  # a weight of 0 has no part in what is left
            )
            tenants.append(made)
        return tuple(tenants)

    def _number(self, name: str, gpu: Mapping[str, Any], key: str, missing: float) -> float:
        value = gpu.get(key)
        if value is None:
            return missing
        if isinstance(value, bool) or not isinstance(value, int | float) or not -INF < value < INF:
            self.wrong.append(f"Queue {name}: gpu: {key} is {str(value)[:40]!r}")
            return missing
        return float(value)

    def shares(self) -> SiteQueues:
        """All tenants, and the policy that shares as KAI does."""
        return SiteQueues(self._tenants, KAI_POLICY)

    def told(self) -> list[str]:
        """What is in force, and what of it is lost."""
        quotas = ", ".join(f"{one.name}={one.quota:g}" for one in self._tenants if one.quota)
        told = (
            f"{len(self._specs):,} queues of KAI: their quotas of GPUs ({quotas or 'none'}), "
            "limits and weights beyond quota are in force under policies with queues: --policy "
            f"{KAI_POLICY}"
        )
        lost = (
            "not kept of KAI: quotas of CPUs and memory, priorities of queues, least run times, "
            "and that pods of a priority of 100 or more are not preempted"
        )
        notes = [told, lost]
        if self._endless:
            notes.append(
                f"{len(self._endless):,} queues of KAI without an end to their quota (-1): taken "
                f"as no promise and no limit ({', '.join(sorted(self._endless)[:5])})"
            )
        return notes


def _without_cycles(parents: Mapping[str, str]) -> dict[str, str]:
    """Who is its own ancestor has none."""
    found = dict(parents)
    for name, parent in parents.items():
        seen, above = {name}, parent
        while above and above not in seen:
            seen.add(above)
            above = found.get(above, "")
        if above:
            found[name] = ""
    return found
