"""Quotas, limits, lending and reclaiming, worked by hand."""

import msgspec
import pytest

from policy_runs import engine, finish, job, runs, runs_of
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.registry import parse_params
from rota.core.tenants import PriorityClass, Tenant, TenantTree
from rota.policies.capacity import Capacity, CapacityParams
from rota.policies.hierarchical_fair import HierarchicalFair
from rota.study.config import RunConfig
from rota.study.run import simulate
from shared_data import CHECKOUT
from tenant_runs import engine_of, jobs_of, random_run, tree_of

HALVES = (Tenant("a", quota=2), Tenant("b", quota=2))
BORROWED = [job(f"b{i}", 0, 1, 100, tenant="b") for i in range(4)]


def make(**given):
    return Capacity(CapacityParams(**given))


def stops(log):
    """Who was stopped when, for whom and why."""
    came = log.filter(log["event"] == "submit")
    ids = dict(zip(came["job"], came["text"], strict=True))
    found = log.filter(log["event"] == "stop")
    return [
        (time_s, ids[number], ids[other], text)
        for time_s, number, other, text in found.select(
            "time_s", "job", "other", "text"
        ).iter_rows()
    ]


# --- borrowing and reclaiming ---------------------------------------------------------------------


def test_idle_gpus_are_lent_and_taken_back():
    jobs = [*BORROWED, job("a1", 10, 2, 20, tenant="a")]
    assert runs(make(), jobs, gpus=4, tenants=HALVES) == {
        "b0": [(0, 100)],
        "b1": [(0, 100)],
        "b2": [(0, 10), (30, 120)],
        "b3": [(0, 10), (30, 120)],
        "a1": [(10, 30)],
    }


def test_the_log_tells_who_made_room_for_whom_and_why():
    jobs = [*BORROWED, job("a1", 10, 1, 20, tenant="a")]
    log = finish(engine(make(), jobs, gpus=4, tenants=HALVES))
    why = "queue 'a' has 0 of the 2 GPUs it is owed, queue 'b' has 4 of 2"
    assert stops(log) == [(10, "b3", "a1", why)]


def test_who_is_displaced_and_displaces_another_passes_on_why():
    late = [job(f"b{i}", 5, 1, 100, tenant="b", priority=9) for i in (2, 3)]
    jobs = [*BORROWED[:2], *late, job("a1", 10, 1, 20, tenant="a")]
    log = finish(engine(make(), jobs, gpus=4, tenants=HALVES))
    why = "queue 'a' has 0 of the 2 GPUs it is owed, queue 'b' has 4 of 2"
    assert stops(log) == [(10, "b1", "a1", why)]


def test_nobody_takes_more_than_its_quota_back():
    jobs = [*BORROWED, job("a1", 10, 3, 20, tenant="a")]
    assert runs(make(), jobs, gpus=4, tenants=HALVES)["a1"] == [(100, 120)]


def test_without_reclaiming_it_waits():
    jobs = [*BORROWED, job("a1", 10, 1, 20, tenant="a")]
    assert runs(make(reclaim=False), jobs, gpus=4, tenants=HALVES)["a1"] == [(100, 120)]


def test_a_quota_that_is_hardly_exceeded_may_be_ignored():
    tenants = [Tenant("a", quota=10), Tenant("b", quota=10)]
    jobs = [job(f"b{i}", 0, 1, 100, tenant="b") for i in range(11)]
    jobs += [job(f"a{i}", 0, 9, 100, tenant="a") for i in range(1)]
    jobs += [job("late", 10, 1, 20, tenant="a")]
    options = {"gpus": 20, "tenants": tenants}
    assert runs(make(ignore_over=0.1), jobs, **options)["late"] == [(100, 120)]
    assert runs(make(), jobs, **options)["late"] == [(10, 30)]


def test_what_is_not_lent_stays_idle():
    tenants = [Tenant("a", quota=2, lend=1), Tenant("b", quota=2)]
    jobs = [*BORROWED, job("a1", 10, 1, 20, tenant="a"), job("a2", 10, 1, 20, tenant="a")]
    found = runs(make(), jobs, gpus=4, tenants=tenants)
    assert [found[f"b{i}"] for i in range(3)] == [[(0, 100)], [(0, 100)], [(0, 10), (30, 120)]]
    assert found["b3"] == [(100, 200)]
    assert found["a1"] == found["a2"] == [(10, 30)]


