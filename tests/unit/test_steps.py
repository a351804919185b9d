"""What a job costs in executed lines: no policy may become dearer unnoticed."""

import json
import sys
from pathlib import Path

import pytest

from decisions import engine, job, rows, told
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.tenants import Tenant
from rota.policies.yarn_cs import YarnCs

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


def behind_a_large_one(jobs):
    """So many small jobs of a tenant wait behind one that never fits; what is free comes and goes.

    The engine at 5 s, when they have been told why.
    """
    waiting = [job(f"a{i}", 1, 1, at=1, tenant="A") for i in range(jobs)]
    others = [job(f"b{i}", 2, 10, at=10 + 20 * i, tenant="B") for i in range(20)]
    first = [job("runs", 2, 1000, tenant="A"), job("large", 4, 1, tenant="A")]
    tenants = [Tenant("A", quota=2), Tenant("B", quota=2)]
    made = engine(YarnCs(), [*first, *waiting, *others], (1, 4), tenants=tenants)
    made.run(5.0)
    return made


def test_what_yarn_cs_says_and_does_does_not_depend_on_the_length_of_the_queue(steps):
    found = []
    for jobs in (20, 200):
        behind_a_large_one(jobs).run(410.0)  # what is remembered for good is not a cost
        made = behind_a_large_one(jobs)
        before = len(rows(made, Record.REASON))
        counted = steps.Meter().count(lambda made=made: made.run(410.0))
        found.append((len(rows(made, Record.REASON)) - before, counted.lines))
        assert told(made, f"a{jobs - 1}")[-3:] == [
            (380.0, Reason.ORDER), (390.0, Reason.QUOTA), (400.0, Reason.ORDER)
        ]  # fmt: skip
    (few, steps_of_few), (many, steps_of_many) = found
    assert 40 <= few == many
    assert steps_of_many <= 1.05 * steps_of_few


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
