"""Random clusters for HiveD, and a driver that plays requests, failures and repairs on them."""

import msgspec

from rota.core.errors import ClusterSpecError, RequestError
from rota.policies.hived.algorithm import EVERYWHERE, Hived, HivedPhase, Preempt
from rota.policies.hived.cells import FREE, CellState, GroupState
from rota.policies.hived.config import load_config
from rota.policies.hived.pods import (
    LOWEST_GUARANTEED,
    OPPORTUNISTIC,
    BindInfo,
    GroupSpec,
    Member,
    PodSpec,
)

PINNED = "pin"


def random_config(rng):
    """Return one or two chains of random trees, and promises that fit; often nothing is left."""
    return _racks_and_nodes(rng) if rng.random() < 0.3 else _any_config(rng)


def _racks_and_nodes(rng):
    """Return racks for one tenant, single nodes of the others for another."""
    racks, nodes, gpus = rng.randint(2, 4), rng.randint(2, 3), rng.randint(1, 2)
    whole = rng.randint(1, racks - 1)
    single = rng.randint(1, (racks - whole) * nodes)
    names = [[{"cellAddress": f"n{r}-{n}"} for n in range(nodes)] for r in range(racks)]
    types = {
        "node": {"childCellType": "gpu", "childCellNumber": gpus, "isNodeLevel": True},
        "rack": {"childCellType": "node", "childCellNumber": nodes},
    }
    cells = [{"cellType": "rack", "cellChildren": children} for children in names]
    return {
        "physicalCluster": {"cellTypes": types, "physicalCells": cells},
        "virtualClusters": {
            "vc0": {"virtualCells": [{"cellType": "rack", "cellNumber": whole}]},
            "vc1": {"virtualCells": [{"cellType": "rack.node", "cellNumber": single}]},
        },
    }


def _any_config(rng):
    types, cells, promises = {}, [], {f"vc{number}": [] for number in range(rng.randint(1, 3))}
    for chain in range(rng.randint(1, 2)):
        fans = [rng.choice((1, 2, 2, 3)) for _ in range(rng.randint(1, 4))]
        node_level = rng.randint(1, len(fans))
        names = [f"leaf{chain}", *(f"c{chain}l{level}" for level in range(1, len(fans) + 1))]
        for level, fan in enumerate(fans, 1):
            types[names[level]] = {
                "childCellType": names[level - 1],
                "childCellNumber": fan,
                "isNodeLevel": level == node_level,
            }
        tops = rng.randint(1, 4)
        first = len(cells)
        cells += [{"cellType": names[-1]} for _ in range(tops)]
        _name_nodes(cells[first:], fans, node_level, chain)
        _promise(rng, promises, names, [0, *fans], tops)
    description = {
        "physicalCluster": {"cellTypes": types, "physicalCells": cells},
        "virtualClusters": {
            vc: {
                "virtualCells": [
                    {"cellType": way, "cellNumber": number} for way, number in held if number
                ]
            }
            for vc, held in promises.items()
        },
    }
    if rng.random() < 0.6:
        _pin(rng, description)
    return description


def _pin(rng, description):
    """Pin a cell for the first tenant, if that breaks no promise."""
    cell = rng.choice(description["physicalCluster"]["physicalCells"])
    cell = rng.choice([cell, *cell.get("cellChildren", [])])
    owner = description["virtualClusters"]["vc0"]
    cell["pinnedCellId"] = PINNED
    owner["pinnedCells"] = [{"pinnedCellId": PINNED}]
    if not fits(description):
        del cell["pinnedCellId"], owner["pinnedCells"]


def _name_nodes(tops, fans, node_level, chain):
    """Nodes of different cells need different names."""
    for place, top in enumerate(tops):
        level, cells = len(fans), [top]
        while level > node_level:
            for cell in cells:
                cell["cellChildren"] = [{} for _ in range(fans[level - 1])]
            cells = [child for cell in cells for child in cell["cellChildren"]]
            level -= 1
        for number, cell in enumerate(cells):
            cell["cellAddress"] = f"n{chain}-{place}-{number}"


