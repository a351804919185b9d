"""Rota as the scheduler of pods that others make, on a real API server."""

import json
import random
import re
import time

import pytest
from click.testing import CliRunner

import kube_daemon
from agents_net import eventually
from kube_cluster import require_kubernetes
from kube_controllers import Controllers
from kube_daemon import (
    POLICIES,
    cluster_of_others,
    jobs,
    lose_n2,
    reasons,
    restart_server,
    states,
    wait_for,
    wait_until,
)
from rota.cli.shadow import shadow
from rota.core.errors import ClusterError, InputError
from rota.jobfile.model import JobFile
from rota.live.drivers.kubernetes import KubernetesDriver, KubernetesOptions
from rota.live.drivers.kubernetes.access import find_access
from rota.live.drivers.kubernetes.api import KubeApi
from rota.live.drivers.kubernetes.preflight import SCHEDULING

require_kubernetes()

TWO = {"research": 4, "product": 4}
THREE = {"research": 4, "product": 2, "students": 2}
UNTIL_GO = 'while [ ! -e "$GO" ]; do sleep 0.05; done; exit "${CODE:-0}"'


@pytest.fixture(scope="module")
def kube(tmp_path_factory):
    with cluster_of_others(
        tmp_path_factory.mktemp("kube"), "rbac.yaml", "scheduler.yaml"
    ) as cluster:
        yield cluster


@pytest.fixture
def serve(kube, tmp_path):
    """Return `serve(policy)`: a daemon that schedules pods of others, as the examples allow it."""
    started = []

    def start(policy, quotas=TWO, note_after_s=0):
        daemon = kube_daemon.serve(
            kube.granted, tmp_path, policy, quotas,
            scheduler_name="rota", note_after_s=note_after_s,
        )  # fmt: skip
        started.append(daemon)
        return daemon

    yield start
    where = "/apis/batch/v1/namespaces/default/jobs"
    kube.api.delete(where, {"propagationPolicy": "Background"})
    kube.api.delete("/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
    for daemon in started:
        eventually(lambda: not kube.pods())  # it lets go of all of them
        daemon.close()


def pod(kube, tmp_path, name, gpus=1, *, owner="", go="go", labels=None, code=0, **annotations):
    about = {
        "name": name,
        "labels": labels or {},
        "annotations": {f"rota.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
    }
    if owner:
        about["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "work",
                                     "uid": owner, "controller": True}]  # fmt: skip
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    envs = [{"name": "GO", "value": str(tmp_path / go)}, {"name": "CODE", "value": str(code)}]
    container = {"name": "c", "image": "none", "command": ["sh", "-c", UNTIL_GO], "env": envs,
                 "resources": {"limits": amounts, "requests": amounts}}  # fmt: skip
    return kube.api.create("/api/v1/namespaces/default/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": about,
        "spec": {"schedulerName": "rota", "restartPolicy": "Never", "containers": [container],
                 "terminationGracePeriodSeconds": 2},
    })  # fmt: skip


def delete(kube, name, **body):
    kube.api.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0, **body})


def found(kube, name):
    return kube.api.get(f"/api/v1/namespaces/default/pods/{name}")


def node_of(kube, name):
    return found(kube, name)["spec"].get("nodeName")


def condition(kube, name):
    told = found(kube, name)["status"].get("conditions", [])
    return next((one for one in told if one["type"] == "PodScheduled"), {})


