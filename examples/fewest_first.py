"""Serve the tenant with the fewest running jobs first; a policy that hears what changes."""

from collections import Counter

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.view import View


class FewestFirst(IncrementalPolicy[Params]):
    """One job at a time to the tenant with the fewest; within a tenant in order of submission."""

    name = "fewest-first"
    coupled = "what a tenant runs counts wherever it runs"

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self.queues: dict[str, dict[int, Job]] = {}
        self.running: dict[int, str] = {}

    def submitted(self, job: Job, now_s: float) -> None:
        """It waits, for the first time or again."""
        self.queues.setdefault(job.tenant, {})[job.index] = job

    def started(self, job: Job, now_s: float) -> None:
        """It has left the queue."""
        del self.queues[job.tenant][job.index]
        self.running[job.index] = job.tenant

    def ended(self, job: Job, now_s: float) -> None:
        """It runs or waits no more."""
        if self.running.pop(job.index, None) is None:
            del self.queues[job.tenant][job.index]

    def decide(self, view: View) -> Plan:
        """Start jobs; those that run go on without being named."""
        plan = view.plan()
        count = Counter(self.running.values())
        heads = {name: min(queue) for name, queue in self.queues.items() if queue}
        while heads:
            name = min(heads, key=lambda name: (count[name], heads[name]))
            index = heads.pop(name)
            if plan.place(self.queues[name][index]):
                count[name] += 1
                later = [other for other in self.queues[name] if other > index]
                if later:
                    heads[name] = min(later)
        return plan