def _promise(rng, promises, names, fans, available):
    for level in range(len(names) - 1, -1, -1):
        way = names[-1] if level == len(names) - 1 else f"{names[-1]}.{names[level]}"
        for held in promises.values():
            most = min(available, 6)
            number = rng.choice((0, 0, min(most, 1), rng.randint(0, most), most))
            held.append((way, number))
            available -= number
        available *= fans[level]


class Player:
    """Plays moves on a HiveD and remembers what a cluster would know."""

    def __init__(self, data):
        self.hived = Hived(load_config(data))
        self.nodes = sorted(self.hived.cells.on_node)
        for node in self.nodes:
            self.hived.set_healthy(node)
        self.running = {}
        """Pods with their request and their place."""
        self.waiting = {}
        """Groups that preempt, with their request."""
        self.number = 0

    def request(self, vc, priority, sizes, *, lazy=False, anywhere=True, leaf=""):
        """Return a request of a new group with pods of these sizes."""
        self.number += 1
        members = tuple(Member(1, size) for size in sizes)
        group = GroupSpec(f"g{self.number}", members)
        return PodSpec(
            vc, priority, sizes[0], leaf, lazy_preemption_enable=lazy,
            ignore_k8s_suggested_nodes=anywhere, affinity_group=group,
        )  # fmt: skip

    def submit(self, spec, suggested=EVERYWHERE, phase=HivedPhase.PREEMPTING):
        """Ask for a group; start all its pods if it may."""
        name = spec.affinity_group.name
        try:
            decision = self.hived.schedule(f"{name}-0", spec, suggested, phase)
        except RequestError:
            return None
        if isinstance(decision, BindInfo):
            self._start(spec, decision)
        elif isinstance(decision, Preempt) and phase is HivedPhase.PREEMPTING:
            self.waiting[name] = spec
        return decision

    def _start(self, spec, first):
        name, group = spec.affinity_group.name, spec.affinity_group
        self.waiting.pop(name, None)
        for number, member in enumerate(group.members):
            pod, size = f"{name}-{number}", member.leaf_cell_number
            own = _resized(spec, size)
            bind = first if number == 0 else self.hived.schedule(pod, own)
            assert isinstance(bind, BindInfo), bind
            self.hived.add_allocated(pod, own, bind)
            self.running[pod] = (own, bind)
        self._forget_cancelled()

    def end(self, group):
        """All pods of a group leave."""
        for pod in [pod for pod in self.running if pod.rpartition("-")[0] == group]:
            self.hived.delete_allocated(pod, *self.running.pop(pod))

    def give_up(self, group):
        """A preempting group is deleted."""
        self.hived.delete_unallocated(f"{group}-0", self.waiting.pop(group))

    def push(self, group):
        """The victims of a preempting group leave, and it starts."""
        spec = self.waiting[group]
        for leaf in list(self.hived.groups[group].leaves()):
            if leaf.state is CellState.RESERVING:
                self.end(leaf.using.name)
        return self.submit(spec)

    def _forget_cancelled(self):
        for name in list(self.waiting):
            group = self.hived.groups.get(name)
            if group is None or group.state is not GroupState.PREEMPTING:
                del self.waiting[name]

    def settle(self):
        """After each move."""
        self._forget_cancelled()
        check(self.hived)


def _resized(spec, size):
    return msgspec.structs.replace(spec, leaf_cell_number=size)


def check(hived):
    """Assert that the free cells are right and VC safety holds."""
    for chain, free_cells in hived.free_cells.items():
        assert free_cells.is_safe(), f"promises of {chain} cannot be kept"
        _check_counts(hived, free_cells)
    for cell in (cell for by in hived.cells.chains.values() for c in by.values() for cell in c):
        _check_cell(cell)
    for leaf in hived.cells.leaves.values():
        for group in (leaf.using, leaf.reserving):
            assert group is None or hived.groups[group.name] is group
    for vc in hived.cells.vcs.values():
        for cell in (cell for top in vc.tops for cell in top.below()):
            assert cell.physical is None or cell.physical.virtual is cell
            assert cell.used == _used(cell), cell
            _check_priority(cell)


