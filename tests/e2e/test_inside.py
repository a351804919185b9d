"""Into jobs that run: commands, a shell that survives, ports; by way of an agent elsewhere."""

import hashlib
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents_net import eventually
from claims import claimed_ports
from daemon_process import ROTA, clean_environ, serving
from rota.core.errors import RotaError
from rota.sdk.forward import PortForward
from terminals import OnTerminal

SLEEP = "touch began; exec sleep 1000"
# so long that it is interrupted: a line each time that somebody says so
COUNT = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"


@pytest.fixture(scope="module")
def module_daemon(tmp_path_factory):
    listen = f"127.0.0.1:{claimed_ports(1)[0]}"  # where it is again after it was killed
    with serving(tmp_path_factory.mktemp("inside"), "--listen", listen) as daemon:
        daemon.agent("n1", gpus=4)
        eventually(lambda: any(node.state == "up" for node in daemon.client.nodes()))
        yield daemon


@pytest.fixture
def daemon(module_daemon):
    yield module_daemon
    module_daemon.clear()


def running(daemon, run=SLEEP, **keys):
    job = daemon.submit(run, **keys)
    daemon.until(job, "RUNNING")
    return job


def restart_all(daemon):
    """Kill the daemon and the agent, and start both again."""
    daemon.kill()
    daemon.agents[-1].kill()
    daemon.start()
    daemon.agent("n1", gpus=4)


