"""VC safety: whatever is asked for, fails and comes back, every promise can still be kept."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hived_play import PINNED, Player, configs
from rota.policies.hived.algorithm import EVERYWHERE, Phase, Preempt
from rota.policies.hived.cells import FREE
from rota.policies.hived.groups import BindInfo

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
MOVES = ["submit", "submit", "submit", "end", "push", "give up", "bad", "healthy"]


def move(data, player):
    """Play one random move."""
    what = data.draw(st.sampled_from(MOVES))
    groups = sorted({pod.rpartition("-")[0] for pod in player.running})
    if what == "submit":
        submit(data, player)
    elif what == "end" and groups:
        player.end(data.draw(st.sampled_from(groups)))
    elif what == "push" and player.waiting:
        player.push(data.draw(st.sampled_from(sorted(player.waiting))))
    elif what == "give up" and player.waiting:
        player.give_up(data.draw(st.sampled_from(sorted(player.waiting))))
    elif what == "bad":
        player.hived.set_bad(data.draw(st.sampled_from(player.nodes)))
    elif what == "healthy":
        player.hived.set_healthy(data.draw(st.sampled_from(player.nodes)))
    player.settle()


def submit(data, player):
    """Ask for a random group."""
    spec = player.request(
        data.draw(st.sampled_from(sorted(player.hived.cells.vcs))),
        data.draw(st.integers(-1, 3)),
        data.draw(SIZES),
        lazy=data.draw(st.booleans()),
        anywhere=data.draw(st.booleans()),
    )
    if spec.virtual_cluster == "vc0" and player.hived.cells.pinned and data.draw(st.booleans()):
        spec = msgspec.structs.replace(spec, pinned_cell_id=PINNED)
    suggested = EVERYWHERE
    if data.draw(st.booleans()):
        suggested = set(data.draw(st.lists(st.sampled_from(player.nodes), unique=True)))
    player.submit(spec, suggested, data.draw(st.sampled_from(Phase)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_promises_can_be_kept_after_every_move(data):
    player = Player(data.draw(configs()))
    player.settle()
    for _ in range(data.draw(st.integers(1, 25))):
        move(data, player)
    assert all(book.is_safe() for book in player.hived.books.values())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_tenant_gets_every_free_promised_cell_once_the_nodes_are_back(data):
    player = Player(data.draw(configs()))
    for _ in range(data.draw(st.integers(1, 20))):
        move(data, player)
    hived = player.hived
    for group in sorted(player.waiting):
        player.give_up(group)
    for node in player.nodes:
        hived.set_healthy(node)
    player.settle()
    promised = [
        top
        for vc in hived.cells.vcs.values()
        for by_level in vc.free_tops.values()
        for tops in by_level.values()
        for top in tops
        if top.priority == FREE
    ]
    for top in promised:
        sizes = node_sizes(hived, top)
        leaf = hived.cells.levels[top.chain].leaf
        spec = player.request(top.vc, 0, sizes, leaf=leaf)
        decision = player.submit(spec)
        assert isinstance(decision, BindInfo | Preempt), (top, decision)
        if isinstance(decision, Preempt):
            victims = {pod.rpartition("-")[0] for pod in decision.victims}
            assert all(hived.groups[group].virtual is None for group in victims)
            assert isinstance(player.push(spec.affinity_group.name), BindInfo)
        player.settle()


def node_sizes(hived, top):
    """Sizes of pods that fill a promised cell: one for each node in it."""
    nodes = [cell for cell in top.below() if cell.at_node]
    lowest = min((cell.level for cell in nodes), default=top.level)
    filled = [cell.leaves for cell in top.below() if cell.level == min(lowest, top.level)]
    assert sum(filled) == top.leaves
    assert hived.cells.vcs[top.vc]
    return filled
