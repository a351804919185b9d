"""Three machines: agents in network namespaces of their own, real processes, real links."""

import os
import secrets
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from agents_net import PATIENCE_S, Told, alive, eventually, order
from claims import claim
from netns import ip
from rota.core.errors import UnavailableError
from rota.live.agent.transport import PATH
from rota.live.driver import NodeStatus, RunPart
from rota.live.drivers.local.driver import AgentDriver

SILENT_S, LOST_S = 1.0, 6.0
AGENT = [sys.executable, "-c", "from rota.cli.agent import agent; agent()"]
SLEEP = "echo $$ > pid; exec sleep 1000"


def is_there(prefix):
    """Has a run that was killed left its bridge behind? A second one would answer for it."""
    told = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True, check=False)
    return f" {prefix}.1/" in told.stdout


class Network:
    """A bridge with the server's address, and a namespace with a link to it for each machine."""

    def __init__(self):
        self.tag = secrets.token_hex(3)
        self.bridge = f"rb{self.tag}"
        networks = (f"10.211.{number}" for number in range(256))
        self.prefix = next(each for each in networks if claim(each) and not is_there(each))
        self.count = 0
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.prefix}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def machine(self):
        """Make a namespace; its name and its address."""
        self.count += 1
        name, link = f"rota{self.tag}{self.count}", f"rv{self.tag}{self.count}"
        address = f"{self.prefix}.{self.count + 1}"
        ip("netns", "add", name)
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", link, "master", self.bridge, "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        return name, address, link

    def close(self):
        """Remove everything."""
        for number in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "del", f"rota{self.tag}{number}"], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)


