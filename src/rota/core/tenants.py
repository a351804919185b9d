"""Who shares the cluster: a tree of tenants (virtual clusters, queues, teams)."""

from collections.abc import Iterable, Iterator

import msgspec

from rota.core.errors import ClusterSpecError
from rota.core.events import INF


class Tenant(msgspec.Struct, frozen=True):
    """One node of the tree. `quota`: GPUs it is promised; `limit`: GPUs it may never exceed."""

    name: str
    parent: str = ""
    quota: float = 0.0
    limit: float = INF
    weight: float = 1.0


class TenantTree:
    """Tenants by name. A job of an undeclared tenant gets no quota, no limit and weight 1."""

    def __init__(self, tenants: Iterable[Tenant] = ()) -> None:
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
                    f"tenant {tenant.name!r} has the unknown parent {tenant.parent!r}: declare it"
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
