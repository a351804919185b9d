"""No result depends on how the version of Python adds floats: `sum` compensates from 3.12 on."""

import builtins
import math
import random
import sys
from functools import reduce
from operator import add

import pytest

from rota.core.sums import ordered_sum
from rota.study.config import RunConfig
from rota.study.run import simulate

POLICIES = ("drf", "hierarchical-fair", "gavel-max-min", "gandiva-fair", "themis", "lyra")


def added(numbers, /, start=0):
    """One after the other, as before 3.12."""
    return reduce(add, numbers, start)


@pytest.fixture
def trace(tmp_path):
    """Jobs with amounts whose sums are rounded."""
    draw, time_s = random.Random(7), 0.0  # noqa: S311
    lines = ["job_id,submit_s,duration_s,num_gpus,cpus,mem_gib,user,vc,estimate_s"]
    for number in range(60):
        time_s += draw.expovariate(1 / 20)
        run_s = draw.lognormvariate(6, 1.2)
        gpus = draw.choice((0.1, 0.3, 0.7, 1, 2, 4))
        amounts = (gpus, draw.uniform(0.1, 6), draw.uniform(0.1, 30))
        whose = (f"u{number % 5}", f"vc{number % 3}", run_s * draw.uniform(0.5, 2))
        lines.append(",".join(map(str, (f"j{number}", time_s, run_s, *amounts, *whose))))
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(lines))
    return path


def test_numbers_are_added_one_after_the_other():
    tenths = [0.1] * 10
    assert ordered_sum(tenths) == 0.9999999999999999
    assert math.fsum(tenths) == 1.0
    assert repr(ordered_sum([])) == "0"
    assert ordered_sum(iter([1, 2.5])) == 3.5


@pytest.mark.parametrize("policy", POLICIES)
def test_no_sum_of_a_run_depends_on_the_python(trace, policy, monkeypatch):
    """mypy refuses `sum` of floats where it knows the types; this is for the rest."""
    found, looked = set(), 0

    def noting(numbers, /, start=0):
        nonlocal looked
        numbers = list(numbers)
        total = added(numbers, start)
        caller = sys._getframe(1)
        if caller.f_globals["__name__"].startswith("rota."):
            looked += 1
            if type(total) is float and math.fsum((start, *numbers)) != total:
                found.add(f"{caller.f_globals['__name__']}:{caller.f_lineno}")
        return total

    monkeypatch.setattr(builtins, "sum", noting)
    simulate(RunConfig(trace=str(trace), cluster="2x4", policy=policy))
    monkeypatch.undo()
    assert looked
    assert found == set()
