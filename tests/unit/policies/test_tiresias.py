"""Discretised 2D-LAS and promotion: thresholds by hand."""

import pytest

from policy_runs import bare, job, resumes_alike, runs
from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.registry import parse_params
from rota.policies.tiresias import Tiresias, TiresiasParams, TiresiasState
from rota.testing.scenario import Fixed


def tiresias(*limits, promote=0.0):
    return Tiresias(TiresiasParams(limits=limits, promote=promote))


def test_a_job_drops_when_gpus_times_seconds_reach_the_limit():
    # a reaches 10 GPU-s at 5 and drops; b takes over, drops too at 10 and keeps its place.
    jobs = [job("a", 0, 2, 30), job("b", 1, 2, 8)]
    assert runs(tiresias(10), jobs, gpus=2) == {"a": [(0, 5), (13, 38)], "b": [(5, 13)]}


def test_jobs_of_different_width_cross_at_different_times():
    # 4 GPUs. a (3 GPUs) reaches 12 GPU-s at 4, b (1 GPU) at 12. c needs 2: a goes at 4.
    # At 4 c runs beside b and a waits for 3 GPUs; c ends at 9.
    jobs = [job("a", 0, 3, 8), job("b", 0, 1, 20), job("c", 1, 2, 5)]
    assert runs(tiresias(12), jobs, gpus=4) == {
        "a": [(0, 4), (9, 13)],
        "b": [(0, 20)],
        "c": [(4, 9)],
    }


def test_any_number_of_queues():
    jobs = [job("a", 0, 1, 5), job("b", 1, 1, 5)]
    assert runs(tiresias(), jobs) == {"a": [(0, 5)], "b": [(5, 10)]}
    # limits at 1, 2, 3, 4: at 1 b is first. At 2 b is level with a, and as it runs it goes on until
    # it has 2 GPU-s (at 3); then a is better, and so on in turns.
    assert runs(tiresias(1, 2, 3, 4), jobs) == {
        "a": [(0, 1), (3, 5), (7, 9)],
        "b": [(1, 3), (5, 7), (9, 10)],
    }


def test_a_job_without_gpus_never_drops():
    idle = bare(gpus=0)
    assert tiresias(10).key(idle, 1e6)[0] == 0
    assert tiresias(10).next_change(idle, 0.0) == float("inf")


# --- promotion ------------------------------------------------------------------------------------

TWO = [job("a", 0, 1, 100), job("z", 0, 1, 100)]


def test_a_job_that_has_waited_k_times_its_run_returns_to_the_first_queue():
    # limit 10, K = 2.
    #  10: a drops, z (first queue) takes over.   20: z drops beside a, keeps its place.
    #  30: a has run 10 and waited 20: promoted, takes over.   40: it drops again, keeps its place.
    #  70: z has run 20 (10-30) and waited 40: promoted.   80: it drops, keeps its place.
    # 150: z ends, just when a (run 40 from 30 on, waited 80) is promoted; a needs 50 more.
    assert runs(tiresias(10, promote=2), TWO) == {
        "a": [(0, 10), (30, 70), (150, 200)],
        "z": [(10, 30), (70, 150)],
    }


def test_without_promotion_the_first_would_wait_to_the_end():
    assert runs(tiresias(10), TWO) == {"a": [(0, 10), (110, 200)], "z": [(10, 110)]}


def test_the_promoted_job_counts_as_submitted_anew():
    # limit 10, K = 2: a runs 0-10 and is promoted at 30, behind e (submitted at 29) and ahead of f
    # (31). It runs 46-56 as a new job and drops; 74 it resumes, before it is due again at 76.
    jobs = [
        job("a", 0, 1, 100), job("b", 5, 1, 9), job("c", 12, 1, 9), job("d", 20, 1, 9),
        job("e", 29, 1, 9), job("f", 31, 1, 9), job("g", 60, 1, 9),
    ]  # fmt: skip
    assert runs(tiresias(10, promote=2), jobs) == {
        "a": [(0, 10), (46, 56), (74, 154)],
        "b": [(10, 19)],
        "c": [(19, 28)],
        "d": [(28, 37)],
        "e": [(37, 46)],
        "f": [(56, 65)],
        "g": [(65, 74)],
    }


