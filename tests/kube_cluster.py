"""A real Kubernetes API server on this machine: etcd and kube-apiserver on loopback.

`scripts/kube-apiserver` builds it once. Both are children of the test process and die with it.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

from claims import claimed_ports
from kubelets import Kubelets
from needs import ROOT, SYSTEM, need
from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes.access import find_access
from rota.live.drivers.kubernetes.api import KubeApi

SCRIPT = Path(__file__).parents[1] / "scripts/kube-apiserver"
PATIENCE_S = 300.0
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
ADMIN = "tests-admin-token"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
  - {{name: c, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: {ca}}}}}
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: default}}}}]
current-context: x
"""


def api_server() -> str:
    """Where the program is; empty if it was not built."""
    found = subprocess.run([SCRIPT, "--where"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def require_kubernetes() -> None:
    """Skip the test where there is no API server; fail it in CI."""
    missing = [name for name in ("etcd", "openssl", "setpriv") if shutil.which(name) is None]
    if not api_server():
        missing.append("kube-apiserver")
    need(not missing, f"Kubernetes ({', '.join(missing)})", SYSTEM)
    need(os.geteuid() == 0, "root, because `make system-deps` builds its API server", ROOT)


class KubeCluster:
    """etcd, an API server, and kubelets that run pods as processes."""

    def __init__(self, base: Path, *, nodes: int = 4, gpus: int = 4) -> None:
        self.base = base
        self.kubeconfig = base / "kubeconfig"
        self._nodes, self._gpus = nodes, gpus
        self._etcd: subprocess.Popen | None = None
        self._server: subprocess.Popen | None = None
        self.api: KubeApi | None = None
        self._port, self._etcd_port, self._peer_port = claimed_ports(3)

    def __enter__(self) -> Self:
        base = self.base
        base.mkdir(parents=True, exist_ok=True)
        keys = subprocess.run(
            ["openssl", "genrsa", "-out", base / "sa.key", "2048"], capture_output=True, check=True
        )
        assert keys.returncode == 0
        self.grant("admin", ADMIN, "system:masters")
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            stack.callback(self._hang_up)
            self._start_etcd()
            self.start_server()
            self.wait_ready()
            self.kubelets = Kubelets(
                KubeApi(find_access(str(self.kubeconfig))), base / "pods", self._nodes, self._gpus,
                base / "certs",
            )  # fmt: skip
            stack.callback(self.kubelets.close)
            self.kubelets.register()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def grant(self, user: str, token: str, *groups: str) -> Path:
        """Let a user in (before the server starts); a kubeconfig for them."""
        with (self.base / "tokens.csv").open("a") as file:
            file.write(f'{token},{user},{user},"{",".join(groups)}"\n')
        path = self.base / ("kubeconfig" if user == "admin" else f"kubeconfig-{user}")
        ca = self.base / "certs/apiserver.crt"
        path.write_text(KUBECONFIG.format(port=self._port, ca=ca, token=token))
        return path

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._etcd = self._run(
            "etcd", "--data-dir", self.base / "etcd", "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip

    def start_server(self) -> None:
        """Start the API server, perhaps again."""
        self._server = self._run(
            api_server(), f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}", f"--cert-dir={self.base / 'certs'}",
            f"--token-auth-file={self.base / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.base / 'sa.key'}",
            f"--service-account-signing-key-file={self.base / 'sa.key'}",
            "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
        )  # fmt: skip

    def stop_server(self) -> None:
        """Kill the API server."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def wait_ready(self) -> None:
        """Until the API server answers and has its own rules."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self._server is not None and self._server.poll() is not None:
                raise RuntimeError((self.base / "kube-apiserver.log").read_text()[-2000:])
            with contextlib.suppress(ClusterError):
                if self.api is None:  # its certificate is made when it starts
                    self.api = KubeApi(find_access(str(self.kubeconfig)))
                if self.api.text("/readyz") == b"ok":
                    self.api.get("/api/v1/namespaces/default")
                    return
            time.sleep(0.1)
        raise TimeoutError("the API server never became ready")

    def _run(self, *command: object) -> subprocess.Popen:
        name = Path(str(command[0])).name
        with (self.base / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*DIES_WITH_US, *map(str, command)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def _stop(self) -> None:
        for process in (self._server, self._etcd):
            if process is not None:
                process.kill()
                process.wait()

    def _hang_up(self) -> None:
        if self.api is not None:
            self.api.close()

    def pods(self, selector: str = "") -> list[dict]:
        """Pods of all namespaces."""
        query = {"labelSelector": selector} if selector else {}
        return self.api.pages("/api/v1/pods", **query)[0]
