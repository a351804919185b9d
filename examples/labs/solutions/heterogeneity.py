"""Comparative advantage: fast GPUs go to the jobs that gain most from them."""

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import LocalityPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class Gain(DecidePolicy[Params]):
    """Who gains most from the fast type chooses first."""

    name = "gain"
    coupled = "GPUs are counted over the whole cluster"
    knowledge = Knowledge.SPEEDS
    plan_type = LocalityPlan

    def decide(self, view: View) -> LocalityPlan:
        """Every job in the order of its gain, on the best type that is left."""
        plan = view.plan(LocalityPlan)
        free = dict(view.up_by_type)
        served = self.served(view)
        for job in sorted(served, key=lambda job: (-self.gain(job, free), job.index)):
            for kind in sorted(free, key=lambda kind: -job.speed_on(kind)):
                fits = free[kind] >= job.gpus and job.speed_on(kind) > 0
                if fits and plan.place_on(job, gpu_type=kind):
                    free[kind] -= job.gpus
                    break
        return plan

    def served(self, view: View) -> list[Job]:
        """First come, first served, as far as there are GPUs of any type."""
        left = sum(view.up_by_type.values())
        found = []
        for job in sorted(view.jobs, key=lambda job: (job.submit_s, job.index)):
            if job.gpus <= left:
                left -= job.gpus
                found.append(job)
        return found

    def gain(self, job: Job, kinds: dict[str, float]) -> float:
        """How many times faster it is on its best type than on its worst."""
        speeds = [speed for kind in kinds if (speed := job.speed_on(kind)) > 0]
        return max(speeds) / min(speeds) if speeds else 0.0
