"""Two jobs on the same GPUs: `place_beside`, what plans, books, log and metrics make of it."""

import pytest

from decisions import PLACEMENTS, Scripted, everybody, rows
from rota.core.allocation import host_of
from rota.core.errors import PolicyError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.metrics.jobs import fold_jobs
from rota.models.costs import Custom, FixedParams, Zero
from rota.models.rates import Product, Types, Uniform
from rota.models.tables import PairRates, PairsParams
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from throughput_tables import write_table

BOTH = pytest.mark.parametrize("placement", ["count", "consolidate"])
FOUR = [NodeSpec("a", 2, "v100"), NodeSpec("b", 2, "v100")]


@pytest.fixture
def table(tmp_path):
    kinds = {("m", 1): (1.0, 0.5), ("m", 2): (2.0, 1.0), ("n", 1): (1.0, 0.5)}
    shares = {
        (("m", 1), ("m", 1)): (0.5, 0.5),
        (("m", 2), ("m", 2)): (0.5, 0.5),
        (("m", 1), ("n", 1)): (0.75, 0.25),
    }
    return write_table(tmp_path / "table.json", kinds, shares)


def job(name, gpus, work, *, at=0.0, model="m", **rest):
    return JobSpec(name, at, Request.of(gpus, **rest), model=model), Behaviour(work)


