"""What may be said about two policies."""

import numpy as np
import pytest

from rota.core.errors import InputError
from rota.metrics.vocabulary import MEASURES, Measure
from rota.study.compare_file import Measured, read_comparison
from rota.study.measures import Arm, judge, measure_all
from rota.study.statistics import Ratio
from rota.study.table import ratio

JCT = Measure("avg_jct_s", "mean JCT", "s", "less")
USED = Measure("gpu_utilisation", "GPUs useful", "share", "more")
EITHER = Measure("gpu_allocation", "GPUs allocated", "share", None)
NO_JOBS = {name: np.zeros(0) for name in ("jct_s", "wait_s", "slowdown", "rho")}


@pytest.mark.parametrize(
    ("found", "measure", "verdict"),
    [
        (Ratio(0.8, 0.7, 0.9), JCT, "better"),
        (Ratio(1.2, 1.1, 1.3), JCT, "worse"),
        (Ratio(0.8, 0.7, 0.9), USED, "worse"),
        (Ratio(1.2, 1.1, 1.3), USED, "better"),
        (Ratio(0.9, 0.8, 1.0), JCT, "unclear"),
        (Ratio(1.0, 1.0, 1.0), JCT, "unclear"),
        (Ratio(0.5, None, None), JCT, None),
        (Ratio(0.8, 0.7, 0.9), EITHER, None),
    ],
)
def test_a_winner_needs_an_interval_without_1(found, measure, verdict):
    assert judge(found, measure) == verdict


def arm(values, units=None):
    summaries = [{"avg_jct_s": value} for value in values]
    return Arm(summaries, units or range(len(values)), NO_JOBS)


def jct(base, other):
    return measure_all(base, other)["avg_jct_s"]


def test_replications_without_the_number_are_left_out():
    found = jct(arm([1.0, 2.0, None, 4.0]), arm([2.0, None, 3.0, 8.0]))

    assert found.mean == pytest.approx(13 / 3)
    assert (found.ratio, found.low, found.high) == (2, 2, 2)


def test_runs_of_one_unit_count_once():
    """Two runs of a unit with ratios 1 and 4 are one of ratio 2."""
    found = jct(arm([1.0, 1.0, 1.0], [1, 1, 2]), arm([1.0, 4.0, 2.0], [1, 1, 2]))

    assert found.ratio == pytest.approx(2)
    assert found.low == pytest.approx(2)


def test_of_the_baseline_there_is_no_verdict():
    base = arm([1.0, 2.0])

    assert jct(base, base) == Measured(1.5, 1.0, 1.0, 1.0, None)


def test_a_measure_that_nobody_has():
    assert measure_all(arm([1.0]), arm([1.0]))["jain_tenants"] == Measured(None)


def test_one_run_is_compared_over_the_jobs_that_both_completed():
    jct_s = np.arange(1.0, 301.0)
    jobs = dict.fromkeys(NO_JOBS, jct_s)
    twice = dict.fromkeys(NO_JOBS, 2 * jct_s)
    base = Arm([{"avg_jct_s": 50.5}], [0], jobs)
    found = jct(base, Arm([{"avg_jct_s": 101.0}], [0], twice))

    assert found == Measured(101.0, 2.0, pytest.approx(2.0), pytest.approx(2.0), None)
    twice["jct_s"] = np.where(jct_s == 7, np.nan, 2 * jct_s)  # others completed
    assert jct(base, Arm([{"avg_jct_s": 101.0}], [0], twice)) == Measured(101.0, 2.0)


def test_measures_have_names_of_their_own():
    assert len({measure.key for measure in MEASURES}) == len(MEASURES)
    assert len({measure.label for measure in MEASURES}) == len(MEASURES)


# --- as texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Measured(1.0, 0.5, 0.4, 0.6, "better"), "0.500* [0.400, 0.600]"),
        (Measured(1.0, 1.5, 1.4, 1.6, "worse"), "1.500* [1.400, 1.600]"),
        (Measured(1.0, 0.9, 0.8, 1.1, "unclear"), "0.900 [0.800, 1.100]"),
        (Measured(1.0, 0.9, 0.8, 0.9999, "better"), "0.900* [0.800, 0.999900]"),
        (Measured(1.0, 0.5), "0.500"),
        (Measured(1.0), "-"),
    ],
)
def test_a_star_marks_what_is_proven(one, text):
    assert ratio(one) == text


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "name a folder that `rota compare` made"), ('{"rows": []}', "make it again")],
)
def test_a_folder_without_a_comparison_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "compare.json").write_text(content)

    with pytest.raises(InputError, match=message):
        read_comparison(tmp_path)


# --- one rule for all rows of a measure -----------------------------------------------------------


def test_a_zero_anywhere_makes_all_ratios_those_of_the_means():
    base, other, zero = arm([2.0, 8.0]), arm([4.0, 4.0]), arm([0.0, 4.0])
    arms = (base, other, zero)
    found = [measure_all(base, one, arms)["avg_jct_s"] for one in arms]

    assert found == [
        Measured(5.0, 1.0, of_means=True),
        Measured(4.0, 0.8, of_means=True),
        Measured(2.0, 0.4, of_means=True),
    ]
    assert ratio(found[1]) == "0.800~"


def test_without_a_zero_it_is_the_typical_ratio():
    """The ratios are 2 and 1/2."""
    found = jct(arm([2.0, 8.0]), arm([4.0, 4.0]))

    assert found.ratio == pytest.approx(1)
    assert not found.of_means


def test_no_star_without_an_interval():
    assert ratio(Measured(1.0, 0.5, 0.5, 0.5, "better")) == "0.500* [0.500, 0.500]"
    assert ratio(Measured(1.0, 1.0, 1.0, 1.0, "unclear")) == "1.000"
