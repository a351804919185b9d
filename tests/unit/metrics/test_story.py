"""Why a job waited: a scenario per reason, and what would have let the job start at once."""

import math

import pytest

import decisions
from policy_runs import engine, finish, job
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.registry import POLICIES, names
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.core.words import duration
from rota.metrics import fold_delay, read_history
from rota.metrics.delay import REASONS, Waits
from rota.metrics.phrases import phrase
from rota.metrics.story import Stories, waiting_parts
from rota.policies.admission.load import Load, LoadParams
from rota.policies.admission.quota import Quota
from rota.policies.fifo import Fifo
from rota.policies.fifo_skip import FifoSkip
from rota.policies.sjf import Sjf
from rota.policies.srtf import Srtf
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.testing.scenario import Fixed
from rota.traces.synth.generate import generate


def story(log, name):
    """Return the story of one job; its parts and intervals add up."""
    stories = Stories(log)
    number = stories.ids.index(name)
    told = stories.tell(number)
    check(told, stories.jobs["wait_s"][number])
    return told


def check(told, wait_s):
    if wait_s is not None:
        assert told.wait_s == pytest.approx(wait_s, rel=1e-12, abs=1e-6)
    assert told.wait_s == math.fsum(part.seconds for part in told.parts)
    if all(interval.task is None for interval in told.intervals):
        by_reason = {}
        for interval in told.intervals:
            assert interval.seconds == interval.until_s - interval.from_s > 0
            by_reason.setdefault(interval.reason, []).append(interval.seconds)
        assert parts(told) == {key: math.fsum(spans) for key, spans in by_reason.items()}
    for one, following in zip(told.intervals, told.intervals[1:], strict=False):
        assert one.until_s <= following.from_s or one.task != following.task


def parts(told):
    return {part.reason: part.seconds for part in told.parts}


def explained(policy, jobs, name, **options):
    return story(finish(engine(policy, jobs, **options)), name)


def test_there_are_words_for_every_reason():
    for reason in set(Reason) - {Reason.NONE}:
        assert phrase(reason, asked="2 GPUs", gpus=2, ahead=[], room=None)


# --- one scenario per reason ----------------------------------------------------------------------


def test_order():
    # 2 GPUs are free, but b, which asks for 4, is before c.
    jobs = [job("a", 0, 3, 100), job("b", 1, 4, 50), job("c", 2, 1, 10)]
    told = explained(Fifo(), jobs, "c", gpus=5)
    assert parts(told) == {"order": 98}
    assert told.ahead == ["b"]
    assert told.text == "done; waited 1m 38s: 1m 38s behind jobs that were served first (b)"

    assert parts(explained(Fifo(), [jobs[0], jobs[2]], "c", gpus=5)) == {}


def asks(name, at, gpus, work, **request):
    return JobSpec(name, float(at), Request.of(gpus, **request)), Behaviour(float(work))


@pytest.mark.parametrize("placement", ["consolidate", "count"])
def test_who_runs_where_a_job_cannot_is_not_ahead_of_it(placement):
    jobs = [
        asks("a1", 0, 4, 100, gpu_types=("a100",)),
        asks("a2", 1, 4, 50, gpu_types=("a100",)),
        asks("a3", 2, 1, 10, gpu_types=("a100",)),
        asks("v1", 3, 3, 20, gpu_types=("v100",)),
        asks("v2", 4, 4, 20, gpu_types=("v100",)),
        asks("x1", 6, 1, 10),
    ]
    cluster = [NodeSpec("a", 4, "a100"), NodeSpec("v", 4, "v100")]
    log = decisions.run(Fifo(), jobs, cluster, placement=placement).log.frame()
    assert story(log, "a3").ahead == ["a2"]
    assert {"v2", "a2"} <= set(story(log, "x1").ahead)  # it could use both nodes