def _check_counts(hived, free_cells):
    for level in range(1, free_cells.top + 1):
        cells = hived.cells.chains[free_cells.chain][level]
        left = [cell for cell in cells if cell.is_free()]
        assert free_cells.left[level] == len(left)
        assert set(free_cells.bad[level].cells) == {cell for cell in left if not cell.healthy}
        free = {c for c in left if c.parent is None or not c.parent.is_free()}
        assert set(free_cells.free[level].cells) == free
        assert free_cells.promised_all[level] == sum(
            held[level] for held in free_cells.promised.values()
        )
        assert free_cells.promised_all[level] <= free_cells.left[level]
        for vc, held in free_cells.promised.items():
            tops = hived.cells.vcs[vc].free_tops.get(free_cells.chain, {}).get(level, [])
            assert held[level] == sum(top.physical is None for top in tops), (vc, level)
            _check_doomed(free_cells, vc, level)
        for cell in free:  # buddies that are all free are one cell
            assert cell.parent is None or not set(cell.parent.children) <= free


def _check_doomed(free_cells, vc, level):
    """As many promises are given up as bad hardware makes necessary, and no more."""
    healthy = free_cells.left[level] - len(free_cells.bad[level])
    assert free_cells.promised[vc][level] <= healthy, (vc, level)
    doomed = free_cells.doomed[vc][level].cells
    assert all(cell.virtual.vc == vc for cell in doomed)
    if any(cell.priority < LOWEST_GUARANTEED for cell in doomed):
        assert free_cells.promised[vc][level] >= healthy, (vc, level)


def _check_cell(cell):
    assert cell.healthy == all(child.healthy for child in cell.children) or not cell.children
    assert cell.virtual is None or cell.virtual.physical is cell
    assert cell.used == _used(cell), cell
    _check_priority(cell)
    if cell.level == 1:
        for group in (cell.using, cell.reserving):
            assert group is None or cell in set(group.leaves())
        busy = cell.using is not None or cell.reserving is not None
        assert busy == (cell.state is not CellState.FREE), cell
        assert busy == (cell.priority != FREE), cell
        if cell.priority >= LOWEST_GUARANTEED:
            assert cell.virtual is not None
            assert cell.virtual.priority == cell.priority


def _check_priority(cell):
    if cell.children:
        assert cell.priority == max(child.priority for child in cell.children)


def _used(cell):
    used = {}
    for leaf in cell.below():
        if leaf.level == 1 and leaf.priority >= OPPORTUNISTIC:
            used[leaf.priority] = used.get(leaf.priority, 0) + 1
    return used


def fits(data):
    """Whether a configuration is accepted."""
    try:
        Hived(load_config(data))
    except ClusterSpecError:
        return False
    return True


MOVES = ["submit", "submit", "submit", "end", "push", "give up", "bad", "healthy"]


def move(rng, player):
    """Play one random move."""
    what = rng.choice(MOVES)
    groups = sorted({pod.rpartition("-")[0] for pod in player.running})
    if what == "submit":
        submit(rng, player)
    elif what == "end" and groups:
        player.end(rng.choice(groups))
    elif what == "push" and player.waiting:
        player.push(rng.choice(sorted(player.waiting)))
    elif what == "give up" and player.waiting:
        player.give_up(rng.choice(sorted(player.waiting)))
    elif what == "bad":
        player.hived.set_bad(rng.choice(player.nodes))
    elif what == "healthy":
        player.hived.set_healthy(rng.choice(player.nodes))
    player.settle()


def submit(rng, player):
    """Ask for a random group."""
    spec = player.request(
        rng.choice(sorted(player.hived.cells.vcs)),
        rng.randint(-1, 3),
        [rng.choice((1, 1, 1, 2, 2, 3, 4, 6)) for _ in range(rng.choice((1, 1, 2, 4)))],
        lazy=rng.random() < 0.5,
        anywhere=rng.random() < 0.5,
    )
    if spec.virtual_cluster == "vc0" and player.hived.cells.pinned and rng.random() < 0.5:
        spec = msgspec.structs.replace(spec, pinned_cell_id=PINNED)
    suggested = EVERYWHERE
    if rng.random() < 0.5:
        suggested = set(rng.sample(player.nodes, rng.randint(0, len(player.nodes))))
    player.submit(spec, suggested, rng.choice(list(HivedPhase)))
