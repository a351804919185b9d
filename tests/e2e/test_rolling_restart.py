"""Agents are restarted one after the other while jobs run, and the daemon is killed meanwhile."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agents_net import alive, eventually
from claims import claimed_ports
from rota.core.errors import NotFoundError

JOB = "echo $$ > {folder}/$ROTA_JOB_ID; until [ -e {folder}/go ]; do sleep 0.1; done"
CONFIG = "local:\n  silent_s: 1800\n  lost_s: 3600\n"  # nobody is given up, however slow it is


def session(daemon, name):
    """How often an agent has been started."""
    return json.loads((daemon.folder / f"agent-{name}" / "agent.json").read_text())["session"]


def dead_children(pid):
    """Processes that ended, and for which their parent did not wait."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if words[:2] == ["Z", str(pid)]:
                found.append(int(entry.name))
    return found


def test_no_job_notices(daemons, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(CONFIG)
    daemon = daemons("--config", config, "--listen", f"127.0.0.1:{claimed_ports(1)[0]}")
    names = ["a0", "a1", "a2"]
    agents = {name: daemon.agent(name, gpus=1) for name in names}
    eventually(lambda: len(daemon.client.nodes()) == len(names))
    jobs = [daemon.submit(JOB.format(folder=tmp_path)) for _ in names]
    pids = {}
    for job in jobs:
        written = eventually(lambda job=job: (tmp_path / job).exists() and (tmp_path / job))
        pids[job] = int(eventually(written.read_text))
        daemon.until(job, "RUNNING")

    # the second one does not hear that it shall begin anew
    os.kill(agents["a1"].pid, signal.SIGSTOP)
    words = ("nodes", "restart", "--all", "--timeout", "1h", "--reason", "a test")
    follower = ThreadPoolExecutor(1).submit(daemon.rota, *words)

    def states():
        try:
            return [node.state for node in daemon.client.restart_progress().nodes]
        except NotFoundError:  # not begun
            return []

    eventually(lambda: states() == ["done", "restarting", "waiting"])
    daemon.kill()
    daemon.start()
    assert states() == ["done", "restarting", "waiting"]
    os.kill(agents["a1"].pid, signal.SIGCONT)
    eventually(lambda: daemon.client.restart_progress().state == "done")
    assert follower.result().stderr.endswith("rolling restart: done\n")  # it waited for the daemon
    assert [session(daemon, name) for name in names] == [2, 2, 2]
    assert all(agent.runs for agent in agents.values())  # each in its own process, for systemd

    def told():
        """What the log says, once it has all of it."""
        rows = (row.text or "" for row in daemon.client.events())
        found = [text for text in rows if "restart" in text]
        return found if found[-1] == "rolling restart of 3 agents is done" else None

    notes = eventually(told)
    assert notes[0].endswith("(a test): a0, a1, a2")
    assert [note.split()[4] for note in notes[1:-1]] == names

    # no job was touched, and the new agents see how they end
    assert [daemon.state_of(job) for job in jobs] == ["RUNNING"] * len(jobs)
    assert all(alive(pid) for pid in pids.values())
    (tmp_path / "go").touch()
    for job in jobs:
        assert daemon.until(job, "SUCCEEDED").starts == 1
    eventually(lambda: not any(dead_children(agent.pid) for agent in agents.values()))

    # one that does not come back: the others are left alone
    os.kill(agents["a0"].pid, signal.SIGSTOP)
    done = daemon.rota("nodes", "restart", "a[0-1]", "--timeout", "1s", check=False)
    os.kill(agents["a0"].pid, signal.SIGCONT)
    assert done.returncode == 1
    assert "failed: node a0: its agent did not come back within 1 s" in done.stderr
    assert session(daemon, "a1") == 2
    shown = daemon.rota("nodes", "restart", "--status", "-o", "json")
    assert [node["state"] for node in json.loads(shown.stdout)["nodes"]] == ["failed", "skipped"]


def test_each_is_drained_before(daemons, tmp_path):
    """Nothing runs on a node when its agent begins anew, and the daemon is killed meanwhile."""
    config = tmp_path / "rota.yaml"
    config.write_text(CONFIG)
    daemon = daemons("--config", config, "--listen", f"127.0.0.1:{claimed_ports(1)[0]}")
    names = ["a0", "a1"]
    for name in names:
        daemon.agent(name, gpus=1)
    eventually(lambda: len(daemon.client.nodes()) == len(names))
    first, second = (daemon.submit(JOB.format(folder=tmp_path)) for _ in names)
    for job in (first, second):
        daemon.until(job, "RUNNING")
    on = {name: node.jobs for node in daemon.client.nodes() for name in [node.name]}
    waits = daemon.submit(f"touch {tmp_path}/third")
    words = ("nodes", "restart", "--all", "--timeout", "1h", "--drain", "--deadline", "30d")
    follower = ThreadPoolExecutor(1).submit(daemon.rota, *words)

    def states():
        try:
            return [node.state for node in daemon.client.restart_progress().nodes]
        except NotFoundError:  # not begun
            return []

    def nodes():
        return {node.name: node.state for node in daemon.client.nodes()}

    eventually(lambda: states() == ["draining", "waiting"] and nodes()["a0"] == "draining")
    daemon.kill()
    daemon.start()
    assert states() == ["draining", "waiting"]
    eventually(lambda: nodes() == {"a0": "draining", "a1": "up"})
    assert [session(daemon, name) for name in names] == [1, 1]
    (tmp_path / "go").touch()  # both end: a1 is free before a0 was restarted, or after it
    eventually(lambda: daemon.client.restart_progress().state == "done")
    assert [session(daemon, name) for name in names] == [2, 2]
    assert nodes() == dict.fromkeys(names, "up")  # and are used again
    done = follower.result()
    assert f"node a0: draining, 1 job there: {on['a0'][0]}" in done.stderr
    for job in (first, second, waits):
        assert daemon.until(job, "SUCCEEDED").starts == 1
    closed = [row.event for row in daemon.client.node_history("a0")]
    assert closed.count("opened") == 1

    # what still runs at the deadline is preempted, and runs on afterwards
    (tmp_path / "go").unlink()
    last = daemon.submit(JOB.format(folder=tmp_path))
    daemon.until(last, "RUNNING")
    daemon.rota("nodes", "restart", "--all", "--timeout", "1h", "--drain", "--deadline", "0s")
    (tmp_path / "go").touch()
    assert daemon.until(last, "SUCCEEDED").starts >= 2
    assert [session(daemon, name) for name in names] == [3, 3]
