"""What a job costs in executed lines: no policy may become dearer unnoticed."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def steps():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import steps

        yield steps
    del sys.modules["steps"]


def policies():
    """Read the policies of the table: it has all that are measured."""
    costs = json.loads((BENCHMARKS / "steps.json").read_text())["costs"]
    return list(dict.fromkeys(key.partition("/")[0] for key in costs))


@pytest.mark.parametrize("policy", policies())
def test_a_job_costs_no_more_steps_than_the_table_says(steps, policy):
    wrong = steps.compare(steps.measured([policy]), steps.read_table())
    assert not wrong, "\n".join([*wrong, steps.RENEW])


def test_the_table_has_every_policy_and_case(steps):
    table = steps.read_table()
    assert set(policies()) == set(steps.POLICIES)
    assert len(table["costs"]) == len(steps.POLICIES) * len(steps.CASES)
    assert table["commit"]


def test_counts_do_not_depend_on_what_ran_before(steps):
    first = steps.count("fifo", "count", 20, steps.BUSY)
    steps.count("easy", "consolidate", 20, steps.BUSY)
    assert steps.count("fifo", "count", 20, steps.BUSY) == first
    assert first.lines > first.calls > 20


def test_tracing_ends_with_the_count_even_if_the_work_fails(steps):
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        steps.Meter().count(lambda: 1 / 0)
    assert sys.gettrace() is before


def test_a_tenth_more_is_allowed_and_more_is_named(steps):
    old = {"a": 100.0, "b": 100.0, "c": 100.0}
    wrong = steps.regressions({"a": 110.0, "b": 125.0, "c": 20.0, "d": 1.0}, old)
    assert wrong == [
        "b: 125, and 100 in the table (+25%)",
        "d: 1, and the table does not have it",
    ]


def test_of_another_python_only_growth_is_compared(steps):
    def table(python, few, many):
        costs = {
            f"fifo/count/{steps.FEW}": {"steps": few},
            f"fifo/count/{steps.MANY}": {"steps": many},
        }
        return {"python": python, "costs": costs}

    assert not steps.compare(table("3.99", 200.0, 210.0), table("3.11", 100.0, 105.0))
    assert steps.compare(table("3.99", 200.0, 300.0), table("3.11", 100.0, 105.0)) == [
        "fifo: 1.5, and 1.05 in the table (+43%)"
    ]


def test_a_curve_that_rises_is_a_regression(steps):
    before = {"curves": {"fifo": {"5000": 400.0, "20000": 410.0}, "easy": {"5000": 900.0}}}
    now = {"curves": {"fifo": {"5000": 401.0, "20000": 460.0, "80000": 999.0}}}
    (wrong,) = steps.compare_curves(now, before)
    assert wrong.startswith("fifo: steps per job of 20000: 460")
    assert steps.compare_curves(before, before) == []