def test_waiting_adds_up_over_several_waits():
    # limit 10, K = 2. a runs 0-12 (second queue from 10 on), b has the first queue 12-21: a has
    # waited 9. a runs 21-23; c has 23-32: a has run 14 and waited 9 + 9 = 18. a runs 32-33, then
    # x comes and drops at 43, running on: a has run 15 and waited 18 + 10 = 28 by then.
    # It is promoted when it has waited 30, at 45. x, which has run 12 then, is promoted at
    # 33 + 12 * (1 + 2) = 69 and takes over from a, which is in the second queue since 55.
    jobs = [job("a", 0, 1, 100), job("b", 12, 1, 9), job("c", 23, 1, 9), job("x", 33, 1, 90)]
    assert runs(tiresias(10, promote=2), jobs)["a"][:4] == [(0, 12), (21, 23), (32, 33), (45, 69)]


def test_overhead_counts_as_waiting():
    # As in `TWO`, but leaving the GPU takes 1 s: z makes progress from 11 on, a from 31 on.
    #  30: a has run 10 since 0: promoted.    67 = 10 + 19 * 3: z has run 11-30: promoted.
    # 138 = 30 + 36 * 3: a has run 31-67: promoted. It ends at 139 + 54 = 193, and z has 11 left.
    assert runs(tiresias(10, promote=2), TWO, costs=Fixed(stop_s=1)) == {
        "a": [(0, 10), (30, 67), (138, 193)],
        "z": [(10, 30), (67, 138), (193, 204)],
    }


def test_an_evicted_job_is_promoted_too():
    # a runs 12 s, then its node is down until 50. At 36 it is promoted, so it is ahead of b, which
    # comes at 40; after 10 s as a new job it drops and b takes over.
    jobs = [job("a", 0, 1, 100), job("b", 40, 1, 5)]
    outages = [(12, NODE_DOWN, 0), (50, NODE_UP, 0)]
    assert runs(tiresias(10, promote=2), jobs, outages=outages) == {
        "a": [(0, 12), (50, 60), (65, 143)],
        "b": [(60, 65)],
    }


def test_only_jobs_that_have_run_and_dropped_are_promoted():
    policy = tiresias(10, promote=2)
    new = bare()
    assert policy.next_change(new, 1e6) == float("inf")
    first_queue = bare(1)
    first_queue.first_start_s, first_queue.run_s, first_queue.service = 0.0, 5.0, 5.0
    assert policy.next_change(first_queue, 1e6) == float("inf")
    dropped = bare(2)
    dropped.first_start_s, dropped.run_s, dropped.service = 3.0, 20.0, 20.0
    assert policy.next_change(dropped, 30.0) == 3 + 20 * (1 + 2)


def test_promotion_is_off_by_default_and_never_negative():
    assert TiresiasParams().promote == 0
    assert not Tiresias().ages
    assert tiresias(10, promote=0.5).ages
    with pytest.raises(OptionError, match="negative"):
        parse_params("tiresias", TiresiasParams, {"promote": "-1"})


def test_options_are_written_as_on_the_command_line():
    params = parse_params("tiresias", TiresiasParams, {"limits": "10/20.5", "promote": "8"})
    assert params == TiresiasParams(limits=(10, 20.5), promote=8)


@pytest.mark.parametrize("at_s", [5, 15, 30, 31, 69, 75, 150])
def test_a_frozen_run_goes_on_alike(at_s):
    assert resumes_alike(lambda: tiresias(10, promote=2), TWO, at_s)


def test_the_state_of_a_restored_policy_is_the_same():
    policy = tiresias(10, promote=2)
    runs(policy, TWO)
    assert policy.state == TiresiasState()  # finished jobs are forgotten
    waiting = bare(7)
    waiting.first_start_s, waiting.run_s, waiting.service = 0.0, 20.0, 20.0
    policy.next_change(waiting, 20.0)
    policy.key(waiting, 60.0)
    other = tiresias(10, promote=2)
    other.restore(policy.snapshot())
    assert other.state == policy.state != TiresiasState()
    assert other.key(waiting, 70.0) == policy.key(waiting, 70.0) == (0, 1, 60.0)
