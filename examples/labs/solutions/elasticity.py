"""Equal shares: everybody runs, and what is left goes one by one to whoever has least."""

from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class EqualShares(DecidePolicy[Params]):
    """As many jobs as possible at their smallest size, then everybody grows together."""

    name = "equal-shares"
    coupled = "GPUs are counted over the whole cluster"
    elastic = True

    def decide(self, view: View) -> Plan:
        """First come, first served for the smallest sizes; then by turns."""
        plan = view.plan()
        left = view.topology.gpus
        share = {}
        for job in sorted(view.jobs, key=lambda job: (job.submit_s, job.index)):
            if job.min_gpus <= left:
                share[job] = job.min_gpus
                left -= job.min_gpus
        growing = dict(share)
        while left and growing:
            job = min(growing, key=lambda job: (share[job], job.index))
            more = next((size for size in range(int(share[job]) + 1, int(job.max_gpus) + 1)
                         if job.size_within(size) == size), 0)  # fmt: skip
            if not more or more - share[job] > left:
                del growing[job]
                continue
            left -= more - share[job]
            share[job] = more
        for job, gpus in sorted(share.items(), key=lambda item: item[1]):
            plan.place(job, gpus=gpus)
        return plan
