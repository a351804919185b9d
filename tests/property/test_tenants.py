"""Queues that share a cluster: limits and guarantees hold after every decision."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants.planting import plant
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.tenants import PriorityClass, Tenant
from rota.core.workload import Workload
from rota.policies.capacity import Capacity, CapacityParams
from rota.policies.hierarchical_fair import HierarchicalFair, HierarchicalFairParams
from tenant_runs import OPPORTUNISTIC, Picture, check_all, engine_of, random_run

KINDS = {
    "capacity": lambda **given: Capacity(CapacityParams(**given)),
    "hierarchical-fair": lambda **given: HierarchicalFair(HierarchicalFairParams(**given)),
}
both = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 1 << 32)
RULES = ("latest-start", "lowest-priority", "most-over-quota", "least-progress")


def everything(picture):
    picture.check_bounds()
    picture.check_guarantees()


@both
@settings(max_examples=2 * settings().max_examples)
@given(seed=seeds, rule=st.sampled_from(RULES))
def test_limits_and_guarantees_hold_always(kind, seed, rule):
    # not strict: whoever is owed something may pass others of its queue
    random_run(seed, lambda: KINDS[kind](inside="fifo-skip", victims=rule), everything)


@both
@given(seed=seeds)
def test_opportunistic_jobs_use_no_quota_and_take_nobodys(kind, seed):
    random_run(
        seed, lambda: KINDS[kind](inside="fifo-skip"), everything,
        priorities=(-5, -5, 0), classes=OPPORTUNISTIC, bounds=False,
    )  # fmt: skip


@both
@given(seed=seeds)
def test_without_borrowing_no_quota_is_exceeded(kind, seed):
    def look(picture):
        for tenant in picture.tree:
            assert picture.used[tenant.name] <= tenant.quota

    def make():
        return KINDS[kind](borrow=False, inside="fifo-skip")

    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    tenants = [Tenant("a", quota=rng.randint(3, 4)), Tenant("b", quota=rng.randint(3, 4))]
    specs = [
        JobSpec(f"j{i}", rng.randint(0, 20), Request.of(rng.choice((1, 2, 3))), rng.choice("ab"))
        for i in range(20)
    ]
    works = [Behaviour(rng.randint(1, 20)) for _ in specs]
    check_all(engine_of(make(), Workload(specs, works), 8, tenants), look)


@both
@given(seed=seeds, own_s=st.integers(0, 15), class_s=st.integers(0, 15))
def test_nobody_is_stopped_before_its_time(kind, seed, own_s, class_s):
    engine = random_run(
        seed,
        lambda: KINDS[kind](inside="srtf", min_runtime_s=float(own_s)),
        lambda picture: picture.check_bounds(),
        priorities=(0, 7), classes=[PriorityClass("slow", 5, min_runtime_s=class_s)],
    )  # fmt: skip
    since_s = {}
    for time_s, event, job, other in (
        engine.log.frame().select("time_s", "event", "job", "other").iter_rows()
    ):
        if event == "start":
            since_s[job] = time_s
        elif event == "stop":
            least_s = max(own_s, class_s if engine.jobs[job].spec.priority else 0)
            assert time_s >= since_s[job] + least_s
            assert other >= 0  # who displaced it


@both
@given(seed=seeds)
def test_jobs_that_are_not_preemptible_run_to_their_end(kind, seed):
    engine = random_run(
        seed, lambda: KINDS[kind](inside="srtf", aging_s=60.0), lambda _: None,
        priorities=(0, 9), classes=[PriorityClass("firm", 9, preemptible=False)],
    )  # fmt: skip
    assert all(job.preemptions == 0 for job in engine.jobs.values() if job.spec.priority)


@both
@given(seed=seeds)
def test_jobs_that_are_not_preemptible_break_no_promise(kind, seed):
    # some may wait for ever: for more than nobody was promised
    random_run(
        seed, lambda: KINDS[kind](inside="fifo-skip"), Picture.check_guarantees,
        priorities=(0, 9), classes=[PriorityClass("firm", 9, preemptible=False)], all_end=False,
    )  # fmt: skip


ALL_CLASSES = (*OPPORTUNISTIC, PriorityClass("firm", 9, preemptible=False))


@both
@given(seed=seeds, rule=st.sampled_from(RULES))
def test_guarantees_hold_with_classes_of_every_kind(kind, seed, rule):
    random_run(
        seed, lambda: KINDS[kind](inside="fifo-skip", victims=rule), Picture.check_guarantees,
        priorities=(-5, 0, 3, 9), classes=ALL_CLASSES, all_end=False,
    )  # fmt: skip


@both
@given(seed=seeds, rule=st.sampled_from(RULES))
def test_limits_hold_with_opportunistic_jobs_and_priorities(kind, seed, rule):
    random_run(
        seed, lambda: KINDS[kind](inside="fifo-skip", victims=rule), everything,
        priorities=(-5, 0, 3), classes=OPPORTUNISTIC, all_end=False, number=30,
    )  # fmt: skip


def run_of(kind, jobs, tenants, classes=()):
    """Jobs as (time, GPUs, queue, priority) that last long; who runs in the end."""
    specs = [
        JobSpec(f"j{i}", float(at), Request.of(gpus), queue, priority=priority)
        for i, (at, gpus, queue, priority) in enumerate(jobs)
    ]
    workload = Workload(specs, [Behaviour(100.0) for _ in specs])
    engine = engine_of(KINDS[kind](inside="fifo-skip"), workload, 8, tenants, classes)
    engine.run(50.0)
    Picture(engine).check_guarantees()
    return {job.id for job in engine.view.running}


@both
def test_a_job_displaced_by_its_own_queue_takes_back_what_the_queue_is_owed(kind):
    # a has 6 and borrows nothing; j3 displaces j0, whose queue has 4 of 6 then; b borrows 2
    jobs = [(0, 2, "a", 0), (0, 4, "b", 0), (1, 2, "a", 0), (2, 4, "a", 5)]
    tenants = [Tenant("a", quota=6), Tenant("b", quota=2)]
    running = run_of(kind, jobs, tenants)
    assert "j3" in running
    assert running & {"j0", "j2"}  # 2 of the 6 GPUs of its queue are left for one of them


@both
def test_what_is_lent_is_taken_back_before_anybody_is_told(kind):
    # b asks first and gets 3 idle GPUs; j3 displaces both others of a, one of which is owed 2
    jobs = [(0, 2, "a", 0), (0, 2, "a", 0), (0, 1, "a", 9), (1, 3, "b", 0), (1, 4, "a", 9)]
    tenants = [Tenant("a", quota=7, limit=8), Tenant("b", quota=1, borrow=2)]
    classes = [PriorityClass("firm", 9, preemptible=False)]
    running = run_of(kind, jobs, tenants, classes)
    assert {"j2", "j4"} < running
    assert running & {"j0", "j1"}


@both
def test_who_is_not_preemptible_does_not_take_over_what_opportunistic_jobs_borrow(kind):
    # c has no quota: its opportunistic job uses what a does not, its other job may not
    jobs = [(0, 5, "a", 0), (0, 2, "b", 0), (0, 1, "c", -5), (1, 1, "c", 9), (2, 1, "a", 0)]
    tenants = [Tenant("a", quota=6), Tenant("b", quota=2), Tenant("c")]
    running = run_of(kind, jobs, tenants, ALL_CLASSES)
    assert running == {"j0", "j1", "j4"}


@both
@settings(max_examples=12)
@given(seed=seeds, size=st.integers(1, 8), tenant=st.sampled_from(("a", "b", "c")))
def test_nobody_starves_where_jobs_age(kind, seed, size, tenant):
    """A flood of small jobs for ever; the first job waits for at most `aging_s` and one of them."""
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    longest_s, aging_s, until_s = 10, 50.0, 110
    specs = [JobSpec("first", 0.5, Request.of(size), tenant, priority=-1)]
    works = [Behaviour(30.0)]
    for i in range(until_s):  # more than the cluster can do
        for _ in range(2):
            specs.append(JobSpec(f"f{len(specs)}", float(i), Request.of(1), rng.choice("ab")))
            works.append(Behaviour(float(rng.randint(5, longest_s))))
    tenants = [Tenant("a", quota=4), Tenant("b", quota=4)]
    engine = engine_of(
        KINDS[kind](aging_s=aging_s, inside="fifo-skip"), Workload(specs, works), 8, tenants
    )
    engine.run(until_s)
    first = engine.jobs[0]
    assert first.terminal
    assert first.end_s - first.submit_s - 30.0 <= aging_s + longest_s


def starving():
    """Return a job that waits while the flood lasts if nothing helps it."""
    specs = [JobSpec("first", 0.5, Request.of(8), "c", priority=-1)]
    specs += [JobSpec(f"f{i}", i / 2, Request.of(1), "a") for i in range(400)]
    works = [Behaviour(30.0), *(Behaviour(20.0) for _ in specs[1:])]
    return Workload(specs, works)


@both
@pytest.mark.parametrize(("aging_s", "started"), [(0.0, False), (50.0, True)])
def test_without_aging_it_would_starve(kind, aging_s, started):
    engine = engine_of(KINDS[kind](aging_s=aging_s), starving(), 8, [Tenant("a", quota=8)])
    engine.run(200.0)
    assert engine.jobs[0].started == started


# --- weights --------------------------------------------------------------------------------------


def busy(rng, shares, until_s, gpus):
    """Return jobs for everybody, more than its share of the time."""
    specs, works = [], []
    for name, share in shares.items():
        left = 1.25 * share * gpus * until_s
        while left > 0:
            work = rng.randint(10, 30)
            specs.append(JobSpec(f"{name}{len(specs)}", 0.0, Request.of(1), name))
            works.append(Behaviour(float(work)))
            left -= work
    return Workload(specs, works)


@settings(max_examples=4)
@given(
    seed=seeds,
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    inner=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    half_life_s=st.sampled_from((100.0, 300.0)),
)
def test_weights_are_honoured_in_the_long_run(seed, weights, inner, half_life_s):
    gpus, until_s = 5, 3000.0
    tenants = [Tenant(f"q{i}", weight=weight) for i, weight in enumerate(weights)]
    tenants += [Tenant(f"in{i}", "q0", weight=weight) for i, weight in enumerate(inner)]
    expected = {f"q{i}": weight / sum(weights) for i, weight in enumerate(weights) if i}
    expected |= {
        f"in{i}": weights[0] / sum(weights) * weight / sum(inner) for i, weight in enumerate(inner)
    }
    policy = KINDS["hierarchical-fair"](half_life_s=half_life_s)
    workload = busy(Random(seed), expected, until_s, gpus)  # noqa: S311
    engine = engine_of(policy, workload, gpus, tenants)
    engine.run(until_s)
    had = dict.fromkeys(expected, 0.0)
    for job in engine.jobs.values():
        had[job.tenant] += job.attained_gpu_s(until_s)
    total = sum(had.values())
    assert total >= 0.999 * gpus * until_s
    for name, share in expected.items():
        assert abs(had[name] / total - share) <= 0.02, (name, had, expected)


# --- the checks see something ---------------------------------------------------------------------

TURN, VICTIMS = (
    "rota.policies.tenancy.decision:QueueDecision",
    "rota.policies.tenancy.victims:Victims",
)
BUGS = {
    "one GPU beyond a quota is not reclaimed": (
        "rota.policies.capacity:Capacity.claim",
        "Claim(other.quota",
        "Claim(1 + other.quota",
    ),
    "a limit is looked at too late": (
        f"{TURN}._needs",
        "branch.used + gpus - branch.ceiling",
        "branch.used - branch.ceiling",
    ),
    "what is kept is lent": (f"{TURN}._needs", "self.tenancy.kept_from(leaf) - idle", "-idle"),
    "who borrows keeps what others are owed": (
        f"{VICTIMS}.borrowers",
        "not self.options.reclaim",
        "self.options.reclaim",
    ),
    "a job that is too large never goes": (
        f"{VICTIMS}._as_far_as_allowed",
        "after >= claim.least",
        "after >= claim.floor",
    ),
    "only leaves have accounts": (
        "rota.policies.tenancy.tree:Tenancy.charge",
        "in leaf.upwards:",
        "in leaf.upwards[:1]:",
    ),
}


def sixty_cases():
    for seed in range(60):
        engine = random_run(seed, lambda: KINDS["capacity"](inside="fifo-skip"), everything)
        assert engine.view.finished


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug, monkeypatch):
    plant(monkeypatch, *BUGS[bug])
    with pytest.raises(AssertionError):
        sixty_cases()


def test_the_same_cases_without_bugs():
    sixty_cases()
