"""Agents with real shims and real jobs, in this process."""

import json
import os
import secrets
import signal
import subprocess
import threading
import time

import pytest

from agents_net import alive, eventually, marked, order, pid_outside
from local_shims import fill
from rota.core.errors import ClusterError, GoneError
from rota.core.topology import NodeSpec
from rota.live.agent import processes
from rota.live.agent.agent import Agent
from rota.live.agent.folders import folder_name
from rota.live.agent.logs import log_file
from rota.live.agent.messages import AgentOrders, PartKey
from rota.live.driver import RunMetrics, RunPart, RunStatus
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.local.embedded import EmbeddedAgent, nodes_here

SLEEP = "echo $$ > pid; exec sleep 1000"
# The folder of its run. Its shim may write there at the same time: then rm finds it not empty.
REMOVE = (
    'run="$(dirname "$(dirname "$ROTA_REPORT_FILE")")"; '
    'until rm -rf "$run" && [ ! -e "$run" ]; do sleep 0.01; done'
)


def launches(made):
    record = AgentRun(made)
    return AgentOrders(launch=tuple(record.launch_of(key, "127.0.0.1") for key in record.parts))


def pid_of(bench, job, name="pid"):
    path = bench.root / "m0" / "jobs" / job / "work" / name
    inside = eventually(lambda: path.exists() and path.read_text().strip())
    return pid_outside(bench.root, job, inside)


def test_a_job_runs_and_its_output_is_kept(bench):
    bench.add()
    bench.launch("1.0", "echo $CUDA_VISIBLE_DEVICES $ROTA_RESTART_COUNT; exit 3", gpus=2)
    end = bench.told.end("1.0")
    assert (end.state, end.code, end.asked, end.why) == ("ended", 3, False, "exit code 3")
    assert bench.told.runs("1.0") == ["running", "ended"]
    bench.launch("1.1", "echo $CUDA_VISIBLE_DEVICES $ROTA_RESTART_COUNT", gpus=0, restart=1)
    assert bench.told.end("1.1").code == 0
    assert bench.output("1") == "0,1 0\n1\n"
    assert bench.driver.log_range("1", "out", 0) == (0, 8)
    bench.driver.forget("1.0")
    eventually(lambda: not list(bench.root.glob("m0/runs/1.0-*")))


def test_one_process_for_each_gpu(bench):
    bench.add(gpus=3)
    script = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $CUDA_VISIBLE_DEVICES $local_gpu_id"'
    parts = [RunPart("n0", ((2, 1.0), (1, 1.0)), 0, 0, 2)]
    bench.launch("1.0", script, parts=parts)
    assert bench.told.end("1.0").code == 0
    assert sorted(bench.output("1").splitlines()) == ["0/2 0 1,2 1", "1/2 1 1,2 2"]


def test_no_token_reaches_a_job(bench, monkeypatch):
    monkeypatch.setenv("ROTA_TOKEN", "secret1")
    monkeypatch.setenv("ROTA_TOKEN_FILE", "secret2")
    bench.add()
    script = (
        "env; tr '\\0' '\\n' < /proc/$PPID/environ; grep -rs 'secre[t]' $PWD/../../../runs; true"
    )
    bench.launch("1.0", script)
    assert bench.told.end("1.0").code == 0
    assert "ROTA_JOB_ID=1" in bench.output("1")
    assert "secret" not in bench.output("1")


def test_a_run_is_started_once(tmp_path, make_agent):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    orders = launches(order("1.0", "echo x >> count"))
    agent.obey(orders)
    agent.obey(orders)
    agent.step()
    agent.obey(orders)
    eventually(lambda: agent.step() or agent.idle)
    agent.obey(orders)
    agent.step()
    agent.obey(AgentOrders(forget=(PartKey("1.0", 0),)))
    agent.step()
    assert agent.report().parts == ()
    agent.obey(orders)  # late, and once more to the next agent
    agent.step()
    (part,) = agent.report().parts
    assert (part.state, part.why) == ("lost", "it was started here before")
    agent.close()
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    agent.obey(orders)
    agent.step()
    assert agent.report().parts[0].state == "lost"
    assert (tmp_path / "jobs" / "1" / "work" / "count").read_text() == "x\n"
    agent.close()


