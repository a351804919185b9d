"""EASY backfilling: later jobs start early if they do not delay the first one that waits."""

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class Backfill(DecidePolicy[Params]):
    """First come first served, with a reservation for the head of the queue."""

    name = "backfill"
    coupled = "there is one queue with one head, whatever jobs compete for"
    knowledge = Knowledge.USER_ESTIMATE
    plan_type = ReservingPlan

    def decide(self, view: View) -> ReservingPlan:
        """Running jobs go on; the head gets a reservation; others fill the gaps."""
        plan = view.plan(ReservingPlan)
        ends = []
        for job in view.running:
            plan.place(job)
            ends.append((max(view.now_s, job.start_s + self.needed_s(job)), job))
        waiting = sorted(view.waiting, key=lambda job: (job.submit_s, job.index))
        while waiting and plan.place(waiting[0]):
            job = waiting.pop(0)
            ends.append((view.now_s + self.needed_s(job), job))
        if not waiting:
            return plan
        head, *others = waiting
        promised_s = plan.earliest(head, ends)
        for job in others:
            end_s = view.now_s + self.needed_s(job)
            if not plan.place(job):
                continue
            ends.append((end_s, job))
            if promised_s < INF and plan.earliest(head, ends) > promised_s:
                plan.withdraw(job)
                ends.pop()
        return plan

    def needed_s(self, job: Job) -> float:
        """Seconds from its start on, by the estimate of its user."""
        return job.estimate_s() - job.run_s
