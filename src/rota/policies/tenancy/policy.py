"""What policies of tenants have in common: parameters, presets, state, the way of a decision."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.state import State
from rota.core.tenants import TenantTree
from rota.core.view import View
from rota.policies.tenancy.decision import QueueDecision, TenancyPlan
from rota.policies.tenancy.inner import InnerPolicy
from rota.policies.tenancy.queues import Queues
from rota.policies.tenancy.tree import SLACK, Branch, Tenancy
from rota.policies.tenancy.victims import Claim, Options, Rule

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class TenantParams(Params, frozen=True):
    """How queues share. What is not given is as in the preset, or as the policy has it."""

    preset: str = ""
    inside: str | None = None
    borrow: bool | None = None
    reclaim: bool | None = None
    victims: Rule | None = None
    within: bool | None = None
    min_runtime_s: Seconds | None = None
    aging_s: Seconds | None = None


COMMON: Mapping[str, Any] = {
    "inside": "fifo",
    "borrow": True,
    "reclaim": True,
    "victims": "latest-start",
    "within": True,
    "min_runtime_s": 0.0,
    "aging_s": 0.0,
}

P = TypeVar("P", bound=TenantParams)


class TenantState(State):
    """What queues had in the past and since the last decision, when that was, the inner policy."""

    past: list[tuple[str, float, float]] = []  # tenant, average, used
    at_s: float = 0.0
    inside: Mapping[str, Any] = {}

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return fields


class TenantPolicy(IncrementalPolicy[P]):
    """Queues in a tree that lend to each other and take back what they lent."""

    coupled = "shared quotas: what a queue may use counts wherever it uses it"
    plan_type = TenancyPlan
    divides: ClassVar[bool] = True
    """Without any quota, all GPUs are divided by weight."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"": COMMON}
    """Values of parameters by name of preset; the nameless one has them all."""
    needs: ClassVar[Mapping[str, Sequence[str]]] = {
        "victims": ("reclaim", "within"),
        "min_runtime_s": ("reclaim", "within"),
    }
    """Parameters that matter only where one of these others is set."""

    def __init__(self, params: P | None = None) -> None:
        super().__init__(params)
        self.state: TenantState = TenantState()
        self.chosen = self._chosen()
        chosen = self.chosen
        self.inside = InnerPolicy(chosen["inside"], self.name)
        self._refuse_idle()
        self.knowledge = self.inside.knowledge
        self._options = Options(
            chosen["victims"], chosen["reclaim"], chosen["within"], chosen["min_runtime_s"]
        )
        self._queues: Queues | None = None
        self._claims: list[float] = []  # at the last decision
        self._touched: set[int] = set()  # jobs that something has happened to
        self._turn: QueueDecision | None = None  # the last one, if nothing has happened since then

    def _chosen(self) -> dict[str, Any]:
        """Parameters after presets."""
        own = self.presets[self.params.preset]
        given = {k: v for k, v in msgspec.structs.asdict(self.params).items() if v is not None}
        return {**self.presets[""], **own, **given}

    def _refuse_idle(self) -> None:
        """A parameter that was given must matter beside the others, be they given or a preset's."""
        for key, needed in self.needs.items():
            given = getattr(self.params, key)
            if given and not any(map(self.chosen.get, needed)):
                if key == "min_runtime_s" and self.inside.preemptive:
                    continue
                why = " and ".join(f"{one}=no" for one in needed)
                preset = f" (preset={self.params.preset})" if self.params.preset else ""
                raise OptionError(
                    f"policy {self.name!r}: {key}={given} has no effect with {why}{preset}: "
                    f"leave it out, or add {' or '.join(f'{one}=yes' for one in needed)}"
                )

    def cluster_changed(self, view: View) -> None:  # noqa: ARG002
        """There are other places."""
        self._turn = None
        if self._queues is not None:
            for leaf in self._queues.tenancy.leaves():
                leaf.stuck = None

    def submitted(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It waits."""
        self._touched.add(job.index)

    def started(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It runs, as was decided, unless it was running when this policy took over."""
        if self._queues is None or job.index not in self._queues.running:
            self._touched.add(job.index)
        self._turn = None

    def changed(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It runs in another way."""
        self._turn = None

    def ended(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It does neither any more."""
        self._touched.add(job.index)
        self._turn = None

    def decide(self, view: View) -> Plan:
        """Serve the queues, the one after the other."""
        plan = view.plan(TenancyPlan)
        queues, calm = self._open(view)
        if not queues.waiting:
            self._turn = None
            return plan
        if self._starts_alone(queues, plan):
            self._turn = None
            return plan
        self.prepare(queues, view)
        self._refuse_too_large(queues, plan)
        turn = self._turn
        calm = calm and turn is not None and turn.wake_s > view.now_s
        calm = calm and self._claims == self.claims(queues)
        if turn is None or not calm or not turn.go_on(view, plan):
            turn = self._turn = QueueDecision(view, plan, queues, self, self._options)
            turn.serve()
            self._claims = [] if turn.moved else self.claims(queues)
        wake_s = min(queues.wake_s(view.now_s), turn.wake_s, self.wake_s(queues, view))
        if turn.moved:
            self._turn = None
            if self.inside.moves and (queues.waiting or turn.victims.gone) and turn.changes:
                wake_s = view.now_s  # ranks of those that start or stop are known afterwards
        if wake_s < INF:
            plan.wake_at(wake_s)
        return plan

    def _open(self, view: View) -> tuple[Queues, bool]:
        """The queues as of now, and whether all is calm.

        That is, those who could not start at the last decision cannot start now if only others have
        come to wait since then: what they are owed is the same, and so are those who might make
        room for them, and their order.
        """
        queues = self._queues
        now_s = view.now_s
        touched: set[int] | None
        touched, self._touched = self._touched, set()
        if queues is None or queues.tenancy.tenants is not view.tenants:
            if queues is not None:
                self.state.past = queues.snapshot()
            queues, touched = self._empty_queues(view.tenants), None
            self._queues = queues
            for name, average, used in self.state.past:
                leaf = queues.tenancy.leaf(name)
                leaf.average, leaf.used = average, used
            queues.tenancy.pass_time(now_s - self.state.at_s)
            for leaf in queues.tenancy.leaves():
                leaf.used = 0.0  # those who run are counted now
        else:
            queues.tenancy.pass_time(now_s - self.state.at_s)
        self.state.at_s = now_s
        ranked_again = queues.update(view, touched)
        resettled = queues.tenancy.settle(view.up_gpus)
        calm = (
            touched is not None
            and not (ranked_again or resettled or queues.old or self.inside.preemptive)
            and self._options.rule != "least-progress"
        )
        return queues, calm

    def _refuse_too_large(self, queues: Queues, plan: Plan) -> None:
        """A new job that alone exceeds what its queue may ever use could never start."""
        refused = False
        for job in queues.fresh:
            for branch in queues.waiting[job.index][0].path:
                if job.gpus > branch.most + SLACK and not job.started:
                    plan.refuse(
                        job,
                        f"asks for {job.gpus:g} GPUs, but queue {branch.name!r} may use "
                        f"{branch.most:g} at most: ask for less, or raise its limit, its quota or "
                        "what it may borrow",
                    )
                    refused = True
                    queues.leaves(job)
                    break
        if refused:
            queues.fresh = [job for job in queues.fresh if job.index in queues.waiting]

    def _starts_alone(self, queues: Queues, plan: TenancyPlan) -> bool:
        """A newcomer starts at once if nobody else waits: whose turn it is needs no looking."""
        if len(queues.waiting) != 1 or len(queues.fresh) != 1 or queues.tenancy.keeps:
            return False
        (job,) = queues.fresh
        if not queues.class_of(job).preemptible:  # it may not borrow what others were promised
            return False
        leaf, _ = queues.waiting[job.index]
        for branch in leaf.path:
            if branch.used + job.gpus > branch.ceiling + SLACK:
                return False
        if plan.displace(job, ()) is None:
            return False
        queues.begins(leaf, job)
        return True

    def _empty_queues(self, tenants: TenantTree) -> Queues:
        tenancy = Tenancy(
            tenants,
            divide=self.divides,
            borrow=self.chosen["borrow"],
            half_life_s=self.chosen.get("half_life_s", 0.0),
        )
        return Queues(tenancy, self.inside, self.chosen["aging_s"] or INF)

    # --- what a policy decides --------------------------------------------------------------------

    def prepare(self, queues: Queues, view: View) -> None:
        """Look at the queues before they are served."""

    def claims(self, queues: Queues) -> list[float]:  # noqa: ARG002 - part of the interface
        """What decides who may claim what from whom, beside what they have and were promised."""
        return []

    def wake_s(self, queues: Queues, view: View) -> float:  # noqa: ARG002 - part of the interface
        """When the turns change by themselves."""
        return INF

    def turn(self, branch: Branch, job: Job) -> tuple[Any, ...]:
        """The rank of a branch among its like, with the job that is its next."""
        raise NotImplementedError

    def claim(self, branch: Branch, other: Branch, gpus: float) -> Claim:  # noqa: ARG002
        """What a branch that is owed so many more GPUs may take from another."""
        return Claim(other.quota)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """What queues had, and what the inner policy knows."""
        if self._queues is not None:
            self.state.past = self._queues.snapshot()
        self.state.inside = self.inside.snapshot()
        return super().snapshot()

    def resumed(self) -> None:
        """Open the queues again at the next decision."""
        self._queues = self._turn = None
        if self.state.inside:
            self.inside.restore(self.state.inside)
