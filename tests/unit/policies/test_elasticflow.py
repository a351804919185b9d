"""ElasticFlow: deadlines that are promised are kept."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_runs import elastic, ends, engine, held
from mutants.planting import plant
from rota.core.jobs import Phase
from rota.core.log import Record
from rota.policies import _sizes
from rota.policies import elasticflow as policy_module
from rota.policies.elasticflow import ElasticFlow, ElasticFlowPolicyParams

CURVES = [
    [1.0, 2.0, 3.0, 4.0],
    [1.0, 1.8, 2.4, 2.8, 3.0, 3.1, 3.2, 3.3],
    [1.0, 1.2, 1.3, 1.3],
    [1.0, 0.9],
    [1.0],
]
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 120), st.integers(0, 4), st.integers(1, 200)),
    min_size=1,
    max_size=9,
)


def late(jobs, placement):
    """Return the admitted jobs that are done too late."""
    made = engine(
        ElasticFlow(),
        [elastic(str(i), at, work, CURVES[curve], at + slack)
         for i, (at, work, curve, slack) in enumerate(jobs)],
        nodes=2, gpus=4, placement=placement,
    )  # fmt: skip
    made.run()
    admitted = [job for job in made.jobs.values() if job.phase != Phase.REJECTED]
    assert all(job.phase == Phase.DONE for job in admitted)
    return [job.id for job in admitted if job.end_s > job.spec.deadline_s * (1 + 1e-9) + 1e-6]


@pytest.mark.parametrize("placement", ["count", "consolidate"])
@given(JOBS)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_who_is_admitted_is_never_late(placement, jobs):
    assert late(jobs, placement) == []


def test_the_smallest_share_that_is_in_time_and_the_rest_for_all():
    alone = engine(ElasticFlow(), [elastic("a", 0, 100, CURVES[0], 60)])
    assert held(alone, 1.0) == {"a": 4}  # 2 are enough, but nobody else wants the others

    jobs = [elastic("a", 0, 100, CURVES[0], 60), elastic("b", 0, 100, CURVES[0], 60)]
    assert held(engine(ElasticFlow(), jobs), 1.0) == {"a": 2, "b": 2}


def test_what_cannot_be_promised_is_refused_or_of_best_effort():
    jobs = [elastic(name, 0, 100, CURVES[0], 26) for name in "ab"]
    made = engine(ElasticFlow(), jobs)
    made.run()
    assert [made.jobs[i].phase for i in (0, 1)] == [Phase.DONE, Phase.REJECTED]
    made.finish()
    log = made.log.frame()
    said = log.filter(log["event"] == Record.REJECTED.name.lower())["text"].to_list()
    assert said == ["its deadline cannot be promised beside those of others"]

    patient = ElasticFlow(ElasticFlowPolicyParams(declined="best-effort"))
    assert ends(engine(patient, jobs)) == {"a": 25, "b": 50}


def test_jobs_without_a_deadline_take_what_is_left():
    jobs = [elastic("due", 0, 100, CURVES[0], 60), elastic("any", 0, 30, CURVES[0])]

    assert held(engine(ElasticFlow(), jobs), 1.0) == {"due": 2, "any": 2}


PLANTED = {
    "plans of others are not reserved": (
        "rota.policies.elasticflow:_planned", "line.take(plan)", "pass",
    ),
    "a job's plan may end after its deadline": (
        "rota.policies.elasticflow:smallest_share",
        "if end_s > one.due_s * (1 + SLACK):",
        "if end_s > 2 * one.due_s:",
    ),
    "shares are given to the smallest first": (
        "rota.policies._sizes:give_as_buddies", "(-share[1], not share[0].running)", "share[1]",
    ),
}  # fmt: skip
WORKLOADS = [
    [(0, 30, 0, 12), (0, 30, 0, 12), (2, 20, 1, 14), (4, 40, 0, 16), (6, 8, 2, 9)],
    [(0, 100, 1, 45), (0, 60, 0, 40), (5, 30, 3, 34), (10, 60, 1, 30), (11, 9, 4, 10)],
    [(0, 16, 0, 5), (1, 3, 4, 4), (1, 3, 4, 4), (1, 3, 4, 4), (2, 16, 0, 6), (3, 2, 4, 3)],
]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_the_promise(monkeypatch, name):
    draw = Random(1)  # noqa: S311 - jobs, no secrets
    many = WORKLOADS + [
        [(draw.randint(0, 40), draw.randint(1, 90), draw.randint(0, 4), draw.randint(2, 60))
         for _ in range(9)]
        for _ in range(60)
    ]  # fmt: skip
    assert not any(late(jobs, "consolidate") for jobs in many[:6])
    plant(monkeypatch, *PLANTED[name])
    monkeypatch.setattr(policy_module, "give_as_buddies", _sizes.give_as_buddies)
    assert any(late(jobs, "consolidate") for jobs in many)
