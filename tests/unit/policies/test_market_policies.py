"""What `themis`, `gandiva-fair` and `resalloc` have in common: any job, any cluster."""

import pytest

from mixed_runs import done, engine, job, kinds, named, run
from policy_runs import job as plain
from policy_runs import resumes_alike
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import DONE, REJECTED
from rota.core.topology import NodeSpec
from rota.policies.gandiva_fair.policy import GandivaFair, GandivaFairParams
from rota.policies.resalloc import Resalloc, ResallocParams
from rota.policies.themis.policy import Themis, ThemisParams
from rota.testing import check_policy
from rota.testing.scenario import Fixed

QUICK = {
    "themis": lambda: Themis(ThemisParams(lease_s=300.0, fairness=0.3, patience=2.0)),
    "gandiva-fair": lambda: GandivaFair(GandivaFairParams(quantum_s=300.0, trades=False)),
    "resalloc": lambda: Resalloc(ResallocParams(round_s=300.0, utility="target")),
    "resalloc power": lambda: Resalloc(
        ResallocParams(utility="power", exponent=-2.0, rule="received")
    ),
}
EVERY = pytest.mark.parametrize("make", QUICK.values(), ids=QUICK.keys())
MIXED = "2x2:fast+1x2:slow"
SPEEDS = {"fast": 1.0, "slow": 0.5}


@EVERY
def test_other_parameters_pass_the_checks_too(make):
    assert len(check_policy(make, seeds=range(2)).passed) > 15


@EVERY
@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_parts_of_gpus_and_no_gpus_at_all(make, placement):
    jobs = [job(f"part{i}", 0.5, 900, speeds=SPEEDS) for i in range(14)]
    jobs += [job(f"cpu{i}", 0, 900) for i in range(3)]
    jobs += [job("gang", 4, 900, speeds=SPEEDS), job("typed", 2, 900, gpu_types=("slow",))]
    made = run(make(), jobs, MIXED, placement=placement)
    assert all(one.phase == DONE for one in made.jobs.values())
    assert [named(made)[f"cpu{i}"].end_s for i in range(3)] == [900] * 3  # in nobody's way


@EVERY
def test_a_gang_larger_than_any_type_runs_where_types_may_be_mixed(make):
    jobs = [job("wide", 5, 600, speeds=SPEEDS, at=10)]
    jobs += [job(f"small{i}", 1, 4000, speeds=SPEEDS) for i in range(8)]
    made = engine(make(), jobs, MIXED, placement="count")
    made.run(100)
    assert not named(made)["wide"].started
    made.run()
    wide = named(made)["wide"]
    assert wide.phase == DONE
    first_s = min(one.end_s for one in made.jobs.values())
    assert wide.first_start_s < first_s  # it had its turn among the others


@EVERY
def test_where_types_may_not_be_mixed_it_is_rejected_with_the_reason(make):
    made = run(make(), [job("wide", 5, 600), job("fits", 4, 600)], MIXED)
    assert named(made)["wide"].phase == REJECTED
    assert any("5 GPUs" in text and "never" in text for text in made.log.texts.values())
    assert named(made)["fits"].end_s == 600


@EVERY
def test_a_gang_for_one_node_is_not_kept_out_by_small_jobs_on_every_node(make):
    """By number there are always enough free GPUs, but never on one node."""
    apart = [NodeSpec("n0", 2, labels=("x",)), NodeSpec("n1", 2, labels=("y",))]
    jobs = [job(f"long{i}", 1, 40_000, labels=("xy"[i],)) for i in range(2)]
    jobs += [job("gang", 2, 600, at=50)]
    made = run(make(), jobs, apart, until_s=30_000)
    assert named(made)["gang"].phase == DONE


@EVERY
def test_costly_starts_do_not_use_up_the_rounds(make):
    jobs = [job(f"j{i}", 1, 1200) for i in range(4)]
    made = run(make(), jobs, "1x1", costs=Fixed(start_s=1000))
    assert all(one.phase == DONE for one in made.jobs.values())
    starts = sum(1 + one.preemptions for one in made.jobs.values())
    assert starts <= 12  # a start of 1,000 s buys at least some hundred seconds of progress


@EVERY
def test_jobs_on_a_node_that_fails_go_on_elsewhere_or_later(make):
    jobs = [job(f"j{i}", 2, 1000, speeds=SPEEDS) for i in range(4)]
    outages = [(100, NODE_DOWN, 0), (150, NODE_DOWN, 2), (4000, NODE_UP, 0), (4100, NODE_UP, 2)]
    made = run(make(), jobs, MIXED, outages=outages)
    assert all(one.phase == DONE for one in made.jobs.values())


@EVERY
def test_a_job_prefers_the_type_on_which_it_is_fastest(make):
    speeds = {"a": 0.2, "b": 1.0, "c": 0.6}
    made = run(make(), [job("one", 1, 100, speeds=speeds)], "1x1:a+1x1:b+1x1:c", until_s=50)
    assert kinds(made) == {"one": {"b"}}
    assert done(made) == {"one": 50}


@EVERY
@pytest.mark.parametrize("at_s", [250.0, 700.0, 1900.0])
def test_a_resumed_run_goes_on_alike(make, at_s):
    jobs = [
        plain(f"j{i}", 100.0 * i, 1 + i % 3, 900.0 + 70 * i, tenant="xy"[i % 2]) for i in range(9)
    ]
    assert resumes_alike(make, jobs, at_s, gpus=2, nodes=2, placement="count")
