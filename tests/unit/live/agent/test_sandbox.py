"""Jobs of several users on one machine are kept apart, and are otherwise as without."""

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path

import pytest

from agents_net import Bench, alive, eventually, order, pid_outside
from needs import need
from rota.api.door import _peer_uid
from rota.core.errors import OptionError
from rota.core.topology import NodeSpec
from rota.live.agent import sandbox as sandboxes_of
from rota.live.agent import shim
from rota.live.agent.environment import inherited
from rota.live.agent.folders import remove
from rota.live.agent.messages import AgentReport
from rota.live.agent.parts import REPORT_LIMIT
from rota.live.agent.sandbox import JobAccount, gpu_devices, may_isolate
from rota.live.driver import RunMetrics, RunPart
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.local.embedded import nodes_here
from sandboxes import NOBODY, PYTHON, SPY, UIDS, account_of, need_sandboxes, sandbox

IN_TMP = Path(f"/tmp/rota-secret-{os.getpid()}")  # noqa: S108 - where jobs may be spied on
BOTH = [pytest.param("ann", id="another-user"), pytest.param("", id="owner")]


@pytest.fixture
def apart(make_bench, tmp_path):
    """Return a driver with one machine that keeps jobs apart."""
    need_sandboxes()
    bench = make_bench(account=account_of)
    bench.add(gpus=4, sandbox=sandbox(tmp_path / "m0"))
    return bench


def text_of(bench, job, name):
    path = bench.root / "m0" / "jobs" / job / "work" / name
    return eventually(lambda: path.exists() and path.read_text().strip())


def spied(bench, tmp_path, *, by="bob"):
    """Return what a job finds of another user's job, of the agent and of its machine."""
    bench.launch(
        "1.0",
        f"echo SECRET-output; echo SECRET-file > file; echo SECRET-tmp > {IN_TMP}\n"
        "echo SECRET-point > $ROTA_CHECKPOINT_DIR/point; echo $$ > pid; exec sleep 1000",
        user="ann", envs={"TOKEN": "SECRET-environment"},
    )  # fmt: skip
    pid = pid_outside(bench.root, "1", text_of(bench, "1", "pid"))
    (tmp_path / "m0" / "token").write_text("SECRET-token\n")
    paths = [
        tmp_path / "m0" / "token", tmp_path / "m0" / "agent.json", tmp_path / "m0" / "jobs",
        tmp_path / "m0" / "jobs/1/work/file", tmp_path / "m0/jobs/1/checkpoint/point",
        tmp_path / "m0/jobs/1/logs/0.out", tmp_path / "m0/runs", IN_TMP,
        tmp_path / "m0/runs/1.0-0/order.json", f"/proc/{pid}/root{IN_TMP}",
        f"/proc/{pid}/cwd/file",
    ]  # fmt: skip
    script = SPY.format(paths=" ".join(map(str, paths)), pid=pid)
    bench.launch("2.0", script, user=by)
    assert bench.told.end("2.0").code == 0
    found = bench.output("2")
    assert found.endswith("done\n")
    assert alive(pid) == ("SECRET-killed" not in found)
    IN_TMP.unlink(missing_ok=True)
    return {line for line in found.splitlines() if "SECRET" in line or "agent.json" in line}


def test_a_job_of_one_user_finds_nothing_of_another_user(apart, tmp_path):
    assert spied(apart, tmp_path) == set()


def test_without_sandboxes_the_same_job_finds_everything(make_bench, tmp_path):
    need_sandboxes()
    bench = make_bench(account=account_of)
    bench.add(gpus=4, sandbox=None)
    secrets = ("output", "file", "token", "point", "tmp", "killed")
    assert {f"SECRET-{name}" for name in secrets} <= spied(bench, tmp_path)