def test_pods_of_others_wait_in_the_queue_run_and_end(kube, serve, tmp_path):
    pod(kube, tmp_path, "early", 4)  # nobody is there yet: it waits
    daemon = serve("fifo")
    wait_for(daemon, early="RUNNING")
    pod(kube, tmp_path, "bad", 4, labels={"rota.dev/queue": "research"}, code=3)
    wait_for(daemon, bad="RUNNING")
    pod(kube, tmp_path, "late", 2, go="never", labels={"rota.dev/queue": "product"})
    wait_for(daemon, late="PENDING")
    pod(kube, tmp_path, "withdrawn", 1)
    wait_for(daemon, withdrawn="PENDING")
    pod(kube, tmp_path, "huge", 5)  # half of it on each node would never be bound
    eventually(
        lambda: "the largest node here has 4" in reasons(kube, "huge").get("RotaRefuses", "")
    )
    seen = jobs(daemon)
    assert (seen["bad"].queue, seen["bad"].user, seen["bad"].gpus) == ("research", "k8s.default", 4)
    assert {node_of(kube, "early"), node_of(kube, "bad")} == {"n1", "n2"}
    assert node_of(kube, "late") is None
    eventually(lambda: "fewer GPUs are free" in reasons(kube, "late").get("RotaCapacity", ""))
    eventually(lambda: condition(kube, "late").get("reason") == "RotaCapacity")
    eventually(lambda: "RotaOrder" in reasons(kube, "withdrawn"))
    assert "GPUs" in daemon.client.why(seen["late"].id).text
    forged = JobFile(run="x", external="once pod default/x")
    with pytest.raises(InputError, match="only the backend"):
        daemon.client.submit(forged)
    delete(kube, "withdrawn")
    wait_for(daemon, withdrawn="CANCELLED")
    daemon.kill()
    daemon.start()
    (tmp_path / "go").touch()
    wait_for(daemon, early="SUCCEEDED", bad="FAILED", late="RUNNING")
    assert jobs(daemon)["bad"].message == "exit code 3"
    assert len(list(daemon.client.jobs())) == 4, "a pod became two jobs"
    eventually(lambda: not found(kube, "early")["metadata"].get("finalizers"))
    delete(kube, "late")
    wait_for(daemon, late="FAILED")
    assert "nobody makes another one" in jobs(daemon)["late"].message


def test_a_preempted_pod_is_made_again_and_stays_the_same_job(kube, serve, tmp_path):
    daemon = serve("capacity")
    research, product = ({"rota.dev/queue": queue} for queue in ("research", "product"))
    for name in ("one", "two"):  # both have what product lends
        pod(kube, tmp_path, name, 4, owner=f"uid-of-{name}", labels=research)
    wait_for(daemon, one="RUNNING", two="RUNNING")
    pod(kube, tmp_path, "alone", 1, labels=research)
    eventually(
        lambda: "nobody would make it again" in reasons(kube, "alone").get("RotaRefuses", "")
    )
    gang = {**product, "rota.dev/gang": "pair"}
    asks = {"labels": gang, "go": "go-pair", "gang_size": "2", "preemptible": "true"}
    pod(kube, tmp_path, "pair-0", 2, **asks)
    eventually(lambda: "1 of 2 pods" in reasons(kube, "pair-0").get("RotaGang", ""))
    assert "pair" not in states(daemon)
    pod(kube, tmp_path, "pair-1", 2, **asks)
    eventually(lambda: not {"one", "two"} <= {p["metadata"]["name"] for p in kube.pods()})
    (gone,) = {"one", "two"} - {p["metadata"]["name"] for p in kube.pods()}
    wait_for(daemon, pair="RUNNING", **{gone: "PENDING"})
    daemon.kill()
    pod(kube, tmp_path, "again", 4, owner=f"uid-of-{gone}", labels=research)  # as its Job does
    daemon.start()
    number = jobs(daemon)[gone].id
    eventually(lambda: f"job {number} of Rota waits" in condition(kube, "again").get("message", ""))
    assert node_of(kube, "pair-0") == node_of(kube, "pair-1")
    (tmp_path / "go-pair").touch()
    wait_for(daemon, pair="SUCCEEDED", **{gone: "RUNNING"})
    assert node_of(kube, "again") is not None
    assert jobs(daemon)[gone].preemptions == 1
    (tmp_path / "go").touch()
    wait_for(daemon, one="SUCCEEDED", two="SUCCEEDED")
    for name in ("odd-0", "odd-1"):  # on nodes with 4 GPUs no two nodes are full
        asks = {"labels": {"rota.dev/gang": "odd"}, "gang_size": "2", "preemptible": "true"}
        pod(kube, tmp_path, name, 3, **asks)
    wait_for(daemon, odd="FAILED")
    eventually(lambda: "cannot share the nodes" in reasons(kube, "odd-1").get("RotaEnded", ""))
    assert not any(node_of(kube, name) for name in ("odd-0", "odd-1"))
    assert sorted(states(daemon)) == ["odd", "one", "pair", "two"]


