import pytest

from decisions import job, run, starts
from rota.core.errors import KnowledgeError
from rota.core.knowledge import Knowledge
from rota.core.topology import NodeSpec
from rota.policies.tetris import Tetris, TetrisParams


def packing(**options):
    return Tetris(TetrisParams(epsilon=0, **options))


def test_the_best_aligned_job_starts_first():
    # at 5 s half of the GPUs and all CPUs are free: 1/2 x 1/2 against 1/4 x 1/2 + 1/2 x 1
    jobs = [
        job("long", 2, 10),
        job("short", 2, 5, cpus=8),
        job("gpus", 2, 10, at=1),
        job("both", 1, 10, at=2, cpus=4),
    ]
    made = run(packing(), jobs, [NodeSpec("n0", 4, cpus=8)])
    assert starts(made) == {"long": 0, "short": 0, "gpus": 10, "both": 5}


def test_scores_are_taken_again_after_every_start():
    # `gpus` (0.75) beats both others (0.5); then CPUs are plentiful, so that `cpus` (0.5) beats
    # `small` (0.25 x 0.25 + 0.25)
    jobs = [
        job("small", 1, 10, cpus=2),
        job("gpus", 3, 10),
        job("cpus", 0, 10, cpus=4),
        job("more", 0, 10, cpus=4),
    ]
    made = run(packing(), jobs, [NodeSpec("n0", 4, cpus=8)])
    assert starts(made) == {"small": 10, "gpus": 0, "cpus": 0, "more": 0}


@pytest.mark.parametrize(
    ("epsilon", "large_s", "small_s", "first"),
    [
        # alignment: large 1, small 1/2; work: remaining time x 1 or 1/2
        (0, 100, 1, "large"),
        (1, 100, 1, "small"),  # 1 - 0.75/50.25 x 100 = -0.49 against 0.5 - 0.75/50.25 x 0.5 = 0.49
        (0.1, 100, 1, "large"),  # 0.85 against 0.5
        (1, 1, 100, "large"),
    ],
)
def test_epsilon_weighs_remaining_work_against_alignment(epsilon, large_s, small_s, first):
    jobs = [
        job("full", 2, 1),
        job("large", 2, large_s, at=0.5),
        job("small", 1, small_s, at=0.5),
    ]
    made = run(Tetris(TetrisParams(epsilon=epsilon)), jobs, (1, 2))
    assert starts(made)[first] == 1
    assert sorted(starts(made).values())[2] > 1


def test_of_equal_demands_the_shortest_comes_first_and_without_epsilon_the_oldest():
    jobs = [job("full", 1, 10), job("long", 1, 9, at=1), job("short", 1, 3, at=2)]
    assert starts(run(Tetris(), jobs, (1, 1))) == {"full": 0, "short": 10, "long": 13}
    assert starts(run(packing(), jobs, (1, 1))) == {"full": 0, "long": 10, "short": 19}


def test_knowledge_is_declared_only_where_it_is_used():
    assert Tetris().knowledge == Knowledge.REMAINING_WORK
    assert packing().knowledge == Knowledge.NOTHING
    assert Tetris.knowledge == Knowledge.REMAINING_WORK
    greedy = Tetris()
    greedy.knowledge = Knowledge.NOTHING
    with pytest.raises(KnowledgeError):
        run(greedy, [job("one", 1, 1)], (1, 1))


@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_a_job_that_fits_nowhere_is_passed(placement):
    jobs = [job("first", 3, 10), job("large", 4, 1, at=1), job("small", 1, 2, at=2)]
    made = run(packing(), jobs, (1, 4), placement=placement)
    assert starts(made) == {"first": 0, "large": 10, "small": 2}
    assert sum(j.preemptions for j in made.view.finished) == 0