def test_a_queue_borrows_no_more_than_it_may():
    tenants = [Tenant("a", quota=2), Tenant("b", quota=2, borrow=1)]
    found = runs(make(), BORROWED, gpus=4, tenants=tenants)
    assert [found[f"b{i}"] for i in range(4)] == [[(0, 100)]] * 3 + [[(100, 200)]]


def test_a_limit_holds_for_all_queues_below():
    tenants = [Tenant("lab", quota=2, limit=3), *(Tenant(t, "lab", quota=1) for t in "ab")]
    jobs = [job(f"{t}{i}", 0, 1, 10, tenant=t) for t in "ab" for i in range(3)]
    started = sorted(r[0][0] for r in runs(make(), jobs, gpus=8, tenants=tenants).values())
    assert started == [0, 0, 0, 10, 10, 10]


def test_room_below_a_limit_is_made_although_gpus_are_idle():
    tenants = [Tenant("lab", quota=4, limit=4), *(Tenant(t, "lab", quota=2) for t in "ab")]
    jobs = [*BORROWED, job("a1", 10, 2, 20, tenant="a")]
    found = runs(make(), jobs, gpus=8, tenants=tenants)
    assert found["a1"] == [(10, 30)]
    assert found["b2"] == found["b3"] == [(0, 10), (30, 120)]


def test_the_quota_of_a_queue_is_shared_by_those_below_it():
    """Neither x nor y has a quota; together they are owed the half of their lab."""
    tenants = [Tenant("lab", quota=4), Tenant("x", "lab"), Tenant("y", "lab", weight=3)]
    tenants += [Tenant("b", quota=4)]
    jobs = [job(f"b{i}", 0, 1, 100, tenant="b") for i in range(8)]
    jobs += [job(f"x{i}", 10, 1, 20, tenant="x") for i in range(4)]
    found = runs(make(), jobs, gpus=8, tenants=tenants)
    assert [found[f"x{i}"] for i in range(4)] == [[(10, 30)]] * 4
    # y is owed 3 of these 4: it takes them from x, not from b
    jobs += [job(f"y{i}", 15, 1, 20, tenant="y") for i in range(4)]
    found = runs(make(), jobs, gpus=8, tenants=tenants)
    assert [found[f"y{i}"][0][0] for i in range(3)] == [15] * 3
    assert sum(len(found[f"x{i}"]) == 2 for i in range(4)) == 3
    assert sum(len(found[f"b{i}"]) == 2 for i in range(8)) == 4


def test_jobs_of_a_queue_with_queues_below_it():
    tenants = [Tenant("lab", quota=4), Tenant("x", "lab", quota=2)]
    jobs = [job("own", 0, 4, 10, tenant="lab"), job("x1", 5, 2, 10, tenant="x")]
    found = runs(make(), jobs, gpus=4, tenants=tenants)
    assert found == {"own": [(0, 5), (15, 20)], "x1": [(5, 15)]}


def test_without_quotas_weights_divide_the_cluster():
    tenants = [Tenant("a", weight=3), Tenant("b", weight=1)]
    jobs = [*BORROWED, *(job(f"a{i}", 10, 1, 20, tenant="a") for i in range(4))]
    found = runs(make(), jobs, gpus=4, tenants=tenants)
    assert [found[f"a{i}"][0][0] for i in range(4)] == [10, 10, 10, 30]
    assert found["b0"] == [(0, 100)]


def test_undeclared_queues_borrow_where_others_have_quotas():
    jobs = [job("x1", 0, 4, 50, tenant="x"), job("a1", 10, 2, 20, tenant="a")]
    found = runs(make(), jobs, gpus=4, tenants=HALVES)
    assert found == {"x1": [(0, 10), (30, 70)], "a1": [(10, 30)]}


