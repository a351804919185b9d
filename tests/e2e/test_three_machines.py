"""Three machines and a daemon, each in a network namespace: join, drain, cut off, return."""

import contextlib
import json
import re
import stat

import pytest

from agents_net import PATIENCE_S, alive, eventually
from daemon_process import ServedProcess
from netns import DaemonInside, Machine, Network
from rota.core.errors import ForbiddenError

CONFIG = "check: true\nlog_json: true\nlocal: {{silent_s: 4, lost_s: {}}}\n"
PATIENT_S, HASTY_S = 600.0, 10.0  # when machines are given up: never, or soon
NAMES = ("n0", "n1", "n2")
WAIT = 'while [ ! -e "$GO" ]; do sleep 0.05; done; echo done'

# Says again and again that it runs, when, and who it is; it does not want to end.
BEAT = """
trap '' TERM
exec python3 -c "
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.environ['BEATS'], 'a', buffering=1) as file:
    while not os.path.exists(os.environ['GO']):
        file.write(f'{os.environ[\\"ROTA_RUN_ID\\"]} {os.getpid()} {time.monotonic()}\\\\n')
        time.sleep(0.02)
"
"""


class Lab:
    """The network, the daemon, the machines."""

    def __init__(self, folder, opened, lost_s):
        self.folder = folder
        self.network = Network(len(NAMES))
        opened.callback(self._gone)
        config = folder / "rota.yaml"
        config.write_text(CONFIG.format(lost_s))
        self.daemon = DaemonInside(self.network.hub, folder, "--config", config)
        opened.callback(self._close)
        self.daemon.start()
        self.token = self.make_token("machines", "agent")
        self.machines = {
            name: Machine(space, self.daemon, name)
            for name, space in zip(NAMES, self.network.others, strict=True)
        }
        self.files = 0

    def make_token(self, name, role):
        """A file with a new token, made by the command line."""
        path = self.folder / f"{name}.token"
        self.daemon.rota("token", "create", name, "--role", role, "--file", path)
        return path

    def file(self):
        """The name of a file that is not there."""
        self.files += 1
        return self.folder / f"file{self.files}"

    def has_output(self, job, text):
        """Wait until the output of a job is this."""
        try:
            eventually(lambda: self.daemon.output(job) == text, every_s=0.05)
        except AssertionError:
            found = self.daemon.output(job), self.daemon.client.job(job)
            raise AssertionError(f"{found}\n{self.daemon.log()[-3000:]}") from None

    def start(self, *names, **options):
        for name in names:
            self.machines[name].start(token_file=self.token, **options)

    def node(self, name):
        return {node.name: node for node in self.daemon.client.nodes()}.get(name)

    def node_is(self, name, *states):
        def there():
            found = self.node(name)
            return found if found is not None and found.state in states else None

        return eventually(there, every_s=0.05)

    def place_of(self, job):
        """The machine on which a job runs."""
        (name,) = self.daemon.until(job, "RUNNING").nodes
        return self.machines[name]

    def up(self):
        """Everything as it was: daemon, links, agents, nodes; nothing runs."""
        if not self.daemon.runs:
            self.daemon.start()
        client = self.daemon.client
        for number, name in enumerate(NAMES):
            self.network.link(number, "up")
            if not self.machines[name].agent.runs:
                self.start(name)
            if self.node(name).state.startswith("drain"):
                client.undrain(name)
        for node in client.nodes():  # of other tests, without an agent: nothing shall start there
            if node.name not in NAMES and not node.state.startswith("drain"):
                client.drain(node.name)
        for job in client.jobs(active=True):
            client.cancel(job.id)
        for name in NAMES:
            eventually(lambda name=name: self._idle(name), every_s=0.05)

    def _idle(self, name):
        node = self.node(name)
        return node.state == "up" and not node.jobs

    def _close(self):
        for number in range(len(NAMES)):
            self.network.link(number, "up")
        self.daemon.close()

    def _gone(self):
        self.network.close()
        assert self.network.left() == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A lab; jobs were there before the machines came."""
    with contextlib.ExitStack() as opened:
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("no_proxy", "*")  # no proxy can lead to these machines
        lab = Lab(tmp_path_factory.mktemp("machines"), opened, PATIENT_S)
        assert lab.daemon.rota("nodes", "-o", "json").stdout.strip() == "[]"
        early = [lab.daemon.submit("sleep 1000", gpus=2) for _ in NAMES]
        lab.early = [(lab.daemon.client.job(job), job) for job in early]
        lab.start(*NAMES)
        lab.began = [lab.daemon.until(job, "RUNNING") for job in early]
        lab.joined = json.loads(lab.daemon.rota("nodes", "-o", "json").stdout)
        yield lab


@pytest.fixture
def hasty(tmp_path):
    """A lab of its own, which gives machines up soon."""
    with contextlib.ExitStack() as opened:
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("no_proxy", "*")
        lab = Lab(tmp_path, opened, HASTY_S)
        lab.start(*NAMES)
        for name in NAMES:
            lab.node_is(name, "up")
        yield lab


@pytest.fixture
def lab(built):
    """The lab with three idle machines; the jobs of a test end with it."""
    built.up()
    yield built
    built.up()


def test_jobs_that_waited_start_when_machines_join(built):
    assert {info.state for info, _ in built.early} == {"PENDING"}
    assert sorted(name for info in built.began for name in info.nodes) == sorted(NAMES)
    listed = [(n["name"], n["state"], n["gpus"], n["free_gpus"]) for n in built.joined]
    assert sorted(listed) == [(name, "up", 2, 0) for name in NAMES]
    shown = built.daemon.rota("nodes").stdout
    assert all(name in shown for name in NAMES)
    assert stat.S_IMODE(built.token.stat().st_mode) == 0o600
    assert "tokens travel unencrypted" in built.daemon.log()


MEET = """
python3 - <<'END'
import os, socket
e = os.environ
where = e["MASTER_ADDR"], int(e["MASTER_PORT"])
rank, world = int(e["RANK"]), int(e["WORLD_SIZE"])
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR CUDA_VISIBLE_DEVICES"
text = " ".join(e[name] for name in names.split())
if rank == 0:
    server = socket.create_server(where)
    met = []
    for _ in range(world - 1):
        peer, address = server.accept()
        met.append(peer.makefile().readline().strip() + "@" + address[0])
    print(text, *sorted(met))