def test_an_agent_that_died_before_the_shim_was_started(tmp_path, make_agent):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    key = PartKey("1.0", 0)
    about = {"run": "1.0", "node_rank": 0, "node": "n0", "key": "k", "shares": [[0, 1.0]]}
    agent.root.create(key, {"part.json": json.dumps(about), "order.json": "{}"})
    agent.close()
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    agent.step()
    (part,) = agent.report().parts
    assert (part.state, part.why) == ("lost", "the agent died as it started it")
    agent.close()


def test_the_next_agent_adopts_what_runs_and_what_ended(bench):
    machine = bench.add()
    bench.launch("1.0", SLEEP)
    bench.launch("2.0", "while [ ! -e go ]; do sleep 0.02; done; exit 5")
    bench.told.run("1.0", "running")
    bench.told.run("2.0", "running")
    machine.crash()
    pid = pid_of(bench, "1")
    (bench.root / "m0" / "jobs" / "2" / "work" / "go").touch()
    eventually((bench.folder("2.0") / "exit.json").exists)
    assert alive(pid)
    bench.add()
    assert bench.told.end("2.0").code == 5
    assert bench.told.runs("1.0") == ["running"]
    bench.launch("3.0", "true", gpus=2)  # one GPU is still taken
    bench.driver.halt("1.0")
    end = bench.told.end("1.0")
    assert (end.state, end.asked, end.code) == ("ended", True, -15)
    assert not alive(pid)
    assert bench.told.end("3.0").code == 0
    runs = [m.run for m in bench.told.messages if isinstance(m, RunStatus)]
    assert runs.index("3.0") > len(runs) - runs[::-1].index("1.0") - 1


def test_kill_9_of_a_job_is_the_jobs_end(bench):
    bench.add()
    bench.launch("1.0", SLEEP)
    os.kill(pid_of(bench, "1"), signal.SIGKILL)
    end = bench.told.end("1.0")
    assert (end.state, end.code, end.asked) == ("ended", -9, False)
    assert end.why == "killed by signal 9 (Killed)"


@pytest.mark.parametrize("agent_lives", [True, False])
def test_kill_9_of_a_shim_leaves_nobody(bench, agent_lives):
    machine = bench.add()
    bench.launch("1.0", f"setsid bash -c 'echo $$ > far; exec sleep 1000' & {SLEEP}")
    pids = [pid_of(bench, "1"), pid_of(bench, "1", "far")]
    key = bench.key("1.0")
    assert all(alive(pid) for pid in pids)
    if not agent_lives:
        machine.crash()
    os.kill(bench.shim("1.0"), signal.SIGKILL)
    if not agent_lives:
        bench.add()
    end = bench.told.end("1.0")
    assert (end.state, end.why) == ("lost", "its shim died")
    assert not any(alive(pid) for pid in pids)
    assert marked(key) == []


LEAVE_CGROUP = """here=$(sed -n 's/^0:://p' /proc/self/cgroup)
for top in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    if [ -e "$top$here/cgroup.kill" ]; then echo 0 > "$top$here/../cgroup.procs"; fi
done
"""


@pytest.mark.parametrize("agent_lives", [True, False])
def test_who_escaped_is_gone_before_the_next_run_begins(bench, agent_lives):
    machine = bench.add()
    escape = "env -i setsid bash -c 'trap \"\" TERM; echo $$ > far; exec sleep 1000' &"
    bench.launch("1.0", f"{LEAVE_CGROUP}\n{escape}\n{SLEEP}")
    pid = pid_of(bench, "1", "far")
    if not agent_lives:
        machine.crash()
    os.kill(bench.shim("1.0"), signal.SIGKILL)
    if not agent_lives:
        bench.add()
    assert bench.told.end("1.0").why == "its shim died"
    assert not alive(pid)


def test_leftovers_are_found_without_a_cgroup():
    key = secrets.token_hex(8)
    env = {"ROTA_RUN_KEY": key, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["setsid", "sleep", "1000"], env=env) as process:
        eventually(lambda: marked(key))
        assert processes.kill_leftovers("", key) == 1
        assert process.wait(300) == -9
    assert processes.kill_leftovers("", key) == 0
    assert processes.kill_leftovers("", "") == 0


