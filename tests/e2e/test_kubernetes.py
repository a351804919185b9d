"""The driver against a real API server whose kubelets run pods as processes."""

import re
from pathlib import Path

import pytest
import yaml

from agents_net import eventually
from kube_cluster import KubeCluster, require_kubernetes
from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes import KubernetesDriver, KubernetesOptions
from rota.live.drivers.kubernetes.api import GONE, KubeError
from rota.live.drivers.kubernetes.preflight import CLUSTER_WIDE, NAMESPACED
from slurm_runs import Ears, order

require_kubernetes()

RBAC = Path(__file__).parents[2] / "examples/kubernetes/rbac.yaml"
UNTIL_TERM = "trap 'echo saved; exit 0' TERM; echo began; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def kube(tmp_path_factory):
    cluster = KubeCluster(tmp_path_factory.mktemp("kube"))
    cluster.stranger = cluster.grant("stranger", "a-token-without-rights")
    cluster.granted = cluster.grant("rota", "a-token-of-the-example")
    with cluster:
        for item in rbac():
            kind = item["kind"].lower() + "s"
            space = item["metadata"].get("namespace")
            where = f"namespaces/{space}/" if space else ""
            cluster.api.create(f"/apis/rbac.authorization.k8s.io/v1/{where}{kind}", item)
        yield cluster


def rbac():
    """The example, for a user instead of a service account."""
    items = yaml.safe_load_all(RBAC.read_text())
    found = [item for item in items if item["kind"] != "ServiceAccount"]
    for item in found:
        if "subjects" in item:
            item["subjects"] = [{"kind": "User", "name": "rota"}]
    return found


@pytest.fixture
def drive(kube, tmp_path, request):
    """Return `drive()`: a driver that is open, and its ears. All of them use the same store."""
    store = re.sub(r"\W", "-", request.node.name)
    opened = []

    def start(runs=(), halting=(), **options):
        # as the account of the example: what it does not grant would fail
        chosen = KubernetesOptions(kubeconfig=str(kube.granted), image="none", **options)
        driver, ears = KubernetesDriver(store, tmp_path / "logs", chosen), Ears()
        driver.preflight()
        driver.open(ears)
        driver.adopt(runs, frozenset(halting))
        opened.append(driver)
        return driver, ears

    yield start
    for driver in opened:
        driver.close()
    driver, _ = start()  # it wants nothing: what was left over goes
    eventually(lambda: not [p for p in mine(kube, driver) if "rota.dev/ended" not in labels(p)])
    driver.close()


def labels(pod):
    return pod["metadata"]["labels"]


def mine(kube, driver):
    return [pod for pod in kube.pods() if driver._carrier.is_mine(pod)]


def output(driver, job, rank=0):
    return driver.read_log(job, "all", rank, 0, 100_000).decode()


def test_a_run_on_two_nodes_finds_its_environment(kube, drive):
    driver, ears = drive()
    told = "$RANK/$WORLD_SIZE $NODE_RANK $ROTA_NODE_NAME $ROTA_RUN_ID $WORD"
    script = f'echo "{told}"; echo "$(( $$ > 1 ))"'
    driver.launch(order("1.0", [("n1", 2), ("n2", 1)], run=script, envs={"WORD": "$(RANK) $x"}))
    assert ears.run("1.0", "running").began_s is not None
    end = ears.ends("1.0")
    assert (end.state, end.code, end.asked) == ("ended", 0, False)
    assert end.began_s <= end.ended_s
    driver.forget("1.0")
    assert output(driver, "1", 0) == "0/2 0 n1 1.0 $(RANK) $x\n1\n"
    assert output(driver, "1", 1) == "1/2 1 n2 1.0 $(RANK) $x\n1\n"
    eventually(lambda: all("rota.dev/ended" in labels(pod) for pod in mine(kube, driver)))
    assert [pod["metadata"].get("finalizers") for pod in mine(kube, driver)] == [None, None]