else:
    while True:
        try:
            peer = socket.create_connection(where)
        except OSError:
            import time
            time.sleep(0.05)
        else:
            break
    peer.sendall(f"{rank}\\n".encode())
    print(text)
END
"""


def test_a_job_on_two_machines_meets_its_peers(lab):
    job = lab.daemon.submit(MEET, gpus=2, nodes=2, per="gpu", retries=0)
    places = eventually(lambda: lab.daemon.client.job(job).nodes, every_s=0.02)
    assert lab.daemon.until(job, "SUCCEEDED").starts == 1
    outputs = [lab.daemon.rota("logs", job, "--rank", rank).stdout.splitlines() for rank in (0, 1)]
    first = next(line for line in outputs[0] if line.startswith("0 "))
    master = first.split()[5]
    other = next(m.address for m in lab.machines.values()
                 if m.name in places and m.address != master)  # fmt: skip
    assert master in [lab.machines[name].address for name in places]
    assert first == f"0 4 0 2 0 {master} 0,1 1@{master} 2@{other} 3@{other}"
    assert f"1 4 1 2 0 {master} 0,1" in outputs[0]
    assert sorted(outputs[1]) == [f"{2 + n} 4 {n} 2 1 {master} 0,1" for n in (0, 1)]


def test_the_output_of_a_distant_job(lab):
    go = lab.file()
    script = f"echo begin; echo oops >&2; {WAIT}"
    job = lab.daemon.rota("submit", "-", text=json.dumps(
        {"run": script, "envs": {"GO": str(go)}})).stdout.strip()  # fmt: skip
    lab.place_of(job)
    lab.has_output(job, "begin\n")
    assert lab.daemon.rota("logs", job, "--stdout").stdout == "begin\n"
    eventually(lambda: lab.daemon.output(job, stream="err"), every_s=0.05)
    assert lab.daemon.rota("logs", job, "--stderr").stdout == "oops\n"
    following = lab.daemon.namespace.do(
        ServedProcess, lab.folder / "followed", "logs", "-f", "--stdout", job,
        env={"ROTA_STATE": lab.daemon.state},
    )  # fmt: skip
    try:
        eventually(lambda: following.text() == "begin\n")
        assert following.runs
        go.touch()
        assert following.process.wait(PATIENCE_S) == 0
        assert following.text() == "begin\ndone\n"
    finally:
        following.kill()


def test_drain_lets_jobs_finish(lab):
    daemon, go, later = lab.daemon, lab.file(), lab.file()
    first = daemon.submit(WAIT, gpus=2, envs={"GO": str(go)})
    machine = lab.place_of(first)
    daemon.rota("drain", machine.name)
    assert lab.node(machine.name).state == "draining"
    others = [daemon.submit(WAIT, gpus=2, envs={"GO": str(later)}) for _ in range(3)]
    eventually(lambda: sorted(daemon.state_of(job) for job in others)
               == ["PENDING", "RUNNING", "RUNNING"], every_s=0.05)  # fmt: skip
    go.touch()
    assert daemon.until(first, "SUCCEEDED").starts == 1
    assert lab.node(machine.name).state == "drained"
    (waiting,) = [job for job in others if daemon.state_of(job) == "PENDING"]
    assert lab.node(machine.name).jobs == []
    daemon.rota("undrain", machine.name)
    assert lab.place_of(waiting) is machine
    later.touch()
    assert {daemon.until(job, "SUCCEEDED").starts for job in others} == {1}


def test_drain_stop_moves_jobs(lab):
    daemon, go = lab.daemon, lab.file()
    script = f"trap 'echo asked; exit 0' TERM; echo on $ROTA_NODE_NAME; {WAIT}"
    job = daemon.submit(script, envs={"GO": str(go)})
    before = lab.place_of(job)
    daemon.rota("drain", before.name, "--stop")
    lab.node_is(before.name, "drained")
    after = lab.place_of(job)
    assert after is not before
    so_far = f"on {before.name}\nasked\non {after.name}\n"
    lab.has_output(job, so_far)
    daemon.kill()
    daemon.start()  # it has to find out where the output is
    for machine in (before, after):
        lab.node_is(machine.name, "up", "drained")
    lab.has_output(job, so_far)
    go.touch()
    info = daemon.until(job, "SUCCEEDED")
    assert (info.starts, info.preemptions) == (2, 0)  # nobody took its place
    assert daemon.output(job) == f"{so_far}done\n"


def beats(path):
    """{run: (pids, first and last sign of life)}."""
    found = {}
    for line in path.read_text().splitlines():
        run, pid, time_s = line.split()
        pids, first_s, _ = found.get(run, (set(), float(time_s), 0))
        found[run] = pids | {int(pid)}, first_s, float(time_s)
    return found


class Signs:
    """A job that gives signs of life."""

    def __init__(self, lab, go, **keys):
        self.path = lab.file()
        envs = {"GO": str(go), "BEATS": str(self.path)}
        self.job = lab.daemon.submit(BEAT, envs=envs, **keys)
        lab.daemon.until(self.job, "RUNNING")
        eventually(lambda: self.path.exists() and beats(self.path))

    def pids(self, run=0):
        """Of one of its runs."""
        return beats(self.path)[f"{self.job}.{run}"][0]

    def began_again(self):
        """Wait for its second run; seconds from the last sign of the first to its first sign."""
        found = eventually(lambda: (b := beats(self.path)) and len(b) > 1 and b, every_s=0.05)
        assert set(found) == {f"{self.job}.0", f"{self.job}.1"}
        assert not found[f"{self.job}.0"][0] & found[f"{self.job}.1"][0]
        return found[f"{self.job}.1"][1] - found[f"{self.job}.0"][2]


def test_a_machine_that_is_cut_off_for_a_while_loses_nothing(lab):
    client, go = lab.daemon.client, lab.file()
    one = Signs(lab, go)
    machine = lab.place_of(one.job)
    lab.network.link(NAMES.index(machine.name), "down")
    lab.node_is(machine.name, "silent")
    assert client.job(one.job).state == "RUNNING"  # perhaps it is only the network
    assert all(map(alive, one.pids()))
    lab.network.link(NAMES.index(machine.name), "up")
    lab.node_is(machine.name, "up")
    go.touch()
    assert lab.daemon.until(one.job, "SUCCEEDED").starts == 1
    assert len(beats(one.path)) == 1


def test_a_machine_is_cut_off_and_returns(hasty):
    lab = hasty
    daemon, client, go = lab.daemon, lab.daemon.client, lab.file()
    # one job on n0 and n1, one on n0, one somewhere else
    client.drain("n2")
    pair = Signs(lab, go, nodes=2, checkpoint={"grace_s": 0.3})
    client.drain("n1")
    single = Signs(lab, go)
    client.undrain("n1")
    client.undrain("n2")
    client.drain("n0")
    bystander = Signs(lab, go)
    client.undrain("n0")
    machine = lab.machines["n0"]
    assert lab.node("n0").jobs == [pair.job, single.job]

    lab.network.link(0, "down")
    assert "not heard of" in lab.node_is("n0", "down").why
    assert not any(map(alive, single.pids()))
    for one in (pair, single):
        assert one.began_again() > 0  # never both at the same time
        assert "n0" not in daemon.until(one.job, "RUNNING").nodes
    # the shims' own records, which nobody could fetch yet: they ended what ran there
    records = list(machine.root.glob("runs/*.0-*/exit.json"))
    assert len(records) == 2
    assert all("cut off" in json.loads(path.read_text())["lost"] for path in records)

    lab.network.link(0, "up")
    lab.node_is("n0", "up")
    eventually(lambda: not any(path.exists() for path in records))  # it was told to forget them
    fresh = daemon.submit("echo on $ROTA_NODE_NAME", gpus=2)
    assert daemon.until(fresh, "SUCCEEDED").starts == 1
    assert daemon.output(fresh) == "on n0\n"
    go.touch()
    for one, starts in ((pair, 2), (single, 2), (bystander, 1)):
        assert daemon.until(one.job, "SUCCEEDED").starts == starts
        assert len(beats(one.path)) == starts


def test_a_killed_agent_adopts_its_jobs(lab):
    daemon, go = lab.daemon, lab.file()
    one = Signs(lab, go)
    machine = lab.place_of(one.job)
    machine.agent.kill()
    adopted = machine.text().count("run.adopted")
    lab.start(machine.name)
    eventually(lambda: machine.text().count("run.adopted") > adopted)
    lab.node_is(machine.name, "up")
    assert daemon.state_of(one.job) == "RUNNING"
    go.touch()
    assert daemon.until(one.job, "SUCCEEDED").starts == 1
    assert (len(beats(one.path)), len(one.pids())) == (1, 1)


def test_a_killed_daemon_adopts_all_jobs(lab):
    daemon, go = lab.daemon, lab.file()
    jobs = [Signs(lab, go), Signs(lab, go), Signs(lab, go, nodes=2)]
    end = lab.file()
    quick = daemon.submit(WAIT, envs={"GO": str(end)})
    machine = lab.place_of(quick)
    daemon.kill()
    end.touch()
    eventually(lambda: list(machine.root.glob(f"runs/{quick}.0-*/exit.json")))  # nobody looks
    daemon.start()
    for name in NAMES:
        lab.node_is(name, "up")
    assert daemon.until(quick, "SUCCEEDED").starts == 1
    assert [daemon.state_of(one.job) for one in jobs] == ["RUNNING"] * 3
    go.touch()
    for one, processes in zip(jobs, (1, 1, 2), strict=True):
        assert daemon.until(one.job, "SUCCEEDED").starts == 1
        assert (len(beats(one.path)), len(one.pids())) == (1, processes)
    assert daemon.output(quick) == "done\n"


def test_an_agent_leaves(lab):
    daemon, go = lab.daemon, lab.file()
    guest = Machine(lab.network.others[0], daemon, "guest")
    guest.start("--leave", "--gpu-type", "guest", token_file=lab.token)
    one = Signs(lab, go, resources={"gpu_type": "guest"}, checkpoint={"grace_s": 0.5})
    assert daemon.client.job(one.job).nodes == {"guest": 1}
    assert guest.agent.stop() == 0
    assert not any(map(alive, one.pids()))
    assert lab.node_is("guest", "down").why == "left"
    assert daemon.until(one.job, "PENDING").starts == 1
    daemon.client.cancel(one.job)
    # and it may come again
    guest.start("--gpu-type", "guest", token_file=lab.token)
    back = daemon.submit("true", resources={"gpu_type": "guest"})
    assert daemon.until(back, "SUCCEEDED").starts == 1
    assert guest.agent.stop() == 0
    lab.node_is("guest", "silent", "down")


def test_who_may_do_what(lab):
    daemon = lab.daemon
    stranger = Machine(lab.network.others[1], daemon, "stranger")
    for role in ("viewer", "user"):
        token = lab.file()
        token.touch(0o600)
        token.write_text(daemon.client.create_token(f"a-{role}", role))
        stranger.start(token_file=token)
        stranger.says("server.refuses", "the server says 403", f"role {role} may not do this")
        assert stranger.agent.stop() == 0
    assert "stranger" not in {node.name for node in daemon.client.nodes()}
    before = len(list(daemon.client.jobs()))
    for words in ("ls", "submit -"):
        done = daemon.rota(*words.split(), "--token-file", lab.token, check=False, text="run: ls")
        assert done.returncode == 1
        assert "role agent may not do this" in done.stderr
    with daemon.connect(token=lab.token.read_text().strip()) as agent:
        for call in (agent.nodes, agent.queues, agent.tokens, agent.export,
                     lambda: list(agent.jobs()), lambda: agent.submit({"run": "true"}),
                     lambda: agent.cancel("1"), lambda: list(agent.logs("1")),
                     lambda: agent.drain("n0")):  # fmt: skip
            with pytest.raises(ForbiddenError, match="role agent may not do this"):
                call()
    assert len(list(daemon.client.jobs())) == before
    assert lab.node("n0").state == "up"


def test_what_an_agent_says_about_its_server(lab):
    machine = Machine(lab.network.others[2], lab.daemon, "lonely")
    machine.start(token_file=lab.token, server=f"http://{machine.address}:9")
    machine.says("server.unreachable", "Connection refused")
    assert machine.agent.stop() == 0
    wrong = lab.file()
    wrong.touch(0o600)
    wrong.write_text("guess\n")
    machine.start(token_file=wrong)
    machine.says("the server says 401: no valid token: check the token file")
    assert machine.agent.runs  # the token may be replaced
    wrong.write_text(lab.token.read_text())
    lab.node_is("lonely", "up")
    assert machine.agent.stop() == 0
    for words, problem in (
        (["--token-file", lab.folder / "none"], "No such file"),
        (["--server", "10.213.0.1:80"], "give a URL such as http://"),
    ):
        machine.start(*words, token_file=lab.token)
        assert machine.agent.process.wait(PATIENCE_S) == 2
        assert re.search(f"error: .*{problem}", machine.text())
    assert "Traceback" not in machine.text()
    assert lab.token.read_text().strip() not in machine.text()