def build(script, jobs, table, *, nodes=FOUR, placement="count", costs=None, outages=()):
    topology = Topology(nodes)
    rates = Uniform(topology)
    if table:
        rates = Product([Types(topology), PairRates(topology, PairsParams(table=table))])
    down = [(time_s, kind, topology.nodes[number]) for time_s, kind, number in outages]
    return Engine(
        SimCluster(topology, costs or Zero(), rates, outages=down),
        compose(Scripted(script), PLACEMENTS[placement](topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=TenantTree(()),
        checker=Invariants(),
    )


def run(script, jobs, table, **options):
    made = build(script, jobs, table, **options)
    made.run()
    made.finish()
    return made


def by_name(view):
    return {each.id: each for each in view.jobs}


def pair_up(*names):
    """Place these pairs as long as both are there, and everybody else alone."""

    def script(view, plan):
        there = by_name(view)
        rest = dict(there)
        for host, guest in names:
            if host in there and guest in there:
                assert plan.place(rest.pop(host))
                assert plan.place_beside(rest.pop(guest), there[host])
        for each in rest.values():
            plan.place(each)

    return script


def ends(made):
    return {each.id: each.end_s for each in made.jobs.values()}


def metrics(made):
    """The table of jobs from the log alone."""
    return {row["job_id"]: row for row in fold_jobs(made.log.frame()).to_dicts()}


@BOTH
def test_a_pair_runs_at_the_speeds_of_the_table_until_one_is_done(table, placement):
    jobs = [job("a", 1, 10), job("b", 1, 20)]
    made = run(pair_up(("a", "b")), jobs, table, placement=placement)
    # both at half speed until 20 s; then b has 10 left, alone at full speed
    assert ends(made) == {"a": 20, "b": 30}


@BOTH
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_gpus_of_a_pair_are_counted_once_and_inherited(table, placement, order):
    jobs = [job("a", 1, 10), job("b", 1, 20)]
    made = run(pair_up(order), jobs, table, placement=placement)
    found = metrics(made)
    assert sum(row["service_gpu_s"] for row in found.values()) == 30
    assert [row["migrations"] for row in found.values()] == [0, 0]
    assert all(each.migrations == 0 and each.preemptions == 0 for each in everybody(made))
    inherits = [row for row in rows(made, Record.MOVE) if row[3] >= 0]
    assert [(time_s, who) for time_s, who, *_ in inherits] == ([(20, 1)] if order[0] == "a" else [])


@BOTH
def test_a_pair_leaves_room_for_others(table, placement):
    jobs = [job(name, 2, 10) for name in "abcd"]
    script = pair_up(("a", "b"), ("c", "d"))
    assert ends(run(script, jobs, table, placement=placement)) == dict.fromkeys("abcd", 20)
    alone = run(lambda view, plan: plan.fill(view.jobs), jobs, table, placement=placement)
    assert sorted(ends(alone).values()) == [10, 10, 20, 20]


def test_the_table_says_who_is_slowed_down_by_how_much(table):
    jobs = [job("a", 1, 10), job("b", 1, 10, model="n")]
    made = run(pair_up(("b", "a")), jobs, table)
    # a at 0.75, b at 0.25 until a is done at 40/3 s
    assert ends(made)["a"] == pytest.approx(40 / 3)
    assert ends(made)["b"] == pytest.approx(40 / 3 + 10 - 10 / 3)


@BOTH
def test_a_guest_joins_a_running_job_without_moving_it(table, placement):
    jobs = [job("a", 2, 10), job("b", 2, 10, at=4)]
    made = run(pair_up(("a", "b")), jobs, table, placement=placement)
    assert ends(made) == {"a": 16, "b": 20}  # 6 left at half speed; then b has 4 left
    assert [row for row in rows(made, Record.MOVE) if row[3] < 0] == []


@BOTH
def test_a_pair_is_parted_by_placing_both_alone(table, placement):
    def script(view, plan):
        there = by_name(view)
        if view.now_s < 4:
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
            plan.wake_at(4)
        else:
            for each in view.jobs:
                assert plan.place(each)

    made = run(script, [job("a", 2, 10), job("b", 2, 10)], table, placement=placement)
    assert ends(made) == {"a": 12, "b": 12}
    assert [(time_s, who) for time_s, who, *_ in rows(made, Record.MOVE)] == [(4, 1)]


@BOTH
def test_a_guest_that_is_named_first_takes_over(table, placement):
    def script(view, plan):
        there = by_name(view)
        if view.now_s < 4:
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
            plan.wake_at(4)
        elif view.now_s == 4:
            assert plan.place(there["b"])
        else:
            plan.fill(view.jobs)

    made = run(script, [job("a", 2, 10), job("b", 2, 10)], table, placement=placement)
    assert ends(made) == {"b": 12, "a": 20}
    assert everybody(made)[0].preemptions == 1


@BOTH
def test_a_pair_that_is_named_the_other_way_round_goes_on_as_it_is(table, placement):
    turns = []

    def script(view, plan):
        there = by_name(view)
        if len(there) < 2:
            plan.fill(view.jobs)
            return
        turns.append(view.now_s)
        host, guest = ("a", "b") if len(turns) % 2 else ("b", "a")
        assert plan.place(there[host])
        assert plan.place_beside(there[guest], there[host])
        if view.now_s < 8:
            plan.wake_at(view.now_s + 1)

    made = run(script, [job("a", 2, 10), job("b", 2, 20)], table, placement=placement)
    assert len(turns) > 8
    assert [row for row in rows(made, Record.MOVE) if row[3] < 0] == []
    assert len(rows(made, Record.START)) == 2
    assert ends(made) == {"a": 20, "b": 30}


@BOTH
def test_a_new_job_displaces_both_of_a_pair(table, placement):
    def script(view, plan):
        there = by_name(view)
        if "new" in there:
            assert plan.place(there["new"])
            return
        if len(there) == 2:
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
        plan.fill(each for each in view.jobs if len(there) != 2)

    jobs = [job("a", 2, 10), job("b", 2, 10), job("new", 2, 5, at=4)]
    made = build(script, jobs, table, nodes=[NodeSpec("a", 2, "v100")], placement=placement)
    made.run(until_s=5)
    assert {each.id for each in everybody(made) if each.running} == {"new"}
    assert sorted(row[1:4:2] for row in rows(made, Record.STOP)) == [(0, 2), (1, 2)]
    made.run()
    assert max(ends(made).values()) > 9


def test_a_placement_of_a_guest_can_be_withdrawn(table):
    def script(view, plan):
        there = by_name(view)
        if len(there) == 2:
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
            plan.withdraw(there["b"])
        plan.fill(view.jobs)

    made = run(script, [job("a", 2, 10), job("b", 2, 20)], table)
    assert ends(made) == {"a": 10, "b": 20}


@BOTH
def test_both_of_a_pair_are_evicted_with_their_node(table, placement):
    nodes = [NodeSpec("a", 2, "v100")]
    outages = [(4, NODE_DOWN, 0), (6, NODE_UP, 0)]
    jobs = [job("a", 2, 10), job("b", 2, 10)]
    made = build(
        pair_up(("a", "b")), jobs, table, nodes=nodes, placement=placement, outages=outages
    )
    made.scheduler.policy._decide = lambda view, plan: (
        pair_up(("a", "b"))(view, plan) if view.up_gpus else None
    )
    made.run()
    assert len(rows(made, Record.EVICTED)) == 2
    assert ends(made) == {"a": 22, "b": 22}


def test_in_a_pool_a_pair_goes_together(table):
    def script(view, plan):
        there = by_name(view)
        up = view.up_gpus
        if len(there) == 3 and up == 4:
            assert plan.place(there["c"])
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
        else:
            plan.fill(view.jobs)

    jobs = [job("c", 2, 30), job("a", 2, 10), job("b", 2, 10)]
    made = build(script, jobs, table, outages=[(4, NODE_DOWN, 1), (50, NODE_UP, 1)])
    made.run(until_s=5)
    assert sorted(who for _, who, *_ in rows(made, Record.EVICTED)) == [1, 2]
    made.run()
    assert all(each.terminal for each in everybody(made))


@BOTH
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_cancelled_partner_leaves_the_gpus_to_the_other(table, placement, first):
    def script(view, plan):
        there = by_name(view)
        if view.now_s < 4:
            assert plan.place(there["a"])
            assert plan.place_beside(there["b"], there["a"])
            plan.wake_at(4)
        elif len(there) == 2:
            plan.cancel([there[first]])
            assert plan.place(there["b" if first == "a" else "a"])
        else:
            plan.fill(view.jobs)

    made = run(script, [job("a", 2, 10), job("b", 2, 10)], table, placement=placement)
    other = "b" if first == "a" else "a"
    assert ends(made) == {first: 4, other: 12}
    assert sum(row["service_gpu_s"] for row in metrics(made).values()) == 24


@pytest.mark.parametrize("stop_s", [0.0, 3.0])
@BOTH
def test_pairs_where_stopping_and_starting_take_time(table, placement, stop_s):
    costs = Custom(FixedParams(start_s=1.0, stop_s=stop_s, abort_s=0.0))

    def script(view, plan):
        """Alternate between two ways of pairing four jobs, every 5 s."""
        there = by_name(view)
        turn = int(view.now_s // 5) % 3
        wanted = [(("a", "b"), ("c", "d")), (("d", "a"), ("b", "c")), (("a", "c"),)][turn]
        rest = dict(there)
        for host, guest in wanted:
            if host in there and guest in there and plan.place(rest.pop(host)):
                plan.place_beside(rest.pop(guest), there[host])
        for each in rest.values():
            plan.place(each)
        if there:
            plan.wake_at((view.now_s // 5 + 1) * 5)

    jobs = [job(name, 1, 14.5 + number, at=number / 2) for number, name in enumerate("abcd")]
    made = run(
        script, jobs, table, nodes=[NodeSpec("a", 2, "v100")], placement=placement, costs=costs
    )
    assert all(each.end_s < 400 for each in everybody(made))


def test_cpus_of_a_guest_must_fit_its_node(table):
    seen = []

    def script(view, plan):
        there = by_name(view)
        if len(there) < 3:
            plan.fill(view.jobs)
            return
        assert plan.place(there["a"])
        seen.append(plan.place_beside(there["greedy"], there["a"]))
        seen.append(plan.place_beside(there["b"], there["a"]))
        plan.place(there["greedy"])

    jobs = [
        job("a", 1, 10, cpus=4),
        job("b", 1, 10, cpus=2),
        job("greedy", 1, 10, cpus=5),
    ]
    nodes = [NodeSpec("a", 1, "v100", cpus=8), NodeSpec("b", 1, "v100", cpus=8)]
    made = build(script, jobs, table, nodes=nodes, placement="consolidate")
    made.run(until_s=1)
    assert seen[:2] == [False, True]
    held = {each.id: sum(e[2] for e in each.allocation.extra) for each in everybody(made)}
    assert held == {"a": 4, "b": 2, "greedy": 5}


def test_a_guest_goes_only_where_its_request_allows(table):
    nodes = [NodeSpec("a", 2, "v100"), NodeSpec("b", 2, "k80")]

    def script(view, plan):
        there = by_name(view)
        if len(there) == 2:
            assert plan.place_on(there["a"], gpu_type="v100")
            assert not plan.place_beside(there["b"], there["a"])
        plan.fill(each for each in view.jobs if each.id == "b" or len(there) < 2)

    jobs = [job("a", 1, 10), job("b", 1, 10, gpu_types=("k80",))]
    made = run(script, jobs, table, nodes=nodes, placement="consolidate")
    assert ends(made) == {"a": 10, "b": 10}


def test_pairs_survive_a_snapshot(table, tmp_path):
    from rota.engine.snapshot import load, restore, save

    jobs = [job("a", 2, 10), job("b", 2, 20), job("c", 1, 8)]
    script = pair_up(("a", "b"))
    whole = run(script, jobs, table, placement="consolidate")
    first = build(script, jobs, table, placement="consolidate")
    first.run(until_s=7)
    assert host_of(everybody(first)[1].allocation) == 0
    save(first, tmp_path / "snapshot", {})
    second = build(script, jobs, table, placement="consolidate")
    restore(second, load(tmp_path / "snapshot").state)
    second.run()
    second.finish()
    assert ends(second) == ends(whole)
    assert second.log.frame().equals(whole.log.frame())


# --- what is refused ------------------------------------------------------------------------------

REFUSED = {
    "not placed": ([1, 1], lambda p, a, b, _: p.place_beside(b, a), "place a first"),
    "twice": (
        [1, 1],
        lambda p, a, b, _: p.place(a) and p.place(b) and p.place_beside(b, a),
        "b has a place already",
    ),
    "three": (
        [1, 1],
        lambda p, a, b, c: p.place(a) and p.place_beside(b, a) and p.place_beside(c, a),
        "two jobs at most",
    ),
    "guest of a guest": (
        [1, 1],
        lambda p, a, b, c: p.place(a) and p.place_beside(b, a) and p.place_beside(c, b),
        "two jobs at most",
    ),
    "sizes": (
        [2, 1],
        lambda p, a, b, _: p.place(a) and p.place_beside(b, a),
        "equally many whole GPUs",
    ),
    "parts": (
        [0.5, 0.5],
        lambda p, a, b, _: p.place(a) and p.place_beside(b, a),
        "equally many whole GPUs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pairs_that_make_no_sense(table, case):
    sizes, do, message = REFUSED[case]
    jobs = [job(name, gpus, 9) for name, gpus in zip("ab", sizes, strict=True)] + [job("c", 1, 9)]

    def script(view, plan):
        there = by_name(view)
        if len(there) == 3:
            do(plan, there["a"], there["b"], there["c"])

    with pytest.raises(PolicyError, match=message):
        run(script, jobs, table)


def test_nobody_shares_where_nobody_knows_the_speeds_of_pairs():
    with pytest.raises(PolicyError, match="simulate with rates that do"):
        run(pair_up(("a", "b")), [job("a", 1, 9), job("b", 1, 9)], None)
