"""The policy `hived` in the engine: the lab's two nodes, preemption, lending, inner policies."""

import hashlib
import json
from random import Random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from decisions import ends, everybody, run, starts
from hived_play import Player, move, random_config
from rota.core.errors import ClusterSpecError, OptionError
from rota.core.jobs import DONE, Behaviour, JobSpec, Request
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.engine.parts import make_policy
from rota.policies.hived.algorithm import Hived
from rota.policies.hived.config import load_config
from rota.policies.hived.policy import HivedParams, HivedPolicy
from rota.policies.hived.snapshot import load, save
from rota.study.config import RunConfig
from rota.study.inputs import find_inputs
from rota.testing import check_policy

LAB = {
    "physicalCluster": {
        "cellTypes": {
            "C-NODE": {"childCellType": "C", "childCellNumber": 1, "isNodeLevel": True},
            "D-NODE": {"childCellType": "D", "childCellNumber": 1, "isNodeLevel": True},
        },
        "physicalCells": [
            {"cellType": "C-NODE", "cellAddress": "carol"},
            {"cellType": "D-NODE", "cellAddress": "dan"},
        ],
    },
    "virtualClusters": {
        "default": {"virtualCells": [{"cellType": "C-NODE"}]},
        "vc1": {"virtualCells": [{"cellType": "D-NODE"}]},
    },
}
NODES = [NodeSpec("carol", 1, "C"), NodeSpec("dan", 1, "D")]


@pytest.fixture
def lab(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(LAB))
    return make_policy(f"hived:config={path}")


def job(name, work, *, tenant, at=0.0, priority=100, gpus=1):
    spec = JobSpec(name, at, Request.of(gpus), tenant=tenant, priority=priority)
    return spec, Behaviour(work)


def test_vc_safety_jobs_of_one_tenant_wait_although_the_other_node_idles(lab):
    jobs = [job(name, 10, tenant="vc1") for name in "abc"]
    made = run(lab, jobs, NODES)
    assert starts(made) == {"a": 0.0, "b": 10.0, "c": 20.0}


def test_a_higher_priority_preempts_at_once_and_the_victim_starts_again(lab):
    jobs = [
        job("test", 100, tenant="vc1", priority=10),
        job("prod", 50, tenant="vc1", at=20),
    ]
    made = run(lab, jobs, NODES)
    assert starts(made)["prod"] == 20.0
    assert ends(made) == {"prod": 70.0, "test": 150.0}


def test_an_opportunistic_job_uses_the_other_node_until_its_owner_comes(lab):
    jobs = [
        job("prod", 100, tenant="vc1"),
        job("oppo", 50, tenant="vc1", at=10, priority=-1),
        job("owner", 30, tenant="default", at=20, priority=10),
    ]
    made = run(lab, jobs, NODES)
    assert starts(made) == {"prod": 0.0, "oppo": 10.0, "owner": 20.0}
    assert {each.id: each.preemptions for each in everybody(made)}["oppo"] == 1
    assert ends(made)["oppo"] == 90.0  # 10 s done, 40 s more after the owner has left


def test_without_a_configuration_quotas_are_promises():
    tenants = [Tenant("a", quota=4), Tenant("b", quota=4)]
    jobs = [
        job("borrower", 100, tenant="b", priority=-1, gpus=4),
        job("one", 100, tenant="b", gpus=4, at=1),
        job("owner", 10, tenant="a", gpus=4, at=5),
        job("guest", 10, tenant="nobody", gpus=1, at=5),
    ]
    made = run(HivedPolicy(), jobs, (2, 4), tenants=tenants)
    assert starts(made)["one"] == 1.0
    assert starts(made)["owner"] == 5.0
    assert all(each.phase == DONE for each in everybody(made))


def test_a_job_without_gpus_has_the_place_of_a_leaf_cell_and_no_gpu():
    jobs = [job(name, 10, tenant="", gpus=0) for name in "abc"]
    jobs.append(job("d", 10, tenant="", gpus=1, at=1))
    made = run(HivedPolicy(), jobs, (1, 2))
    assert starts(made) == {"a": 0.0, "b": 0.0, "c": 10.0, "d": 10.0}
    assert all(each.phase == DONE for each in everybody(made))
    node = made.cluster.topology.nodes[0]
    held = {each.id: (each.allocation.gpus, each.allocation.extra) for each in everybody(made)}
    assert held["a"] == held["c"] == (0, ((node.id, "cpu", 0.0),))
    assert held["d"] == (1, ())


def test_cells_that_cannot_be_what_a_job_asks_for_are_left_alone():
    """A part of a GPU is no instance, and memory is where it is said."""
    nodes = [NodeSpec("m", 1, "a100-40gb", sharing="mig", gpu_mem_gib=40), NodeSpec("n", 1, "T4")]
    part = JobSpec("part", 0.0, Request.of(0.5)), Behaviour(10)
    large = JobSpec("large", 0.0, Request.of(1, gpu_mem_gib=30.0)), Behaviour(10)
    made = run(HivedPolicy(), [part, large], nodes)
    assert starts(made) == {"part": 0.0, "large": 0.0}
    held = {each.id: each.allocation.slices[0][0] for each in everybody(made)}
    topology = made.cluster.topology
    assert held == {
        "part": topology.devices(topology.nodes[1].id)[0],
        "large": topology.devices(topology.nodes[0].id)[0],
    }


@pytest.mark.parametrize(
    "params",
    [{"inside": "srtf"}, {"inside": "easy"}],
)
def test_it_keeps_the_contract_of_policies(params):
    report = check_policy(lambda: HivedPolicy(HivedParams(**params)))
    assert "a_resumed_run_goes_on_alike" in report.passed


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot be read"),
        ("- 1", "holds no keys"),
        ("{", "neither YAML nor JSON"),
        ("physicalCluster: {cellTypes: {a: 1}}", "hived.yaml.*cellTypes"),
        ("virtualClusters: {}", "physical"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(tmp_path, content, named):
    path = tmp_path / "hived.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=named):
        make_policy(f"hived:config={path}")


def test_the_file_is_an_input_of_the_run(tmp_path):
    path = tmp_path / "hived.yaml"
    path.write_text(yaml.safe_dump(LAB))
    config = RunConfig(trace="jobs.csv", cluster="2x1", policy=f"hived:config={path}")
    (found,) = find_inputs(config)
    assert (found.option, found.path) == ("policy", str(path))
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_configuration_may_be_json(tmp_path):
    path = tmp_path / "lab.json"
    path.write_text(json.dumps(LAB))
    made = run(make_policy(f"hived:config={path}"), [job("a", 1, tenant="vc1")], NODES)
    assert ends(made) == {"a": 1.0}


def test_cells_on_nodes_that_are_not_there_are_refused(lab):
    with pytest.raises(ClusterSpecError, match="carol"):
        run(lab, [job("a", 1, tenant="vc1")], (2, 1))


@given(st.integers(0, 1 << 32))
def test_a_saved_state_is_complete(seed):
    rng = Random(seed)  # noqa: S311 - not a secret
    description = random_config(rng)
    player = Player(description)
    for _ in range(rng.randint(1, 12)):
        move(rng, player)
    vcs = sorted(player.hived.cells.vcs)
    again = Hived(load_config(description))
    load(again, save(player.hived))
    assert save(again) == save(player.hived)
    spec = player.request(vcs[0], 3, [1])
    assert again.schedule("new", spec) == player.hived.schedule("new", spec)
