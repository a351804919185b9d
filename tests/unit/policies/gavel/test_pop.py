"""A problem in parts, as a policy around another one."""

import msgspec
import numpy as np
import pytest

from allocation_cases import random_case
from gavel_family import FAMILY, made
from mixed_runs import engine, job, run
from rota.core.errors import OptionError
from rota.core.knowledge import Knowledge
from rota.policies import pop as module
from rota.policies.fifo import Fifo
from rota.policies.gavel.fairness import max_min
from rota.policies.gavel.partition import pop as solve_parts
from rota.policies.pop import Pop, PopParams
from rota.policies.rounds.problem import problem
from rota.solvers.workers import Workers
from rota.testing import check_policy


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """All policies by name, registered or not."""
    kinds = {**FAMILY, "fifo": Fifo, "pop": Pop}
    monkeypatch.setattr(module, "load", lambda group, name: kinds[name])


def log(policy, jobs, cluster="2x2:fast+1x2:slow"):
    finished = run(policy, jobs, cluster)
    finished.finish()
    return finished.log.frame()


def some_jobs(count=20):
    speeds = ({"fast": 1.0, "slow": 0.3}, {"fast": 1.0, "slow": 0.8})
    return [
        job(f"j{i}", 1 + i % 2, 700.0 + 130 * i, at=50.0 * i, speeds=speeds[i % 2])
        for i in range(count)
    ]


@pytest.mark.parametrize("name", ["gavel-max-min", "gavel-ftf", "allox", "gavel-fifo"])
def test_one_part_is_the_policy_itself(name):
    params = {"spare": False} if name == "gavel-fifo" else {}
    whole = log(made(name, **params), some_jobs())
    assert log(Pop(PopParams(inside=name, k=1, **params)), some_jobs()).equals(whole)


def test_parts_of_other_jobs_are_other_parts_but_everyone_is_served():
    whole = log(made("gavel-max-min"), some_jobs())
    parts = log(Pop(PopParams(k=3, least=1)), some_jobs())
    assert not parts.equals(whole)
    assert parts.equals(log(Pop(PopParams(k=3, least=1)), some_jobs()))
    assert not parts.equals(log(Pop(PopParams(k=3, least=1, seed=1)), some_jobs()))
    assert (parts["event"] == "done").sum() == 20


@pytest.mark.parametrize("check", ["every_job_ends", "a_resumed_run", "mixed_clusters"])
@pytest.mark.parametrize("inside", ["gavel-max-min", "allox", "gavel-ftf"])
def test_the_checks_hold_in_parts(inside, check):
    report = check_policy(
        lambda: Pop(PopParams(inside=inside, k=2, least=2)), seeds=range(2), only=check
    )
    assert report.passed


def test_few_jobs_are_not_divided():
    assert log(Pop(PopParams(k=3)), some_jobs()).equals(log(made("gavel-max-min"), some_jobs()))


def test_it_knows_what_the_policy_inside_knows():
    assert Pop(PopParams(inside="gavel-makespan")).knowledge & Knowledge.REMAINING_WORK
    assert Pop(PopParams(aware=False)).knowledge == Knowledge.NOTHING
    text = "gavel-max-sum/objective=cost/prices=fast:1/slow:2"
    with pytest.raises(OptionError, match="write TYPE:PRICE"):
        Pop(PopParams(inside=text.replace("slow:2", "slow")))
    policy = Pop(PopParams(inside=text, k=2))
    assert run(policy, some_jobs(6), "2x2:fast+1x2:slow").decisions > 0


@pytest.mark.parametrize("inside", ["fifo", "pop", "gavel-max-min/packed=yes"])
def test_what_cannot_be_divided_is_refused(inside):
    with pytest.raises(OptionError, match="pop"):
        Pop(PopParams(inside=inside))


def test_what_the_policy_inside_remembers_is_kept():
    policy = Pop(PopParams(inside="gavel-ftf", k=2, least=2))
    engine(policy, some_jobs(), "2x2:fast+1x2:slow").run(3000)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(policy.snapshot()))
    again = Pop(PopParams(inside="gavel-ftf", k=2, least=2))
    again.restore(state)
    assert again.snapshot() == policy.snapshot()
    assert again.state.inside["fields"]["history"]


def test_processes_give_the_same_answers():
    speed, _, _ = random_case(7, jobs=40)
    of = problem(speed, np.array([8.0, 8.0, 8.0]))
    here, there = (
        solve_parts(of, max_min, k=3, draw=np.random.default_rng(2), spread=spread)
        for spread in (map, Workers(2).map)
    )
    assert (here == there).all()
    assert list(Workers(1).map(abs, [-1, 2])) == [1, 2]


@pytest.mark.parametrize("text", ["aware=no", "round_s=60"])
def test_what_the_whole_family_has_is_given_to_pop(text):
    with pytest.raises(OptionError, match=f"write pop:inside=gavel-max-min,{text}"):
        Pop(PopParams(inside=f"gavel-max-min/{text}"))
