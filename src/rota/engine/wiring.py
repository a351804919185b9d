"""Engines are wired here: a scheduler from its parts, or from their names, and an engine around it.

Runs, forecasts, scenarios, calibrations, the kit for tests and the daemon all do it by this module.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rota.core.admission import Admission
from rota.core.changes import Wake
from rota.core.policy import Policy
from rota.core.ports import Cluster, Scheduler, Source, Successor
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.engine.compose import compose
from rota.engine.loop import Checker, Engine
from rota.engine.parts import make_admission, make_placement, make_policy
from rota.placement.base import Placement

FIRST_TASK = 1 << 24  # jobs have smaller numbers
DEFAULT_PLACEMENT = "consolidate"
DEFAULT_ADMISSION = "accept-all"


class Parts(NamedTuple):
    """What a scheduler is composed of."""

    policy: Policy[Any]
    placement: Placement
    admission: Admission

    @classmethod
    def named(
        cls,
        policy: str,
        topology: Topology,
        *,
        placement: str | None = None,
        admission: str | None = None,
        seed: int = 0,
    ) -> "Parts":
        """By their names, each with its parameters: `name:key=value,...`."""
        return cls(
            make_policy(policy),
            make_placement(placement or DEFAULT_PLACEMENT, topology, seed),
            make_admission(admission or DEFAULT_ADMISSION),
        )

    def by_role(self) -> Iterable[tuple[str, Policy[Any] | Placement | Admission]]:
        """The parts with what they are."""
        return zip(self._fields, self, strict=True)

    def scheduler(self, *, frictionless: bool = False, patient: bool = False) -> Successor:
        """One scheduler (see `compose`)."""
        return compose(*self, frictionless=frictionless, patient=patient)


def make_engine(
    who: Scheduler | Parts,
    cluster: Cluster,
    source: Source,
    *,
    tenants: TenantTree | None = None,
    wake: Wake | None = None,
    belief: Callable[[int], float] | None = None,
    checker: Checker | None = None,
    first_task: int = FIRST_TASK,
) -> Engine:
    """An engine on a cluster, simulated or live.

    Args:
        who: Decides.
        cluster: Where jobs run.
        source: The jobs.
        tenants: Quotas and weights.
        wake: When decisions are made; None: when the scheduler wants.
        belief: Factor by which the scheduler is wrong about the work of a job, by its number.
        checker: Checks invariants.
        first_task: Numbers from here on are tasks of jobs.
    """
    scheduler = (
        who.scheduler(frictionless=cluster.capabilities.frictionless)
        if isinstance(who, Parts)
        else who
    )
    return Engine(
        cluster,
        scheduler,
        source,
        tenants=tenants,
        wake=wake,
        belief=belief,
        checker=checker,
        first_task=first_task,
    )