def test_nodes_of_a_kind_are_known_from_who_asked_for_it_or_for_more():
    jobs = [
        asks("a", 0, 2, 100, gpu_types=("a100",), labels=("fast",)),
        asks("b", 1, 2, 50, gpu_types=("a100",), labels=("fast", "near")),
        asks("c", 2, 1, 10, gpu_types=("a100", "h100")),
        asks("v", 3, 1, 10, gpu_types=("v100",)),
    ]
    cluster = [NodeSpec("n", 2, "a100", labels=("fast", "near")), NodeSpec("m", 2, "v100")]
    log = decisions.run(Fifo(), jobs, cluster, placement="consolidate").log.frame()
    assert story(log, "c").ahead == ["b"]
    text = story(log, "b").parts[0].text
    assert text == (
        "for want of 2 GPUs of type a100 on nodes labelled fast, near "
        "(2 GPUs were free in all, but not enough on nodes of that kind)"
    )
    assert parts(explained(FifoSkip(), jobs, "c", gpus=5)) == {}


def test_those_after_it_at_the_same_instant_were_not_served_first():
    jobs = [job(name, 0, 2, 10) for name in "abcd"]
    told = explained(Fifo(), jobs, "c", gpus=2)
    assert parts(told) == {"order": 10, "capacity": 10}
    assert told.ahead == ["a", "b"]


def test_capacity():
    jobs = [job("a", 0, 3, 100), job("b", 10, 2, 5)]
    told = explained(Fifo(), jobs, "b", gpus=4, placement="consolidate")
    assert parts(told) == {"capacity": 90}
    (interval,) = told.intervals
    assert (interval.from_s, interval.until_s) == (10, 100)
    assert (interval.free_gpus, interval.free_nodes) == (1, 1)
    assert interval.text == "for want of 2 GPUs (1 GPU was free)"

    assert parts(explained(Fifo(), jobs, "b", gpus=5)) == {}


def test_how_many_were_free_changes():
    jobs = [job("a", 0, 2, 100), job("b", 0, 1, 30), job("c", 10, 4, 5)]
    (interval,) = explained(Fifo(), jobs, "c", gpus=4).intervals
    assert (interval.free_least, interval.free_gpus, interval.free_most) == (1, 2, 2)
    assert interval.text == "for want of 4 GPUs (1 to 2 GPUs were free)"


def nodes(*sizes, gpu_type=""):
    return [NodeSpec(f"n{i}", size, gpu_type) for i, size in enumerate(sizes)]


def test_fragmentation():
    # 3 of 5 GPUs are in use on each of 8 nodes: 16 are free, and nowhere are there 4.
    jobs = [decisions.job(f"a{i}", 3, 100) for i in range(8)] + [decisions.job("b", 4, 5, at=10)]
    made = decisions.run(Fifo(), jobs, nodes(*[5] * 8), placement="consolidate")
    told = story(made.log.frame(), "b")
    assert parts(told) == {"fragmentation": 90}
    (interval,) = told.intervals
    assert (interval.free_gpus, interval.free_nodes) == (16, 8)
    assert told.parts[0].text == "although 16 GPUs were free, spread over 8 nodes"

    larger = decisions.run(Fifo(), jobs, nodes(7, *[5] * 7), placement="consolidate")
    assert parts(story(larger.log.frame(), "b")) == {}


def test_others_take_what_did_not_fit():
    # At 20 a GPU is free on each of 2 nodes; b needs 2 on one, so c and d, who come later, start:
    # from then on none is free, until they are done at 90.
    jobs = [
        decisions.job("a", 1, 100),
        decisions.job("x", 1, 20),
        decisions.job("g", 1, 100),
        decisions.job("y", 1, 20),
        decisions.job("b", 2, 5, at=2),
        decisions.job("c", 1, 70, at=3),
        decisions.job("d", 1, 70, at=4),
    ]
    made = decisions.run(FifoSkip(), jobs, nodes(2, 2), placement="consolidate")
    told = story(made.log.frame(), "b")
    assert parts(told) == {"capacity": 88, "fragmentation": 10}
    assert [part.text for part in told.parts] == [
        "for want of 2 GPUs (0 GPUs were free)",
        "although 2 GPUs were free, spread over 2 nodes",
    ]