def test_after_a_reboot_everything_is_lost(tmp_path, make_agent):
    nodes = nodes_here([NodeSpec("n0", 2)])
    agent = make_agent(tmp_path, nodes, boot=lambda: "the boot before")
    agent.obey(launches(order("1.0", "exit 0")))
    eventually(lambda: agent.step() or agent.idle)
    agent.close()
    folder = tmp_path / "runs" / "1.0-0"
    (folder / "exit.json").rename(folder / "exit.reserved")  # as if it had run until then
    identity = json.loads((folder / "identity.json").read_text())
    identity |= {"boot": "the boot before", "pid": os.getpid(), "cgroup": ""}
    (folder / "identity.json").write_text(json.dumps(identity))
    agent = make_agent(tmp_path, nodes)
    eventually(lambda: agent.step() or agent.idle)  # the shim may hold its lock for a moment
    (part,) = agent.report().parts
    assert (part.state, part.why) == ("lost", "the machine was restarted")
    agent.close()


def test_a_job_waits_until_those_before_it_have_left(bench):
    bench.add()
    held = "trap 'sleep 0.5; rm busy; exit 0' TERM; touch busy; while :; do sleep 0.02; done"
    bench.launch("1.0", held, parts=[RunPart("n0", ((0, 1.0), (1, 0.5)), 0, 0, 1)])
    busy = bench.root / "m0" / "jobs" / "1" / "work" / "busy"
    eventually(busy.exists)
    bench.driver.halt("1.0")
    bench.launch("2.0", f"test ! -e {busy}", parts=[RunPart("n0", ((0, 1.0),), 0, 0, 1)])
    bench.launch("3.0", "echo $CUDA_VISIBLE_DEVICES", parts=[RunPart("n0", ((1, 0.5),), 0, 0, 1)])
    assert bench.told.end("3.0").code == 0
    assert bench.output("3") == "1\n"
    assert bench.told.end("2.0").code == 0
    states = [(m.run, m.state) for m in bench.told.messages if hasattr(m, "run")]
    assert states.index(("1.0", "ended")) < states.index(("2.0", "running"))


def test_a_halt_of_what_waits_for_devices(bench):
    bench.add()
    bench.launch("1.0", SLEEP, gpus=2)
    bench.told.run("1.0", "running")
    bench.launch("2.0", "true")
    bench.driver.halt("2.0")
    end = bench.told.end("2.0")
    assert (end.state, end.asked, end.why) == ("ended", True, "it was never started")
    assert bench.told.runs("2.0") == ["ended"]


def test_gpus_that_a_node_does_not_have(bench):
    bench.add(gpus=1)
    bench.launch("1.0", "true", parts=[RunPart("n0", ((3, 1.0),), 0, 0, 1)])
    end = bench.told.end("1.0")
    assert end.state == "lost"
    assert "does not have the GPUs" in end.why


def test_values_that_a_job_reports(bench):
    bench.add()
    script = """echo '{"loss": 2, "step": 1}' >> $ROTA_REPORT_FILE
echo 'nonsense' >> $ROTA_REPORT_FILE
echo '[1]' >> $ROTA_REPORT_FILE
printf '{"loss": 1.5, "bad": "x", "nan": NaN}\\n{"loss": 9' >> $ROTA_REPORT_FILE"""
    bench.launch("1.0", script)
    bench.told.end("1.0")
    values = {}
    for message in bench.told.messages:
        if isinstance(message, RunMetrics):
            values |= message.values
    assert values == {"loss": 1.5, "step": 1.0}


def test_two_nodes_through_two_agents(bench):
    bench.add("m0", ["n0"])
    bench.add("m1", ["n1"])
    script = 'echo "$RANK $WORLD_SIZE $NODE_RANK $MASTER_ADDR $ROTA_NUM_NODES $ROTA_NODE_NAME"'
    parts = [RunPart("n1", ((-1, 1.0),), 0, 0, 1), RunPart("n0", ((-1, 1.0),), 1, 1, 1)]
    bench.launch("1.0", script, parts=parts)
    assert bench.told.end("1.0").code == 0
    assert bench.told.runs("1.0") == ["running", "ended"]
    assert bench.output("1", rank=0) == "0 2 0 127.0.0.1 2 n1\n"
    assert bench.output("1", rank=1) == "1 2 1 127.0.0.1 2 n0\n"
    bench.launch("2.0", "if [ $RANK = 1 ]; then exit 4; fi; sleep 1000", parts=parts)
    end = bench.told.end("2.0")
    assert (end.state, end.code, end.asked, end.why) == ("ended", 4, False, "node n0: exit code 4")