def test_a_daemon_killed_at_any_moment_neither_loses_nor_doubles_a_pod(kube, serve, tmp_path):
    daemon = serve("fifo")
    before = len(kube.kubelets.started)
    names = [f"p{number:02}" for number in range(12)]
    for number, name in enumerate(names):
        pod(kube, tmp_path, name, 1 + number % 4)
        if number % 4 == 1:  # it may have seen none of them, or be about to bind one
            daemon.kill()
            daemon.start()
    wait_until(daemon, lambda seen: seen.total() == len(names))
    assert set(jobs(daemon)) == set(names)
    daemon.kill()
    (tmp_path / "go").touch()  # what runs ends while nobody looks
    daemon.start()
    wait_for(daemon, **dict.fromkeys(names, "SUCCEEDED"))
    assert sorted(info.name for info in daemon.client.jobs()) == names
    started = sorted(name for name, _ in kube.kubelets.started[before:])
    assert started == [f"default/{name}" for name in names]


def test_a_pod_that_does_not_wait_for_long_costs_three_requests_in_all(kube, serve, tmp_path):
    (tmp_path / "go").touch()
    daemon = serve("fifo", note_after_s=1e6)  # on no machine so slow that it would be told
    names = [f"p{number}" for number in range(8)]
    for name in names:
        pod(kube, tmp_path, name, 4)  # two at a time: the others wait
    wait_for(daemon, **dict.fromkeys(names, "SUCCEEDED"))
    eventually(lambda: not any(found(kube, name)["metadata"].get("finalizers") for name in names))
    daemon.stop()
    (told,) = re.findall(r"requests to the API server: (.*); (\d+) of them for notes", daemon.log())
    asked = {verb: int(many) for many, verb in re.findall(r"(\d+) (\w+)", told[0])}
    assert asked.pop("GET") == 2, "nodes and pods are listed once"
    assert asked.pop("WATCH") >= 2
    assert set(asked) == {"PATCH", "POST"}
    # taken and bound, and let go when it has ended; what somebody changed meanwhile is tried again
    again = len(names) * daemon.log().count("; next try in")
    assert int(told[1]) == 0, "notes"
    assert 0 <= sum(asked.values()) - 3 * len(names) <= again
    daemon.start()


def test_a_shadow_tells_what_rota_would_do_and_only_reads(kube, tmp_path):
    for name, gpus in (("big", 4), ("small", 1)):  # nobody schedules them
        pod(kube, tmp_path, name, gpus, labels={"rota.dev/gang": name})
    asked = ["--kubernetes", "--kubeconfig", str(kube.half), "--policy", "fifo", "--once"]
    shown = CliRunner().invoke(shadow, [*asked, "-o", str(tmp_path / "out")])
    for name in ("big", "small"):
        delete(kube, name)
    assert shown.exit_code == 0, shown.output
    assert "2 waiting; Rota would start default/big on n1:4, default/small on n2:1" in shown.output
    assert "started by Kubernetes" in shown.output
    look = json.loads((tmp_path / "out/shadow.jsonl").read_text())
    assert look["wish"]["starts"] == {"default/big": {"n1": 4}, "default/small": {"n2": 1}}
    refused = CliRunner().invoke(shadow, [*asked, "--partition", "gpu"])
    assert "--partition is for Slurm" in refused.output


def test_what_a_scheduler_may_not_do_is_named_at_start(kube, tmp_path):
    options = KubernetesOptions(kubeconfig=str(kube.half), image="none", scheduler_name="rota")
    driver = KubernetesDriver("x", tmp_path, options)
    with pytest.raises(ClusterError) as refused:
        driver.preflight()
    driver.api.close()
    for _, resource, verbs in SCHEDULING:
        for verb in verbs:
            assert f"{verb} {resource}" in str(refused.value)
    assert "list nodes" not in str(refused.value)


# Works for $WORK_DS tenths of a second in all, over as many pods as it takes, and at least until
# the file `go` is there. The lock shows whether another pod of the same Job is there.
WORK = """
exec 9>"$TRACES/$NAME.lock"
flock -n -E 75 9 || { [ $? = 75 ] && echo "$NAME" >> "$TRACES/overlaps"; }
echo run >> "$TRACES/$NAME.runs"
done_ds=$(cat "$TRACES/$NAME.done" 2>/dev/null || echo 0)
trap 'echo $done_ds > "$TRACES/$NAME.done"; exit 143' TERM
while [ "$done_ds" -lt "$WORK_DS" ] || [ ! -e "$TRACES/go" ]; do
  sleep 0.1 9>&-; done_ds=$((done_ds + 1))
done
echo end >> "$TRACES/$NAME.ends"
"""