class Server:
    """The driver behind HTTP, as the daemon's API has it."""

    def __init__(self, address, token, lost_s):
        self.told = Told()
        self.driver = AgentDriver(silent_s=SILENT_S, lost_s=lost_s)
        self.driver.open(self.told)
        self.driver.adopt([], frozenset())
        driver = self.driver

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != f"Bearer {token}" or self.path != PATH:
                    self._answer(401, b"who are you?")
                    return
                try:
                    self._answer(200, driver.sync_json(body, "nodes"))
                except UnavailableError as error:
                    self._answer(503, str(error).encode())

            def _answer(self, code, data):
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        class Http(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                """Say nothing: links are cut here."""

        self.http = Http((address, 0), Handler)
        self.url = f"http://{address}:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.driver.close()
        self.http.shutdown()
        self.http.server_close()


class RemoteAgent:
    """A process `rota agent` in a namespace."""

    def __init__(self, lab, number):
        self.lab = lab
        self.node = f"n{number}"
        self.namespace, self.address, self.link = lab.network.machine()
        self.root = lab.folder / self.node
        self.log = lab.folder / f"{self.node}.log"
        self.process = None

    def start(self, *options, token_file=None):
        words = ["--server", self.lab.server.url, "--name", self.node, "--gpus", "2"]
        words += ["--token-file", str(token_file or self.lab.token_file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *AGENT, *words, "--root", str(self.root),
                 *options],
                stderr=log, env={**os.environ, "ROTA_TOKEN": "not for jobs"},
            )  # fmt: skip
        return self

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def pid_of(self, job):
        path = self.root / "jobs" / job / "work" / "pid"
        return int(eventually(lambda: path.exists() and path.read_text().strip()))


class Lab:
    def __init__(self, folder, lost_s=PATIENCE_S):
        self.folder = folder
        self.token_file = folder / "token"
        self.token_file.touch(0o600)
        self.token_file.write_text("t0ken\n")
        self.network = Network()
        self.agents = []
        self.server = Server(f"{self.network.prefix}.1", "t0ken", lost_s)
        self.told, self.driver = self.server.told, self.server.driver

    def add(self):
        self.agents.append(RemoteAgent(self, len(self.agents)))
        return self.agents[-1]

    def states(self, node):
        """What was told of a node, in order."""
        return [m.state for m in self.told.messages if isinstance(m, NodeStatus) and m.node == node]

    def close(self):
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.end(signal.SIGKILL)
        self.server.close()
        for path in self.folder.glob("n*/runs/*/identity.json"):
            pid = msgspec.json.decode(path.read_bytes())["pid"]
            if alive(pid):
                (path.parent / "stop").write_text("kill")
                os.kill(pid, signal.SIGCONT)
                eventually(lambda pid=pid: not alive(pid))
        self.network.close()


@pytest.fixture
def lab(tmp_path):
    """Machines that may be away for long."""
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hasty(tmp_path):
    """Machines that are given up soon."""
    made = Lab(tmp_path, LOST_S)
    yield made
    made.close()


MEET = """
if [ $RANK = 0 ]; then
  python3 -c "import os, socket
s = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))
c, peer = s.accept(); print('met', peer[0])"
else
  python3 -c "import os, socket, time
while True:
    try: socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))
    except OSError: time.sleep(0.05)
    else: break"
fi
env | grep -c ROTA_TOKEN; grep -c 'not for' /proc/$PPID/environ
exit 0
"""


def test_three_machines_join_are_cut_off_and_return(hasty):
    lab = hasty
    agents = [lab.add().start() for _ in range(3)]
    for number in range(3):
        spec = lab.told.node(f"n{number}", "up").spec
        assert (spec.name, spec.gpus) == (f"n{number}", 2)

    # a job on two machines finds its peer
    parts = [RunPart("n1", ((-1, 1.0),), 0, 0, 1), RunPart("n2", ((-1, 1.0),), 1, 1, 1)]
    lab.driver.launch(order("1.0", MEET, parts=parts, master_port=23456))
    assert lab.told.end("1.0").code == 0
    assert (
        lab.driver.read_log("1", "out", 0, 0, 1000) == f"met {agents[2].address}\n0\n0\n".encode()
    )
    assert lab.driver.read_log("1", "out", 1, 0, 1000) == b"0\n0\n"
    lab.driver.forget("1.0")

    # one machine is cut off: its job is gone before the server gives it up, the others go on
    lab.driver.launch(order("2.0", "trap '' TERM; " + SLEEP, node="n1"))
    lab.driver.launch(order("3.0", SLEEP, node="n2"))
    pid, other = agents[1].pid_of("2"), agents[2].pid_of("3")
    lab.told.run("2.0", "running")
    ip("link", "set", agents[1].link, "down")
    lab.told.node("n1", "silent")
    lab.told.node("n1", "lost")
    assert not alive(pid)
    assert lab.told.end("2.0").state == "lost"
    assert alive(other)
    assert not {"lost"} & {*lab.states("n0"), *lab.states("n2")}

    # it returns, and what was lost stays lost
    lab.driver.forget("2.0")
    ip("link", "set", agents[1].link, "up")
    eventually(lambda: lab.states("n1")[-1] == "up")
    lab.driver.launch(order("2.1", "echo again", node="n1", restart=1))
    assert lab.told.end("2.1").code == 0
    assert lab.driver.read_log("2", "out", 0, 0, 100) == b"again\n"
    eventually(lambda: not list(agents[1].root.glob("runs/2.0-*")))
    assert lab.told.runs("2.0") == ["running", "lost"]
    assert lab.told.runs("3.0") == ["running"]


def test_an_agent_is_killed_stopped_and_leaves(lab):
    agent = lab.add().start()
    lab.told.node("n0", "up")
    lab.driver.launch(order("1.0", "while [ ! -e go ]; do sleep 0.05; done; exit 5"))
    lab.told.run("1.0", "running")
    agent.end(signal.SIGKILL)
    agent.start()
    eventually(lambda: "run.adopted" in agent.log.read_text())
    assert agent.end(signal.SIGTERM) == 0  # the job goes on without it
    (agent.root / "jobs" / "1" / "work" / "go").touch()
    eventually(lambda: list(agent.root.glob("runs/1.0-0/exit.json")))
    agent.start("--leave")
    end = lab.told.end("1.0")
    assert (end.state, end.code) == ("ended", 5)
    assert lab.told.runs("1.0") == ["running", "ended"]

    lab.driver.launch(order("2.0", SLEEP))
    pid = agent.pid_of("2")
    assert agent.end(signal.SIGTERM) == 0
    assert not alive(pid)
    end = lab.told.end("2.0")
    assert (end.state, end.why) == ("lost", "its node left")
    assert lab.told.node("n0", "lost").why == "left"
    assert "t0ken" not in agent.log.read_text()


def test_a_wrong_token_and_a_readable_one(lab):
    wrong = lab.folder / "wrong"
    wrong.touch(0o600)
    wrong.write_text("guess")
    agent = lab.add().start(token_file=wrong)
    eventually(lambda: "the server says 401" in agent.log.read_text())
    assert lab.told.messages == []
    wrong.write_text("t0ken")  # it is read again for each call
    lab.told.node("n0", "up")
    agent.end()
    wrong.chmod(0o644)
    assert agent.start(token_file=wrong).process.wait(PATIENCE_S) != 0
    assert "others can read it" in agent.log.read_text()


def test_help_explains_everything():
    result = subprocess.run([*AGENT, "--help"], capture_output=True, text=True, check=True)
    for word in ("--server", "--token-file", "--leave", "--gpus", "SIGTERM", "Example:"):
        assert word in result.stdout


def test_the_lab_leaves_nothing(lab):
    names = [lab.add().namespace, lab.network.bridge]
    assert Path(f"/run/netns/{names[0]}").exists()
    lab.close()
    assert not Path(f"/run/netns/{names[0]}").exists()
    assert not Path(f"/sys/class/net/{names[1]}").exists()
    lab.close = lambda: None
