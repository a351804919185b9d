"""VC safety: whatever is asked for, fails and comes back, every promise can still be kept."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived_play import Player, move, random_config
from rota.policies.hived import preemption
from rota.policies.hived.algorithm import Preempt
from rota.policies.hived.cells import FREE
from rota.policies.hived.free_cells import FreeCells
from rota.policies.hived.mapping import Trial
from rota.policies.hived.pods import BindInfo


def played(seed, most):
    """Return a random cluster after random moves; promises were checked after each of them."""
    rng = Random(seed)  # noqa: S311 - not a secret
    player = Player(random_config(rng))
    player.settle()
    for _ in range(rng.randint(1, most)):
        move(rng, player)
    return player


@settings(max_examples=5 * settings().max_examples)
@given(st.integers(0, 1 << 32))
def test_promises_can_be_kept_after_every_move(seed):
    player = played(seed, 40)
    assert all(free_cells.is_safe() for free_cells in player.hived.free_cells.values())


@settings(max_examples=2 * settings().max_examples)
@given(st.integers(0, 1 << 32))
def test_a_tenant_gets_every_free_promised_cell_once_the_nodes_are_back(seed):
    player = played(seed, 25)
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


ALLOCATE = FreeCells.allocate


def split_without_regard(trial):
    """How many cells can be split: all of them, whoever was promised some."""
    return [len(cells) for cells in trial.free]


def allocate_without_regard(free_cells, cell, vc, *, doomed=False):
    """Give a cell away and say that it is safe."""
    ALLOCATE(free_cells, cell, vc, doomed=doomed)
    return True


def never_merge(free_cells, cell):
    """Free cells stay as small as they are."""
    free_cells.free[cell.level].add(cell)
    return cell.level


PLANTED = {
    "promises": [
        (Trial, "_spare", split_without_regard),
        (FreeCells, "allocate", allocate_without_regard),
    ],
    "buddies": [(FreeCells, "_give_back", never_merge)],
    "use": [(FreeCells, "end_use", lambda _free_cells, _cell, _vc: None)],
    "reservations": [(preemption, "cancel", lambda _books, _group: None)],
    "doomed": [(FreeCells, "doom", lambda _free_cells, _level: None)],
    "repairs": [(FreeCells, "spare", lambda _free_cells, _level: None)],
}


def search_for_trouble():
    """Play until something is wrong."""
    for seed in range(3_000):
        played(seed, 40)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(monkeypatch, bug):
    for where, name, wrong in PLANTED[bug]:
        monkeypatch.setattr(where, name, wrong)
    with pytest.raises((AssertionError, KeyError)):
        search_for_trouble()