def make_job(kube, traces, name, gpus, work_s, queue):
    """A Job of Kubernetes: its controller makes another pod in place of one that was preempted."""
    envs = {"TRACES": str(traces), "NAME": name, "WORK_DS": str(int(work_s * 10))}
    labels = {"rota.dev/queue": queue}
    container = {"name": "c", "image": "none", "command": ["bash", "-c", WORK],
                 "env": [{"name": key, "value": value} for key, value in envs.items()],
                 "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}  # fmt: skip
    spec = {"schedulerName": "rota", "restartPolicy": "Never", "containers": [container],
            "terminationGracePeriodSeconds": 10}  # fmt: skip
    kube.api.create("/apis/batch/v1/namespaces/default/jobs", {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
    })  # fmt: skip


def expire_watches(kube, daemon):
    """The API server is started again until a watch is of a version that it no longer knows."""
    for _ in range(5):
        before = daemon.log().count("is too old: it is listed anew")
        about = {"generateName": "step-", "namespace": "default"}  # later than what is watched
        kube.api.create("/api/v1/namespaces/default/configmaps", {"metadata": about})
        restart_server(kube)
        for closed in (True, False):  # what the watch of nodes hears again
            kube.api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": closed}})
            eventually(lambda closed=closed: ("cordoned" in n1(daemon)) == closed)
        if daemon.log().count("is too old: it is listed anew") > before:
            return
    raise AssertionError("no watch ever expired")


def n1(daemon):
    return next(str(node) for node in daemon.client.nodes() if node.name == "n1")


def play(kube, daemon, tmp_path, count, kills, *, seed):
    """Kill the daemon, expire watches, lose a node; every Job ends once, under the one name."""
    traces = tmp_path / "traces"
    traces.mkdir()
    draw = random.Random(seed)  # noqa: S311 - repeatable
    with Controllers(KubeApi(find_access(str(kube.kubeconfig))), "Job") as controllers:
        names = [f"j{number:02}" for number in range(count)]
        for number, name in enumerate(names):
            gpus, work_s = draw.choice((1, 1, 2, 4)), draw.choice((0.2, 0.5, 1.0))
            make_job(kube, traces, name, gpus, work_s, list(THREE)[number % 3])
        wait_until(daemon, lambda seen: seen["RUNNING"] >= 2)
        (traces / "go").touch()
        for number in range(kills):
            if number in (kills // 3, 2 * kills // 3)[: 1 if kills < 6 else 2]:
                expire_watches(kube, daemon)
            if number == kills // 2:
                lose_n2(kube, daemon)
            time.sleep(draw.random() * 0.5)  # any instant will do
            daemon.kill()
            daemon.start()
        wait_until(daemon, lambda seen: seen["SUCCEEDED"] == count)
        assert sorted(info.name.rpartition("-")[0][:3] for info in daemon.client.jobs()) == names
        assert not (traces / "overlaps").exists(), (traces / "overlaps").read_text()
        eventually(lambda: dict(controllers.ended) == dict.fromkeys(names, 1))
        for name in names:
            runs = (traces / f"{name}.runs").read_text().split()
            ends = (traces / f"{name}.ends").read_text().split()
            # a pod whose end nobody could see, because its node vanished, is made again
            assert len(ends) == 1 or len(runs) > 1
            assert len(runs) <= controllers.made[name]
        eventually(lambda: not [p for p in kube.pods() if p["metadata"].get("finalizers")])
        assert kube.kubelets.running() == []


def test_jobs_survive_kills_expired_watches_and_a_vanished_node(kube, serve, tmp_path):
    play(kube, serve("capacity", THREE), tmp_path, 9, 3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
def test_sixty_jobs_of_others_and_twenty_kills(kube, serve, tmp_path, policy):
    play(kube, serve(policy, THREE), tmp_path, 60, 20, seed=2)
