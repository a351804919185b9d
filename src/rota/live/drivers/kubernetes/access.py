"""Where the API server is, and as whom to talk to it: a kubeconfig, or the account of a pod."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, parts, text

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFUSED = {
    "exec": "a plug-in", "auth-provider": "a plug-in", "username": "a password",
}  # fmt: skip


class KubeAccess:
    """An address, whom to trust there, and what to show.

    Args:
        server: The URL of the API server.
        verify: Whose certificates are trusted; it may carry a certificate of our own.
        token: What to show; empty: the certificate says who we are.
        token_file: Read at every request instead of `token`: tokens of pods are renewed.
        namespace: Where its owner works.
    """

    def __init__(
        self, server: str, verify: ssl.SSLContext, *, token: str = "",
        token_file: Path | None = None, namespace: str = "default",
    ) -> None:  # fmt: skip
        self.server = server.rstrip("/")
        self.verify = verify
        self.namespace = namespace
        self._token = token
        self._token_file = token_file

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        token = self._token
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip()
            except OSError as error:
                raise ClusterError(
                    f"the token of Kubernetes cannot be read ({self._token_file}: "
                    f"{error.strerror})", retryable=True,
                ) from error  # fmt: skip
        return {"authorization": f"Bearer {token}"} if token else {}


def find_access(kubeconfig: str = "", context: str = "") -> KubeAccess:
    """As `kubectl` finds it: the file named, KUBECONFIG, ~/.kube/config, the account of a pod."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    usual = Path.home() / ".kube/config"
    if named:
        return _from_file(Path(named), context)
    if usual.exists():
        return _from_file(usual, context)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if host and (ACCOUNT / "token").exists():
        return _of_pod(host, os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    raise ClusterError(
        "no Kubernetes cluster is known: set KUBECONFIG (of a daemon, or set "
        "`kubernetes.kubeconfig`), or run Rota in a pod with a service account"
    )


def _of_pod(host: str, port: str) -> KubeAccess:
    verify = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    host = f"[{host}]" if ":" in host else host
    place = ACCOUNT / "namespace"
    namespace = place.read_text().strip() if place.exists() else "default"
    return KubeAccess(
        f"https://{host}:{port}", verify, token_file=ACCOUNT / "token", namespace=namespace
    )


def _from_file(path: Path, context: str) -> KubeAccess:
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ClusterError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path}: is no kubeconfig: it is not valid YAML") from error
    if not isinstance(config, Mapping):
        raise ClusterError(f"{path}: is no kubeconfig")
    name = context or text(config, "current-context")
    if not name:
        raise ClusterError(
            f"{path}: has no current-context: set one (`kubectl config use-context`), or "
            "the daemon's setting `kubernetes.context`"
        )
    chosen = _entry(path, config, "contexts", "context", name)
    cluster = _entry(path, config, "clusters", "cluster", text(chosen, "cluster"))
    user = _entry(path, config, "users", "user", text(chosen, "user"))
    for key, what in REFUSED.items():
        if key in user:
            raise ClusterError(
                f"{path}: the user {text(chosen, 'user')!r} needs {what} ({key}): Rota takes a "
                "token or a certificate; make a service account for it"
            )
    folder = path.parent
    try:
        verify = _trust(folder, cluster)
        _show_certificate(folder, user, verify)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ClusterError(f"{path}: a certificate or key cannot be used ({error})") from error
    token_file = text(user, "tokenFile")
    return KubeAccess(
        text(cluster, "server"), verify, token=text(user, "token"),
        token_file=folder / token_file if token_file else None,
        namespace=text(chosen, "namespace") or "default",
    )  # fmt: skip


def _entry(path: Path, config: Mapping[str, Any], many: str, one: str, name: str) -> Any:
    for entry in parts(config, many):
        if entry.get("name") == name:
            return part(entry, one)
    raise ClusterError(f"{path}: has no entry {name!r} in `{many}`")


def _trust(folder: Path, cluster: Mapping[str, Any]) -> ssl.SSLContext:
    data, file = text(cluster, "certificate-authority-data"), text(cluster, "certificate-authority")
    if cluster.get("insecure-skip-tls-verify"):
        verify = ssl.create_default_context()
        verify.check_hostname = False
        verify.verify_mode = ssl.CERT_NONE
        return verify
    if data:
        return ssl.create_default_context(cadata=base64.b64decode(data).decode())
    return ssl.create_default_context(cafile=str(folder / file) if file else None)


def _show_certificate(folder: Path, user: Mapping[str, Any], verify: ssl.SSLContext) -> None:
    """A certificate of the user, from files or from the kubeconfig itself."""
    with tempfile.TemporaryDirectory() as place:
        found = []
        for what in ("client-certificate", "client-key"):
            data = text(user, f"{what}-data")
            if data:
                found.append(Path(place) / what)
                found[-1].touch(0o600)
                found[-1].write_bytes(base64.b64decode(data))
            elif text(user, what):
                found.append(folder / text(user, what))
        if len(found) == 2:  # noqa: PLR2004 - the certificate and its key
            verify.load_cert_chain(*map(str, found))