def test_quotas_shrink_with_the_cluster():
    """Half of the nodes are down: b has all of the rest, of which only 2 GPUs are its part."""
    tenants = [Tenant("a", quota=4), Tenant("b", quota=4)]
    jobs = [*BORROWED, job("a1", 10, 2, 20, tenant="a")]
    outages = [(0, NODE_DOWN, 1)]
    found = runs(make(), jobs, gpus=4, nodes=2, tenants=tenants, outages=outages)
    assert found["a1"] == [(10, 30)]


def test_a_job_that_exceeds_what_its_queue_may_have_is_refused():
    tenants = [Tenant("a", quota=2, limit=3), Tenant("b", quota=2, borrow=0)]
    jobs = [job("a1", 0, 4, 10, tenant="a"), job("b1", 0, 3, 10, tenant="b")]
    log = finish(engine(make(), jobs, gpus=4, tenants=tenants))
    told = log.filter(log["event"] == "rejected")["text"].to_list()
    assert "asks for 4 GPUs, but queue 'a' may use 3 at most" in told[0]
    assert "asks for 3 GPUs, but queue 'b' may use 2 at most" in told[1]


# --- priorities -----------------------------------------------------------------------------------


def classes_run(policy, jobs, classes, *, gpus=4, tenants=HALVES):
    from rota.core.workload import Workload

    workload = Workload([spec for spec, _ in jobs], [how for _, how in jobs])
    return finish(engine_of(policy, workload, gpus, tenants, classes))


def test_higher_priorities_displace_lower_ones_of_their_queue():
    jobs = [*BORROWED[:2], job("b9", 10, 1, 20, tenant="b", priority=5)]
    jobs += [job(f"a{i}", 0, 1, 100, tenant="a") for i in range(2)]
    log = finish(engine(make(), jobs, gpus=4, tenants=HALVES))
    assert stops(log) == [(10, "b1", "b9", "priority 5 comes before 0 in queue 'b'")]
    assert not stops(finish(engine(make(within=False), jobs, gpus=4, tenants=HALVES)))


def test_opportunistic_jobs_leave_first_and_reclaim_nothing():
    jobs = [
        job("b1", 0, 2, 100, tenant="b"),
        job("idle", 0, 1, 100, tenant="a", priority=-1),
        job("b2", 1, 1, 100, tenant="b"),
        job("a1", 10, 1, 20, tenant="a"),
    ]
    log = finish(engine(make(), jobs, gpus=4, tenants=HALVES))
    # its own queue has room for it in its quota: only for guaranteed jobs
    why = "opportunistic; queue 'a' has a guaranteed job"
    assert stops(log) == [(10, "idle", "a1", why)]
    others = [job("idle", 0, 4, 100, tenant="b", priority=-1), job("a1", 10, 1, 20, tenant="a")]
    log = finish(engine(make(), others, gpus=4, tenants=HALVES))
    assert stops(log)[0][3] == "opportunistic; queue 'a' has 0 of the 2 GPUs it is owed"
    later = [job("a1", 0, 4, 100, tenant="a"), job("idle", 10, 1, 5, tenant="b", priority=-1)]
    assert runs(make(), later, gpus=4, tenants=HALVES)["idle"] == [(100, 105)]


def test_a_class_protects_its_jobs_for_a_while():
    classes = [PriorityClass("usual", 0, min_runtime_s=30)]
    jobs = [*BORROWED, job("a1", 10, 2, 20, tenant="a"), job("c1", 12, 1, 5, tenant="c")]
    found = runs_of(classes_run(make(), jobs, classes))
    assert found["a1"] == [(30, 50)]
    assert found["b3"] == [(0, 30), (50, 120)]
    assert found["c1"] == [(100, 105)]


def test_gpus_are_kept_for_whoever_waits_for_the_end_of_a_protection():
    """A GPU is free at 15 s; it is a part of what a1 may have at 30 s, so c1 does not get it."""
    jobs = [*BORROWED[:3], job("b4", 0, 1, 15, tenant="b"), job("a1", 10, 2, 20, tenant="a")]
    jobs += [job("c1", 12, 1, 50, tenant="c")]
    found = runs(make(min_runtime_s=30.0), jobs, gpus=4, tenants=HALVES)
    assert found["a1"] == [(30, 50)]
    assert found["c1"][0][0] == 50