def test_a_newcomer_that_comes_before_the_head_is_the_head():
    # b waits for GPUs until c, which is shorter, comes first, and again when c has started.
    jobs = [job("a", 0, 4, 100), job("b", 10, 4, 90), job("c", 20, 4, 50)]
    made = finish(engine(Sjf(), jobs, gpus=4))
    assert parts(story(made, "b")) == {"capacity": 10 + 50, "order": 80}
    assert parts(story(made, "c")) == {"capacity": 80}
    told = story(made, "b")
    assert [interval.reason for interval in told.intervals] == ["capacity", "order", "capacity"]
    assert told.intervals[1].ahead == ["c"]


def test_one_that_was_let_go_late_comes_before_those_who_came_after_it():
    # c came first and waited for a; b had been waiting for GPUs since then.
    jobs = [job("x", 0, 3, 500), job("a", 0, 1, 50), job("c", 1, 2, 9, depends_on=("a",)),
            job("b", 5, 2, 9)]  # fmt: skip
    made = finish(engine(Fifo(), jobs, gpus=4))
    assert parts(story(made, "c")) == {"dependency": 49, "capacity": 450}
    assert parts(story(made, "b")) == {"capacity": 45, "order": 450}


def test_gang():
    # b wants 4 GPUs on each of 2 nodes; 4 are free on one, and 2 on each of the two others.
    def on_nodes(name, at, each):
        request = Request((TaskGroup("worker", 2, each),), apart=True)
        return JobSpec(name, at, request), Behaviour(100.0)

    jobs = [on_nodes("a", 0.0, 2), on_nodes("b", 10.0, 4)]
    made = decisions.run(Fifo(), jobs, nodes(4, 4, 4), placement="consolidate")
    told = story(made.log.frame(), "b")
    assert parts(told) == {"gang": 90}
    text = "because only a part of it could start, although 8 GPUs were free, spread over 3 nodes"
    assert told.parts[0].text == text


def test_quota():
    tenants = [Tenant("vision", quota=2)]
    jobs = [job("a", 0, 2, 10, tenant="vision"), job("b", 1, 1, 5, tenant="vision")]
    told = explained(FifoSkip(), jobs, "b", gpus=8, admission=Quota(), tenants=tenants)
    assert parts(told) == {"quota": 9}
    assert told.parts[0].text == "because of a limit of its tenant, queue, QOS or user"
    assert told.tenant == "vision"

    more = [Tenant("vision", quota=3)]
    assert parts(explained(FifoSkip(), jobs, "b", gpus=8, admission=Quota(), tenants=more)) == {}


def test_admission():
    jobs = [job("a", 0, 4, 10), job("b", 1, 2, 5)]
    load = {"gpus": 6, "admission": Load(LoadParams(threshold=0.7))}
    assert parts(explained(Fifo(), jobs, "b", **load)) == {"admission": 9}

    load["admission"] = Load(LoadParams(threshold=1.0))
    assert parts(explained(Fifo(), jobs, "b", **load)) == {}


def test_dependency():
    jobs = [job("a", 0, 1, 30), job("b", 5, 1, 5, depends_on=("a",))]
    told = explained(Fifo(), jobs, "b", gpus=4)
    assert parts(told) == {"dependency": 25}
    assert told.parts[0].text == "until a was done"

    alone = [jobs[0], job("b", 5, 1, 5)]
    assert parts(explained(Fifo(), alone, "b", gpus=4)) == {}


def test_overhead():
    jobs = [job("a", 0, 1, 30)]
    told = explained(Fifo(), jobs, "a", costs=Fixed(start_s=4))
    assert parts(told) == {"overhead": 4}
    assert told.intervals[0].text == "being started"

    assert parts(explained(Fifo(), jobs, "a", costs=Fixed())) == {}


def test_down():
    outages = [(10, NODE_DOWN, 0), (25, NODE_UP, 0)]
    told = explained(Fifo(), [job("a", 0, 2, 30)], "a", gpus=2, outages=outages)
    assert parts(told) == {"down": 15}
    assert told.intervals[0].text == "after node n0 failed"
    assert [(halt.at_s, halt.what, halt.text) for halt in told.halts] == [
        (10, "evicted", "node n0 failed")
    ]

    spare = explained(Fifo(), [job("a", 0, 2, 30)], "a", gpus=2, nodes=2, outages=outages,
                      placement="consolidate")  # fmt: skip
    assert parts(spare) == {}


