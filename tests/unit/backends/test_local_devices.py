"""Which concrete GPUs stand for which slices."""

import pytest

from rota.backends.local.devices import Devices
from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.topology import NodeSpec, Topology


def take(devices, *slices):
    shares = devices.take(Allocation(slices))
    return None if shares is None else devices.visible(shares)


def test_devices_are_numbered_through_all_nodes():
    topology = Topology.uniform(2, 2)
    first, second = (node.id for node in topology.nodes)
    devices = Devices(topology)
    assert take(devices, (second, 1)) == "2"
    assert take(devices, (first, 2), (second, 1)) == "0,1,3"
    assert take(devices, (first, 1)) is None


def test_what_does_not_fit_takes_nothing():
    topology = Topology.uniform(2, 2)
    first, second = (node.id for node in topology.nodes)
    devices = Devices(topology)
    assert take(devices, (second, 2)) == "2,3"
    assert take(devices, (first, 2), (second, 1)) is None
    assert take(devices, (first, 2)) == "0,1"


def test_given_devices_can_be_taken_again():
    topology = Topology.uniform(1, 2)
    devices = Devices(topology)
    held = devices.take(Allocation([(topology.nodes[0].id, 2)]))
    assert take(devices, (0, 1)) is None
    devices.give(held)
    assert take(devices, (0, 1)) == "0"


def test_fractions_share_a_device_and_named_devices_are_kept_free():
    topology = Topology.uniform(1, 3)
    node = topology.nodes[0].id
    first, second, _ = topology.devices(node)
    devices = Devices(topology)
    assert take(devices, (node, 1), (first, 1)) == "0,1"
    assert take(devices, (node, 0.5)) == "2"
    assert take(devices, (node, 0.4)) == "2"
    assert take(devices, (second, 0.1)) is None
    assert take(devices, (node, 0.2)) is None


def test_a_fraction_besides_whole_devices_goes_to_the_fullest():
    topology = Topology.uniform(1, 4)
    node = topology.nodes[0].id
    devices = Devices(topology)
    third = topology.devices(node)[2]
    assert take(devices, (third, 0.3)) == "2"
    assert take(devices, (node, 1.5)) == "0,2"


def test_sums_of_fractions_leave_no_dust():
    topology = Topology.uniform(1, 1)
    node = topology.nodes[0].id
    devices = Devices(topology)
    parts = [devices.take(Allocation([(node, 0.1)])) for _ in range(10)]
    assert take(devices, (node, 0.1)) is None
    for part in parts:
        devices.give(part)
    assert take(devices, (node, 1)) == "0"


def test_pools_racks_and_nodes_that_are_down():
    topology = Topology(
        [
            NodeSpec("a", 1, "v100", path=("r1",)),
            NodeSpec("b", 2, "a100", path=("r2",)),
            NodeSpec("c", 1, "a100", path=("r2",)),
        ],
        levels=("rack",),
    )
    devices = Devices(topology)
    pool = next(pool for pool in topology.pools if pool.gpu_type == "a100")
    rack = next(v for v in topology.vertices if v.name == "r2")
    topology.nodes[1].up = False
    assert take(devices, (pool.id, 2)) is None
    assert take(devices, (pool.id, 1)) == "3"
    topology.nodes[1].up = True
    assert take(devices, (rack.id, 2)) == "1,2"
    assert take(devices, (0, 1)) == "0"


def test_names_replace_numbers_one_for_one():
    topology = Topology.uniform(1, 2)
    assert take(Devices(topology, ["4", "6"]), (0, 2)) == "4,6"
    with pytest.raises(OptionError, match=r"3 GPUs.* 2"):
        Devices(topology, ["4", "5", "6"])