HOSTILE = ["../../evil", "a;touch evil", "$(touch evil)", "a\nb", "a b'\"", "..", "x" * 300, "ä/ö"]


@pytest.mark.parametrize("job", HOSTILE)
def test_names_stay_names(bench, job, tmp_path):
    node = f"node {job}"
    bench.add(nodes=[node])
    bench.launch(
        f"{job}.0", 'printf "%s|%s|%s" "$ROTA_JOB_ID" "$ROTA_JOB_NAME" "$ROTA_NODE_NAME"',
        node=node, name=job,
    )  # fmt: skip
    assert bench.told.end(f"{job}.0").code == 0
    assert bench.output(job) == f"{job}|{job}|{node}"
    assert [path.name for path in tmp_path.iterdir()] == ["m0"]
    assert [path.name for path in (tmp_path / "m0" / "jobs").iterdir() if path.is_dir()] == [
        folder_name(job)
    ]
    assert list(tmp_path.rglob("evil")) == []


def test_folder_names_differ_and_stay_inside():
    names = [folder_name(text) for text in [*HOSTILE, "", ".", "%2E", "x" * 299, "A", "a"]]
    assert len(set(names)) == len(names)
    assert all("/" not in name and name not in ("", ".", "..") for name in names)
    assert max(len(name) for name in names) <= 110


def test_an_agent_that_is_cut_off_ends_its_jobs(make_bench, tmp_path):
    bench = make_bench(silent_s=1.0, lost_s=6.0)
    machine = bench.add(fenced=True)
    bench.launch("1.0", "trap '' TERM; " + SLEEP)
    pid = pid_of(bench, "1")
    bench.told.run("1.0", "running")
    machine.cut = True
    bench.told.node("n0", "silent")
    bench.told.node("n0", "lost")
    assert not alive(pid), "it must be gone before the server gives it up"
    assert bench.told.end("1.0").state == "lost"
    bench.driver.forget("1.0")
    machine.cut = False
    eventually(lambda: bench.told.messages[-1].state == "up")
    bench.launch("1.1", "echo again", restart=1)
    assert bench.told.end("1.1").code == 0
    eventually(lambda: not list(tmp_path.glob("m0/runs/1.0-*")))


def test_a_crash_of_the_agent_does_not_keep_its_jobs_beyond_the_lease(make_bench):
    bench = make_bench(silent_s=1.0, lost_s=6.0)
    machine = bench.add(fenced=True)
    bench.launch("1.0", SLEEP)
    pid = pid_of(bench, "1")
    machine.crash()
    bench.told.node("n0", "lost")
    assert not alive(pid)
    assert bench.told.end("1.0").state == "lost"


def test_leaving_ends_the_jobs_and_takes_the_node_away(bench):
    machine = bench.add()
    bench.launch("1.0", SLEEP)
    pid = pid_of(bench, "1")
    assert machine.link.leave(10.0)
    end = bench.told.end("1.0")
    assert (end.state, end.why) == ("lost", "its node left")
    assert bench.told.node("n0", "lost").why == "left"
    assert not alive(pid)


def test_a_folder_has_one_agent(tmp_path):
    agent = Agent(tmp_path / "a", [])
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    with pytest.raises(ClusterError, match="another agent uses"):
        Agent(tmp_path / "a", [])
    agent.close()
    second = Agent(tmp_path / "a", [])
    assert second.id == agent.id
    assert second.root.session == agent.root.session + 1
    second.close()


