"""Resizing loses no work but what costs declare, and gives no job a size that it does not take."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.changes import Wake
from rota.core.errors import InvalidPlanError
from rota.core.jobs import DONE, Behaviour, JobSpec, Request
from rota.core.log import WIDTH, Record
from rota.core.policy import DecidePolicy
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.replica import rows_from
from rota.models.rates import CourseRates, Product, Scaling
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, to_the_end, wire


class Restless(DecidePolicy):
    """Other sizes at every decision, drawn by chance."""

    name = "restless"
    wake = Wake(every_s=7.0)

    def __init__(self, seed):
        super().__init__()
        self.rng = Random(seed)  # noqa: S311 - a workload, not a secret
        self.left = 12  # then jobs keep what they have, or nothing would ever end

    def decide(self, view):
        plan = view.plan()
        self.left -= 1
        for job in view.jobs:
            sizes = [n for n in range(1, 9) if job.spec.request.takes(n)]
            if job.running and (self.left < 0 or self.rng.random() < 0.3):
                plan.keep(job)
            elif self.left < 0 or self.rng.random() < 0.9:
                plan.place(job, gpus=self.rng.choice(sizes))
        return plan


REQUESTS = st.one_of(
    st.builds(lambda least, more: Request.of(least, min_gpus=least, max_gpus=least + more),
              st.integers(1, 3), st.integers(0, 4)),
    st.just(Request((Request.of(2).groups), only=(1, 2, 4, 8))),
    st.just(Request.of(2)),
)  # fmt: skip
COURSES = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from((0.25, 0.5, 2.0))), max_size=3
).map(lambda course: tuple((float(at), rate) for at, rate in sorted(course)) or None)


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 30), REQUESTS, st.integers(1, 40), COURSES), min_size=1, max_size=4
    ),
    costs=st.builds(Fixed, st.integers(1, 3), st.integers(0, 2), st.integers(0, 4)),
    seed=st.integers(0, 1 << 16),
)
def test_work_is_lost_only_as_declared(jobs, costs, seed):
    topology = Topology.uniform(2, 4)
    workload = Workload(
        [JobSpec(f"j{i}", float(at), request) for i, (at, request, _, _) in enumerate(jobs)],
        [Behaviour(float(work), course=course) for _, _, work, course in jobs],
    )
    rates = Product([Scaling(topology), CourseRates(topology)])
    engine = to_the_end(wire(Restless(seed), SimCluster(topology, costs, rates), workload))
    done, lost = progress(rows_from(engine.log, 0))
    for index, job in engine.jobs.items():
        assert job.phase == DONE
        assert done[index] == pytest.approx(job.true_work + lost[index], rel=1e-9, abs=1e-6)
        assert lost[index] <= costs.lost * (job.preemptions + job.migrations) + 1e-9


def progress(rows):
    """Work done and lost by job, from the rows alone (all starts take time, so all have RUN)."""
    done, lost, rate, since = {}, {}, {}, {}
    for at in range(0, len(rows), WIDTH):
        time_s, kind, job, _, _, value = rows[at : at + WIDTH]
        job = int(job)
        if kind == Record.SUBMIT:
            done[job] = lost[job] = rate[job] = 0.0
            since[job] = time_s
        elif job in done and kind in (
            Record.RUN, Record.RATE, Record.STOP, Record.MOVE, Record.DONE, Record.LOST,
        ):  # fmt: skip
            done[job] += rate[job] * (time_s - since[job])
            since[job] = time_s
            if kind in (Record.RUN, Record.RATE):
                rate[job] = value
            elif kind != Record.LOST:
                rate[job] = 0.0
            if kind in (Record.STOP, Record.LOST):
                lost[job] += value
    return done, lost


@pytest.mark.parametrize("gpus", [3, 5, 16])
def test_a_size_that_a_job_does_not_take_is_refused_by_name(gpus):
    class Wrong(DecidePolicy):
        name = "wrong"

        def decide(self, view):
            plan = view.plan()
            for job in view.jobs:
                plan.place(job, gpus=gpus)
            return plan

    topology = Topology.uniform(4, 4)
    request = Request(Request.of(2).groups, only=(1, 2, 4, 8))
    workload = Workload([JobSpec("j", 0.0, request)], [Behaviour(5.0)])
    engine = wire(Wrong(), SimCluster(topology, Fixed(), Scaling(topology)), workload)
    message = rf"policy 'wrong' at 0 s: job j takes 1, 2, 4, 8 GPUs and is given {gpus}"
    with pytest.raises(InvalidPlanError, match=message):
        engine.run()
