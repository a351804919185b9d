"""Shortest remaining service first."""

from policy_runs import bare, job, runs
from rota.core.jobs import RUNNING
from rota.policies.srsf import Srsf
from rota.policies.srtf import Srtf

# 2 GPUs: at 1 a needs 9 more seconds on 2 GPUs (18 GPU-s), b 17 s on one (17 GPU-s).
JOBS = [job("a", 0, 2, 10), job("b", 1, 1, 17)]


def test_gpus_count():
    assert runs(Srsf(), JOBS, gpus=2) == {"a": [(0, 1), (18, 27)], "b": [(1, 18)]}
    assert runs(Srtf(), JOBS, gpus=2) == {"a": [(0, 10)], "b": [(10, 27)]}


def test_the_service_of_a_running_job_falls_by_its_gpus_per_second():
    # at 4 a needs 12 GPU-s: the 13 of b are more.
    jobs = [job("a", 0, 2, 10), job("b", 4, 1, 13)]
    assert runs(Srsf(), jobs, gpus=2) == {"a": [(0, 10)], "b": [(10, 23)]}


def test_slope_is_minus_rate_times_gpus():
    running = bare(gpus=4)
    assert Srsf().slope(running) == -4.0
    running.phase, running.since_s, running.true_rate = RUNNING, 0.0, 0.5
    assert Srsf().slope(running) == -2.0
    assert Srsf().key(running, 10.0) == (100 - 5) * 4


def test_a_job_without_gpus_needs_no_service():
    assert Srsf().key(bare(gpus=0, work=float("inf")), 0.0) == 0.0
