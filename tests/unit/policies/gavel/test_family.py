"""What all policies of the family have in common: any job, any cluster, and nobody is left out."""

import inspect

import pytest

from gavel_family import FAMILY, made
from mixed_runs import engine, job, kinds, named, run
from policy_runs import job as plain
from policy_runs import resumes_alike
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import DONE, REJECTED
from rota.core.knowledge import Knowledge
from rota.core.topology import NodeSpec
from rota.policies.rounds.share_policy import ShareParams
from rota.testing import check_policy
from rota.testing.scenario import Fixed
from thinning import thinned

EVERY = pytest.mark.parametrize("name", FAMILY)
MIXED = "2x2:fast+1x2:slow"
SPEEDS = {"fast": 1.0, "slow": 0.5}
CHECKED = (  # what the contract tests check for the defaults of all that is registered
    "every_job_ends",
    "a_resumed_run",
    "a_cancelled_job",
    "mixed_clusters",
    "undeclared_knowledge",
)
VARIANTS = {
    "blind": ("gavel-max-min", {"aware": False}),
    "received": ("gavel-max-min", {"rule": "received", "carry": False}),
    "learning": ("gavel-max-min", {"speeds": "learn"}),
    "noisy": ("gavel-ftf", {"speeds": "noisy"}),
    "idle": ("gavel-makespan", {"spare": False, "round_s": 100.0}),
    "entities": ("gavel-water-filling", {"entities": "fair", "aware": False}),
    "queues": ("gavel-water-filling", {"entities": "fifo"}),
    "deadlines": ("gavel-max-sum", {"objective": "cost-slo", "prices": (":1", "v100:2", "k80:1")}),
    "drawn": ("gavel-fifo", {"aware": False, "seed": 3}),
    "oldest": ("allox", {"alpha": 0.3, "rule": "received"}),
}


@pytest.mark.parametrize(("variant", "check"), thinned(VARIANTS, CHECKED))
def test_other_parameters_pass_the_checks_too(variant, check):
    name, params = VARIANTS[variant]
    report = check_policy(lambda: made(name, **params), seeds=range(2), only=check)
    assert len(report.passed) + len(report.skipped) == 1


@pytest.mark.parametrize("name", sorted(set(FAMILY) - {"gavel-fifo"}))
def test_no_gpu_idles_while_somebody_waits(name):
    report = check_policy(FAMILY[name], seeds=range(3), only="no_gpu_idles", work_conserving=True)
    assert report.passed


@EVERY
def test_the_problem_is_told_in_plain_notation(name):
    text = inspect.getdoc(inspect.getmodule(FAMILY[name]))
    assert "    " in text
    assert any(word in text for word in ("maximise", "minimise", "X[i, j] =", "solve", "sum(s)"))
    assert "Departs from the paper" in text


@EVERY
@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_parts_of_gpus_and_no_gpus_at_all(name, placement):
    jobs = [job(f"part{i}", 0.5, 900, speeds=SPEEDS) for i in range(14)]
    jobs += [job(f"cpu{i}", 0, 900) for i in range(3)]
    jobs += [job("gang", 4, 900, speeds=SPEEDS), job("typed", 2, 900, gpu_types=("slow",))]
    finished = run(made(name), jobs, MIXED, placement=placement)
    assert all(one.phase == DONE for one in finished.jobs.values())
    assert [named(finished)[f"cpu{i}"].end_s for i in range(3)] == [900] * 3  # in nobody's way


@EVERY
def test_a_gang_larger_than_any_type_runs_where_types_may_be_mixed(name):
    jobs = [job("wide", 5, 600, speeds=SPEEDS, at=10)]
    jobs += [job(f"small{i}", 1, 4000, speeds=SPEEDS) for i in range(8)]
    finished = run(made(name), jobs, MIXED, placement="count")
    wide = named(finished)["wide"]
    assert wide.phase == DONE
    assert wide.first_start_s < max(one.end_s for one in finished.jobs.values())


@EVERY
def test_where_types_may_not_be_mixed_it_is_rejected_with_the_reason(name):
    finished = run(made(name), [job("wide", 5, 600), job("fits", 4, 600)], MIXED)
    assert named(finished)["wide"].phase == REJECTED
    assert any("5 GPUs" in text and "never" in text for text in finished.log.texts.values())
    assert named(finished)["fits"].end_s == 600


