"""How close simulated waits come to observed ones, and what that is called."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.study.fidelity import (
    CLOSE,
    FAR,
    LEAST_JOBS,
    ROUGH,
    as_close,
    closest,
    compare_waits,
    overtaken,
)

TIMES = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), min_size=1, max_size=40)


def scored(observed, simulated, partition="p", size="1", policy="p"):
    frame = pl.DataFrame(
        {"observed_s": observed, "simulated_s": simulated},
        schema={"observed_s": pl.Float64, "simulated_s": pl.Float64},
    )
    parts = [partition] * frame.height if isinstance(partition, str) else partition
    return compare_waits(
        policy, frame.with_columns(pl.Series("partition", parts), size=pl.lit(size))
    )


# --- numbers -------------------------------------------------------------------------------------


def test_the_numbers_of_a_small_case():
    found = scored([0, 600, 1200, 3600], [0, 1200, 600, 4800]).whole
    assert (found.observed_mean_wait_s, found.mean_wait_s) == (1350.0, 1650.0)
    assert (found.bias_s, found.mae_s, found.wasserstein_s) == (300.0, 600.0, 300.0)
    assert found.bias == pytest.approx(300 / 1350)
    assert found.rank_correlation == pytest.approx(0.8)
    assert found.ks == 0.25


def test_waits_below_a_minute_are_alike():
    found = scored([3, 7, 12, 1], [0, 0, 0, 0])
    assert found.whole.ks == 0
    assert found.whole.rank_correlation is None
    assert found.whole.bias == pytest.approx(-5.75 / 60)
    assert found.verdict == CLOSE


@given(TIMES)
def test_bias_distance_and_error_are_ordered_and_agree_with_their_definitions(pairs):
    observed, simulated = (np.array(column, float) for column in zip(*pairs, strict=True))
    found = scored(observed, simulated).whole
    slack = 1e-9 * (1 + found.mae_s)
    assert abs(found.bias_s) <= found.wasserstein_s + slack
    assert found.wasserstein_s <= found.mae_s + slack
    first, second = np.maximum(observed, 60), np.maximum(simulated, 60)
    naive = max(
        abs((first <= at).mean() - (second <= at).mean()) for at in np.concatenate([first, second])
    )
    assert found.ks == pytest.approx(naive)
    ranks = [
        [(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values]
        for values in (first, second)
    ]
    if min(len(set(values)) for values in (first, second)) > 1:
        assert found.rank_correlation == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)
    else:
        assert found.rank_correlation is None


# --- verdicts ------------------------------------------------------------------------------------


def ladder(factor, jobs=40):
    observed = [60.0 * 1.2 ** (40 * i / jobs) for i in range(jobs)]
    return observed, [value * factor for value in observed]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, CLOSE), (1.1, CLOSE), (0.7, ROUGH), (1.3, ROUGH), (2.0, FAR)]
)
def test_the_bias_decides(factor, verdict):
    assert scored(*ladder(factor)).verdict == verdict


def test_the_right_mean_for_the_wrong_jobs_is_not_close():
    observed, _ = ladder(1.0)
    assert scored(observed, observed[::-1]).verdict == FAR
    assert scored(observed, [sum(observed) / len(observed)] * len(observed)).verdict == FAR


def test_a_partition_that_is_off_spoils_it_if_it_has_enough_jobs():
    good, bad = ladder(1.0, 400), ladder(0.7, LEAST_JOBS)
    observed, simulated = good[0] + bad[0], good[1] + bad[1]
    parts = ["gpu"] * 400 + ["debug"] * LEAST_JOBS
    found = scored(observed, simulated, parts)
    assert abs(found.whole.bias) < 0.15
    assert found.verdict == ROUGH
    assert found.worst.group == "debug"
    assert "Least true: partition debug (" in found.sentence
    few = scored(observed[:-1], simulated[:-1], parts[:-1])
    assert few.verdict == CLOSE


def test_jobs_that_cannot_run_are_told():
    observed, simulated = ladder(1.0)
    found = scored(observed, [None, None, None, *simulated[3:]])
    assert (found.whole.refused, found.verdict) == (3, FAR)
    assert f"It cannot run 3 of the {len(observed):,} jobs that ran" in found.sentence
    assert found.whole.ran_mean_wait_s == sum(observed) / len(observed)
    none = scored([100.0], [None])
    assert none.verdict == FAR
    assert "runs none of the jobs" in none.sentence


def test_the_closest_has_the_best_verdict_and_then_the_least_distance():
    policies = {"double": 2.0, "more": 1.1, "same": 1.0, "also": 1.0, "rough": 0.7}
    found = [scored(*ladder(factor), policy=name) for name, factor in policies.items()]
    assert closest(found).policy == "same"
    assert closest(found[:2]).policy == "more"


def test_those_that_come_as_close_are_named():
    factors = {"same": 1.0, "also": 1.0, "nearly": 1.005, "more": 1.1, "rough": 0.7, "far": 3.0}
    found = {name: scored(*ladder(factor), policy=name) for name, factor in factors.items()}
    assert as_close(found["same"], found.values()) == ["also", "nearly"]
    assert as_close(found["rough"], found.values()) == []
    far = [found["far"], scored(*ladder(3.0), policy="too")]
    assert as_close(far[0], far) == []  # nobody may act on either


def test_few_jobs_may_come_close_by_chance():
    few, enough = (scored([100.0] * many, [100.0] * many) for many in (LEAST_JOBS - 1, LEAST_JOBS))
    assert "29 jobs are few: it may be chance" in few.sentence
    assert "chance" not in enough.sentence


def test_sentences_say_what_to_do_and_why():
    assert (
        "It is not close because its bias is +200%, not within 15%" in scored(*ladder(3.0)).sentence
    )
    observed, _ = ladder(1.0)
    assert (
        "the rank correlation is -1.00, not at least 0.7"
        in scored(observed, observed[::-1]).sentence
    )
    assert scored(*ladder(1.0)).misses == []
    assert scored(*ladder(1.0)).sentence.startswith("p is a close model of today. Its mean wait is")
    assert "trust the direction of a change, not its size" in scored(*ladder(0.7)).sentence
    assert "do not act on its numbers" in scored(*ladder(3.0)).sentence


# --- who passes whom -----------------------------------------------------------------------------


def test_equal_jobs_that_pass_each_other_are_counted():
    jobs = pl.DataFrame({"at": [0, 1, 2, 3], "start": [500, 400, 2000, 3], "kind": list("aaab")})
    assert overtaken(jobs, "start", "at", ["kind"]) == pytest.approx(1 / 3)
    assert overtaken(jobs.with_columns(start=pl.col("at")), "start", "at", ["kind"]) is None