def test_instances_of_mig_are_handed_out_by_their_name(kube, drive):
    mig = "nvidia.com/mig-1g.5gb"
    kube.kubelets.join("divided", gpus=7, resource=mig)
    driver, ears = drive(gpu_resource=mig)
    assert [(node.name, node.gpus, node.gpu_type) for node in driver.nodes()] == [
        ("divided", 7, "a100")
    ]
    assert any("nodes offer nvidia.com/gpu, too" in note for note in driver.preflight())
    driver.launch(order("1.0", [("divided", 2)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    (made,) = mine(kube, driver)
    assert made["spec"]["containers"][0]["resources"]["limits"][mig] == "2"
    eventually(lambda: driver._free("divided", frozenset()) == 5)
    driver.kill("1.0")
    ears.ends("1.0")
    other, _ = drive()
    assert "divided" not in {node.name for node in other.nodes()}
    kube.kubelets.vanish("divided")
    kube.api.delete("/api/v1/nodes/divided")


def test_a_pod_costs_three_requests(kube, drive):
    driver, ears = drive()
    ears.node("n4", "up")
    before = dict(driver.api.calls)
    for number in range(6):
        driver.launch(order(f"{number}.0", [(f"n{1 + number % 4}", 1)], run="echo"))
    for number in range(6):
        assert ears.ends(f"{number}.0").code == 0
        driver.forget(f"{number}.0")
    eventually(lambda: all("rota.dev/ended" in labels(pod) for pod in mine(kube, driver)))
    asked = {verb: count - before.get(verb, 0) for verb, count in driver.api.calls.items()}
    assert (asked["POST"], asked["GET"], asked["PATCH"]) == (6, 6, 6)
    assert sum(asked.values()) == 18


def test_one_process_for_each_gpu_and_one_that_fails_ends_the_others(drive):
    driver, ears = drive()
    script = 'echo "rank $RANK local $LOCAL_RANK"; [ "$RANK" = 1 ] && exit 7; sleep 300'
    driver.launch(order("1.0", [("n1", 2)], run=script, per="gpu", grace_s=1))
    end = ears.ends("1.0")
    assert (end.state, end.code, end.why) == ("ended", 7, "exit code 7")
    assert sorted(output(driver, "1").splitlines()) == ["rank 0 local 0", "rank 1 local 1"]


def test_a_failed_setup_is_told(drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], setup="echo preparing; exit 4", run="echo never"))
    end = ears.ends("1.0")
    assert (end.code, end.why) == (4, "setup failed: exit code 4")
    assert output(driver, "1") == "preparing\n"


def test_a_halted_run_saves_and_its_successor_waits_for_its_gpus(kube, drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 4)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    eventually(lambda: "began" in output(driver, "1"))
    driver.launch(order("2.0", [("n1", 4)], run="exit 0"))
    driver.halt("1.0")
    end = ears.ends("1.0")
    assert (end.state, end.code, end.asked) == ("ended", 0, True)
    assert "saved" in output(driver, "1")
    assert ears.ends("2.0").code == 0
    driver.forget("1.0")
    driver.launch(order("1.1", [("n2", 4)], run="echo again"))
    assert ears.ends("1.1").code == 0
    assert output(driver, "1").splitlines()[-1] == "again"


def test_a_killed_run_ends_at_once(drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run="trap '' TERM; echo began; sleep 300"))
    ears.run("1.0", "running")
    driver.kill("1.0")
    end = ears.ends("1.0")
    assert (end.state, end.asked) == ("ended", True)
    driver.halt("9.0")
    assert ears.ends("9.0").asked


def test_another_driver_adopts_what_runs_and_ends_what_nobody_wants(kube, drive):
    driver, ears = drive()
    kept, stray = (
        order("1.0", [("n1", 1)], run=UNTIL_TERM),
        order("2.0", [("n2", 1)], run=UNTIL_TERM),
    )
    driver.launch(kept)
    driver.launch(stray)
    for run in ("1.0", "2.0"):
        ears.run(run, "running")
    driver.close()
    never = order("3.0", [("n3", 1)], run="echo late")
    driver, ears = drive([kept, never])
    assert ears.run("1.0", "running")
    assert ears.ends("3.0").code == 0
    eventually(lambda: [labels(p)["rota.dev/run"] for p in mine(kube, driver)].count("2.0") == 0)
    eventually(lambda: not [n for n in kube.kubelets.running() if "-2-0-" in n])
    starts = [name for name, _ in kube.kubelets.started if name in
              {f"default/{p['metadata']['name']}" for p in mine(kube, driver)}]  # fmt: skip
    assert len(starts) == len(set(starts)) == 2
    driver.halt("1.0")
    assert ears.ends("1.0").asked


def test_an_end_while_nobody_watched_is_told_later(kube, drive, tmp_path):
    driver, ears = drive()
    run = order(
        "1.0", [("n1", 1)], run=f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 5"
    )
    driver.launch(run)
    ears.run("1.0", "running")
    driver.close()
    (tmp_path / "go").touch()
    eventually(lambda: kube.kubelets.running() == [])
    driver, ears = drive([run])
    end = ears.ends("1.0")
    assert (end.state, end.code) == ("ended", 5)


