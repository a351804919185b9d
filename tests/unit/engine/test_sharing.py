"""GPUs that jobs share: modes, memory, MIG, other kinds of resources, and terms that change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from decisions import PLACEMENTS
from rota.core.allocation import Allocation
from rota.core.errors import ClusterSpecError, InvalidPlanError, InvariantError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy
from rota.core.reasons import Reason
from rota.core.resources import ResourceKind
from rota.core.sharing import (
    GPU_MEM,
    LIMIT,
    MIG_TABLES,
    GpuPart,
    conflict,
    mig_profiles,
    read_layout,
)
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import occupancy
from rota.engine.compose import compose
from rota.engine.invariants import CapacityCheck, Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.engine.source import WorkloadSource
from rota.metrics.ledger import fold_ledger
from rota.metrics.story import Stories
from rota.models.costs import Custom, FixedParams, Zero
from rota.models.rates import Sharing, SharingParams
from rota.models.tables import PairRates, PairsParams, combined
from rota.placement.room import Room
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from throughput_tables import write_table


class Explicit(DecidePolicy):
    """Everybody goes where a function says; None: it waits."""

    name = "explicit"
    plan_type = ExplicitPlan
    divides = True

    def __init__(self, where, *, wake_at=()):
        super().__init__()
        self.where, self.wakes = where, wake_at

    def decide(self, view):
        plan = view.plan(ExplicitPlan)
        for job in view.jobs:
            allocation = self.where(job, view)
            if allocation is not None:
                plan.place_at(job, allocation)
        for time_s in self.wakes:
            if time_s > view.now_s:
                plan.wake_at(time_s)
                break
        return plan


def job(name, gpus, work, *, at=0.0, demand=None, **rest):
    return JobSpec(name, at, Request.of(gpus, **rest)), Behaviour(work, demand=demand)


def build(policy, jobs, nodes, *, costs=None, check=True, kinds=(), placement="consolidate", **how):
    topology = nodes if isinstance(nodes, Topology) else Topology(nodes, kinds=kinds)
    if callable(policy):
        policy = Explicit(policy)
    return Engine(
        SimCluster(topology, costs or Zero(), Sharing(topology, SharingParams(**how))),
        compose(policy, PLACEMENTS[placement](topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=TenantTree(()),
        checker=Invariants() if check else None,
    )


def ends(engine):
    engine.run()
    return {job.id: job.end_s for job in engine.jobs.values()}


def on(device, gpus=1, extra=()):
    """Everybody on one GPU, which is the n-th of the first node."""

    def where(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[device]
        return Allocation([(place, min(gpus, job.gpus))], [(place, *more) for more in extra])

    return where


SLICED = [NodeSpec("n", 1, gpu_mem_gib=40, sharing="timeslice")]


# --- modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["timeslice", "mps"])
@pytest.mark.parametrize("sharers", [1, 2, 3, 7])
def test_n_sharers_have_an_nth_each(mode, sharers):
    nodes = [NodeSpec("n", 1, sharing=mode)]
    made = build(on(0), [job(f"j{i}", 1, 10.0) for i in range(sharers)], nodes)
    assert ends(made) == {f"j{i}": 10.0 * sharers for i in range(sharers)}


def test_switching_costs_its_part_of_time():
    made = build(on(0), [job("a", 1, 10), job("b", 1, 10)], SLICED, quantum_s=0.9, switch_s=0.1)
    assert ends(made) == pytest.approx({"a": 10 * 2 / 0.9, "b": 10 * 2 / 0.9})


def test_jobs_that_use_half_of_a_gpu_do_not_slow_each_other_down():
    nodes = [NodeSpec("n", 1, sharing="mps")]
    half = {"compute": 0.5}
    made = build(on(0), [job("a", 1, 10, demand=half), job("b", 1, 10, demand=half)], nodes)
    assert ends(made) == {"a": 10.0, "b": 10.0}


@pytest.mark.parametrize(
    ("rule", "end_s"), [("max-min", 10.0), ("roofline", 14.0), ("product", 10.0)]
)
def test_the_scarcest_decides_by_roofline(rule, end_s):
    nodes = [NodeSpec("n", 1, sharing="mps")]
    uses = {"compute": 0.4, "memory": 0.7}
    made = build(
        on(0), [job("a", 1, 10, demand=uses), job("b", 1, 10, demand=uses)], nodes, rule=rule
    )
    assert ends(made) == pytest.approx({"a": end_s, "b": end_s})


def test_weights_divide_and_limits_cap():
    nodes = [NodeSpec("n", 1, sharing="mps")]

    def where(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[0]
        return Allocation([(place, 1)], [(place, "gpu_weight", 3.0 if job.id == "a" else 1.0)])

    assert ends(build(where, [job("a", 1, 30), job("b", 1, 30)], nodes)) == {"a": 40.0, "b": 60.0}

    def capped(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[0]
        return Allocation([(place, 1)], [(place, LIMIT, 0.2)] if job.id == "b" else [])

    assert ends(build(capped, [job("a", 1, 8), job("b", 1, 10)], nodes)) == {"a": 10.0, "b": 50.0}


@pytest.mark.parametrize("mode", ["", "fraction", "exclusive", "mig"])
def test_other_modes_are_not_overcommitted(mode):
    nodes = [NodeSpec("n", 1, "a100", sharing=mode)]
    made = build(on(0), [job("a", 1, 10), job("b", 1, 10)], nodes)
    with pytest.raises(InvalidPlanError, match="over-commits a place"):
        made.run()


def test_an_exclusive_gpu_has_one_job_even_if_there_is_room():
    nodes = [NodeSpec("n", 1, sharing="exclusive")]
    with pytest.raises(InvalidPlanError, match="exclusive"):
        build(on(0, 0.3), [job("a", 0.3, 10), job("b", 0.3, 10)], nodes).run()
    waiting = build(make_policy("fifo"), [job("a", 0.3, 10), job("b", 0.3, 10)], nodes)
    assert ends(waiting) == {"a": 10.0, "b": 20.0}


@pytest.mark.parametrize("policy", ["fifo-skip", "drf"])
def test_what_is_left_of_an_exclusive_gpu_is_not_free(policy):
    """A reason counts what somebody can have; `Invariants` adds that up from the jobs."""
    nodes = [NodeSpec("n", 2, cpus=8, sharing="exclusive")]
    jobs = [
        job("a", 0.5, 100), job("b", 1, 100, at=1), job("part", 0.5, 30, at=2),
        job("with cpus", 0.4, 30, at=3, cpus=1),
    ]  # fmt: skip
    made = build(make_policy(policy), jobs, nodes)
    made.run()
    log = made.log.frame()
    waits = log.filter(log["event"] == "reason", log["time_s"] < 100)
    assert waits["value"].to_list() == [Reason.CAPACITY] * 2
    assert [made.jobs[number].first_start_s for number in range(4)] == [0, 1, 100, 101]


def test_modes_may_differ_within_a_node():
    nodes = [NodeSpec("n", 2, sharing=("exclusive", "timeslice"))]
    assert ends(build(on(1), [job("a", 1, 10), job("b", 1, 10)], nodes)) == {"a": 20.0, "b": 20.0}
    with pytest.raises(ClusterSpecError, match="lists 1 modes for 2 GPUs"):
        Topology([NodeSpec("n", 2, sharing=("mps",))])
    with pytest.raises(ClusterSpecError, match="'magic'"):
        Topology([NodeSpec("n", 2, sharing="magic")])


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["consolidate", "count"])
@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "las", "easy", "drf"])
def test_memory_keeps_parts_of_gpus_apart(policy, placement):
    nodes = [NodeSpec("n", 1, gpu_mem_gib=80)]
    jobs = [job(name, 0.3, 10, gpu_mem_gib=50) for name in "abc"]
    made = build(make_policy(policy), jobs, nodes, placement=placement)
    assert sorted(ends(made).values()) == [10.0, 20.0, 30.0]


def test_what_nobody_declared_is_an_error():
    made = build(make_policy("fifo"), [job("a", 1, 10, gpu_mem_gib=99)], [NodeSpec("n", 1)])
    made.run()
    assert made.jobs[0].phase == 7  # rejected
    text = next(iter(made.log.frame().filter(made.log.frame()["event"] == "rejected")["text"]))
    assert "no node says how much memory its GPUs have" in text
    strange = on(0, extra=[("fairy_dust", 1.0)])
    with pytest.raises(InvalidPlanError, match=r"fairy_dust.*no such kind of resource"):
        build(strange, [job("a", 1, 10)], [NodeSpec("n", 1)]).run()


def reasons(made, name):
    """Why a job waited, in the order of the log."""
    made.run()
    stories = Stories(made.log.frame())
    told = stories.tell(stories.ids.index(name))
    return {part.reason: part.seconds for part in told.parts}, told


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "easy"])
def test_who_lacks_only_gpu_memory_is_told_so(policy):
    nodes = [NodeSpec("n", 1, gpu_mem_gib=80)]
    jobs = [job("a", 0.5, 10, gpu_mem_gib=50), job("b", 0.25, 10, gpu_mem_gib=50)]
    found, told = reasons(build(make_policy(policy), jobs, nodes), "b")
    assert found == {"memory": 10.0}
    assert "for want of GPU memory (0.25 GPUs, 50 GiB of each GPU's memory)" in told.text


@pytest.mark.parametrize("policy", ["fifo-skip", "olympian", "salus", "kubeshare"])
def test_memory_is_the_reason_as_long_as_memory_is_what_lacks(policy):
    mode = {"fifo-skip": "fraction", "kubeshare": "fraction"}.get(policy, "timeslice")
    nodes = [NodeSpec("n", 1, gpu_mem_gib=80, sharing=mode)]
    jobs = [job("a", 0.5, 10, gpu_mem_gib=50), job("b", 0.5, 10, gpu_mem_gib=50)]
    if mode == "timeslice":  # more compute than there is may be given away, but no memory
        jobs.append(job("c", 0.75, 10, gpu_mem_gib=20))
    found, _ = reasons(build(make_policy(policy), jobs, nodes), "b")
    assert set(found) == {"memory"}


def test_compute_that_is_short_is_not_called_memory():
    nodes = [NodeSpec("n", 1, gpu_mem_gib=80, sharing="fraction")]
    jobs = [job("a", 0.75, 10, gpu_mem_gib=10), job("b", 0.5, 10, gpu_mem_gib=10)]
    for policy in ("fifo-skip", "kubeshare"):
        found, _ = reasons(build(make_policy(policy), jobs, nodes), "b")
        assert set(found) == {"capacity"}


@pytest.mark.parametrize("mode", ["", "fraction", "timeslice", "mps"])
def test_two_jobs_of_99_gib_are_not_on_one_gpu(mode):
    nodes = [NodeSpec("n", 1, gpu_mem_gib=100, sharing=mode)]
    jobs = [job("a", 0.3, 10, gpu_mem_gib=99), job("b", 0.3, 10, gpu_mem_gib=99)]
    with pytest.raises(InvalidPlanError, match="198 of 100 GiB"):
        build(on(0, 0.3), jobs, nodes).run()


def test_memory_of_steps_is_needed_once_in_turns():
    three = [job(f"j{i}", 1, 10, gpu_mem_gib=30, gpu_mem_step_gib=25) for i in range(3)]
    assert ends(build(on(0), three, SLICED)) == {"j0": 30.0, "j1": 30.0, "j2": 30.0}
    at_once = [NodeSpec("n", 1, gpu_mem_gib=40, sharing="mps")]
    with pytest.raises(InvalidPlanError, match="60 of 40 GiB"):
        build(on(0), three, at_once).run()


def test_a_job_has_the_memory_that_it_asks_for():
    less = on(0, extra=[(GPU_MEM, 5.0)])
    with pytest.raises(InvalidPlanError, match="asks for 10 GiB of GPU memory and is given 5"):
        build(less, [job("a", 1, 10, gpu_mem_gib=10)], SLICED).run()


parts = st.builds(
    GpuPart,
    gpus=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    mem_gib=st.integers(0, 60).map(float),
    step_gib=st.integers(0, 30).map(float),
)


@given(mode=st.sampled_from(["", "exclusive", "fraction", "timeslice", "mps"]),
       some=st.lists(parts, min_size=1, max_size=5))  # fmt: skip
@settings(deadline=None)
def test_the_rule_and_the_invariants_agree_on_memory(mode, some):
    """What the rule lets pass, the invariants (which add up by themselves) let pass, too."""
    topology = Topology([NodeSpec("n", 1, gpu_mem_gib=80, sharing=mode)])
    gpu = topology.vertices[topology.devices(topology.nodes[0].id)[0]]
    held = [
        Allocation(
            [(gpu.id, part.gpus)],
            [(gpu.id, GPU_MEM, part.mem_gib), (gpu.id, "gpu_mem_step_gib", part.step_gib)],
        )
        for part in some
    ]
    capacity = CapacityCheck(topology)
    capacity.changed()
    fine = not conflict(mode, 80.0, some)
    seen = [*capacity.misused(("j", each) for each in held), *capacity.exceeded(held)]
    assert fine == (not seen)


def test_a_rule_that_forgets_memory_is_caught(monkeypatch):
    monkeypatch.setattr(occupancy, "conflict", lambda *_: "")
    nodes = [NodeSpec("n", 1, gpu_mem_gib=100, sharing="mps")]
    jobs = [job("a", 1, 10, gpu_mem_gib=99), job("b", 1, 10, gpu_mem_gib=99)]
    with pytest.raises(InvariantError, match=r"198 (gpu_mem_gib|GiB of its memory) are given away"):
        build(on(0), jobs, nodes).run()


# --- MIG ------------------------------------------------------------------------------------------


def instances(layout, places):
    """Jobs by name on instances of one layout."""

    def where(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[0]
        return Allocation([(place, job.gpus)], [(place, f"mig {places[job.id]} of {layout}", 1.0)])

    return where


MIG = [NodeSpec("n", 1, "a100", gpu_mem_gib=40, sharing="mig")]


def test_instances_do_not_disturb_each_other():
    where = instances("4g.20gb@0+3g.20gb@4", {"a": "4g.20gb@0", "b": "3g.20gb@4"})
    made = build(where, [job("a", 0.5, 10), job("b", 0.4, 10)], MIG)
    assert ends(made) == {"a": 10.0, "b": 10.0}


@pytest.mark.parametrize(
    ("layout", "places", "why"),
    [
        ("2g.10gb@1", {"a": "2g.10gb@1", "b": "2g.10gb@1"}, "no place of an instance"),
        ("3g.20gb@0+4g.20gb@0", {"a": "3g.20gb@0", "b": "4g.20gb@0"}, "overlaps"),
        ("3g.20gb@0+3g.20gb@4", {"a": "3g.20gb@0", "b": "3g.20gb@0"}, "twice"),
        ("1g.5gb@0+3g.20gb@4", {"a": "1g.5gb@0", "b": "3g.20gb@4"}, "more than 1g.5gb@0 has"),
    ],
)
def test_what_the_vendor_does_not_allow(layout, places, why):
    with pytest.raises(InvalidPlanError, match=why):
        build(instances(layout, places), [job("a", 0.4, 10), job("b", 0.4, 10)], MIG).run()


def test_a_gpu_is_divided_anew_only_when_it_is_empty():
    def where(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[0]
        layout = "3g.20gb@0+3g.20gb@4" if job.id == "a" else "3g.20gb@0+2g.10gb@4"
        mine = "3g.20gb@0" if job.id == "a" else "2g.10gb@4"
        return Allocation([(place, job.gpus)], [(place, f"mig {mine} of {layout}", 1.0)])

    with pytest.raises(InvalidPlanError, match="divided anew only when it is empty"):
        build(where, [job("a", 0.4, 10), job("b", 0.2, 10)], MIG).run()
    one_by_one = [job("a", 0.4, 10), job("b", 0.2, 10, at=20.0)]
    assert ends(build(where, one_by_one, MIG)) == {"a": 10.0, "b": 30.0}


def test_the_table_of_the_a100():
    starts = {profile.name: profile.starts for profile in MIG_TABLES["a100-40gb"]}
    assert starts == {
        "1g.5gb": (0, 1, 2, 3, 4, 5, 6), "1g.10gb": (0, 2, 4, 6), "2g.10gb": (0, 2, 4),
        "3g.20gb": (0, 4), "4g.20gb": (0,), "7g.40gb": (0,),
    }  # fmt: skip
    larger = {profile.name: profile.starts for profile in MIG_TABLES["a100-80gb"]}
    assert larger == {
        "1g.10gb": (0, 1, 2, 3, 4, 5, 6), "1g.20gb": (0, 2, 4, 6), "2g.20gb": (0, 2, 4),
        "3g.40gb": (0, 4), "4g.40gb": (0,), "7g.80gb": (0,),
    }  # fmt: skip
    assert len(read_layout("+".join(f"1g.5gb@{i}" for i in range(7)), "a100")) == 7


@pytest.mark.parametrize(
    ("gpu_type", "profile"),
    [
        ("a100", "1g.5gb"), ("A100", "1g.5gb"), ("a100-40gb", "1g.5gb"), ("a100-80gb", "1g.10gb"),
        ("h100", "1g.10gb"), ("h100-80gb", "1g.10gb"), ("a100-sxm4-40gb", "1g.5gb"),
        ("NVIDIA-A100-SXM4-80GB", "1g.10gb"), ("h100-80gb-hbm3", "1g.10gb"),
        ("nvidia-h100-pcie", "1g.10gb"),
    ],
)  # fmt: skip
def test_types_as_machines_tell_them(gpu_type, profile):
    assert mig_profiles(gpu_type)[0].name == profile


@pytest.mark.parametrize("gpu_type", ["k80", "", "ga100", "a1000", "h100-40gb", "a100-20gb"])
def test_what_cannot_be_divided_is_named(gpu_type):
    with pytest.raises(ClusterSpecError, match=r"node 'n': sharing is mig: .*a100-40gb") as error:
        Topology([NodeSpec("n", 1, gpu_type, sharing="mig")])
    assert (repr(gpu_type) if gpu_type else "give gpu_type") in str(error.value)
    Topology([NodeSpec("g", 1, "a100", sharing="mig"), NodeSpec("c", 0, cpus=4, sharing="mig")])


# --- other kinds ----------------------------------------------------------------------------------


def asking(name, gpus, work, **kinds):
    spec, how = job(name, gpus, work)
    group = replace(spec.request.groups[0], resources=tuple(sorted(kinds.items())))
    return replace(spec, request=replace(spec.request, groups=(group,))), how


def test_a_declared_kind_limits_and_comes_back():
    nodes = [NodeSpec("n", 4, resources=(("licence", 1.0),))]
    jobs = [asking("a", 1, 10, licence=1), asking("b", 1, 10, licence=1), asking("c", 1, 10)]
    made = build(make_policy("fifo-skip"), jobs, nodes, kinds=[ResourceKind("licence", "seat")])
    assert ends(made) == {"a": 10.0, "b": 20.0, "c": 10.0}


def test_a_budget_is_used_up():
    nodes = [NodeSpec("n", 4, resources=(("tokens", 2.0),))]
    jobs = [asking(name, 1, 10, tokens=1) for name in "abc"]
    kinds = [ResourceKind("tokens", "token", renewable=False)]
    made = build(make_policy("fifo-skip"), jobs, nodes, kinds=kinds)
    made.run(until_s=100.0)
    assert [job.phase for job in made.jobs.values()] == [5, 5, 1]  # the third waits for ever


def test_a_compressible_kind_forbids_nothing():
    nodes = [NodeSpec("n", 4, resources=(("net", 1.0),))]
    kinds = [ResourceKind("net", "Gb/s", compressible=True)]
    jobs = [asking(name, 1, 10, net=1) for name in "ab"]
    assert ends(build(make_policy("fifo"), jobs, nodes, kinds=kinds)) == {"a": 10.0, "b": 10.0}


# --- terms ----------------------------------------------------------------------------------------


def test_terms_change_without_a_restart():
    nodes = [NodeSpec("n", 1, sharing="mps")]

    def where(job, view):
        place = view.topology.devices(view.topology.nodes[0].id)[0]
        return Allocation([(place, 1)], [(place, LIMIT, 0.5 if view.now_s < 30 else 1.0)])

    costs = Custom(FixedParams(start_s=10.0, stop_s=5.0))
    made = build(Explicit(where, wake_at=[30.0]), [job("a", 1, 30)], nodes, costs=costs)
    assert ends(made) == {"a": 50.0}  # 10 to start, 10 of work until 30, then 20
    (only,) = made.jobs.values()
    assert (only.migrations, only.preemptions) == (0, 0)
    log = made.log.frame()
    moves = log.filter(log["event"] == "move")
    assert list(moves["other"]) == [only.index]


def test_a_shared_gpu_counts_once_in_the_ledger():
    made = build(on(0), [job("a", 1, 10), job("b", 1, 10), job("c", 1, 40)], SLICED)
    made.run()
    made.finish()
    ledger = fold_ledger(made.log.frame())
    assert ledger["capacity_gpu_s"] == pytest.approx(60.0)
    assert ledger["useful_gpu_s"] == ledger["allocated_gpu_s"] == pytest.approx(60.0)
    assert ledger["idle_gpu_s"] == pytest.approx(0.0)


# --- switches, sets, planted mistakes, and no cost where nobody shares ----------------------------


def test_pipelined_switches_cost_less_than_whole_ones():
    big = [job(name, 1, 10, gpu_mem_gib=12) for name in "ab"]
    fixed, pipelined, whole = (
        ends(build(on(0), big, SLICED, switch=switch, quantum_s=1.0, step_s=1.0))["a"]
        for switch in ("fixed", "pipelined", "whole")
    )
    assert fixed == 20.0
    assert pipelined == pytest.approx(20.0 * 1.1)  # a tenth of the model, 1.2 GiB at 12 GiB/s
    assert whole == pytest.approx(20.0 * 2.0)


@pytest.mark.parametrize(
    ("rule", "factor"), [("product", 0.4), ("max-min", 1 / (1 + 1 + 0.25)), ("roofline", 0.5)]
)
def test_sets_by_a_rule_from_pairs(rule, factor):
    assert combined([0.5, 0.8], rule) == pytest.approx(factor)
    assert combined([0.5], rule) == pytest.approx(0.5)


def test_more_than_two_jobs_by_a_table_of_pairs(tmp_path):
    table = write_table(
        tmp_path / "table.json",
        {("m", 1): (1.0, 1.0)},
        {(("m", 1), ("m", 1)): (0.5, 0.5)},
    )
    topology = Topology([NodeSpec("n", 1, "v100", sharing="mps")])
    jobs = [job(name, 1, 10) for name in "abc"]
    jobs = [(replace(spec, model="m"), how) for spec, how in jobs]
    made = Engine(
        SimCluster(topology, Zero(), PairRates(topology, PairsParams(table=table))),
        compose(Explicit(on(0)), PLACEMENTS["consolidate"](topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=TenantTree(()),
        checker=Invariants(),
    )
    assert ends(made) == pytest.approx(dict.fromkeys("abc", 40.0))


def test_a_placement_that_forgets_memory_is_caught(monkeypatch):
    monkeypatch.setattr(Room, "welcome", lambda *_: True)
    nodes = [NodeSpec("n", 1, gpu_mem_gib=80)]
    jobs = [job(name, 0.3, 10, gpu_mem_gib=50) for name in "ab"]
    with pytest.raises(InvariantError, match=r"100 (gpu_mem_gib|GiB of its memory) are given away"):
        build(make_policy("fifo"), jobs, nodes).run()


def test_sharing_off_costs_nothing(monkeypatch):
    """Without modes and GPU memory, none of the code for them is called, also for parts of GPUs."""

    def never(*_):
        raise AssertionError("called where nobody shares")

    monkeypatch.setattr(Room, "welcome", never)
    for name in ("conflict", "parts_of"):
        monkeypatch.setattr(occupancy, name, never)
    jobs = [
        job(f"j{i}", gpus, 10, at=float(i)) for i, gpus in enumerate([0.3, 0.3, 0.5, 1, 2, 0.2])
    ]
    costs = Custom(FixedParams(start_s=1.0, stop_s=1.0))
    for policy in ("fifo", "srtf", "drf"):
        made = build(make_policy(policy), jobs, [NodeSpec("n", 2)], costs=costs)
        assert max(ends(made).values()) < 100
