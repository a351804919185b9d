"""A policy that uses measured throughput: whoever trains fastest on its GPUs keeps them.

Jobs tell it with `rota.job.report(throughput=...)`. One that has not told it yet comes first: it
has to run to be measured. `rota serve --policy fastest_first.py`
"""

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class FastestFirst(DecidePolicy[Params]):
    """Serve jobs by their measured throughput per GPU."""

    name = "fastest-first"

    def decide(self, view: View) -> Plan:
        """Place the unknown, then the fastest; the others wait."""
        plan = view.plan()
        plan.fill(sorted(view.jobs, key=speed, reverse=True))
        return plan


def speed(job: Job) -> float:
    """Return the last measured throughput per GPU."""
    measured = job.metrics or {}
    return measured.get("throughput", float("inf")) / max(1, job.gpus)