def test_output_that_was_rotated_away(bench):
    bench.add()
    bench.launch("1.0", "echo hello")
    bench.told.end("1.0")
    path = log_file(bench.root / "m0" / "jobs", "1", "out", 0)
    path.with_name("0.out.100").write_text("0123456789")
    assert bench.driver.log_range("1", "out", 0) == (100, 116)
    assert bench.driver.read_log("1", "out", 0, 105, 3) == b"567"
    assert bench.driver.read_log("1", "out", 0, 110, 100) == b"hello\n"
    assert bench.driver.read_log("1", "out", 0, 116, 100) == b""
    with pytest.raises(GoneError, match="before byte 100 was rotated away") as gone:
        bench.driver.read_log("1", "out", 0, 5, 3)
    assert gone.value.first == 100
    with pytest.raises(ClusterError, match="no such output"):
        bench.driver.read_log("1", "../out", 0, 0, 3)
    assert bench.driver.read_log("99", "out", 0, 0, 3) == b""


def test_an_embedded_agent_needs_no_heartbeat(tmp_path, bench):
    here = EmbeddedAgent(bench.driver, tmp_path / "m0", [NodeSpec("n0", 2), NodeSpec("n1", 2)])
    here.start()
    bench.told.node("n1", "up")
    bench.launch("1.0", "echo $CUDA_VISIBLE_DEVICES", gpus=2, node="n1")
    assert bench.told.end("1.0").code == 0
    assert bench.output("1") == "2,3\n"
    assert bench.driver._jobs_here == {here.agent.id: tmp_path / "m0" / "jobs"}
    here.close()


def test_a_full_disk_delays_but_loses_nothing(small_disk, tmp_path, make_agent):
    nodes = nodes_here([NodeSpec("n0", 2)])
    agent = make_agent(small_disk / "root", nodes, jobs=tmp_path / "jobs")
    go = tmp_path / "go"
    agent.obey(launches(order("1.0", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 6")))
    eventually(lambda: agent.step() or agent.report().parts[0].state == "running")
    fill(small_disk)
    agent.obey(launches(order("2.0", "exit 7")))
    agent.step()
    go.touch()
    eventually(lambda: agent.step() or agent.report().parts[0].state == "ended")
    assert [(part.state, part.code) for part in agent.report().parts] == [
        ("ended", 6), ("waiting", 0),
    ]  # fmt: skip
    agent.obey(AgentOrders(forget=(PartKey("1.0", 0),)))
    agent.step()
    assert [part.key.run for part in agent.report().parts] == ["2.0"]
    (small_disk / "filler").unlink()
    eventually(lambda: agent.step() or agent.idle)
    assert [(part.key.run, part.code) for part in agent.report().parts] == [("2.0", 7)]
    agent.close()


def test_a_halt_on_a_full_disk_comes_later(small_disk, tmp_path, make_agent):
    agent = make_agent(small_disk / "root", nodes_here([NodeSpec("n0", 2)]), jobs=tmp_path / "jobs")
    agent.obey(launches(order("1.0", "exec sleep 1000")))
    eventually(lambda: agent.step() or agent.report().parts[0].state == "running")
    fill(small_disk)
    agent.obey(AgentOrders(halt=(PartKey("1.0", 0),)))
    agent.step()
    assert (agent.report().parts[0].told, agent.idle) == ("halt", False)
    (small_disk / "filler").unlink()
    eventually(lambda: agent.step() or agent.idle)
    (part,) = agent.report().parts
    assert (part.state, part.asked) == ("ended", True)
    agent.close()


def test_a_kill_needs_no_space(small_disk, tmp_path, make_agent):
    agent = make_agent(small_disk / "root", nodes_here([NodeSpec("n0", 2)]), jobs=tmp_path / "jobs")
    agent.obey(launches(order("1.0", SLEEP)))
    eventually(lambda: agent.step() or agent.report().parts[0].state == "running")
    path = tmp_path / "jobs" / "1" / "work" / "pid"
    pid = int(eventually(lambda: path.exists() and path.read_text().strip()))
    fill(small_disk)
    agent.obey(AgentOrders(kill=(PartKey("1.0", 0),)))
    eventually(lambda: agent.step() or agent.idle)
    assert agent.report().parts[0].state in ("ended", "lost")
    assert not alive(pid)
    agent.close()


def test_no_shim_stays_a_zombie(tmp_path, make_agent):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    for number in range(3):
        agent.obey(launches(order(f"{number}.0")))
        key = PartKey(f"{number}.0", 0)
        eventually(lambda: agent.step() or agent.idle)
        agent.obey(AgentOrders(forget=(key,)))
        agent.step()
    eventually(lambda: agent.step() or not agent._exiting)
    agent.close()
    assert not [path for path in tmp_path.glob("runs/*") if path.is_dir()]


# --- whose clock measures a run -------------------------------------------------------------------


def finished_part(make_agent, root, script="true"):
    """Run a job to its end, and let its agent go; the folder of its part and the shim's record."""
    agent = make_agent(root, nodes_here([NodeSpec("n0", 1)]))
    agent.obey(launches(order("1.0", script)))
    eventually(lambda: agent.step() or agent.idle)
    agent.close()
    folder = root / "runs" / "1.0-0"
    return folder, json.loads((folder / "exit.json").read_text())


def test_the_next_agent_tells_when_a_run_really_began_and_ended(make_agent, tmp_path):
    _, record = finished_part(make_agent, tmp_path / "a")
    agent = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)]))
    report = agent.report()
    (part,) = report.parts
    assert (part.began_s, part.ended_s) == (record["began"]["clock"], record["clock"])
    assert part.began_s <= part.ended_s <= report.clock_s