def test_who_is_not_preemptible_borrows_nothing_that_was_promised():
    classes = [PriorityClass("firm", 0, preemptible=False)]
    found = runs_of(classes_run(make(), BORROWED, classes))
    assert [found[f"b{i}"] for i in range(4)] == [[(0, 100)]] * 2 + [[(100, 200)]] * 2
    found = runs_of(classes_run(make(), BORROWED, classes, gpus=5))  # one that nobody was promised
    assert [found[f"b{i}"] for i in range(4)] == [[(0, 100)]] * 3 + [[(100, 200)]]


def test_who_may_borrow_passes_who_may_not():
    """Equal requests, but not equal rights."""
    classes = [PriorityClass("usual", 0), PriorityClass("firm", 5, preemptible=False)]
    jobs = [job("held", 0, 2, 10, tenant="a"), job("first", 1, 2, 50, tenant="a", priority=5)]
    jobs += [job("second", 1, 2, 50, tenant="a", priority=0)]
    found = runs_of(classes_run(make(within=False, inside="fifo-skip"), jobs, classes))
    assert found["second"] == [(1, 51)]
    assert found["first"] == [(51, 101)]  # when the quota is free again


# --- victims --------------------------------------------------------------------------------------

VICTIMS = [
    job("old", 0, 1, 100, tenant="b", priority=0),
    job("young", 5, 1, 100, tenant="b", priority=3),
    job("third", 1, 1, 100, tenant="c", priority=1),
    job("fourth", 2, 1, 100, tenant="c", priority=1),
    job("fifth", 3, 1, 100, tenant="c", priority=1),
    job("a1", 10, 1, 20, tenant="a"),
]


@pytest.mark.parametrize(
    ("rule", "victim"),
    [
        ("latest-start", "young"),
        ("lowest-priority", "old"),
        ("most-over-quota", "fifth"),
        ("least-progress", "young"),
    ],
)
def test_a_rule_chooses_the_victim(rule, victim):
    tenants = [Tenant("a", quota=3), Tenant("b", quota=1), Tenant("c", quota=1)]
    log = finish(engine(make(victims=rule, within=False), VICTIMS, gpus=5, tenants=tenants))
    assert [who for _, who, _, _ in stops(log)] == [victim]


# --- old jobs -------------------------------------------------------------------------------------


def test_an_old_job_comes_first_and_stays():
    jobs = [*(job(f"a{i}", 5 * i, 2, 10, tenant="a") for i in range(20))]
    jobs += [job("c1", 1, 4, 30, tenant="c")]
    tenants = [Tenant("a", quota=4)]
    found = runs(make(aging_s=20.0, inside="fifo-skip"), jobs, gpus=4, tenants=tenants)
    assert found["c1"] == [(30, 60)]  # old at 21; those that ran then end at 25 and 30
    assert found["a4"] == [(20, 30)]


def test_an_old_job_that_could_not_run_anyway_is_in_nobodys_way():
    """Its node is down."""
    tenants = [Tenant("a", quota=4)]
    jobs = [job("large", 0, 4, 10, tenant="a"), *(job(f"s{i}", 5, 1, 10, tenant="a") for i in "12")]
    options = {"gpus": 2, "nodes": 2, "tenants": tenants, "outages": [(0, NODE_DOWN, 1)]}
    options["outages"] += [(90, NODE_UP, 1)]
    found = runs(make(aging_s=3.0, inside="fifo-skip"), jobs, **options)
    assert found == {"large": [(90, 100)], "s1": [(5, 15)], "s2": [(5, 15)]}


# --- presets, reasons, state ----------------------------------------------------------------------


def test_presets_are_bundles_of_parameters():
    assert make().chosen["victims"] == "latest-start"
    assert make(preset="kueue").chosen["victims"] == "lowest-priority"
    assert make(preset="kueue", victims="least-progress").chosen["victims"] == "least-progress"
    given = parse_params("capacity", CapacityParams, {"preset": "yarn", "within": "yes"})
    assert given.within is True
    assert Capacity(given).chosen["ignore_over"] == 0.1


