"""The policy of aged_size.py through the general door: it decides about all jobs at once."""

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class AgedSizeParams(Params, frozen=True):
    """Seconds that a job waits for each GPU beyond the first."""

    per_gpu_s: float = 3600.0


class AgedSizeGeneral(DecidePolicy[AgedSizeParams]):
    """Serve small jobs first, and old ones before young ones."""

    name = "aged-size-general"
    Parameters = AgedSizeParams

    def decide(self, view: View) -> Plan:
        """Say who runs: everybody who runs already, then whoever fits, best first."""
        plan = view.plan()
        plan.fill(view.running)
        plan.fill(sorted(view.waiting, key=self.rank))
        return plan

    def rank(self, job: Job) -> float:
        """The time at which it counts as submitted; smaller is served first."""
        return job.submit_s + self.params.per_gpu_s * (job.gpus - 1)