def test_a_node_that_vanishes_is_silent_then_lost_and_its_runs_can_be_killed(kube, drive):
    driver, ears = drive(lost_s=0.0)
    driver.launch(order("1.0", [("n3", 1), ("n4", 1)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    kube.kubelets.vanish("n4")
    kube.kubelets.report("n4", ready=False)
    ears.node("n4", "lost")
    assert ears.ends("1.0").state == "lost"
    driver.forget("1.0")
    kube.kubelets.join("n4")
    ears.node("n4", "up")


def test_cordoned_nodes_and_gpus_held_by_others_close_a_node(kube, drive):
    _, ears = drive()
    kube.api.patch("/api/v1/nodes/n4", {"spec": {"unschedulable": True}})
    assert ears.node("n4", "sick").why == "cordoned in Kubernetes"
    kube.api.patch("/api/v1/nodes/n4", {"spec": {"unschedulable": None}})
    ears.node("n4", "well")
    alien = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alien"},
        "spec": {"nodeName": "n2", "restartPolicy": "Never", "containers": [{
            "name": "c", "image": "none", "command": ["/bin/sleep", "300"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }  # fmt: skip
    kube.api.create("/api/v1/namespaces/default/pods", alien)
    assert ears.node("n2", "sick").why == "pods of others hold GPUs: default/alien"
    kube.api.delete("/api/v1/namespaces/default/pods/alien", {"gracePeriodSeconds": 1})
    ears.node("n2", "well")


def test_the_api_server_may_be_away_for_a_while(kube, drive, tmp_path):
    driver, ears = drive()
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    driver.launch(order("1.0", [("n1", 1)], run=wait))
    ears.run("1.0", "running")
    kube.stop_server()
    driver.launch(order("2.0", [("n2", 1)], run="echo two"))
    (tmp_path / "go").touch()
    kube.start_server()
    kube.wait_ready()
    assert ears.ends("1.0").code == 0
    assert ears.ends("2.0").code == 0


def test_a_watch_that_is_too_old_is_listed_anew(kube, drive, monkeypatch):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    lists = driver._pods.lists
    real, broken = driver.api.watch, []

    def expired(path, version, **query):
        if path.endswith("pods") and not broken:
            broken.append(version)
            raise KubeError("too old resource version", GONE)
        yield from real(path, version, **query)

    monkeypatch.setattr(driver.api, "watch", expired)
    kube.stop_server()  # ends the present watch
    kube.start_server()
    kube.wait_ready()
    eventually(lambda: driver._pods.lists > lists)
    assert broken
    driver.halt("1.0")
    assert ears.ends("1.0").asked


def test_what_is_not_granted_is_named_at_start_up(kube, tmp_path):
    options = KubernetesOptions(kubeconfig=str(kube.stranger), image="none")
    driver = KubernetesDriver("s", tmp_path, options)
    with pytest.raises(ClusterError) as refused:
        driver.preflight()
    driver.close()
    for missing in (
        "list nodes",
        "watch pods",
        "create pods in default",
        "get pods/log in default",
    ):
        assert missing in str(refused.value)
    assert "rbac.yaml" in str(refused.value)


def test_the_example_grants_no_more_than_is_asked_for():
    asked = {
        (resource, verb)
        for table in (CLUSTER_WIDE, NAMESPACED)
        for _, resource, verbs in table
        for verb in verbs
    }
    granted = {
        (resource, verb)
        for item in rbac()
        for rule in item.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == asked


def test_a_node_that_refuses_a_pod_gets_no_more_for_a_while(kube, drive, monkeypatch):
    driver, ears = drive()
    monkeypatch.setattr(kube.kubelets, "gpus", 0)
    driver.launch(order("1.0", [("n1", 1)], run="exit 0"))
    end = ears.ends("1.0")
    assert (end.state, "OutOfnvidia.com/gpu" in end.why) == ("lost", True)
    assert ears.node("n1", "sick").why.startswith("refused a pod: OutOfnvidia.com/gpu")


def test_a_pod_that_kubernetes_refuses_fails_its_run_by_name(drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run="echo", envs={"A B": "1"}))
    end = ears.ends("1.0")
    assert (end.state, end.code) == ("ended", 125)
    assert "'A B' cannot be the name of a variable" in end.why