@contextmanager
def in_background(daemon, *args):
    """A command with pipes."""
    process = subprocess.Popen(
        [*ROTA, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=clean_environ(ROTA_STATE=daemon.state), text=True, bufsize=1,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_command_in_a_job_has_its_folder_variables_and_exit_code(daemon):
    job = running(daemon, envs={"LR": "0.1"})
    script = "ls; echo $LR $ROTA_JOB_ID; cat; echo wrong >&2; exit 3"
    done = daemon.rota("exec", job, "--", "sh", "-c", script, check=False, text="typed\n")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        f"began\n0.1 {job}\ntyped\n",
        "wrong\n",
    )
    gone = daemon.client.exec(job, ["no-such-program"])
    assert (gone.code, b"no-such-program cannot be started" in gone.err) == (127, True)
    assert daemon.client.exec(job, ["sh", "-c", "kill -9 $$"]).code == 128 + 9
    assert daemon.client.channels(job) == []


def test_only_the_owner_and_administrators_come_in(daemon):
    ann, bob, olga = (
        daemon.connect(token=daemon.client.create_token(name, role), patience_s=0)
        for name, role in (("ann", "user"), ("bob", "user"), ("olga", "operator"))
    )
    job = ann.submit({"run": SLEEP, "resources": {"gpus": 1}}).id
    daemon.until(job, "RUNNING")
    assert ann.exec(job, ["echo", "mine"]).out == b"mine\n"
    assert daemon.client.exec(job, ["echo", "admin"]).out == b"admin\n"
    for other, why in ((bob, "there is no job"), (olga, "only they and administrators")):
        for call in (
            lambda c: c.exec(job, ["id"]),
            lambda c: c.read_channel(job, "main"),
            lambda c: c.write_channel(job, "main", b"x"),
            lambda c: c.close_channel(job, "main"),
            lambda c: c.channels(job),
        ):
            with pytest.raises(RotaError, match=why):
                call(other)
    with pytest.raises(RotaError, match="has no terminal of its own: use `rota exec`"):
        ann.open_channel(job, id="main")
    ann.cancel(job)
    daemon.all_over()
    with pytest.raises(RotaError, match="does not run at the moment"):
        ann.exec(job, ["id"])
    for client in (ann, bob, olga):
        client.close()
    for name in ("ann", "bob", "olga"):
        daemon.client.revoke_token(name)


def test_a_command_survives_the_death_of_daemon_and_agent(daemon):
    job = running(daemon)
    with in_background(daemon, "exec", job, "-T", "--", sys.executable, "-c", COUNT) as command:
        for number in range(4):
            if number == 2:
                restart_all(daemon)
            command.stdin.write(f"{number}\n")
            assert command.stdout.readline() == f"got {number}\n"
        command.stdin.close()
        assert command.wait(300) == 0
        command.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - closed with the others
    assert daemon.state_of(job) == "RUNNING"
    assert eventually(lambda: not daemon.client.channels(job))


def test_a_command_ends_with_its_job(daemon):
    job = running(daemon)
    with in_background(daemon, "exec", job, "-T", "--", sys.executable, "-c", COUNT) as command:
        command.stdin.write("1\n")
        assert command.stdout.readline() == "got 1\n"
        daemon.client.cancel(job)
        assert command.wait(300) != 0
    daemon.assert_no_orphans()


@pytest.fixture
def on_terminal(daemon):
    """Return `start(*args)`: a command on a terminal, gone at the end."""
    made = []

    def start(*args):
        made.append(OnTerminal(daemon, *args))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_shell_survives_its_terminal_and_everything_else(daemon, on_terminal):
    here = on_terminal("shell", "--gpus", "2", "--name", "my-shell")
    here.sees("job ")
    job = eventually(lambda: [info.id for info in daemon.client.jobs(active=True)])[-1]
    here.type("kept=6; echo $((kept*7)) $CUDA_VISIBLE_DEVICES\r")
    here.sees("42 ")
    here.type("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.5; done; echo large $?\r")
    here.sees("large $?")
    here.resize(50, 132)
    here.sees("large 0")
    here.kill()
    restart_all(daemon)
    again = on_terminal("attach", job)
    again.sees("42 ")  # what was there is shown again
    again.type("echo still $kept\r")
    again.sees("still 6")
    again.type("\r~.")
    again.sees(f"job {job} goes on")
    assert again.end() == 0
    assert daemon.state_of(job) == "RUNNING"
    last = on_terminal("attach", "my-shell")
    last.type("exit 5\r")
    assert last.end() == 5
    daemon.until(job, "FAILED")
    assert "still 6" in daemon.output(job)
    daemon.assert_no_orphans()


def test_a_port_of_a_job_is_reached_from_here_also_after_everything_died(daemon):
    port, nobody = claimed_ports(2)
    server = f"echo hello > index.html; exec {sys.executable} -m http.server -b 127.0.0.1 {port}"
    job = running(daemon, server)
    with in_background(daemon, "port-forward", job, f"0:{port}") as command:
        url = command.stdout.readline().split(" ")[0]

        def fetched():
            try:
                with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
                    return answer.read() == b"hello\n"
            except OSError:
                return False

        eventually(fetched, every_s=0.2)
        restart_all(daemon)
        eventually(fetched, every_s=0.2)
    told = []
    with PortForward(daemon.client, job, nobody, on_error=told.append) as forward:
        with (
            pytest.raises(OSError, match=r".*"),
            urllib.request.urlopen(f"http://127.0.0.1:{forward.port}", timeout=60),
        ):
            pass
        eventually(lambda: told)
    assert "nothing listens on port" in told[0]


def test_a_folder_travels_with_a_job_and_its_results_come_back(daemon, tmp_path):
    mine = tmp_path / "mine"
    (mine / "lib").mkdir(parents=True)
    (mine / "train.sh").write_text("cat lib/data > result; cat result; touch began; sleep 1000")
    (mine / "lib" / "data").write_text("some data\n")
    (mine / "junk.tmp").write_text("x")
    (mine / ".rotaignore").write_text("*.tmp\n")
    submit = ("submit", "--upload", mine, "--gpus", "1", "--", "sh", "train.sh")
    job = daemon.rota(*submit).stdout.strip()
    daemon.until(job, "RUNNING")
    eventually(lambda: daemon.output(job) == "some data\n")
    before = daemon.log().count("/api/v1/uploads/pieces/")
    restart_all(daemon)
    (mine / "lib" / "data").write_text("other data\n")
    second = daemon.rota(*submit).stdout.strip()
    eventually(lambda: daemon.output(second) == "other data\n")
    assert daemon.log().count("/api/v1/uploads/pieces/") == before + 1  # only what is new
    out = tmp_path / "out"
    told = daemon.rota("pull", job, "-o", out)
    assert sorted(told.stdout.split()) == ["began", "lib/data", "result", "train.sh"]
    assert (out / "result").read_text() == "some data\n"
    daemon.client.cancel(second)
    daemon.until(second, "CANCELLED")
    daemon.rota("pull", second, "result", "-o", out)  # also when it is over
    assert (out / "result").read_text() == "other data\n"


def test_a_secret_reaches_the_job_and_nothing_else(daemon):
    value = "sesame-0xC0FFEE"
    daemon.rota("secret", "set", "KEY", text=f"{value}\n")
    assert [info.name for info in daemon.client.secrets()] == ["KEY"]
    script = "printf %s $KEY | md5sum; touch began; exec sleep 1000"
    job = running(daemon, script, secrets=["KEY"])
    digest = hashlib.md5(value.encode()).hexdigest()  # noqa: S324 - to compare
    eventually(lambda: digest in daemon.output(job))
    shown = daemon.rota("show", job, "-o", "json").stdout
    assert '"KEY"' in shown
    told = [shown, daemon.rota("secret", "ls").stdout, daemon.log(), daemon.agents[-1].text()]
    assert not [text for text in told if value in text]
    kept = [path for root in daemon.roots for path in root.rglob("*") if path.is_file()]
    assert not [path for path in kept if value.encode() in path.read_bytes()]
    arguments = [path for path in Path("/proc").glob("[0-9]*/cmdline") if value in text_of(path)]
    assert not arguments
    read = 'cat "$ROTA_SECRETS_DIR/KEY"; echo; echo ${KEY:-none}; exec sleep 1000'
    second = running(daemon, read, secrets=["file:KEY"])
    eventually(lambda: daemon.output(second) == f"{value}\nnone\n")
    held = daemon.submit("true", secrets=["KEY"], hold=True)
    daemon.rota("secret", "rm", "KEY")
    daemon.client.release(held)
    assert "secret KEY is not there any more" in daemon.until(held, "FAILED").message
    refused = daemon.rota("submit", "--set", "secrets=[KEY]", "--", "true", check=False)
    assert (refused.returncode, "set it with `rota secret set KEY`" in refused.stderr) == (2, True)


def text_of(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