def test_a_job_is_its_user_and_can_never_be_more(apart):
    ours = Path(apart.root).parts[2]  # its own folder is there, if that is in /tmp
    script = (
        "id -u; id -G; grep -e NoNewPrivs -e CapEff -e CapBnd /proc/self/status; stat -c %u:%a .\n"
        f"ls -A /tmp /run /dev/shm | grep -v -e : -e '^$' -e '^{ours}$'\n"
        "touch /tmp/x /var/tmp/x /dev/shm/x\n"
        "echo told > /dev/stderr; touch /etc/x || echo no; ps ax | wc -l; echo $HOME $USER"
    )
    apart.launch("1.0", script, user="ann")
    assert apart.told.end("1.0").code == 0
    uid = UIDS["ann"]
    lines = apart.output("1").splitlines()
    assert lines[:2] == [uid, uid]
    assert [line.split() for line in lines[2:5]] == [
        ["CapEff:", "0000000000000000"], ["CapBnd:", "0000000000000000"], ["NoNewPrivs:", "1"],
    ]  # fmt: skip
    assert lines[5:7] == [f"{uid}:700", "no"]
    assert int(lines[7]) < 10
    assert lines[8] == f"{apart.root}/m0/jobs/1/work rota{uid}"
    assert "told\n" in apart.output("1", "err")
    logs = apart.root / "m0/jobs/1/logs"
    assert (logs.stat().st_uid, (logs / "0.out").stat().st_uid) == (0, int(uid))


@pytest.mark.parametrize("user", BOTH)
def test_setup_checkpoint_reports_and_ends_are_as_without(apart, user):
    apart.launch(
        "1.0", "cat /tmp/x; echo 1 > $ROTA_CHECKPOINT_DIR/n; echo '{\"loss\": 3}' >> "
        "$ROTA_REPORT_FILE; exit 3", setup="echo from setup > /tmp/x", user=user,
        checkpoint_dir="deep/points",
    )  # fmt: skip
    end = apart.told.end("1.0")
    assert (end.code, end.why) == (3, "exit code 3")
    assert apart.told.wait(lambda m: isinstance(m, RunMetrics)).values == {"loss": 3.0}
    apart.launch(
        "1.1", "cat $ROTA_CHECKPOINT_DIR/n; ls /tmp/x; kill -9 $$", user=user,
        checkpoint_dir="deep/points",
    )  # fmt: skip
    end = apart.told.end("1.1")
    assert (end.code, end.why) == (-9, "killed by signal 9 (Killed)")
    assert apart.output("1") == "from setup\n1\n"  # its temporary folder is another one
    assert "cannot access '/tmp/x'" in apart.output("1", "err")


@pytest.mark.parametrize("user", BOTH)
def test_a_job_has_its_grace_and_leaves_nobody_behind(apart, user):
    script = (
        "trap 'echo asked; exit 7' TERM; env -i setsid sleep 1000 & echo $! > child\n"
        "echo $$ > pid; while :; do sleep 0.05; done"
    )
    apart.launch("1.0", script, user=user)
    text_of(apart, "1", "pid")
    child = text_of(apart, "1", "child")
    inside = _all_of(apart.shim("1.0"))
    assert len(inside) >= 5  # the sandbox and the job
    apart.driver.halt("1.0")
    end = apart.told.end("1.0")
    assert (end.code, end.asked) == (7, True), child
    assert apart.output("1") == "asked\n"
    assert not any(map(alive, inside))


@pytest.mark.parametrize("whom", ["shim", "guard", "sandbox"])
def test_whoever_is_killed_nothing_of_the_run_is_left(apart, whom):
    apart.launch("1.0", "env -i setsid sleep 1000 & echo $$ > pid; exec sleep 1000", user="ann")
    text_of(apart, "1", "pid")
    shim_pid = apart.shim("1.0")
    inside = _all_of(shim_pid)
    guard = shim.stat_of(shim_pid)[0]
    holder = next(pid for pid in inside if "bwrap" in shim.read(f"/proc/{pid}/cmdline"))
    os.kill({"shim": shim_pid, "guard": guard, "sandbox": holder}[whom], signal.SIGKILL)
    end = apart.told.end("1.0")
    assert end.state == "lost"
    assert end.why == {
        "shim": "its shim died", "guard": "its guard died", "sandbox": "its sandbox was killed",
    }[whom]  # fmt: skip
    assert not any(map(alive, inside))


def _all_of(pid):
    return list(shim.descendants(pid))


def test_an_agent_that_starts_again_adopts_jobs_in_sandboxes(apart, tmp_path):
    apart.launch(
        "1.0", "trap 'exit 4' TERM; echo $$ > pid; while :; do sleep 0.05; done", user="ann"
    )
    text_of(apart, "1", "pid")
    apart.machines[0].crash()
    apart.add(gpus=4, sandbox=sandbox(tmp_path / "m0"))
    apart.driver.halt("1.0")
    assert apart.told.end("1.0").code == 4