def test_planted_downtime_is_not_run_time(make_agent, tmp_path):
    """As if the shim had run `sleep 10`, and nobody had looked for 45 s."""
    folder, record = finished_part(make_agent, tmp_path / "a")
    record["began"]["clock"] = record["clock"] - 45.0
    record["clock"] -= 35.0
    (folder / "exit.json").write_text(json.dumps(record))
    (part,) = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)])).report().parts
    assert part.ended_s - part.began_s == pytest.approx(10.0)


def test_after_a_reboot_the_time_of_day_tells(make_agent, tmp_path):
    folder, record = finished_part(make_agent, tmp_path / "a")
    record["began"]["time"], record["time"] = time.time() - 300.0, time.time() - 290.0
    record["began"]["boot"] = record["boot"] = "another"
    (folder / "exit.json").write_text(json.dumps(record))
    report = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)])).report()
    (part,) = report.parts
    assert part.ended_s - part.began_s == pytest.approx(10.0, abs=0.1)
    assert part.ended_s < report.clock_s - 200.0


def test_a_shim_of_an_older_version_tells_the_time_of_day(make_agent, tmp_path):
    folder, _ = finished_part(make_agent, tmp_path / "a")
    (folder / "running").write_text(str(time.time() - 60.0))
    old = {"code": 0, "codes": [0], "asked": False, "why": "", "lost": "", "ran": True}
    (folder / "exit.json").write_text(json.dumps(old | {"time": time.time() - 50.0}))
    (part,) = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)])).report().parts
    assert part.ended_s - part.began_s == pytest.approx(10.0, abs=0.1)


def test_a_run_without_a_word_counts_until_its_shim_was_last_alive(make_agent, tmp_path):
    folder, _ = finished_part(make_agent, tmp_path / "a")
    (folder / "exit.json").rename(folder / "exit.reserved")  # the machine died
    identity = json.loads((folder / "identity.json").read_text())
    (folder / "identity.json").write_text(json.dumps(identity | {"boot": "another"}))
    began = {"time": time.time() - 900.0, "clock": 5.0, "boot": "another"}
    (folder / "running").write_text(json.dumps(began))
    os.utime(folder / "running", (began["time"] + 30.0,) * 2)
    agent = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)]))
    eventually(lambda: agent.step() or agent.idle)
    (part,) = agent.report().parts
    assert (part.state, part.why) == ("lost", "the machine was restarted")
    assert part.ended_s - part.began_s == pytest.approx(30.0, abs=0.1)


def test_a_job_that_removes_the_folder_of_its_run_harms_only_itself(bench):
    machine = bench.add(gpus=2, sandbox=None)
    bench.launch("1.0", f"{REMOVE}; echo $$ > pid; exec sleep 1000")
    pid = pid_of(bench, "1")
    assert not list(bench.root.glob("m0/runs/1.0-*"))
    bench.launch("2.0", "exit 3")
    assert bench.told.end("2.0").code == 3
    bench.driver.halt("1.0")
    end = bench.told.end("1.0")
    assert (end.state, end.why) == ("lost", "the folder of its run was removed")
    assert not alive(pid)
    bench.launch("3.0", "exit 4", gpus=2)  # its GPU is free again
    assert bench.told.end("3.0").code == 4
    assert machine.agent.trouble == ""


