"""Machines that are network namespaces, and a daemon in one of them; nothing of it leaves them."""

import contextlib
import ctypes
import json
import secrets
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from agents_net import eventually
from daemon_process import DaemonProcess, ServedProcess
from needs import SYSTEM, need
from rota.sdk import Client

CLONE_NEWNET = 0x40000000
PREFIX = "10.213.0"  # in namespaces of their own: no other test can have it at the same time


def ip(*words):
    """Run the command `ip`; skip (fail in CI) where it may not do that."""
    try:
        result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        problem = result.stderr.strip() if result.returncode else ""
    except OSError as error:
        problem = str(error)
    need(not problem, f"root and iproute2, to make network namespaces ({problem})", SYSTEM)


class Namespace:
    """A network namespace, and a thread in it: what the thread starts or connects is inside."""

    def __init__(self, name, address):
        self.name = name
        self.address = address
        ip("netns", "add", name)
        self.file = Path("/run/netns", name)
        self.inode = self.file.stat().st_ino
        self._thread = ThreadPoolExecutor(1, name, self._enter)
        ip("-n", name, "link", "set", "lo", "up")

    def _enter(self):
        library = ctypes.CDLL(None, use_errno=True)
        with self.file.open("rb") as file:
            if library.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def do(self, call, *args, **options):
        """Call it in there; its result."""
        return self._thread.submit(call, *args, **options).result()

    def processes(self):
        """Commands of the processes in there."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if (entry / "ns" / "net").stat().st_ino == self.inode:
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" "))
        return found

    def close(self):
        """Remove it."""
        self._thread.shutdown()
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class Network:
    """A namespace with a bridge, and others that are linked to it."""

    def __init__(self, others):
        tag = secrets.token_hex(3)
        self._opened = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            self.hub = self._namespace(opened, tag, 0)
            ip("-n", self.hub.name, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.hub.name, "addr", "add", f"{self.hub.address}/24", "dev", "bridge")
            ip("-n", self.hub.name, "link", "set", "bridge", "up")
            self.others = [self._linked(opened, tag, number) for number in range(1, others + 1)]
            self._opened = opened.pop_all()

    @staticmethod
    def _namespace(opened, tag, number):
        made = Namespace(f"rota-{tag}-{number}", f"{PREFIX}.{number + 1}")
        opened.callback(made.close)
        return made

    def _linked(self, opened, tag, number):
        made = self._namespace(opened, tag, number)
        hub, port = self.hub.name, f"port{number}"
        ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
           made.name)  # fmt: skip
        ip("-n", hub, "link", "set", port, "master", "bridge", "up")
        ip("-n", made.name, "addr", "add", f"{made.address}/24", "dev", "eth0")
        ip("-n", made.name, "link", "set", "eth0", "up")
        return made

    def link(self, number, state):
        """Turn the link of the n-th machine (counted from 0) `up` or `down`."""
        ip("-n", self.hub.name, "link", "set", f"port{number + 1}", state)

    def close(self):
        """Remove all of it."""
        self._opened.close()

    def left(self):
        """Namespaces that are still there, and processes in any of them."""
        spaces = [self.hub, *self.others]
        return [space.name for space in spaces if space.file.exists()] + [
            found for space in spaces for found in space.processes()
        ]


class FromInside(httpx2.BaseTransport):
    """Connects from within a namespace."""

    def __init__(self, namespace):
        self._namespace = namespace
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request):
        return self._namespace.do(self._inner.handle_request, request)

    def close(self):
        self._inner.close()


class DaemonInside(DaemonProcess):
    """`rota serve` in a namespace; what asks it is in there too. It keeps its port."""

    def __init__(self, namespace, folder, *args, **options):
        super().__init__(folder, *args, **options)
        self.namespace = namespace
        self.port = 0

    def start(self, *args, ready=True):
        super().start(*args, ready=ready)
        self.port = self._announced().rpartition(":")[2]
        return self

    def _announced(self):
        return json.loads((self.state / "server.json").read_text())["url"]

    def launch(self, *args):
        listen = f"{self.namespace.address}:{self.port}"
        return self.namespace.do(super().launch, "--listen", listen, "--plain-text", *args)

    def connect(self, *, token=None, patience_s=20.0):
        token = token or (self.state / "token").read_text().strip()
        inside = FromInside(self.namespace)
        return Client(self._announced(), token, patience_s=patience_s, transport=inside)

    def rota(self, *args, **options):
        return self.namespace.do(super().rota, *args, **options)

    @property
    def url(self):
        return f"http://{self.namespace.address}:{self.port}"


class Machine:
    """A machine with `rota agent`; its folder outlives the process."""

    def __init__(self, namespace, daemon, name):
        self.namespace = namespace
        self.name = name
        self.root = daemon.folder / f"agent-{name}"
        self.log = daemon.folder / f"{name}.log"
        self.agent = None
        self._daemon = daemon
        daemon.roots.append(self.root)

    @property
    def address(self):
        return self.namespace.address

    def start(self, *options, token_file, server=None, env=None):
        """Start the agent; options that come again count."""
        words = ["--server", server or self._daemon.url, "--token-file", token_file]
        words += ["--name", self.name, "--gpus", 2, "--root", self.root, *options]
        self.agent = self.namespace.do(ServedProcess, self.log, "agent", *words, env=env)
        self._daemon.agents.append(self.agent)
        return self

    def text(self):
        """What its agents have written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def says(self, *words):
        """Wait until it has written all of these words."""
        eventually(lambda: all(word in self.text() for word in words), every_s=0.05)
