"""Policies that share GPUs: salus, olympian, kubeshare, mig-pack."""

from itertools import combinations_with_replacement, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_sharing import ends, engine, job, running
from rota.core import sharing
from rota.core.errors import InvariantError
from rota.core.jobs import DONE, REJECTED, WAITING
from rota.core.sharing import (
    ALONE,
    APART,
    LIMIT,
    MIG_TABLES,
    mig_profiles,
    parts_of,
    read_layout,
    written,
)
from rota.core.topology import NodeSpec
from rota.models.costs import Custom, FixedParams
from rota.placement.count import count
from rota.policies.mig_pack import divided_for, packed
from rota.testing.naive import NaiveSharer, naive_sharing

SLICED = [NodeSpec("n", 1, gpu_mem_gib=40, sharing="timeslice")]

# --- jobs that placement `count` would let in, but the policy has no place for --------------------

TWO_TYPES = [
    NodeSpec(name, 4, gpu_type=kind, cpus=8)
    for name, kind in (("m", "a100"), ("n", "a100"), ("o", "h100"), ("p", "h100"))
]
MIXED = {"gandiva"}  # a job may have GPUs of several types


@pytest.mark.parametrize(
    "policy", ["antman", "gandiva", "kubeshare", "mig-pack", "olympian", "pooled", "salus"]
)
def test_nobody_waits_for_ever_for_a_place_that_the_policy_does_not_know(policy):
    asked = [
        job("fits", 8, 10, gpu_types=("a100", "h100")),
        job("mixed", 10, 10, gpu_types=("a100", "h100")),
        job("cpus", 1, 10, cpus=9),
        job("small", 0.5, 10),
    ]
    made = engine(policy, asked, TWO_TYPES, placement=count)
    made.run(until_s=1e6)
    done = {each.id for each in made.jobs.values() if each.phase == DONE}
    gone = {each.id for each in made.jobs.values() if each.phase == REJECTED}
    assert done | gone == {"fits", "mixed", "cpus", "small"}
    assert done == {"fits", "small"} | ({"mixed"} if policy in MIXED else set())
    assert f"policy {policy!r} has no place" in str(made.log.frame().to_dicts())


@pytest.mark.parametrize("policy", ["antman", "gandiva", "kubeshare", "salus"])
def test_where_nodes_may_come_nobody_is_turned_away(policy):
    asked = [job("mixed", 10, 10), job("cpus", 1, 10, cpus=9)]
    made = engine(policy, asked, TWO_TYPES[:2], placement=count, patient=True)
    made.run(until_s=1e6)
    assert [each.phase for each in made.jobs.values()] == [WAITING, WAITING]


@pytest.mark.parametrize("policy", ["antman", "gandiva", "kubeshare", "salus"])
def test_who_finds_no_place_beside_others_waits(policy):
    asked = [job("first", 8, 10), job("second", 8, 10, at=1)]
    made = engine(policy, asked, [NodeSpec("m", 4), NodeSpec("n", 4)], placement=count)
    made.run(until_s=1e6)
    assert [each.phase for each in made.jobs.values()] == [DONE, DONE]


# --- any policy, any mode: memory -----------------------------------------------------------------

nodes = st.lists(
    st.builds(
        lambda gpus, mode, mem: (gpus, mode, mem),
        st.integers(1, 3),
        st.sampled_from(["", "exclusive", "fraction", "timeslice", "mps", "mig"]),
        st.sampled_from([40.0, 80.0]),
    ),
    min_size=1,
    max_size=3,
)
jobs = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.25, 0.5, 1, 1, 2]),
        st.integers(1, 50),
        st.integers(0, 60),
        st.sampled_from([0, 0, 5, 20, 40]),
        st.sampled_from([0, 0.25, 0.5, 1.0]),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=12,
)
SHARING = [
    "salus:inside=fifo", "salus:inside=srtf", "salus:inside=fair", "salus:inside=pack",
    "olympian", "olympian:slices=weighted", "olympian:slices=priority", "kubeshare", "mig-pack",
    "antman", "pooled", "gandiva", "fifo-skip", "srtf", "drf",
]  # fmt: skip


