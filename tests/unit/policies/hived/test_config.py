"""Configurations: what is filled in, and what is refused with the offending cell named."""

import re

import pytest
from msgspec import to_builtins

from rota.core.errors import ClusterSpecError
from rota.policies.hived.algorithm import Hived
from rota.policies.hived.config import load_config


def config(*, types=None, cells=None, vcs=None):
    types = types or {
        "socket": {"childCellType": "gpu", "childCellNumber": 2},
        "node": {"childCellType": "socket", "childCellNumber": 2, "isNodeLevel": True},
        "rack": {"childCellType": "node", "childCellNumber": 2},
    }
    cells = cells or [{"cellType": "rack", "cellChildren": [{"cellAddress": n} for n in "ab"]}]
    return {
        "physicalCluster": {"cellTypes": types, "physicalCells": cells},
        "virtualClusters": vcs or {},
    }


def promise(*cells, pinned=()):
    return {
        "virtualCells": [{"cellType": name, "cellNumber": number} for name, number in cells],
        "pinnedCells": [{"pinnedCellId": name} for name in pinned],
    }


def addresses(spec):
    return [spec.address, *(a for child in spec.cell_children for a in addresses(child))]


def test_addresses_are_filled_in_and_leaves_counted_on_each_node():
    (rack,) = load_config(config()).physical_cluster.physical_cells
    assert addresses(rack) == [
        "0", "0/a", "0/a/0", "0/a/0/0", "0/a/0/1", "0/a/1", "0/a/1/2", "0/a/1/3",
        "0/b", "0/b/0", "0/b/0/0", "0/b/0/1", "0/b/1", "0/b/1/2", "0/b/1/3",
    ]  # fmt: skip


def test_whole_addresses_are_kept():
    once = load_config(config())
    (rack,) = once.physical_cluster.physical_cells
    again = load_config(to_builtins(once))
    assert again.physical_cluster.physical_cells == (rack,)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cells": [{"cellType": "row"}]}, "'row'"),
        ({"cells": [{"cellType": "socket"}]}, "smaller than a node"),
        ({"cells": [{"cellType": "rack", "cellChildren": [{}]}]}, "has 1 children"),
        ({"cells": [{"cellType": "node", "cellAddress": "a"}] * 2}, "'a'"),
        (
            {"cells": [{"cellType": "rack", "cellChildren": [{"cellType": "socket"}, {}]}]},
            "of type 'socket', expected 'node'",
        ),
        (
            {"types": {"a": {"childCellType": "b", "childCellNumber": 1},
                       "b": {"childCellType": "a", "childCellNumber": 1}}},
            "contains itself",
        ),
        ({"types": {"node": {"childCellType": "gpu", "childCellNumber": 0}}}, "childCellNumber"),
        (
            {"types": {"n": {"childCellType": "gpu", "childCellNumber": 1, "isNodeLevel": True},
                       "m": {"childCellType": "n", "childCellNumber": 1, "isNodeLevel": True}}},
            "'m' is a node",
        ),
        ({"vcs": {"t": promise(("row", 1))}}, "'row'"),
        ({"vcs": {"t": promise(("rack.disk", 1))}}, "'disk'"),
        ({"vcs": {"t": promise(("rack", -1))}}, "cellNumber is -1"),
        ({"vcs": {"t": promise(pinned=["p"])}}, "'p'"),
        ({"vcs": {"t": promise(("rack", 2))}}, "2 of type 'rack'"),
        ({"vcs": {"t": promise(("rack.node", 1)), "u": promise(("rack", 1))}}, "1 of type 'node'"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_the_cell(changes, named):
    with pytest.raises(ClusterSpecError, match=re.escape(named)):
        Hived(load_config(config(**changes)))


def test_a_pinned_cell_has_one_owner():
    cells = [{"cellType": "rack", "pinnedCellId": "p"}]
    both = {"t": promise(pinned=["p"]), "u": promise(pinned=["p"])}
    with pytest.raises(ClusterSpecError, match="promised"):
        Hived(load_config(config(cells=cells, vcs=both)))


def test_pinned_cells_must_leave_room_for_larger_promises():
    def rack(name):
        children = [{"pinnedCellId": name, "cellAddress": f"{name}1"}, {"cellAddress": f"{name}2"}]
        return {"cellType": "rack", "cellChildren": children}

    vcs = {"t": promise(("rack", 1), pinned=["p", "q"])}
    with pytest.raises(ClusterSpecError, match=r"pinned cell 'q' \(1/q1\)"):
        Hived(load_config(config(cells=[rack("p"), rack("q")], vcs=vcs)))


def test_a_wrong_type_is_named():
    broken = config()
    broken["physicalCluster"]["cellTypes"]["node"]["childCellNumber"] = "many"
    with pytest.raises(ClusterSpecError, match="childCellNumber"):
        load_config(broken)