class Says(DecidePolicy[Params]):
    """Places whom it can in order, and gives the others a reason of their own."""

    name = "says"

    def __init__(self, reason):
        super().__init__()
        self._reason = reason

    def decide(self, view):
        plan = view.plan()
        for one in [*view.running, *view.waiting]:
            if not plan.place(one):
                plan.explain(one, self._reason)
        return plan


@pytest.mark.parametrize("reason", [Reason.GANG, Reason.CONSTRAINT, Reason.CAPACITY])
def test_a_policy_says_that_there_is_no_room_and_the_placement_why(reason):
    # 4 GPUs of the other type are free all the time.
    def typed(name, at, work):
        return JobSpec(name, at, Request.of(2, gpu_types=("v100",))), Behaviour(work)

    jobs = [typed("a", 0.0, 100.0), typed("b", 10.0, 5.0)]
    cluster = [NodeSpec("n0", 4, "k80"), NodeSpec("n1", 2, "v100")]
    made = decisions.run(Says(reason), jobs, cluster, placement="consolidate")
    told = story(made.log.frame(), "b")
    assert parts(told) == {"constraint": 90}
    text = (
        "for want of 2 GPUs of type v100 "
        "(4 GPUs were free in all, but not enough on nodes of that kind)"
    )
    assert told.parts[0].text == text

    cluster[1] = NodeSpec("n1", 4, "v100")
    made = decisions.run(Says(reason), jobs, cluster, placement="consolidate")
    assert parts(story(made.log.frame(), "b")) == {}


# --- stops ----------------------------------------------------------------------------------------


def test_who_preempted_it_and_why():
    jobs = [job("a", 0, 3, 100), job("b", 10, 2, 5)]
    told = explained(Srtf(), jobs, "a", gpus=4)
    assert parts(told) == {"capacity": 5}
    assert told.preempted_by == ["b"]
    assert told.halts[0].text == (
        "made room for b, which the policy preferred (2 GPUs asked for, 1 free)"
    )
    assert told.text.endswith("; preempted once by b")


def test_who_preempted_it_when_the_log_does_not_say(script):
    script.submit(0).submit(1).start(0).at(5).stop(0).start(1).at(9).row("done", 1).start(0)
    told = story(script.at(20).row("done", 0).end(), "j0")
    assert (told.preempted_by, parts(told)) == (["j1"], {"order": 4})


def test_a_run_that_was_lost(script):
    script.submit(0).start(0).at(5).row("evicted", 0, -1, text="the agent forgot it")
    told = story(script.at(9).start(0).at(20).row("done", 0).end(), "j0")
    assert told.halts[0].text == "its run was lost (the agent forgot it)"
    assert parts(told) == {"order": 4}  # no node failed: it waited like any other


def test_a_failure_that_only_the_policy_knows_of(script):
    script.submit(0).row("reason", 0, -1, value=Reason.DOWN).at(4).start(0).at(9).row("done", 0)
    told = story(script.end(), "j0")
    assert (parts(told), told.intervals[0].text) == ({"down": 4}, "after its node failed")


def test_nobody_let_a_job_go_that_still_waits(script):
    script.submit(0).start(0).submit(1).row("held", 1, value=Reason.DEPENDENCY)
    told = story(script.at(7).row("done", 0).end(), "j1")
    assert (parts(told), told.parts[0].text) == ({"dependency": 7}, "for another job")


# --- other lives ----------------------------------------------------------------------------------


def test_no_wait():
    told = explained(Fifo(), [job("a", 0, 1, 5)], "a")
    assert (told.text, told.parts, told.intervals) == ("done; did not wait", [], [])


def test_what_waits_at_the_end_has_a_present_reason(script):
    told = story(script.submit(0).blame(1, Reason.CAPACITY).at(30).end(), "j0")
    assert (told.state, told.reason, told.wait_s) == ("unfinished", "capacity", 30)


