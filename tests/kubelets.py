"""Kubelets without containers: pods of a real API server become processes of this machine.

Each node has fake GPUs. A pod that names one of the nodes is started as a process; the kubelet
reports its state, keeps its output, gives it to the API server, and on deletion sends SIGTERM,
waits for the grace period and kills whatever is left.
"""

import contextlib
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rota.core.kubernetes import part, parts, quantity, text
from rota.live.drivers.kubernetes.api import KubeApi, KubeError

MARK = "KUBELET_POD"
EXPANSION = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
GPU = "nvidia.com/gpu"


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelets:
    """All kubelets of a cluster, in threads of the test's process."""

    def __init__(self, api: KubeApi, folder: Path, nodes: int, gpus: int, certificate: Path):
        self.api = api
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.gpus = gpus
        self.vanished: set[str] = set()
        self.started: list[tuple[str, str]] = []  # (namespace/name, uid), as they were started
        self._folder = folder
        self._pods: dict[str, _RunningPod] = {}  # by uid
        self._seen: set[str] = set()
        self._ending: set[str] = set()
        self._helpers: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)
        self._server = _log_server(self, certificate)
        self._port = self._server.server_address[1]
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def register(self):
        for name in self.names:
            self.join(name)

    def join(self, name, gpus=None, labels=None, resource=GPU):
        """Make a node, or bring it back."""
        about = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "a100", **(labels or {})}
        with contextlib.suppress(KubeError):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": about}}
            self.api.create("/api/v1/nodes", node)
        if name not in self.names:
            self.names.append(name)
        self.vanished.discard(name)
        self.report(name, ready=True, gpus=gpus, resource=resource)
        self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        for item in self.api.pages("/api/v1/pods")[0]:  # what came while it was away
            self._see(item)

    def report(self, name, *, ready, gpus=None, resource=GPU):
        """The state of a node."""
        room = {"cpu": "64", "memory": "256Gi", "pods": "500", resource: str(gpus or self.gpus)}
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "Test",
                     "lastHeartbeatTime": now(), "lastTransitionTime": now()}  # fmt: skip
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": {
            "capacity": room, "allocatable": room, "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }})  # fmt: skip

    def vanish(self, name):
        """The machine is gone, with all that ran on it; nobody tells."""
        self.vanished.add(name)
        for uid, pod in list(self._pods.items()):
            if pod.node == name:
                pod.kill()
                del self._pods[uid]

    def close(self):
        self._closing.set()
        self.api.end_watches()
        self._watcher.join()
        for pod in list(self._pods.values()):
            pod.kill()
            pod.process.wait()
        for helper in self._helpers:
            helper.join()
        self.api.close()
        self._server.shutdown()
        self._server.server_close()

    def _help(self, work, subject):
        helper = threading.Thread(target=work, args=(subject,), daemon=True)
        self._helpers = [other for other in self._helpers if other.is_alive()]
        self._helpers.append(helper)
        helper.start()

    def running(self):
        """Names of pods with a process."""
        return sorted(pod.name for pod in self._pods.values() if pod.process.poll() is None)

    # --- pods -------------------------------------------------------------------------------------

    def _watch(self):
        while not self._closing.is_set():
            try:
                items, version = self.api.pages("/api/v1/pods")
                for item in items:
                    self._see(item)
                for kind, item in self.api.watch("/api/v1/pods", version):
                    if self._closing.is_set():
                        return
                    if kind in ("ADDED", "MODIFIED"):
                        self._see(item)
            except KubeError:
                self._closing.wait(0.1)

    def _see(self, item):
        about, spec = part(item, "metadata"), part(item, "spec")
        node, uid = text(spec, "nodeName"), text(about, "uid")
        if node not in self.names or node in self.vanished:
            return
        with self._lock:
            fresh = uid not in self._seen and text(part(item, "status"), "phase") == "Pending"
            self._seen.add(uid)
            ends = about.get("deletionTimestamp") is not None and uid not in self._ending
            if ends:
                self._ending.add(uid)
        if ends:
            self._help(self._end, item)
        elif fresh:
            self._start(item, uid, node)

    def _start(self, item, uid, node):
        about, spec = part(item, "metadata"), part(item, "spec")
        wanted = _gpus(spec)
        held = sum(pod.gpus for pod in self._pods.values() if pod.node == node and not pod.over)
        if held + wanted > self.gpus:
            self._patch(item, {"phase": "Failed", "reason": "OutOfnvidia.com/gpu",
                               "message": "Node didn't have enough resource"})  # fmt: skip
            return
        self.started.append((f"{about['namespace']}/{about['name']}", uid))
        pod = self._pods[uid] = _RunningPod(item, self._folder / uid, wanted)
        self._tell(pod, "Running", {"running": {"startedAt": pod.began}})
        self._help(self._wait, pod)

    def _wait(self, pod):
        code = pod.wait()
        pod.over = True  # first: who hears of it may send another one at once
        if pod.node in self.vanished or self._closing.is_set():
            return
        over = {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                "message": pod.message(), "startedAt": pod.began, "finishedAt": now()}  # fmt: skip
        self._tell(pod, "Succeeded" if code == 0 else "Failed", {"terminated": over})
        pod.told = True

    def _end(self, item):
        uid = text(part(item, "metadata"), "uid")
        pod = self._pods.get(uid)
        if pod is not None and not pod.told:
            grace = part(item, "metadata").get("deletionGracePeriodSeconds", 30)
            pod.end(grace)
            while not pod.told and not self._closing.is_set() and pod.node not in self.vanished:
                time.sleep(0.02)
        self._request(lambda: self.api.delete(
            _path(item), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}))  # fmt: skip

    def _tell(self, pod, phase, state):
        spec = part(pod.item, "spec")
        container = parts(spec, "containers")[0]
        ready = phase == "Running"
        self._patch(pod.item, {
            "phase": phase, "startTime": pod.began, "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": now()}],
            "containerStatuses": [{
                "name": container["name"], "image": container.get("image", ""), "imageID": "",
                "ready": ready, "restartCount": 0, "state": state,
            }],
        })  # fmt: skip

    def _patch(self, item, status):
        self._request(lambda: self.api.patch(_path(item) + "/status", {"status": status}))

    def _request(self, call):
        """Until the API server has taken it, as a kubelet does."""
        while not self._closing.is_set():
            try:
                return call()
            except KubeError as error:
                if not error.retryable:
                    return None
                self._closing.wait(0.1)
        return None

    def output(self, namespace, name):
        """The file with the output of the latest pod of this name."""
        found = [pod for pod in self._pods.values() if pod.name == f"{namespace}/{name}"]
        return found[-1].output if found else None