@EVERY
def test_a_gang_is_not_kept_out_by_small_jobs_on_every_node(name):
    """By number there are always enough free GPUs, but never on one node."""
    apart = [NodeSpec("n0", 2, labels=("x",)), NodeSpec("n1", 2, labels=("y",))]
    jobs = [job(f"long{i}", 1, 9_000, labels=("xy"[i],)) for i in range(2)]
    jobs += [job("gang", 2, 600, at=50)]
    finished = run(made(name), jobs, apart)
    assert named(finished)["gang"].phase == DONE
    if name not in ("allox", "gavel-fifo"):  # whoever has begun keeps its GPUs there
        assert named(finished)["gang"].end_s < 9_000


@EVERY
def test_costly_starts_do_not_use_up_the_rounds(name):
    jobs = [job(f"j{i}", 1, 1200) for i in range(4)]
    finished = run(made(name), jobs, "1x1", costs=Fixed(start_s=1000))
    assert all(one.phase == DONE for one in finished.jobs.values())
    starts = sum(1 + one.preemptions for one in finished.jobs.values())
    assert starts <= 12  # a start of 1,000 s buys at least as many seconds of progress


@EVERY
def test_a_type_without_any_node_that_is_up_is_no_type(name):
    jobs = [job(f"j{i}", 2, 1000, speeds=SPEEDS) for i in range(4)]
    outages = [(100, NODE_DOWN, 0), (150, NODE_DOWN, 2), (4000, NODE_UP, 0), (4100, NODE_UP, 2)]
    finished = run(made(name), jobs, MIXED, outages=outages)
    assert all(one.phase == DONE for one in finished.jobs.values())


@EVERY
def test_jobs_that_are_fast_nowhere_or_not_everywhere(name):
    """A speed of 0 is told, but jobs run at speed 1 here: nobody waits for ever."""
    jobs = [job("nowhere", 1, 300, speeds={"fast": 0.0, "slow": 0.0})]
    jobs += [job(f"one{i}", 1, 600, speeds={"fast": 0.0, "slow": 1.0}) for i in range(4)]
    jobs += [job(f"two{i}", 1, 600, speeds=SPEEDS) for i in range(4)]
    mixed = engine(made(name), jobs, MIXED)
    mixed.run(20_000)
    others = [one for one in mixed.jobs.values() if one.id != "nowhere"]
    assert all(one.phase == DONE for one in others)
    assert named(mixed)["nowhere"].started


@EVERY
@pytest.mark.parametrize("odd", [0, 2])
def test_who_learns_sees_that_a_job_is_not_as_others_of_its_model(name, odd):
    """One job makes no progress where the others do: it is not left there."""
    jobs = [
        job(f"j{i}", 1, 1000, speeds={"fast": 1.0, "slow": 0.0 if i == odd else 0.3}, model="m")
        for i in range(3)
    ]
    ended = run(made(name, aware=True, speeds="learn"), jobs, "1x1:fast+1x2:slow", until_s=9_000)
    assert [one.phase for one in ended.jobs.values()] == [DONE] * 3


@pytest.mark.parametrize("name", sorted(set(FAMILY) - {"gavel-isolated", "gavel-proportional"}))
def test_a_job_prefers_the_type_on_which_it_is_fastest(name):
    speeds = {"a": 0.2, "b": 1.0, "c": 0.6}
    running = run(made(name), [job("one", 1, 100, speeds=speeds)], "1x1:a+1x1:b+1x1:c", until_s=50)
    assert kinds(running) == {"one": {"b"}}


@EVERY
@pytest.mark.parametrize("at_s", [250.0, 1900.0])
def test_a_resumed_run_goes_on_alike(name, at_s):
    jobs = [
        plain(f"j{i}", 100.0 * i, 1 + i % 3, 900.0 + 70 * i, tenant="xy"[i % 2]) for i in range(9)
    ]
    assert resumes_alike(lambda: made(name), jobs, at_s, gpus=2, nodes=2, placement="count")


def test_what_is_not_read_is_not_declared():
    assert made("gavel-max-min", aware=False).knowledge == Knowledge.NOTHING
    assert made("gavel-max-sum").knowledge == Knowledge.SPEEDS
    assert made("gavel-ftf", aware=False).knowledge == Knowledge.REMAINING_WORK
    with pytest.raises(ValueError, match="say aware=yes"):
        ShareParams(aware=False, speeds="learn")
