"""A daemon on the Kubernetes cluster of the tests: its settings, what it says, what befalls it."""

import contextlib
import time
from collections import Counter
from pathlib import Path

import yaml

from agents_net import eventually
from daemon_process import PATIENCE_S, DaemonProcess
from kube_cluster import KubeCluster

EXAMPLES = Path(__file__).parents[1] / "examples/kubernetes"
RULES = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = ("fifo", "tiresias:limits=6", "capacity")
"""Those that are tried with many kills: none, one and a hierarchy of preemptions."""


@contextlib.contextmanager
def cluster_of_others(base, *files, define=()):
    """Two nodes; user `rota` has the rights of these examples, `half` those of the first only.

    `define`: called with the API server before, to make kinds of objects known.
    """
    cluster = KubeCluster(base, nodes=2, gpus=4)
    cluster.granted = cluster.grant("rota", "a-token-of-the-examples")
    cluster.half = cluster.grant("half", "a-token-of-one-example")
    with cluster:
        for each in define:
            each(cluster.api)
        for number, file in enumerate(files):
            _allow(cluster, file, ["rota"] if number else ["rota", "half"])
        yield cluster


def _allow(cluster, file, users):
    """The rules of an example, for users instead of a service account."""
    for item in yaml.safe_load_all((EXAMPLES / file).read_text()):
        if item["kind"] != "ServiceAccount":
            if "subjects" in item:
                item["subjects"] = [{"kind": "User", "name": user} for user in users]
            space = item["metadata"].get("namespace")
            where = f"namespaces/{space}/" if space else ""
            cluster.api.create(f"{RULES}/{where}{item['kind'].lower()}s", item)


def serve(kubeconfig, folder, policy, quotas, **settings):
    """A daemon, started; `quotas`: of its queues, `settings`: more of `kubernetes`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "rota.yaml"
    queues = {name: {"quota": quota} for name, quota in quotas.items()}
    about = {"kubeconfig": str(kubeconfig), "lost_s": 1, **settings}
    said = {"backend": "kubernetes", "policy": policy, "queues": queues, "kubernetes": about}
    config.write_text(yaml.safe_dump(said))
    daemon = DaemonProcess(folder / "daemon", "--config", config, "--check")
    daemon.start()
    return daemon


def jobs(daemon):
    """Its jobs, by name."""
    return {info.name: info for info in daemon.client.jobs()}


def states(daemon):
    """Of its jobs, by name."""
    return {name: info.state for name, info in jobs(daemon).items()}


def state_counts(daemon):
    """How many jobs are in each state."""
    return Counter(info.state for info in daemon.client.jobs())


def wait_for(daemon, **wanted):
    """Until jobs have these states; `_` in a name stands for `-`."""
    names = {name.replace("_", "-"): state for name, state in wanted.items()}
    _wait(daemon, states, lambda seen: all(seen.get(n) == state for n, state in names.items()))


def wait_until(daemon, holds):
    """Until that holds of how many jobs are in each state."""
    _wait(daemon, state_counts, holds)


def _wait(daemon, look, holds):
    end_s = time.monotonic() + PATIENCE_S
    while not holds(seen := look(daemon)):
        assert time.monotonic() < end_s, f"{seen}\n{daemon.log()[-3000:]}"
        time.sleep(0.1)


def reasons(kube, name):
    """What the events of an object say, by their reasons."""
    events = kube.api.get("/api/v1/namespaces/default/events")["items"]
    return {e["reason"]: e["message"] for e in events if e["involvedObject"]["name"] == name}


# --- what befalls it ------------------------------------------------------------------------------


def restart_server(kube):
    """The API server is killed, and comes back."""
    kube.stop_server()
    kube.start_server()
    kube.wait_ready()


def lose_n2(kube, daemon):
    """A node vanishes with all that runs on it, the daemon notices, and it joins again."""
    kube.kubelets.vanish("n2")
    kube.kubelets.report("n2", ready=False)
    eventually(lambda: {n.name: n.state for n in daemon.client.nodes()}["n2"] == "down")
    kube.kubelets.join("n2")