class _RunningPod:
    def __init__(self, item, folder, gpus):
        about, spec = part(item, "metadata"), part(item, "spec")
        self.item = item
        self.name = f"{about['namespace']}/{about['name']}"
        self.node = text(spec, "nodeName")
        self.gpus = gpus
        self.over = self.told = False
        self.began = now()
        self.output = folder / "log"
        self._mark = about["uid"]
        self._end_file = folder / "end"
        folder.mkdir(parents=True)
        container = parts(spec, "containers")[0]
        envs = {one["name"]: text(one, "value") for one in parts(container, "env")}
        envs = {name: expand(value, envs) for name, value in envs.items()}
        words = [*container.get("command", []), *container.get("args", [])]
        command = [expand(word, envs) for word in words]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        envs |= {MARK: self._mark, "ROTA_END_FILE": str(self._end_file)}
        if "MASTER_ADDR" in envs:
            envs["MASTER_ADDR"] = "127.0.0.1"  # the names of a cluster's DNS
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], env=kept | envs, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._writer = threading.Thread(target=self._stamp, daemon=True)
        self._writer.start()

    def _stamp(self):
        with self.output.open("ab", buffering=0) as out, self.process.stdout as lines:
            for line in lines:
                stamp = f"{time.time_ns()}"
                at = datetime.fromtimestamp(int(stamp[:-9]), UTC).strftime("%Y-%m-%dT%H:%M:%S")
                out.write(f"{at}.{stamp[-9:]}Z ".encode() + line)

    def wait(self):
        code = self.process.wait()
        self.kill()  # a container ends with its first process
        self._writer.join()
        return 128 - code if code < 0 else code

    def message(self):
        return self._end_file.read_text() if self._end_file.exists() else ""

    def end(self, grace_s):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        """Everything that carries the mark of the pod."""
        mark = f"{MARK}={self._mark}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    os.kill(int(place.name), signal.SIGKILL)


def expand(word, envs):
    """As kubelets do: `$(NAME)` is replaced, `$$` is a dollar."""
    return EXPANSION.sub(lambda m: "$" if not m[1] else envs.get(m[1], m[0]), word)


def _gpus(spec):
    return sum(
        int(quantity(part(one, "resources", "limits").get(GPU)))
        for one in parts(spec, "containers")
    )


def _path(item):
    about = part(item, "metadata")
    return f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"


def _log_server(kubelets, certificate):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            _, what, namespace, pod, _ = (url.path + "////").split("/", 4)
            file = kubelets.output(namespace, pod) if what == "containerLogs" else None
            content = file.read_bytes() if file is not None else b""
            since = parse_qs(url.query).get("sinceTime", [""])[0]
            if since:
                lines = content.splitlines(keepends=True)
                content = b"".join(line for line in lines if line[:19] >= since[:19].encode())
            self.send_response(200 if file is not None else 404)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "apiserver.crt", certificate / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
