"""Who shares the cluster: a tree of tenants (virtual clusters, queues, teams), and by what rank."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from rota.core.errors import ClusterSpecError
from rota.core.events import INF
from rota.core.registry import nearest


class Tenant(msgspec.Struct, frozen=True):
    """One node of the tree. `quota`: GPUs it is promised; `limit`: GPUs it may never exceed.

    `lend`: how much of its quota others may use; `borrow`: how much it may use beyond its quota.
    """

    name: str
    parent: str = ""
    quota: float = 0.0
    limit: float = INF
    weight: float = 1.0
    lend: float = INF
    borrow: float = INF

    def entry(self) -> dict[str, str | float]:
        """As a cluster file has it: what is not said is as usual, and nothing is endless."""
        usual = Tenant(self.name)
        told = ((key, getattr(self, key)) for key in self.__struct_fields__)
        return {key: one for key, one in told if key == "name" or one != getattr(usual, key)}


class PriorityClass(msgspec.Struct, frozen=True):
    """Jobs of one kind of importance: those whose priority is `value`, up to the next class.

    `preemptible`: they may be stopped for others, after `min_runtime_s` of a run. `guaranteed`:
    they have a part in the quota of their tenant; others are opportunistic.
    """

    name: str  # in the daemon's configuration the key of the mapping `priority_classes`
    value: int = 0  # higher ones are served first
    preemptible: bool = True  # they may be stopped for others
    min_runtime_s: float = 0.0  # ... but only after a run of so many seconds
    guaranteed: bool = True  # they have a part in their queue's quota; false: opportunistic


class TenantTree:
    """Tenants by name. A job of an undeclared tenant gets no quota, no limit and weight 1."""

    def __init__(
        self, tenants: Iterable[Tenant] = (), classes: Iterable[PriorityClass] = ()
    ) -> None:
        self.classes = _ordered(classes)
        self._values = [each.value for each in self.classes]
        self._tenants: dict[str, Tenant] = {}
        for tenant in tenants:
            if tenant.name in self._tenants:
                raise ClusterSpecError(
                    f"tenant {tenant.name!r} is declared twice: names must differ"
                )
            self._tenants[tenant.name] = tenant
        for tenant in self._tenants.values():
            if tenant.parent and tenant.parent not in self._tenants:
                raise ClusterSpecError(
                    f"tenant {tenant.name!r} has the unknown parent {tenant.parent!r}: "
                    f"{_did_you_mean(tenant.parent, self._tenants)}declare it"
                )
        for tenant in self._tenants.values():
            self._refuse_cycle(tenant)

    def _refuse_cycle(self, tenant: Tenant) -> None:
        seen = {tenant.name}
        while tenant.parent:
            if tenant.parent in seen:
                raise ClusterSpecError(
                    f"tenant {tenant.name!r} is its own ancestor: break the cycle of parents"
                )
            seen.add(tenant.parent)
            tenant = self._tenants[tenant.parent]

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._tenants.values())

    def __len__(self) -> int:
        return len(self._tenants)

    @property
    def names(self) -> Iterable[str]:
        """Of all that are declared."""
        return self._tenants.keys()

    def get(self, name: str) -> Tenant:
        """The tenant, or an unrestricted one when it is not declared."""
        return self._tenants.get(name) or Tenant(name)

    def path(self, name: str) -> Iterator[Tenant]:
        """The tenant and its ancestors, innermost first."""
        tenant = self.get(name)
        yield tenant
        while tenant.parent:
            tenant = self._tenants[tenant.parent]
            yield tenant

    def class_of(self, priority: int) -> PriorityClass:
        """The class of a job: that of the largest value up to its priority.

        Below all classes there is a nameless one: guaranteed from priority 0 on.
        """
        at = bisect_right(self._values, priority)
        if at:
            return self.classes[at - 1]
        return PriorityClass("", priority, guaranteed=priority >= 0)

    def class_named(self, name: str) -> PriorityClass:
        """The declared class of this name."""
        for each in self.classes:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.classes) or "none is declared"
        raise ClusterSpecError(f"unknown priority class {name!r}: known: {known}")


def _ordered(classes: Iterable[PriorityClass]) -> tuple[PriorityClass, ...]:
    """By value; names and values must differ."""
    found = sorted(classes, key=lambda each: each.value)
    names: set[str] = set()
    for before, each in zip((None, *found), found, strict=False):
        if each.name in names:
            raise ClusterSpecError(
                f"priority class {each.name!r} is declared twice: names must differ"
            )
        if before is not None and before.value == each.value:
            raise ClusterSpecError(
                f"priority classes {before.name!r} and {each.name!r} both have the value "
                f"{each.value}: values must differ"
            )
        names.add(each.name)
    return tuple(found)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"did you mean {close!r}? Else " if close else ""