def test_a_job_that_removes_what_it_sees_of_its_run_loses_only_its_reports(bench):
    machine = bench.add(gpus=1)
    bench.launch("1.0", 'rm -rf "$(dirname "$ROTA_REPORT_FILE")"; exit 5')
    assert bench.told.end("1.0").code == 5
    bench.launch("2.0", "exit 3")
    assert bench.told.end("2.0").code == 3
    assert machine.agent.trouble == ""


def test_a_job_that_removes_the_folder_of_its_run_and_ends(bench):
    bench.add(gpus=1, sandbox=None)
    bench.launch("1.0", REMOVE)
    assert bench.told.end("1.0").state == "lost"
    bench.launch("2.0", "exit 3")
    assert bench.told.end("2.0").code == 3


def test_one_run_that_puzzles_the_agent_does_not_cost_the_others(tmp_path, make_agent, caplog):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    agent.obey(launches(order("1.0", "sleep 1000")))
    agent.obey(launches(order("2.0", "exit 3")))
    agent.step()
    bad, good = agent._parts.values()

    def broken():
        raise RuntimeError("never seen before")

    bad.look = broken
    eventually(lambda: agent.step() or good.over)
    assert good.code == 3
    assert [record.message for record in caplog.records].count("run.puzzling") == 1
    assert "never seen before" in bad.puzzle
    del bad.look
    agent.obey(AgentOrders(kill=(bad.key,)))
    eventually(lambda: agent.step() or agent.idle)
    agent.close()


@pytest.mark.parametrize("text", ["1" + "0" * 400, "-" + "9" * 400, "1e400", "NaN", "true"])
def test_numbers_of_any_length_are_no_trouble(bench, text):
    machine = bench.add()
    script = f'echo \'{{"loss": {text}, "step": 7}}\' >> $ROTA_REPORT_FILE; echo $$ > pid; exit 3'
    bench.launch("1.0", script)
    assert bench.told.end("1.0").code == 3
    values = [m.values for m in bench.told.messages if isinstance(m, RunMetrics)]
    assert values[-1]["step"] == 7.0
    assert set(values[-1]) <= {"loss", "step"}
    assert machine.agent.trouble == ""


def test_a_watch_that_fails_is_reported(tmp_path, make_agent, monkeypatch):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    stop = threading.Event()

    def fails():
        stop.set()
        raise RuntimeError("no more files")

    monkeypatch.setattr(agent, "step", fails)
    monkeypatch.setattr("rota.live.agent.agent.RETRY_S", 0.0)
    agent.wake()
    agent.run(stop)
    assert "no more files" in agent.report().trouble
    agent.close()


def test_a_watch_that_hangs_is_noticed(tmp_path, make_agent, monkeypatch):
    agent = make_agent(tmp_path, nodes_here([NodeSpec("n0", 2)]))
    now = [100.0]
    monkeypatch.setattr("rota.live.agent.agent.time.monotonic", lambda: now[0])
    stop, found = threading.Event(), []

    def hangs():
        now[0] += 31.0
        found.append(agent.trouble)
        stop.set()

    monkeypatch.setattr(agent, "step", hangs)
    agent.wake()
    agent.run(stop)
    assert found == ["it has been stuck for 31 s"]
    assert agent.trouble == ""
    agent.close()


def test_of_very_many_measures_the_newest_stay(bench):
    """The ranks of a run share one report, which must not become too long."""
    bench.add(nodes=("n0", "n1"), gpus=1)
    many = 'for i in $(seq 60); do echo "{\\"v$NODE_RANK.$i\\": $i}" >> $ROTA_REPORT_FILE; done'
    parts = [RunPart("n0", ((-1, 1.0),), 0, 0, 1), RunPart("n1", ((-1, 1.0),), 1, 1, 1)]
    bench.launch("1.0", f"{many}; exit 3", parts=parts)
    assert bench.told.end("1.0").code == 3
    values = [m.values for m in bench.told.messages if isinstance(m, RunMetrics)]
    assert values
    assert all(0 < len(each) <= 64 for each in values)
