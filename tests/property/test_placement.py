"""What the engine relies on, for every placement on every kind of cluster."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placement_cases import ON_NODES, SKEWED_LABEL, Maker, PooledCount, check_books, steps_of
from rota.core.allocation import Allocation
from rota.core.jobs import Request
from rota.core.topology import NodeSpec, Topology

TYPES = ["", "v100", "k80"]
LABELS = ["fast", "quiet"]


@st.composite
def clusters(draw):
    """Return anything from one bare node to racks of unequal nodes of several types."""
    rich = draw(st.booleans())
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True))
    specs = []
    for number in range(draw(st.integers(1, 6))):
        path = draw(st.sampled_from([(), ("r0",), ("r1",), ("r1", "s0"), ("r1", "s1")]))
        specs.append(
            NodeSpec(
                f"n{number}",
                draw(st.integers(0, 4)),
                draw(st.sampled_from(types)),
                draw(st.sampled_from([0.0, 3.0, 8.0])) if rich else 0.0,
                draw(st.sampled_from([0.0, 4.0, 16.0])) if rich else 0.0,
                path,
                tuple(draw(st.lists(st.sampled_from(LABELS), max_size=2, unique=True))),
            )
        )
    return Topology(specs, ("rack", "switch"))


REQUESTS = st.builds(
    Request.of,
    st.sampled_from([0, 0.25, 0.5, 0.6, 1, 1, 2, 3, 4, 5, 7, 8, 11]),
    gpu_types=st.sampled_from([(), (), ("v100",), ("v100", "k80")]),
    cpus=st.sampled_from([0.0, 0.0, 1.0, 2.5, 6.0]),
    mem_gib=st.sampled_from([0.0, 0.0, 1.0, 7.0]),
    labels=st.sampled_from([(), (), ("fast",), (SKEWED_LABEL,)]),
)

STEPS = st.builds(
    lambda seed, length: steps_of(seed, length, ["take", "take", "take", "take", "give", "node"]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 25),
)


def driven(kind, topology, requests, steps, seed=0):
    """Return a placement in some state that it reached itself, its maker and the running jobs."""
    placement = kind(topology, seed=seed)
    maker = Maker()
    running = []
    down = set()
    for step, number, _ in steps:
        shape = maker.shape(requests[number % len(requests)])
        if step == "take" and placement.never(shape) is None and placement.fits(shape):
            running.append(maker.start(placement, shape))
        elif step == "give" and running:
            job = running.pop(number % len(running))
            placement.give(job, job.allocation)
        elif step == "node" and number < 30:
            node = topology.nodes[number % len(topology.nodes)]
            down ^= {node.id}
            placement.set_node(node, up=node.id not in down)
            for job in [job for job in running if touches(topology, job, node)]:
                running.remove(job)
                placement.give(job, job.allocation)
    return placement, maker, running, down


def touches(topology, job, node):
    """Tell whether a job is on a node."""
    places = [*job.allocation.vertices, *(vertex for vertex, _, _ in job.allocation.extra)]
    return any(topology.vertices[place].node == node.id for place in places)


def amounts(placement):
    """Return everything that the books say is free."""
    room = placement.room
    near = [round(x, 6) for x in (*room.gpus, *room.cpus, *room.mem_gib, placement.free)]
    return near, {p: {n: round(x, 6) for n, x in s.items()} for p, s in room.shares.items()}


every_placement = pytest.mark.parametrize(
    "kind", [*ON_NODES, PooledCount], ids=lambda kind: kind.__name__
)


@every_placement
@given(
    topology=clusters(),
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    steps=STEPS,
    seed=st.integers(0, 3),
)
def test_nothing_is_given_twice_and_all_comes_back(kind, topology, requests, steps, seed):
    placement, _, running, down = driven(kind, topology, requests, steps, seed)
    check_books(topology, running, pools=kind is PooledCount)
    if kind is not PooledCount:
        for job in running:
            assert not any(touches(topology, job, topology.vertices[node]) for node in down)
    for job in running:
        placement.give(job, job.allocation)
    for node in down:
        placement.set_node(topology.vertices[node], up=True)
    assert amounts(placement) == amounts(kind(topology))


@every_placement
@given(
    topology=clusters(),
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    steps=STEPS,
    wanted=REQUESTS,
)
def test_it_fits_if_and_only_if_something_is_chosen(kind, topology, requests, steps, wanted):
    placement, maker, _, _ = driven(kind, topology, requests, steps)
    shape = maker.shape(wanted)
    for job in (None, maker.job(shape), maker.job(shape)):
        chosen = placement.choose(shape, placement.room, job)
        assert (chosen is not None) == placement.fits(shape)
        assert chosen == placement.choose(shape, placement.room, job)
    if placement.never(shape) is not None:
        assert not placement.fits(shape)


@every_placement
@given(
    topology=clusters(),
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    steps=STEPS,
    wanted=REQUESTS,
    data=st.data(),
)
def test_taking_something_away_never_makes_room(kind, topology, requests, steps, wanted, data):
    placement, maker, _, _ = driven(kind, topology, requests, steps)
    shape = maker.shape(wanted)
    assume(not placement.fits(shape))
    room = placement.room
    for _ in range(data.draw(st.integers(1, 4), label="how often")):
        position = data.draw(st.integers(0, len(room.nodes) - 1), label="where")
        node = room.nodes[position]
        what = data.draw(st.sampled_from(["gpus", "part", "extra", "node"]), label="what")
        if what == "node" and kind is not PooledCount:
            placement.set_node(node, up=False)
        elif what == "gpus" and room.gpus[position] >= 1:
            number = data.draw(st.integers(1, int(room.gpus[position])), label="GPUs")
            placement.hold(maker.job(number), Allocation([(node.id, number)]))
        elif (
            what == "part"
            and kind is not PooledCount
            and room.device_for(position, 0.5) is not None
        ):
            device = topology.devices(node.id)[room.device_for(position, 0.5)]
            placement.hold(maker.job(0.5), Allocation([(device, 0.5)]))
        elif what == "extra":
            extra = [(node.id, "cpu", room.cpus[position] / 2)]
            placement.hold(maker.job(0), Allocation([], extra))
        assert not placement.fits(shape)


@every_placement
@given(
    topology=clusters(),
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    steps=STEPS,
    wanted=REQUESTS,
    order=st.randoms(use_true_random=False),
)
def test_the_victims_make_room_and_no_more_jobs_were_looked_at_than_needed(
    kind, topology, requests, steps, wanted, order
):
    placement, maker, running, _ = driven(kind, topology, requests, steps)
    shape = maker.shape(wanted)
    assume(not placement.fits(shape))
    before = amounts(placement)
    order.shuffle(running)
    looked_at = []
    answer = placement.walk(shape, (looked_at.append(job) or job for job in running))
    if not answer:
        assert looked_at == running
        for job in running:
            placement.give(job, job.allocation)
        assert not placement.fits(shape)
        return
    tail = list(placement._tail)
    victims = placement.victims()
    assert amounts(placement) == before
    assert set(map(id, victims)) <= set(map(id, tail))
    # without the last job of the tail there is no room: all the others together do not suffice
    for job in tail[:-1]:
        placement.give(job, job.allocation)
    assert not placement.fits(shape)
    for job in tail[:-1]:
        placement.hold(job, job.allocation)
    for job in victims:
        placement.give(job, job.allocation)
    assert placement.fits(shape)
    job = maker.start(placement, shape)
    check_books(
        topology, [job, *(j for j in running if j not in victims)], pools=kind is PooledCount
    )