def test_intervals_of_a_non_gang_job_are_those_of_its_tasks():
    jobs = [(JobSpec("a", 0.0, Request.of(2, gang=False)), Behaviour(10.0)), job("b", 1, 1, 4)]
    log = finish(engine(Fifo(), jobs, gpus=1))
    told = story(log, "a")
    assert {interval.task for interval in told.intervals} == {1}
    assert told.wait_s == pytest.approx(0.0)
    assert story(log, "b").ahead == ["a"]


def test_drained_and_failed_nodes_have_nothing_to_spare(script):
    script.submit(0, 8).blame(8, Reason.CAPACITY).at(10).row("node_closed", -1, 1)
    script.at(15).row("node_opened", -1, 1).at(18).row("node_down", -1, 1)
    (interval,) = story(script.at(20).end(), "j0").intervals
    assert (interval.free_least, interval.free_gpus, interval.free_most) == (0, 4, 4)


def test_parts_for_whoever_knows_the_index_of_a_job(script):
    log = script.submit(0).blame(1, Reason.CAPACITY).at(30).end()
    assert waiting_parts(log, 0) == {"capacity": 30.0}
    assert waiting_parts(log, 7) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"), (90, "1m 30s"), (119, "1m 59s"), (3540, "59m 00s"), (6000, "1h 40m"),
    ],
)  # fmt: skip
def test_times_in_words(seconds, text):
    assert duration(seconds) == text


# --- everything adds up ---------------------------------------------------------------------------


def check_all(log, every=1):
    """Check the intervals of every job, and its story if its turn comes; how many waited."""
    history = read_history(log)
    stories, waits = Stories(history), Waits(history)
    delays = fold_delay(history)
    waited = 0
    for number, wait_s in enumerate(stories.jobs["wait_s"]):
        by_reason = [0.0] * (len(REASONS) + 1)
        for wait in waits.of(number):  # here no job has tasks
            by_reason[wait.reason] += wait.seconds
        assert by_reason[1:] == pytest.approx(delays[number].tolist(), abs=1e-6)
        assert wait_s is None or math.fsum(by_reason) == pytest.approx(wait_s, abs=1e-6)
        waited += any(by_reason)
        if number % every == 0:
            told = stories.tell(number)
            check(told, wait_s)
            assert parts(told) == pytest.approx(
                {name: s for name, s in zip(REASONS, by_reason[1:], strict=True) if s}
            )
    return waited


SLOW = ("allox", "conservative", "gandiva", "gavel", "pop", "resalloc", "themis")
"""They decide every few minutes, or plan for everybody: months of a trace take them long."""
PUBLISHED = ("conservative", "easy", "fifo", "gavel-max-min", "srtf", "tiresias", "yarn-cs")
"""One of each kind; all are checked on a smaller workload."""


@pytest.mark.parametrize("policy", names(POLICIES))
def test_parts_add_up_under_every_policy(policy):
    options = {"estimate_factor": "3", "vcs": "3", "durations": "philly", "max_s": "20000"}
    options["sizes"] = "1:50/2:20/4:15/8:15"
    jobs = generate("poisson", jobs=60, gpus=12, load=1.5, seed=3, options=options)
    config = RunConfig(
        trace="made", cluster="3x4", policy=policy, costs="suspend", mtbf=20.0, mttr=1.0
    )
    assert check_all(simulate(config, workload=jobs).log) > 10


@pytest.mark.parametrize(
    "policy",
    [
        name if name in PUBLISHED else pytest.param(name, marks=pytest.mark.soak)
        for name in names(POLICIES)
    ],
)
def test_parts_add_up_on_a_published_trace(shared, policy):
    trace = str(shared("reference/common/philly1000.csv"))
    size = {"cluster": "4x8", "limit": 150} if policy.startswith(SLOW) else {"cluster": "12x8"}
    config = RunConfig(trace=trace, policy=policy, **size)
    assert check_all(simulate(config).log, every=25) > 50
