"""AFS: GPUs one by one to whoever makes most of them."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runs import elastic, ends, engine, held
from policy_runs import bare
from rota.core.jobs import Request
from rota.core.knowledge import Knowledge
from rota.policies.afs import Afs, AfsParams, Contender, better, shares

LINEAR = [1.0, 2.0, 3.0, 4.0]
ROOT = [sqrt(n) for n in range(1, 5)]


class Told:
    """A book with one curve for all."""

    def __init__(self, rates):
        self.rates = rates

    def speed_with(self, job, gpus, nodes, gpu_type):
        return self.rates[int(gpus) - 1]


def contender(index, work, rates):
    job = bare(index, work=work, request=Request.of(1, min_gpus=1, max_gpus=len(rates)),
               known=Knowledge.REMAINING_WORK | Knowledge.SCALING)  # fmt: skip
    job.book = Told(rates)
    return Contender(job, [float(n) for n in range(1, len(rates) + 1)], 0.0)


SPEEDS = st.lists(st.integers(1, 100), min_size=4, max_size=4)


def concave(gains):
    """Return a curve by what each GPU adds, the most first."""
    return [sum(sorted(gains, reverse=True)[: n + 1]) for n in range(len(gains))]


@given(SPEEDS, SPEEDS, st.integers(1, 2), st.integers(0, 1))
def test_of_two_jobs_the_gpu_goes_where_the_mean_completion_time_is_shortest(
    gains, others, few, more
):
    a, b = contender(0, 1, concave(gains)), contender(1, 1, concave(others))
    a.share, b.share = few, few + more
    # a is done first, then b goes on at the speed that it has with the GPU
    (r_a, r_a1), (r_b, r_b1) = (one.rates[one.share - 1 : one.share + 1] for one in (a, b))
    to_a = 1 / r_a1 * (2 - r_b / r_b1)
    to_b = 1 / r_a * (2 - r_b1 / r_b1)
    if abs(to_a - to_b) > 1e-12:
        assert better(a, b, "paper") is (a if to_a < to_b else b)
        if more:  # of two with as many GPUs the first is a
            assert better(b, a, "paper") is (a if to_a < to_b else b)


def test_two_equal_jobs_have_equal_shares():
    both = [contender(i, 100, ROOT) for i in range(2)]
    shares(both, 4, "paper")
    assert [one.gpus for one in both] == [2, 2]


def test_the_rules_differ_where_the_one_with_fewer_gpus_gains_little():
    few, many = contender(0, 100, [1.0, 1.5, 1.6, 1.7]), contender(1, 100, [1.0, 2.0, 3.1, 3.9])
    few.share, many.share = 1, 2

    # 0.5 / 1 against (3.1 - 2) / 3.1: by the paper the one with fewer, by the code 0.5 / 1.5: no
    assert better(few, many, "paper") is few
    assert better(few, many, "artifact") is many


def test_a_gpu_that_slows_a_job_down_stays_idle():
    made = engine(Afs(), [elastic("a", 0, 100, [1.0, 1.6, 1.5, 1.4])])

    assert held(made, 1.0) == {"a": 2}
    assert ends(made) == {"a": pytest.approx(100 / 1.6)}


def test_jobs_shrink_for_a_newcomer_and_grow_when_it_leaves():
    made = engine(Afs(), [elastic("a", 0, 400, ROOT), elastic("b", 50, 20, ROOT)])

    assert held(made, 10.0) == {"a": 4}
    assert held(made, 51.0)["b"] >= 2
    assert held(made, 80.0)["a"] == 4


def test_with_rounds_it_decides_only_then():
    made = engine(Afs(AfsParams(every_s=60)), [elastic("a", 10, 400, LINEAR)])

    assert held(made, 59.0) == {"a": 0}
    assert held(made, 61.0) == {"a": 4}