@pytest.mark.parametrize("policy", SHARING)
@given(shape=nodes, work=jobs)
@settings(deadline=None)
def test_memory_is_never_exceeded(policy, shape, work):
    """In every mode, under every policy: the invariants add up after every batch."""
    machines = [
        NodeSpec(f"n{i}", gpus, "a100" if mem == 40 else "a100-80gb", gpu_mem_gib=mem, sharing=mode)
        for i, (gpus, mode, mem) in enumerate(shape)
    ]
    submitted = [
        job(
            f"j{i}", gpus, float(length), at=float(at), gpu_mem_gib=float(mem),
            gpu_mem_step_gib=mem * part, spec={"priority": priority},
        )
        for i, (gpus, length, at, mem, part, priority) in enumerate(work)
    ]  # fmt: skip
    made = engine(policy, submitted, machines)
    made.run(until_s=1e6)
    stuck = [each.id for each in made.jobs.values() if each.phase not in (5, 7)]
    assert not stuck


# --- salus ----------------------------------------------------------------------------------------


def test_salus_runs_the_shortest_and_switches_for_free():
    costs = Custom(FixedParams(start_s=10.0, stop_s=10.0))
    submitted = [job("long", 1, 100, gpu_mem_gib=10), job("short", 1, 20, at=50.0, gpu_mem_gib=10)]
    made = engine("salus", submitted, SLICED, costs=costs)
    # 40 of `long` are done when `short` comes, starts for 10 s and has the GPU for 20 s
    assert ends(made) == {"long": 140.0, "short": 80.0}
    assert [each.preemptions + each.migrations for each in made.jobs.values()] == [0, 0]


@pytest.mark.parametrize(("inside", "first", "second"), [("fifo", 30, 40), ("fair", 40, 20)])
def test_salus_inside(inside, first, second):
    submitted = [job("a", 1, 30, gpu_mem_gib=10), job("b", 1, 10, gpu_mem_gib=10)]
    made = engine(f"salus:inside={inside}", submitted, SLICED)
    assert ends(made) == {"a": first, "b": second}


def test_salus_waits_for_memory_and_packs_the_fullest():
    two = [NodeSpec("n", 2, gpu_mem_gib=40, sharing="timeslice")]
    submitted = [job(f"j{i}", 1, 10, gpu_mem_gib=18) for i in range(3)]
    packed_on = engine("salus:inside=pack", submitted, two)
    packed_on.run(until_s=1.0)
    places = [each.allocation.vertices[0] for each in packed_on.jobs.values()]
    assert places[0] == places[1] != places[2]


# --- against the naive engine ---------------------------------------------------------------------

