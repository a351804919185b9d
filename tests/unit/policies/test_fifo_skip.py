"""First in, first out with skipping."""

from policy_runs import job, runs
from rota.policies.fifo_skip import FifoSkip


def test_who_fits_passes_the_first_that_does_not():
    jobs = [job("a", 0, 3, 10), job("b", 1, 2, 5), job("c", 2, 1, 5)]
    assert runs(FifoSkip(), jobs, gpus=4) == {"a": [(0, 10)], "b": [(10, 15)], "c": [(2, 7)]}


def test_there_is_no_reservation_for_the_one_that_is_passed():
    # c takes the GPU that b would need at 10, so b starts only at 14.
    jobs = [job("a", 0, 1, 10), job("b", 1, 2, 5), job("c", 4, 1, 10)]
    assert runs(FifoSkip(), jobs, gpus=2) == {"a": [(0, 10)], "b": [(14, 19)], "c": [(4, 14)]}


def test_nobody_is_preempted():
    jobs = [job("long", 0, 2, 100), job("short", 1, 1, 1)]
    assert runs(FifoSkip(), jobs, gpus=2) == {"long": [(0, 100)], "short": [(100, 101)]}