def test_parts_of_a_job_meet_on_the_loopback_address(apart):
    script = (
        'if [ "$NODE_RANK" = 0 ]; then\n'
        f"exec {PYTHON} -c \"import os, socket; s = socket.create_server(('127.0.0.1', "
        "int(os.environ['MASTER_PORT']))); print(s.accept()[0].recv(9))\"\nfi\n"
        "for i in $(seq 600); do (echo hello > /dev/tcp/$MASTER_ADDR/$MASTER_PORT) && exit; "
        "sleep 0.1; done 2>/dev/null"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    parts = [RunPart("n0", ((-1, 1.0),), rank, rank, 1) for rank in (0, 1)]
    apart.launch("1.0", script, parts=parts, user="ann", master_port=port)
    assert apart.told.end("1.0").code == 0
    assert "hello" in apart.output("1")


def test_a_job_that_uses_more_than_its_memory_ends_alone(apart):
    script = f"{PYTHON} -c 'b = bytearray(200 << 20); b[::4096] = bytes(len(b[::4096]))'"
    parts = [RunPart("n0", ((-1, 1.0),), 0, 0, 1, cpus=1.0, mem_gib=0.05)]
    apart.launch("1.0", script, parts=parts, user="ann")
    end = apart.told.end("1.0")
    assert end.code
    by_cgroup = "it used more than its 0.05 GiB of memory" in end.why
    assert by_cgroup or "MemoryError" in apart.output("1", "err")
    groups = [Path(place, f"rota-{apart.key('1.0')}") for place in shim.own_cgroups().values()]
    assert not any(group.exists() for group in groups)


@pytest.mark.parametrize("trick", ["ln -s {victim}", "mkfifo", "ln -s /dev/zero", "mkdir"])
def test_a_job_cannot_make_the_agent_touch_other_files(apart, tmp_path, trick):
    victim = tmp_path / "victim"
    line = b'{"stolen": 1}\n'
    victim.write_bytes(line * (REPORT_LIMIT // len(line) + 10))
    before = victim.stat()
    command = trick.format(victim=victim)
    apart.launch(
        "1.0", f'{command} "$ROTA_REPORT_FILE"; echo $$ > pid; exec sleep 1000', user="ann"
    )
    text_of(apart, "1", "pid")
    apart.launch("2.0", "echo '{\"loss\": 1}' > $ROTA_REPORT_FILE; sleep 2", user="bob")
    assert apart.told.end("2.0").code == 0  # the agent still watches
    measured = [m for m in apart.told.messages if isinstance(m, RunMetrics)]
    assert {m.run for m in measured} == {"2.0"}
    assert victim.stat().st_size == before.st_size


def test_a_working_folder_opens_no_way_to_what_is_closed(apart, tmp_path):
    public = tmp_path / "private" / "public"
    public.mkdir(parents=True)
    (tmp_path / "private").chmod(0o700)
    public.chmod(0o755)
    (public / "file").write_text("SECRET")
    apart.launch("1.0", "cat file", user="bob", workdir=str(public))
    assert "cannot be started" in apart.told.end("1.0").why
    apart.launch("2.0", "cat file", workdir=str(public))  # the owner's own
    assert apart.told.end("2.0").code == 0
    assert (apart.output("1"), apart.output("2")) == ("", "SECRET")


def test_a_folder_that_a_job_made_endless_is_removed(tmp_path):
    deep = tmp_path / "run" / "temporary"
    deep.mkdir(parents=True)
    at = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        at, before = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    remove(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- who a job is ---------------------------------------------------------------------------------


def part_of(account="", *, of_owner=False):
    record = AgentRun(order("1.0"), account, of_owner=of_owner)
    return next(record.launch_of(key, "127.0.0.1") for key in record.parts)


def test_jobs_of_others_are_never_root():
    need_sandboxes()
    boxes = sandbox("/nowhere")
    assert boxes.account(part_of("5", of_owner=True)).own
    for account in ("root", "0"):
        assert "never run as root" in boxes.refusal(part_of(account))
    far = sandbox("/nowhere", embedded=False)
    assert "does not say whose job it is" in far.refusal(part_of(of_owner=True))
    assert far.account(part_of("1900000005", of_owner=True)) == JobAccount(
        1900000005, 1900000005, (), "rota1900000005"
    )
    assert "this machine has no account 'nobody-here'" in far.refusal(part_of("nobody-here"))
    assert far.account(part_of("nobody")).uid == NOBODY


def test_a_job_of_an_account_that_is_not_here_is_refused_with_the_reason(make_bench, tmp_path):
    need_sandboxes()
    bench = make_bench(account=lambda _: ("nobody-here", False))
    bench.add(gpus=1, sandbox=sandbox(tmp_path / "m0"))
    bench.launch("1.0", "true")
    assert "this machine has no account 'nobody-here'" in bench.told.end("1.0").why


def test_only_the_owner_inherits_what_may_be_secret(apart, monkeypatch):
    monkeypatch.setenv("AWS_KEY", "SECRET")
    monkeypatch.setenv("PGPASSWORD", "SECRET")
    for number, user in ((1, "ann"), (2, "")):
        apart.launch(f"{number}.0", 'env | grep SECRET; test -n "$PATH"', user=user)
        assert apart.told.end(f"{number}.0").code == 0
    assert (apart.output("1"), apart.output("2")) == ("", "AWS_KEY=SECRET\n")
    assert "PGPASSWORD" not in inherited()


# --- machines that cannot -------------------------------------------------------------------------


def test_without_bubblewrap_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert may_isolate("off") == (False, "")
    may, why = may_isolate("auto")
    assert not may
    assert "bubblewrap is not installed: install it" in why
    with pytest.raises(OptionError, match="isolation required: bubblewrap is not installed"):
        may_isolate("required")


def test_a_machine_that_forbids_namespaces_is_noticed(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "No permissions to create new namespace" in sandboxes_of.obstacle()


def test_a_daemon_that_requires_isolation_refuses_other_agents(make_bench):
    bench = make_bench()
    bench.driver.separated = True
    nodes = tuple(nodes_here([NodeSpec("n0", 1)]))
    said = bench.driver.sync(AgentReport("a", "a", 1, 1, nodes), 0.0, token="t")  # noqa: S106 - a name
    assert "this agent does not keep jobs apart" in said.error
    apart = AgentReport("a", "a", 1, 1, nodes, separates="accounts")
    assert not bench.driver.sync(apart, 0.0, token="t").error  # noqa: S106 - a name


# --- GPUs and limits, on trees that look like those of other machines -----------------------------


def gpu_tree(root, *minors):
    (root / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "infiniband", *(f"nvidia{m}" for m in minors)):
        (root / "dev" / name).touch()
    for number, minor in enumerate(minors):
        folder = root / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t A100\nDevice Minor: \t {minor}\n")


def test_a_job_gets_the_devices_of_its_gpus_only(tmp_path):
    gpu_tree(tmp_path, 3, 2, 1, 0)  # the driver may count in another order than the bus
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/infiniband"]
    assert gpu_devices(["0", "2"], tmp_path) == (["/dev/nvidia3", "/dev/nvidia1", *shared], True)
    assert gpu_devices([], tmp_path) == (["/dev/infiniband"], False)
    everything = [f"/dev/nvidia{number}" for number in range(4)]
    assert gpu_devices(["GPU-5f1"], tmp_path) == ([*everything, *shared], False)
    assert gpu_devices(["4"], tmp_path) == ([*everything, *shared], False)
    (tmp_path / "none").mkdir()
    assert gpu_devices(["0"], tmp_path / "none") == ([], False)


def test_devices_are_those_of_the_job(apart, monkeypatch, tmp_path):
    """Files in the place of GPUs: what is bound is seen, and nothing else is."""
    monkeypatch.setattr(
        "rota.live.agent.parts.gpu_devices", lambda gpus: (["/dev/net"], bool(gpus))
    )
    need(Path("/dev/net").exists(), "a folder in /dev", "none")
    apart.launch("1.0", "ls -d /dev/net /dev/vda /dev/kmsg; echo $CUDA_VISIBLE_DEVICES", gpus=2)
    assert apart.told.end("1.0").code == 0
    assert apart.output("1") == "/dev/net\n0,1\n"


def test_limits_by_cgroups_of_version_2(tmp_path):
    own = tmp_path / "rota.service"
    group = own / "rota-k"
    group.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory\n")
    (own / "cgroup.subtree_control").write_text("")
    limits = {"cpus": 1.5, "mem_gib": 2.0, "processes": 10.0}
    assert shim.limit("k", str(group), limits, {"unified": str(own)}) == ([], {"processes"})
    assert (group / "memory.max").read_text() == str(2 << 30)
    assert (group / "cpu.max").read_text() == "150000 100000"


def test_limits_by_cgroups_of_version_1(tmp_path):
    places = {kind: str(tmp_path / kind) for kind in ("memory", "cpu", "freezer")}
    for kind in places:
        (tmp_path / kind).mkdir()
    limits = {"cpus": 0.5, "mem_gib": 1.0, "processes": 10.0}
    folders, left = shim.limit("k", f"{tmp_path}/freezer/rota-k", limits, places)
    assert folders == [f"{tmp_path}/memory/rota-k", f"{tmp_path}/cpu/rota-k"]
    assert left == {"processes"}
    assert (tmp_path / "memory/rota-k/memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (tmp_path / "cpu/rota-k/cpu.cfs_quota_us").read_text() == "50000"
    (tmp_path / "memory/rota-k/memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert shim.killed_for_memory(folders)


def test_own_cgroups_are_found(tmp_path):
    (tmp_path / "cgroup").write_text("4:memory:/a\n3:cpu,cpuacct:/\n0::/b\n")
    (tmp_path / "fs/unified").mkdir(parents=True)
    (tmp_path / "fs/unified/cgroup.controllers").touch()
    fs = f"{tmp_path}/fs"
    assert shim.own_cgroups(fs, f"{tmp_path}/cgroup") == {
        "memory": f"{fs}/memory/a", "cpu": f"{fs}/cpu,cpuacct", "cpuacct": f"{fs}/cpu,cpuacct",
        "unified": f"{fs}/unified/b",
    }  # fmt: skip


# --- an agent that is not root --------------------------------------------------------------------


@pytest.fixture
def others_folder():
    """Return a folder that belongs to somebody without any rights."""
    need_sandboxes()
    folder = Path(tempfile.mkdtemp(prefix="rota-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    remove(folder)


def test_without_root_jobs_share_an_account_and_still_see_nothing_of_each_other(others_folder):
    """In a child that is nobody: what it found is in a file."""
    need(Path(PYTHON).exists(), "a Python that all users may run", "apt-get install python3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        code = 1
        try:
            found = _as_nobody(others_folder)
            (others_folder / "found.json").write_text(json.dumps(found))
            code = 0
        except BaseException:  # noqa: BLE001 - the parent tells it
            (others_folder / "error").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, (others_folder / "error").read_text()
    assert json.loads((others_folder / "found.json").read_text()) == {
        "separates": "namespaces", "spied": [], "peers": [NOBODY, -1], "bob": ["here"],
    }  # fmt: skip


def _as_nobody(root):
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    sys.executable = PYTHON
    os.environ["AGENTS_OWN"] = "SECRET-of-the-agent"
    bench = Bench(root, account=lambda order: (UIDS.get(order.user, ""), not order.user))
    boxes = sandbox(root / "m0", visible=[str(root)])  # so only what hides it keeps the agent apart
    bench.add(gpus=4, sandbox=boxes)
    found = {"separates": boxes.separates, "spied": sorted(spied(bench, root))}
    found["peers"] = [
        _peer_of(root, _connect),
        _peer_of(root, lambda path: _connect_by_job(bench, path)),
    ]
    script = "touch /usr/x && echo usr; touch here && echo here"
    bench.launch("6.0", script, user="bob")
    bench.told.end("6.0")
    found["bob"] = bench.output("6").split()
    bench.close()
    return found


def _peer_of(folder, connect):
    path = folder / f"{connect.__name__}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        caller = threading.Thread(target=connect, args=(str(path),))
        caller.start()
        line = listener.accept()[0]
        with line:
            uid = _peer_uid(line)
        caller.join()
    return uid


def _connect(path):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.recv(1)


def _connect_by_job(bench, path):
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{path}'); s.recv(1)"
    bench.launch("4.0", f'{PYTHON} -c "{code}"', user="bob")
    bench.told.end("4.0")