MODES = ["", "exclusive", "fraction", "timeslice", "mps"]
sharers = st.lists(
    st.builds(
        NaiveSharer,
        submit_s=st.integers(0, 60).map(float),
        work=st.integers(1, 60).map(float),
        weight=st.integers(1, 5).map(float),
        mem_gib=st.integers(0, 20).map(float),
        gpus=st.sampled_from([0.125, 0.25, 0.5, 1.0, 1.0]),
        step_gib=st.integers(0, 20).map(float),
        uses=st.sampled_from([0.25, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=9,
)


def by_engine(policy, asked, nodes):
    submitted = [
        job(
            f"j{i}", each.gpus, each.work, at=each.submit_s, demand={"compute": each.uses},
            gpu_mem_gib=each.mem_gib + each.step_gib, gpu_mem_step_gib=each.step_gib,
            spec={"priority": int(each.weight)},
        )
        for i, each in enumerate(asked)
    ]  # fmt: skip
    done = ends(engine(policy, submitted, nodes))
    return [done[f"j{i}"] for i in range(len(asked))]


def agree(policy, asked, nodes, naive):
    """The engine and the naive one say the same, unless rounding alone decides who ends first.

    Of two jobs that end at once, but for the last digits of their times, the one that is first may
    leave memory that suffices for a later job only.
    """
    ends = sorted(naive)
    close = [two for one, two in pairwise(ends) if two - one < 1e-9 * two]
    assume(all((64 * end).is_integer() for end in close))  # exact, also as sums of parts
    assert by_engine(policy, asked, nodes) == pytest.approx(naive)


@pytest.mark.parametrize("mode", MODES)
@given(asked=sharers, gpus=st.integers(1, 3))
@settings(deadline=None)
def test_shared_gpus_are_those_of_the_naive_engine(mode, asked, gpus):
    machine = [NodeSpec("n", gpus, gpu_mem_gib=40, sharing=mode)]
    fair = [each._replace(weight=0.0) for each in asked]
    naive = naive_sharing(fair, gpus, mode, 40.0)
    agree("olympian:sharers=0", fair, machine, naive)
    naive = naive_sharing(asked, gpus, mode, 40.0)
    agree("olympian:slices=weighted,sharers=0", asked, machine, naive)


@given(asked=sharers)
@settings(deadline=None)
def test_lanes_are_those_of_the_naive_engine(asked):
    fair = [each._replace(weight=0.0, gpus=1.0) for each in asked]
    naive = naive_sharing(fair, 1, "timeslice", 40.0)
    agree("salus:inside=fair", fair, SLICED, naive)


@pytest.mark.parametrize(
    ("part", "mem_gib", "instances"),
    [(1 / 7, 5, 7), (0.1, 10, 4), (2 / 7, 10, 3), (3 / 7, 20, 2), (0.5, 20, 1), (0.5, 40, 1)],
)
@given(asked=sharers, gpus=st.integers(1, 2))
@settings(deadline=None)
def test_instances_are_those_of_the_naive_engine(part, mem_gib, instances, asked, gpus):
    """Equal jobs, each with an instance: as many GPUs for one job each as there are instances."""
    alike = [each._replace(gpus=part, mem_gib=float(mem_gib), step_gib=0.0) for each in asked]
    naive = naive_sharing(alike, gpus * instances, "exclusive", 40.0)
    machine = [NodeSpec("n", gpus, "a100", gpu_mem_gib=40, sharing="mig")]
    agree("mig-pack", alike, machine, naive)


@pytest.mark.parametrize("mode", ["fraction", "timeslice", "mps"])
def test_a_rule_that_forgets_what_steps_need_differs(monkeypatch, mode):
    """A planted mistake is seen by the naive engine, and by the invariants."""
    monkeypatch.setattr(sharing, "memory_needed", lambda _, parts: sum(p.mem_gib for p in parts))
    asked = [NaiveSharer(0.0, 10.0, mem_gib=10.0, gpus=0.5, step_gib=25.0) for _ in range(2)]
    if mode == "timeslice":
        asked = [each._replace(mem_gib=15.0, step_gib=20.0) for each in asked]
    machine = [NodeSpec("n", 1, gpu_mem_gib=40, sharing=mode)]
    with pytest.raises(InvariantError, match="of its memory are given away"):
        by_engine("olympian:sharers=0", asked, machine)
    assert naive_sharing(asked, 1, mode, 40.0) == [10.0, 20.0]


# --- olympian -------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(deadline=None)
def test_olympian_follows_the_formula(priorities):
    submitted = [
        job(f"j{i}", 1, 60.0 * priority, spec={"priority": priority})
        for i, priority in enumerate(priorities)
    ]
    made = engine("olympian:slices=weighted", submitted, SLICED)
    together = 60.0 * sum(priorities)  # each has work in proportion to its part: all end at once
    assert ends(made) == pytest.approx({f"j{i}": together for i in range(len(priorities))})


def test_olympian_serves_the_highest_priority_first():
    submitted = [
        job("low", 1, 10, spec={"priority": 1}),
        job("high", 1, 10, spec={"priority": 2}),
        job("peer", 1, 10, spec={"priority": 2}),
    ]
    made = engine("olympian:slices=priority", submitted, SLICED)
    assert ends(made) == {"high": 20.0, "peer": 20.0, "low": 30.0}


# --- kubeshare ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.1, 0.2, 0.3, 0.5]),
            st.sampled_from([0.3, 0.6, 1.0]),
            st.integers(5, 40),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=10,
    )
)
@settings(deadline=None)
def test_kubeshare_use_is_between_request_and_limit(asked):
    seen = []

    def look(made):
        for each in running(made):
            limit = next(amount for _, kind, amount in each.allocation.extra if kind == LIMIT)
            used = each.true_rate * each.gpus
            assert each.gpus - 1e-6 <= used <= max(limit, each.gpus) + 1e-6
            seen.append(used)
        for device in made.cluster.topology.devices(made.cluster.topology.nodes[0].id):
            total = sum(
                each.true_rate * each.gpus
                for each in running(made)
                if device in each.allocation.vertices
            )
            assert total <= 1 + 1e-6

    submitted = [
        job(f"j{i}", request, float(work), at=float(at), kinds={LIMIT: limit})
        for i, (request, limit, work, at) in enumerate(asked)
    ]
    ends(engine("kubeshare", submitted, [NodeSpec("n", 2, sharing="mps")], look=look))
    assert seen


def test_kubeshare_uses_what_is_idle():
    nodes = [NodeSpec("n", 1, sharing="fraction")]
    made = engine("kubeshare", [job("a", 0.25, 40.0), job("b", 0.25, 20.0)], nodes)
    # half of the GPU each, which is twice what they ask for; then `a` has all of it
    assert ends(made) == {"a": 15.0, "b": 10.0}


LABELS = [
    f"gpu-{kind}:{name}" for kind in ("affinity", "anti-affinity", "exclusion") for name in "xy"
]


@given(st.lists(st.tuples(st.sets(st.sampled_from(LABELS), max_size=2), st.integers(0, 20)),
                min_size=1, max_size=10))  # fmt: skip
@settings(deadline=None)
def test_kubeshare_labels_are_constraints(asked):
    def look(made):
        on = {}
        for each in made.view.active.values():
            if each.running:
                on.setdefault(each.allocation.vertices[0], []).append(each)
        homes = {}
        for device, here in on.items():
            labels = [set(each.shape.gpu_labels) for each in here]
            for i, one in enumerate(labels):
                for other in labels[i + 1 :]:
                    assert not {x for x in one & other if x.startswith(APART)}
                    excluded = [{x for x in some if x.startswith(ALONE)} for some in (one, other)]
                    assert excluded[0] == excluded[1]
            for label in set().union(*labels):
                if label.startswith("gpu-affinity:"):
                    assert homes.setdefault(label, device) == device

    submitted = [
        job(f"j{i}", 0.2, 10.0, at=float(at), labels=sorted(labels))
        for i, (labels, at) in enumerate(asked)
    ]
    ends(engine("kubeshare", submitted, [NodeSpec("n", 3, sharing="fraction")], look=look))


def test_kubeshare_affinity_begins_on_the_emptiest_gpu():
    nodes = [NodeSpec("n", 2, sharing="fraction")]
    submitted = [job("a", 0.3, 10), job("b", 0.3, 10, labels=["gpu-affinity:x"]), job("c", 0.3, 10)]
    made = engine("kubeshare", submitted, nodes)
    made.run(until_s=1.0)
    a, b, c = (each.allocation.vertices[0] for each in made.jobs.values())
    assert a == c != b


# --- MIG ------------------------------------------------------------------------------------------

A100 = MIG_TABLES["a100-40gb"]
GOOD = [NodeSpec("n", 4, "a100", gpu_mem_gib=40, sharing="mig")]


def all_layouts():
    """Numbers of instances by profile of every layout that the table allows."""
    found = {(0,) * len(A100)}
    edge = {frozenset()}
    while edge:
        following = set()
        for layout in edge:
            for profile in A100:
                for start in profile.starts:
                    more = layout | {(profile.name, start)}
                    try:
                        read_layout("+".join(f"{n}@{s}" for n, s in more), "a100")
                    except ValueError:
                        continue
                    if len(more) > len(layout):
                        following.add(more)
        found |= {tuple(sum(n == p.name for n, _ in each) for p in A100) for each in following}
        edge = following
    return sorted(found)


def optimum(profiles):
    """The fewest GPUs, by an integer programme over layouts."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    layouts = np.array(all_layouts())
    need = [sum(each.name == p.name for each in profiles) for p in A100]
    solved = milp(
        np.ones(len(layouts)),
        constraints=LinearConstraint(layouts.T, lb=need),
        integrality=np.ones(len(layouts)),
        bounds=Bounds(0, len(profiles)),
    )
    return round(solved.fun)


def check_packing(seed):
    dice = Random(seed)  # noqa: S311 - not for secrets
    weights = [dice.random() for _ in A100]
    profiles = dice.choices(A100, weights, k=dice.randint(1, 40))
    gpus = packed(profiles)
    assert sorted(p.name for gpu in gpus for p, _ in gpu) == sorted(p.name for p in profiles)
    for gpu in gpus:
        read_layout(written(tuple(gpu)), "a100")  # raises unless the table allows it
    best = optimum(profiles)
    assert best <= len(gpus) <= best + 1, (seed, [p.name for p in profiles])


def test_packing_is_within_one_gpu_of_the_optimum():
    for seed in range(20):
        check_packing(seed)


@pytest.mark.soak
def test_packing_is_within_one_gpu_of_the_optimum_on_200_cases():
    for seed in range(200):
        check_packing(seed)


def test_every_layout_that_is_made_is_in_the_table():
    for gpu_type in ("a100", "a100-80gb"):
        table = mig_profiles(gpu_type)
        for first, *others in combinations_with_replacement(table, 3):
            layout = divided_for(first, others, gpu_type)
            assert read_layout(written(layout), gpu_type) == layout
            assert first in [profile for profile, _ in layout]


def test_mig_pack_uses_few_gpus_and_divides_anew_when_empty():
    submitted = [job(f"a{i}", 0.5, 10) for i in range(2)] + [
        job(f"b{i}", 0.4, 10) for i in range(2)
    ]
    submitted += [job(f"c{i}", 0.1, 10, at=20.0) for i in range(14)]
    made = engine("mig-pack", submitted, GOOD)
    layouts = []

    def look(made):
        parts = [parts_of(each.allocation) for each in made.view.active.values() if each.running]
        layouts.append({(gpu, part.layout) for each in parts for gpu, part in each.items()})

    made.checker.look = look
    assert set(ends(made).values()) == {10.0, 30.0}
    first, last = layouts[0], next(each for each in reversed(layouts) if each)
    assert {layout for _, layout in first} == {"4g.20gb@0+3g.20gb@4"}
    assert len(first) == len(last) == 2
    assert {layout for _, layout in last} == {"+".join(f"1g.5gb@{i}" for i in range(7))}


def test_mig_pack_respects_memory_and_whole_gpus():
    submitted = [
        job("large", 0.1, 10, gpu_mem_gib=15),
        job("whole", 2, 10),
        job("never", 0.1, 10, gpu_mem_gib=41),
    ]
    made = engine("mig-pack", submitted, GOOD)
    assert ends(made) == {"large": 10.0, "whole": 10.0, "never": 0.0}
    ((_, part),) = parts_of(made.jobs[0].allocation).items()
    assert part.instance.startswith("3g.20gb@")
