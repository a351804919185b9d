"""Rota as scheduler of 5,000 pods on 500 nodes of a real API server.

Nodes and kubelets are pretended: a pod that is bound is reported as running, and soon as ended. The
API server, the daemon and all their requests are real. Prints how long it took, the daemon's
memory, the latency of its decisions, and its requests for a pod.
`--pods` and `--nodes` change the size. Needs `make system-deps`. Times are those of this machine
with whatever else it does.
"""

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from daemon_process import DaemonProcess
from kube_cluster import KubeCluster, require_kubernetes
from kubelets import now
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.access import find_access
from rota.live.drivers.kubernetes.api import KubeApi, KubeError

MOST_MIB, MOST_P99_S, MOST_REQUESTS, MOST_NOTES = 500.0, 0.25, 3.0, 0.2
GPUS, LASTS_S, PATIENCE_S = 8, 0.2, 1800.0
PODS = "/api/v1/namespaces/default/pods"


class PretendedKubelets:
    """Pods that are bound run for a while, and end well; nothing is executed."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: set[str] = set()
        self._pool = ThreadPoolExecutor(16)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._api.end_watches()
        self._thread.join()
        self._pool.shutdown()
        self._api.close()

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                items, version = self._api.pages(PODS)
                for item in items:
                    self._see(item)
                for _, item in self._api.watch(PODS, version):
                    self._see(item)
            except KubeError:
                self._closing.wait(0.2)

    def _see(self, item: dict) -> None:
        uid = text(part(item, "metadata"), "uid")
        if text(part(item, "spec"), "nodeName") and uid not in self._seen:
            self._seen.add(uid)
            self._pool.submit(self._run, part(item, "metadata")["name"])

    def _run(self, name: str) -> None:
        began = now()
        self._tell(name, "Running", {"running": {"startedAt": began}})
        if not self._closing.wait(LASTS_S):
            over = {"exitCode": 0, "startedAt": began, "finishedAt": now()}
            self._tell(name, "Succeeded", {"terminated": over})

    def _tell(self, name: str, phase: str, state: dict) -> None:
        status = {"name": "c", "image": "none", "imageID": "", "ready": phase == "Running",
                  "restartCount": 0, "state": state}  # fmt: skip
        body = {"status": {"phase": phase, "containerStatuses": [status]}}
        self._api.patch(f"{PODS}/{name}/status", body)


def make_nodes(api: KubeApi, count: int) -> None:
    room = {"cpu": "64", "memory": "256Gi", "pods": "500", "nvidia.com/gpu": str(GPUS)}
    ready = {"type": "Ready", "status": "True", "reason": "x", "lastTransitionTime": now()}
    for number in range(count):
        name = f"node-{number:04}"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        api.create("/api/v1/nodes", node)
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def make_pod(api: KubeApi, number: int) -> None:
    container = {"name": "c", "image": "none", "resources": {"limits": {
        "nvidia.com/gpu": str((1, 1, 2, 4, 8)[number % 5])}}}  # fmt: skip
    api.create(PODS, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number:05}"},
        "spec": {"schedulerName": "rota", "restartPolicy": "Never", "containers": [container]},
    })  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=500)
    asked = parser.parse_args()
    require_kubernetes()
    with tempfile.TemporaryDirectory() as name, KubeCluster(Path(name) / "kube", nodes=0) as kube:
        folder = Path(name)
        make_nodes(kube.api, asked.nodes)
        kubelets = PretendedKubelets(KubeApi(find_access(str(kube.kubeconfig))))
        config = folder / "rota.yaml"
        config.write_text(
            "backend: kubernetes\npolicy: fifo-skip\n"
            f"kubernetes: {{kubeconfig: '{kube.kubeconfig}', scheduler_name: rota}}\n"
        )
        daemon = DaemonProcess(folder / "daemon", "--config", config)
        daemon.start()
        begun_s = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: make_pod(kube.api, number), range(asked.pods)))
        made_s = time.monotonic() - begun_s
        while True:
            status = daemon.client.status()
            if status["jobs"].get("SUCCEEDED", 0) >= asked.pods:
                break
            if time.monotonic() - begun_s > PATIENCE_S:
                raise SystemExit(f"only {status['jobs']} after {PATIENCE_S:g} s")
            time.sleep(1)
        took_s = time.monotonic() - begun_s
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{daemon.pid}/status").read_text())
        mib = int(peak[1]) / 1024 if peak else 0.0
        p99_s = status["decision_s"]["p99"]
        daemon.stop()
        kubelets.close()
        told = re.findall(r"requests to the API server: (.*); (\d+) of them", daemon.log())[-1]
        requests = {verb: int(many) for many, verb in re.findall(r"(\d+) (\w+)", told[0])}
    changing = sum(many for verb, many in requests.items() if verb not in ("GET", "WATCH"))
    each, notes = (changing - int(told[1])) / asked.pods, int(told[1]) / asked.pods
    print(
        f"{asked.pods:,} pods on {asked.nodes:,} nodes: made in {made_s:.0f} s, all over after "
        f"{took_s:.0f} s; memory {mib:.0f} MiB (below {MOST_MIB:g}), decisions p99 "
        f"{1000 * p99_s:.0f} ms (below {1000 * MOST_P99_S:g}), requests for a pod {each:.2f} (at "
        f"most {MOST_REQUESTS:g}) and {notes:.2f} for notes on why it waits (at most "
        f"{MOST_NOTES:g}); {requests}; load {os.getloadavg()[0]:.1f}"
    )
    met = mib < MOST_MIB and p99_s < MOST_P99_S
    return 0 if met and each <= MOST_REQUESTS and notes <= MOST_NOTES else 1


if __name__ == "__main__":
    sys.exit(main())
