"""How long a scheduling call of HiveD takes on a large cluster.

    python benchmarks/hived.py [NODES] [VCS]        # default 1,000 nodes of 8 GPUs, 20 tenants

Fills the cluster with guaranteed and opportunistic groups, with some nodes bad, and prints the
time of building, of scheduling calls and of adding pods.
"""

import statistics
import sys
import time
from typing import Any

from rota.core.errors import RequestError
from rota.policies.hived.algorithm import Hived
from rota.policies.hived.config import load_config
from rota.policies.hived.pods import BindInfo, GroupSpec, Member, PodSpec

RACK = 10


def cluster(nodes: int, vcs: int) -> dict[str, Any]:
    """Racks of ten nodes with two sockets of four GPUs; all nodes promised in equal parts."""
    types = {
        "SOCKET": {"childCellType": "GPU", "childCellNumber": 4},
        "NODE": {"childCellType": "SOCKET", "childCellNumber": 2, "isNodeLevel": True},
        "RACK": {"childCellType": "NODE", "childCellNumber": RACK},
    }
    racks = [
        {
            "cellType": "RACK",
            "cellChildren": [{"cellAddress": f"n{rack * RACK + n}"} for n in range(RACK)],
        }
        for rack in range(nodes // RACK)
    ]
    share = [{"cellType": "RACK.NODE", "cellNumber": nodes // vcs}]
    return {
        "physicalCluster": {"cellTypes": types, "physicalCells": racks},
        "virtualClusters": {f"vc{number}": {"virtualCells": share} for number in range(vcs)},
    }


def opened(nodes: int, vcs: int) -> Hived:
    """A cluster with every 50th node bad."""
    hived = Hived(load_config(cluster(nodes, vcs)))
    for number in range(nodes):
        if number % 50:
            hived.set_healthy(f"n{number}")
    return hived


def request(number: int, vcs: int) -> PodSpec:
    """Groups of one to four pods; every fourth is opportunistic."""
    size, pods = (1, 2, 4, 8, 8)[number % 5], 1 + number % 4
    priority = -1 if number % 4 == 0 else number % 3
    group = GroupSpec(f"g{number}", (Member(pods, size),))
    return PodSpec(f"vc{number % vcs}", priority, size, affinity_group=group)


def calls(hived: Hived, groups: int, vcs: int) -> tuple[list[float], list[float]]:
    """Seconds of each scheduling call for a new group, and of adding its first pod."""
    scheduling, adding = [], []
    for number in range(groups):
        spec = request(number, vcs)
        begun_s = time.process_time()
        try:
            decision = hived.schedule(f"g{number}-0", spec)
        except RequestError as error:
            sys.exit(str(error))
        scheduling.append(time.process_time() - begun_s)
        if isinstance(decision, BindInfo):
            begun_s = time.process_time()
            hived.add_allocated(f"g{number}-0", spec, decision)
            adding.append(time.process_time() - begun_s)
    return scheduling, adding


def main() -> None:
    nodes, vcs = (int(text) for text in (*sys.argv[1:3], "1000", "20")[:2])
    begun_s = time.process_time()
    hived = opened(nodes, vcs)
    print(f"{nodes} nodes, {vcs} tenants: built in {time.process_time() - begun_s:.2f} CPU-seconds")
    for name, taken in zip(("schedule", "add"), calls(hived, nodes // 2, vcs), strict=True):
        print(
            f"{name}: {len(taken)} calls, mean {statistics.mean(taken) * 1e3:.2f} ms, "
            f"worst {max(taken) * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