@pytest.mark.parametrize(("turn", "first"), [("share", "b1"), ("arrival", "a1")])
def test_whose_turn_it_is(turn, first):
    jobs = [job("a0", 0, 1, 100, tenant="a"), job("c0", 0, 2, 100, tenant="c")]
    jobs += [job("c1", 0, 1, 10, tenant="c")]
    jobs += [job("a1", 1, 1, 5, tenant="a"), job("b1", 2, 1, 5, tenant="b")]
    found = runs(make(turn=turn, reclaim=False), jobs, gpus=4, tenants=HALVES)
    assert found[first] == [(10, 15)]


def test_reasons_tell_quota_from_capacity():
    tenants = [Tenant("a", quota=2, limit=2), Tenant("b", quota=2)]
    jobs = [job(f"a{i}", 0, 1, 10, tenant="a") for i in range(3)]
    made = engine(make(), jobs, gpus=4, tenants=tenants)
    log = finish(made)
    reasons = log.filter(log["event"] == "reason")
    shared = reasons.filter(reasons["other"] >= 0).select("job", "value").rows()
    assert shared == [(-1, 4.0)]  # quota: of all of them that wait
    assert reasons.filter(reasons["ref"] == -1).is_empty()
    alone = finish(engine(make(), jobs, gpus=2))
    own = alone.filter(
        (alone["event"] == "reason") & ((alone["ref"] == -1) | (alone["other"] >= 0))
    )
    assert own.height == 0  # one queue: the request tells (capacity)


class Forgetful(Capacity):
    """Knows nothing but its snapshot from one decision to the next."""

    def decide(self, view):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.snapshot()))
        fresh = Capacity(self.params)
        fresh.restore(state)
        plan = fresh.decide(view)
        self.restore(fresh.snapshot())
        return plan


def test_all_books_can_be_made_again_from_the_view():
    for seed in range(6):
        whole = random_run(seed, lambda: make(inside="las:limits=3/9"), lambda _: None)
        given = CapacityParams(inside="las:limits=3/9")
        again = random_run(seed, lambda given=given: Forgetful(given), lambda _: None)
        assert again.log.frame().equals(whole.log.frame())


def test_other_queues_hold_from_the_next_decision_on():
    from random import Random

    rng = Random(3)  # noqa: S311 - a workload, not a secret
    tenants = tree_of(rng, 8, bounds=False)
    made = engine_of(make(), jobs_of(rng, tenants, 8), 8, tenants)
    made.run(10.0)
    made.view.tenants = TenantTree([Tenant("q1", limit=1)])
    made.run()
    assert not made.view.active


@pytest.mark.parametrize("kind", [Capacity, HierarchicalFair])
def test_the_page_has_the_values_of_the_presets(kind):
    text = (CHECKOUT / "docs" / "policies" / f"{kind.name}.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    header = next(row for row in table if row[0] == "name")
    stated = {row[0]: dict(zip(header, row, strict=False)) for row in table}
    words = {True: "yes", False: "no"}
    for preset, values in kind.presets.items():
        for key, value in values.items():
            told = stated[key][f"preset={preset}" if preset else "without preset"]
            told = told or stated[key]["without preset"]
            assert told == (
                words[value] if isinstance(value, bool) else str(value).removesuffix(".0")
            )


@pytest.mark.parametrize("policy", ["capacity", "hierarchical-fair", "yarn-cs"])
def test_who_came_before_goes_on_waiting_for_a_maintenance(tmp_path, policy):
    trace = tmp_path / "jobs.csv"
    # none would end before the window begins; each one that comes makes its tenant be told anew
    rows = ["1,0,2,7200", "2,60,4,7200", "3,120,1,7200"]
    trace.write_text("\n".join(["job_id,submit_s,num_gpus,duration_s", *rows, ""]))
    window = ("nodes=n0,start=3600,for=3600",)
    run = simulate(RunConfig(trace=str(trace), cluster="1x4", policy=policy, maintenance=window))

    times = run.summary["delay"]
    assert times["maintenance"] == 7200 + 7140 + 7080
