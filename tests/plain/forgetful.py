"""Policies of tenants that remember nothing from one decision to the next but what queues had.

All queues are filled anew from the view, everybody takes his turn, and the plan names all that run.
Every job is told by itself why it waits.
"""

from collections.abc import Iterable

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.view import View
from rota.policies.tenancy.decision import QueueDecision, TenancyPlan
from rota.policies.tenancy.policy import TenantPolicy
from rota.policies.tenancy.tree import Branch


class PatientDecision(QueueDecision):
    """Nobody is known to wait before his turn has come."""

    def _is_stuck(self, leaf: Branch, idle: float) -> bool:
        return False

    def _must_wait(self, leaf: Branch, job: Job) -> bool:
        return False

    def _could_run(self, job: Job) -> bool:
        return self.plan.fits(job)  # in the place of anybody who was not named

    def _explain(self, leaves: Iterable[Branch]) -> None:
        """Tell every job by itself."""
        for index, (leaf, job) in sorted(self.queues.waiting.items()):
            kind = leaf.line.kinds[index]
            tried = leaf.line.tried.get(kind)
            self.plan.explain(job, self._behind(leaf, job) if tried is None else tried.why)


class Forgetful(TenantPolicy):
    """Looks at everything at each decision."""

    keeps_unnamed = False

    def decide(self, view: View) -> Plan:
        """Serve the queues, the one after the other."""
        plan = view.plan(TenancyPlan)
        if self._queues is not None:
            self.state.past = self._queues.snapshot()
            self._queues = None
        queues, _ = self._open(view)
        self.prepare(queues, view)
        self._refuse_too_large(queues, plan)
        turn = PatientDecision(view, plan, queues, self, self._options)
        turn.serve()
        plan.fill([job for job in view.running if job.index not in turn.victims.gone])
        wake_s = min(queues.wake_s(view.now_s), turn.wake_s, self.wake_s(queues, view))
        if turn.changes and self.inside.moves and (queues.waiting or turn.victims.gone):
            wake_s = view.now_s
        if wake_s < INF:
            plan.wake_at(wake_s)
        return plan
