"""HiveD (Zhao et al., OSDI 2020): tenants have cells, and may use those of others while idle.

A job is an affinity group: one-GPU tasks share pods as large as nodes, other tasks are pods of
their own. Its tenant is its virtual cluster, its priority HiveD's: from 0 on guaranteed, below
that opportunistic. A job that may preempt stops its victims at once and starts when they are gone.

The paper leaves the order of requests to others. Here higher priorities go first; among the jobs of
one virtual cluster and priority an inner policy (`inside`) decides, as if they had a cluster of
their own. Opportunistic jobs come last, in order of arrival.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from rota.core.errors import ClusterSpecError, OptionError
from rota.core.plan import ExplicitPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.view import View
from rota.core.yaml_text import YAMLError, read_yaml
from rota.policies.hived.asks import HivedRules
from rota.policies.hived.classes import Classes, Place
from rota.policies.hived.config import HivedConfig, load_config
from rota.policies.hived.decision import CellDecision
from rota.policies.hived.fleet import Fleet
from rota.policies.hived.hopeless import Hopeless
from rota.policies.hived.inner import InnerScheduler, VirtualNodes, maker
from rota.policies.hived.promises import whole_nodes


def read_config(text: str) -> Mapping[str, Any]:
    """HiveD's own configuration (YAML or JSON): cells and virtual clusters."""
    try:
        # JSON is YAML, too, but large configurations are read much faster as what they are.
        is_json = text.lstrip().startswith("{")
        content = msgspec.json.decode(text) if is_json else read_yaml(text)
    except (ValueError, YAMLError, msgspec.DecodeError) as error:
        raise OptionError(f"is neither YAML nor JSON ({error})") from error
    if not isinstance(content, dict):
        raise OptionError("holds no keys: give physicalCluster")
    try:
        return {"config": load_config(content)}
    except ClusterSpecError as error:
        raise OptionError(str(error)) from error


class HivedParams(Params, frozen=True):
    """The cells, the policy inside virtual clusters, and what happens to jobs that fit no cell.

    `config` names a file.
    """

    config: HivedConfig | None = None
    inside: str = "fifo-skip"
    misfits: Literal["reject", "opportunistic"] = "reject"
    lazy: bool = False

    files: ClassVar[Mapping[str, Callable[[str], Mapping[str, Any]]]] = {"config": read_config}


class HivedState(State):
    """The cells with everything that is on them, and what inner policies keep; empty at first."""

    fleet: Mapping[str, Any] = {}
    hopeless: Any = None
    inner: list[tuple[str, int, Mapping[str, Any]]] = []  # virtual cluster, priority, inner policy
    learnt: int = 0


class HivedPolicy(DecidePolicy[HivedParams]):
    """Serve tenants from cells that they were promised; lend what is idle."""

    name = "hived"
    paper = "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020"
    Parameters = HivedParams
    coupled = "shared quotas: virtual clusters are made of cells anywhere in the cluster"
    plan_type = ExplicitPlan

    def __init__(self, params: HivedParams | None = None) -> None:
        super().__init__(params)
        self.state: HivedState = HivedState()
        self._make = maker(self.params.inside)
        inner = self._make()
        self.knowledge = inner.knowledge
        if isinstance(inner, DecidePolicy):
            self.wake = inner.wake
        self._fleet: Fleet | None = None
        self._classes: Classes
        self._inner: dict[Place, InnerScheduler] = {}
        self._hopeless = Hopeless()
        self._learnt = 0
        """How many of the finished jobs the inner policies know."""

    def decide(self, view: View) -> Plan:
        """Virtual clusters decide by priority; then what is idle is lent."""
        plan = view.plan(ExplicitPlan)
        fleet = self._open(view)
        decision = CellDecision(fleet, view, plan, self._hopeless)
        decision.catch_up()
        self._learn(view, fleet)
        for job, why in self._classes.update(view):
            plan.refuse(job, why)
        decision.changed |= self._classes.changed
        for place in self._classes.places():
            inner = self._inner_of(place, view, fleet)
            if (
                not (inner.patient and decision.is_unchanged(place[0]))
                or place in self._classes.picky
            ):
                inner.decide(decision, self._classes.jobs(place))
        decision.lend(self._classes.jobs(None))
        decision.finish()
        return plan

    def _open(self, view: View) -> Fleet:
        """The cells on this view's nodes, made at the first decision."""
        if self._fleet is None:
            config = self.params.config
            rules = HivedRules(
                made_up=config is None,
                refuses=self.params.misfits == "reject",
                grows=view.topology.growing,
                lazy=self.params.lazy,
            )
            self._fleet = Fleet(
                view.topology, config or whole_nodes(view.topology, view.tenants), rules
            )
            self._classes = Classes(self._fleet.asks)
            if self.state.fleet:
                self._resume(view, self._fleet, self.state)
        return self._fleet

    def _inner_of(self, place: Place, view: View, fleet: Fleet) -> InnerScheduler:
        inner = self._inner.get(place)
        if inner is None:
            nodes = VirtualNodes(fleet, place[0], view.topology.types)
            inner = self._inner[place] = InnerScheduler(self._make(), nodes, view)
        return inner

    def _learn(self, view: View, fleet: Fleet) -> None:
        """Tell the inner policies which of their jobs are done."""
        for job in view.finished[self._learnt :]:
            place = fleet.asks.of(job).place
            if place in self._inner:
                self._inner[place].finished(job, view.now_s)
        self._learnt = len(view.finished)

    def snapshot(self) -> Mapping[str, Any]:
        """The cells with everything that is on them, and what inner policies keep."""
        if self._fleet is not None:
            self.state = HivedState(
                fleet=self._fleet.save(),
                hopeless=self._hopeless.save(),
                inner=[(*place, inner.snapshot()) for place, inner in self._inner.items()],
                learnt=self._learnt,
            )
        return super().snapshot()

    def resumed(self) -> None:
        """The cells are made at the next decision, in this state."""
        self._fleet = None

    def _resume(self, view: View, fleet: Fleet, state: HivedState) -> None:
        if fleet.load(state.fleet):
            self._hopeless.load(state.hopeless)
        self._learnt = min(state.learnt, len(view.finished))  # some may be forgotten
        for vc, priority, kept in state.inner:
            if vc in fleet.hived.cells.vcs:
                self._inner_of((vc, priority), view, fleet).policy.restore(kept)
        for job in view.finished[: self._learnt]:
            place = fleet.asks.of(job).place
            if place in self._inner:
                self._inner[place].remember(job)
