"""The driver against a real slurmctld with four emulated nodes of four fake GPUs each."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time

import msgspec
import pytest
from msgspec.structs import replace

from agents_net import PATIENCE_S, eventually
from rota.core.errors import ClusterError
from rota.core.events import INF
from rota.live.drivers.slurm import SlurmDriver, SlurmOptions
from slurm_cluster import SlurmCluster, require_slurm
from slurm_runs import Ears, order

require_slurm()

POLL_S = 0.2
UNTIL_TERM = (
    "trap 'echo saved; exit 0' TERM; echo began on $ROTA_NODE_NAME; while :; do sleep 0.1; done"
)


def until_file(path):
    """A part of a script that waits for a file."""
    return f"while [ ! -e {path} ]; do sleep 0.05; done"


def begins(driver, ears, run, ranks=1, times=1):
    """Wait until every part has said that it began: it runs before it has set its trap."""
    ears.run(run, "running")
    job = run.partition(".")[0]
    for rank in range(ranks):
        eventually(lambda rank=rank: output(driver, job, rank).count("began") == times)


VARIABLES = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), shards=4) as cluster:
        yield cluster


@pytest.fixture
def drive(slurm, tmp_path, request):
    """Return `drive()`: a driver that is open, and its ears. All of them use the same store."""
    store = re.sub(r"\W", "-", request.node.name)
    opened = []

    def start(runs=(), halting=()):
        options = SlurmOptions(conf=str(slurm.conf), poll_s=POLL_S)
        driver, ears = SlurmDriver(store, tmp_path / "shared", options), Ears()
        driver.open(ears)
        driver.adopt(runs, frozenset(halting))
        opened.append(driver)
        return driver, ears

    yield start
    for driver in opened:
        driver.close()
    for job in jobs_of(slurm, store):
        slurm.call("scancel", str(job["job_id"]))


def jobs_of(slurm, store):
    """Jobs of a store that Slurm knows, without components of heterogeneous ones."""
    found = json.loads(slurm.call("squeue", "--states=all", "--json").stdout)["jobs"]
    mine = [job for job in found if job["comment"].startswith(f"rota:{store}:")]
    return [job for job in mine if not job["het_job_offset"]]


def running(slurm):
    """Numbers of all jobs that Slurm runs."""
    found = json.loads(slurm.call("squeue", "--json").stdout)["jobs"]
    return {str(job["job_id"]) for job in found if job["job_state"] == "RUNNING"}


def states_of(slurm, store):
    return {job["job_state"] for job in jobs_of(slurm, store)}


def store_of(driver):
    return driver._carrier._store


def output(driver, job, rank, stream="out"):
    return driver.read_log(job, stream, rank, 0, 100_000).decode()


# --- launching -----------------------------------------------------------------------------------


def test_the_start_up_finds_a_usable_slurm_and_its_nodes(slurm, tmp_path):
    driver = SlurmDriver("s", tmp_path, SlurmOptions(conf=str(slurm.conf)))
    assert driver.preflight() == []
    nodes = driver.nodes()
    assert [(n.name, n.gpus, n.gpu_type, n.cpus) for n in nodes] == [
        (name, 4, "a100", 16.0) for name in ("n1", "n2", "n3", "n4")
    ]
    assert {n.sharing for n in nodes} == {"fraction"}  # they have shards
    assert (driver.capabilities.fractions, driver.capabilities.parts) == (True, 4)


def test_what_slurm_cannot_do_is_said_at_start_up(slurm, tmp_path):
    options = SlurmOptions(conf=str(slurm.conf), partition="elsewhere")
    with pytest.raises(ClusterError, match="no partition 'elsewhere': it has main"):
        SlurmDriver("s", tmp_path, options).preflight()
    options = SlurmOptions(conf=str(slurm.conf), time_limit="nonsense")
    with pytest.raises(ClusterError, match="would not accept"):
        SlurmDriver("s", tmp_path, options).preflight()


def test_a_run_on_two_nodes_finds_its_environment(drive, monkeypatch):
    monkeypatch.setenv("ROTA_TOKEN", "do not tell")
    monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
    driver, ears = drive()
    tricky = "it's $(touch evil) `touch evil` \"; touch evil\n"
    asked = order(
        "7.3", [("n3", 2), ("n2", 2)], run='env; printf "%s" "$TRICKY" >"tricky.$RANK"',
        setup="echo prepared >&2", per="gpu", envs={"TRICKY": tricky, "LOCAL_RANK": "mine"},
    )  # fmt: skip
    driver.launch(asked)
    assert ears.ends("7.3") == ears.of("7.3")[-1]
    assert [(s.state, s.code, s.asked) for s in ears.of("7.3")][-1] == ("ended", 0, False)
    work = driver._folders.job("7") / "work"
    assert sorted(path.name for path in work.iterdir()) == [f"tricky.{n}" for n in range(4)]
    assert (work / "tricky.3").read_text() == tricky
    first, second = (dict(VARIABLES.findall(output(driver, "7", rank))) for rank in (0, 1))
    assert "ROTA_TOKEN" not in first
    assert (first["ROTA_NODE_NAME"], second["ROTA_NODE_NAME"]) == ("n3", "n2")
    expected = {
        "CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500", "NODE_RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "mine",
        "ROTA_JOB_ID": "7", "ROTA_RUN_ID": "7.3", "ROTA_RESTART_COUNT": "3", "ROTA_GRACE_S": "30",
        "ROTA_NUM_NODES": "2", "job_id": "7", "master_ip_address": "127.0.0.1", "world_size": "4",
        "local_accessible_gpu": "0,1", "local_accessible_gpus": "0,1", "ROTA_GPUS": "2",
    }  # fmt: skip
    assert {name: second.get(name) for name in expected} == expected
    ranks = re.findall(r"^(?:RANK|dist_rank)=(\d)$", output(driver, "7", 1), re.MULTILINE)
    assert sorted(ranks) == ["2", "2", "3", "3"]
    assert output(driver, "7", 0, "err") == "prepared\n"


def test_nodes_can_give_unequal_numbers_of_gpus(drive, slurm):
    driver, ears = drive()
    places = [("n4", 3), ("n1", 1), ("n2", 3)]
    driver.launch(order("1.0", places, run='echo "$ROTA_NODE_NAME:$SLURM_GPUS_ON_NODE"; exit 0'))
    assert ears.ends("1.0").code == 0
    assert [output(driver, "1", rank) for rank in range(3)] == ["n4:3\n", "n1:1\n", "n2:3\n"]
    driver.launch(order("2.0", places, run=UNTIL_TERM))
    begins(driver, ears, "2.0", ranks=3)
    driver.halt("2.0")
    assert (ears.ends("2.0").code, ears.ends("2.0").asked) == (0, True)


def test_parts_of_a_gpu_are_shards(drive, slurm, tmp_path):
    driver, ears = drive()
    eventually(lambda: driver._carrier.nodes)
    go = tmp_path / "go"
    script = f"echo GPU $CUDA_VISIBLE_DEVICES of $ROTA_GPUS; {until_file(go)}"
    for run, part in (("1.0", 0.5), ("2.0", 0.25)):
        asked = order(run, [("n1", 1)], run=script)
        parts = (replace(asked.parts[0], slices=((0, part),)),)
        driver.launch(replace(asked, parts=parts))
    ears.run("1.0", "running")
    ears.run("2.0", "running")
    asked = {
        job["tres_per_node"].rpartition("shard:")[2] for job in jobs_of(slurm, store_of(driver))
    }
    assert asked == {"2", "1"}
    go.touch()
    assert (ears.ends("1.0").code, ears.ends("2.0").code) == (0, 0)
    assert [output(driver, job, 0) for job in "12"] == ["GPU 0 of 0.5\n", "GPU 0 of 0.25\n"]


def test_a_run_that_fails_tells_its_code(drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run="exit 3"))
    driver.launch(order("2.0", [("n1", 1)], run="sleep 60", setup="echo no >&2; exit 4"))
    driver.launch(order("3.0", [("n2", 2)], run="[ $RANK = 1 ] && exit 5; sleep 60", per="gpu"))
    driver.launch(order("4.0", [("n3", 1), ("n4", 1)], run="[ $RANK = 1 ] && exit 6; sleep 60"))
    driver.launch(order("5.0", [("n3", 1)], run="kill -9 $$"))
    driver.launch(order("6.0", [], run="true"))
    found = {run: ears.ends(run) for run in ("1.0", "2.0", "3.0", "4.0", "5.0", "6.0")}
    assert [(s.code, s.why) for s in found.values()][:5] == [
        (3, "exit code 3"),
        (4, "setup failed: exit code 4"),
        (5, "exit code 5"),
        (6, "exit code 6"),
        (-9, "killed by signal 9 (Killed)"),
    ]
    assert "names no node" in found["6.0"].why
    assert not any(status.asked for status in found.values())
    assert [s.state for s in ears.of("2.0")] == ["ended"]  # its setup was never over


def test_a_time_limit_is_that_of_the_slurm_job(drive, slurm):
    """Slurm counts minutes, and ends a job itself: `test_slurm_daemon` waits for it."""
    driver, ears = drive()
    driver.launch(replace(order("1.0", [("n1", 1)], run=UNTIL_TERM), limit_s=150.0))
    driver.launch(order("2.0", [("n2", 1)], run=UNTIL_TERM))
    for run in ("1.0", "2.0"):
        begins(driver, ears, run)
    told = [job["time_limit"] for job in jobs_of(slurm, store_of(driver))]
    limit, none = sorted(INF if each is None else each for each in told)  # or it says nothing
    assert limit == 3  # minutes
    assert none >= 365 * 24 * 60  # that is how Slurm writes infinite
    for run in ("1.0", "2.0"):
        driver.halt(run)
        ears.ends(run)


def test_reports_of_a_job_are_passed_on(drive):
    driver, ears = drive()
    script = f"""
    "{sys.executable}" -c 'from rota import job; job.report(step=7, loss=0.5)'
    """
    driver.launch(order("1.0", [("n1", 1)], run=script))
    assert ears.measured("1.0").values == {"step": 7.0, "loss": 0.5}
    assert ears.ends("1.0").code == 0


# --- ending --------------------------------------------------------------------------------------


def test_a_preempted_job_stays_one_slurm_job_and_goes_on_elsewhere(drive, slurm):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 2), ("n2", 2)], run=UNTIL_TERM))
    begins(driver, ears, "1.0", ranks=2)
    driver.halt("1.0")
    status = ears.ends("1.0")
    assert (status.state, status.code, status.asked) == ("ended", 0, True)
    driver.forget("1.0")
    driver.launch(order("1.1", [("n4", 2), ("n3", 2)], run=UNTIL_TERM + "; exit 9"))
    begins(driver, ears, "1.1", ranks=2, times=2)
    jobs = jobs_of(slurm, store_of(driver))
    assert [(job["job_state"], job["nodes"], job["restart_cnt"]) for job in jobs] == [
        ("RUNNING", "n[3-4]", 1)
    ]
    driver.halt("1.1")
    ears.ends("1.1")
    assert output(driver, "1", 0) == "began on n1\nsaved\nbegan on n4\nsaved\n"
    assert output(driver, "1", 1) == "began on n2\nsaved\nbegan on n3\nsaved\n"


def test_a_resized_job_is_a_new_slurm_job_and_the_old_one_goes(drive, slurm):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 2)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    driver.halt("1.0")
    ears.ends("1.0")
    driver.forget("1.0")
    driver.launch(order("1.1", [("n1", 4)], run="true"))
    assert ears.ends("1.1").code == 0
    states = sorted(job["job_state"] for job in jobs_of(slurm, store_of(driver)))
    assert states == ["CANCELLED", "COMPLETED"]


def test_who_does_not_listen_is_killed_after_its_grace(drive):
    driver, ears = drive()
    deaf = "trap '' TERM; echo began; while :; do sleep 0.1; done"
    driver.launch(order("1.0", [("n1", 1)], run=deaf, grace_s=1.0))
    driver.launch(order("2.0", [("n2", 1), ("n3", 1)], run=deaf, grace_s=1.0))
    begins(driver, ears, "1.0")
    begins(driver, ears, "2.0", ranks=2)
    begun_s = time.monotonic()
    driver.halt("1.0")
    driver.kill("2.0")
    ends = [ears.ends(run) for run in ("1.0", "2.0")]
    assert [(end.state, end.asked, end.code < 0) for end in ends] == [("ended", True, True)] * 2
    assert time.monotonic() - begun_s >= 1.0


def test_what_never_began_ends_at_once(drive, slurm):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 4)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    driver.launch(order("2.0", [("n1", 4)], run="true"))  # Slurm lets it wait
    driver.launch(order("3.0", [("n1", 4)], run="true"))
    driver.halt("2.0")
    driver.kill("3.0")
    driver.halt("4.0")
    for run in ("2.0", "3.0", "4.0"):
        assert (ears.ends(run).state, ears.ends(run).asked) == ("ended", True)
    driver.forget("2.0")
    driver.retire("2")
    driver.kill("1.0")
    ears.ends("1.0")
    store = store_of(driver)
    eventually(lambda: states_of(slurm, store) == {"CANCELLED"}, every_s=0.1)


# --- restarts ------------------------------------------------------------------------------------


def test_a_new_driver_adopts_everything_and_doubles_nothing(drive, slurm, tmp_path):
    driver, ears = drive()
    go = tmp_path / "go"
    orders = [
        order("1.0", [("n1", 1)], run=f"echo one; {until_file(go)}; exit 7"),  # ends meanwhile
        order("2.0", [("n2", 1)], run="echo two; " + UNTIL_TERM),  # goes on
        order("3.0", [("n3", 1)], run="echo three; " + UNTIL_TERM),  # shall be halted
        order("4.0", [("n3", 1), ("n4", 1)], run="echo four; " + UNTIL_TERM),  # is not wanted
    ]
    for one in orders:
        driver.launch(one)
    ears.run("1.0", "running")
    for one in orders[1:]:
        begins(driver, ears, one.run, ranks=len(one.parts))
    driver.close()
    never = order("5.0", [("n4", 1)], run="echo five")
    go.touch()
    eventually(lambda: "FAILED" in states_of(slurm, store_of(driver)), every_s=0.1)
    driver, ears = drive([*orders[:3], never], ["3.0"])
    assert (ears.ends("1.0").code, ears.ends("1.0").asked) == (7, False)
    assert (ears.ends("3.0").code, ears.ends("3.0").asked) == (0, True)
    assert ears.ends("5.0").code == 0
    ears.run("2.0", "running")
    driver.halt("2.0")
    assert ears.ends("2.0").asked
    for job, word in (("1", "one"), ("2", "two"), ("3", "three"), ("4", "four"), ("5", "five")):
        assert output(driver, job, 0).count(word) == 1
    assert len(jobs_of(slurm, store_of(driver))) == 5
    assert ears.of("4.0") == []
    states = {j["name"]: j["job_state"] for j in jobs_of(slurm, store_of(driver))}
    assert "RUNNING" not in states.values()


def test_a_death_between_any_two_commands_loses_and_doubles_nothing(drive, slurm):
    driver, ears = drive()
    commands = driver.commands

    class DiedError(Exception):
        pass

    def die(*args, **kwargs):
        raise DiedError

    one, two = order("1.0", [("n1", 1)], run="echo one"), order("2.0", [("n1", 1)], run="echo two")
    real_submit = commands.submit

    def submit_and_die(*args):
        real_submit(*args)
        commands.submit = die
        raise DiedError

    commands.submit = submit_and_die  # the answer is never read
    driver.launch(one)
    eventually(lambda: len(jobs_of(slurm, store_of(driver))) == 1, every_s=0.05)
    driver.close()
    driver, ears = drive()
    driver.commands.release = die  # submitted, but never released
    driver.launch(two)
    eventually(lambda: len(jobs_of(slurm, store_of(driver))) == 2, every_s=0.05)
    driver.close()
    driver, ears = drive([one, two])
    assert [ears.ends(run).code for run in ("1.0", "2.0")] == [0, 0]
    assert (output(driver, "1", 0), output(driver, "2", 0)) == ("one\n", "two\n")


def test_slurmctld_may_be_away_for_a_while(drive, slurm, tmp_path):
    driver, ears = drive()
    go, ended = tmp_path / "go", tmp_path / "ended"
    script = f"{until_file(go)}; echo done; touch {ended}; exit 2"
    driver.launch(order("1.0", [("n1", 1)], run=script))
    ears.run("1.0", "running")
    slurm.stop_controller()
    driver.launch(order("2.0", [("n2", 1)], run="echo later"))
    go.touch()
    eventually(ended.exists)
    slurm.start_controller()
    assert (ears.ends("1.0").code, ears.ends("2.0").code) == (2, 0)
    assert output(driver, "2", 0) == "later\n"


def test_a_drained_node_is_not_used_but_goes_on(drive, slurm):
    driver, ears = drive()
    driver.launch(order("1.0", [("n4", 1)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    slurm.call("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=dust")
    try:
        assert "dust" in ears.node("n4", "silent").why
        assert ears.of("1.0")[-1].state == "running"
        driver.launch(order("2.0", [("n4", 1)], run="true"))
        assert ears.ends("2.0").state == "lost"
    finally:
        slurm.call("scontrol", "update", "NodeName=n4", "State=RESUME")
    ears.messages.clear()
    ears.node("n4", "up")
    driver.kill("1.0")
    ears.ends("1.0")


def go_on(driver, ears, job, parts):
    """The next run of a job; Slurm may lose one more while it notices that the node is dead."""
    for restart in (1, 2, 3):
        run = f"{job}.{restart}"
        driver.launch(order(run, parts, run="echo again on $ROTA_NODE_NAME"))
        end = ears.ends(run)
        if end.state != "lost":
            assert (end.state, end.code) == ("ended", 0), end
            return
        driver.forget(run)
    raise AssertionError(f"job {job} was lost three times: {end}")


def test_a_dead_node_loses_its_runs_which_go_on_elsewhere(slurm, drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n4", 2)], run=UNTIL_TERM))
    driver.launch(order("2.0", [("n3", 1), ("n4", 1)], run=UNTIL_TERM))
    driver.launch(order("3.0", [("n3", 2), ("n4", 1)], run=UNTIL_TERM))
    for run in ("1.0", "2.0", "3.0"):
        ears.run(run, "running")
    eventually(lambda: output(driver, "1", 0) == "began on n4\n")
    slurm.crash("n4")
    try:
        ears.node("n4", "lost")
        ends = [ears.ends(run) for run in ("1.0", "2.0", "3.0")]
        assert [end.state for end in ends] == ["lost"] * 3, ends
        for run in ("1.0", "2.0", "3.0"):
            driver.forget(run)
        go_on(driver, ears, "1", [("n1", 2)])
        go_on(driver, ears, "2", [("n3", 1), ("n2", 1)])
        assert output(driver, "1", 0) == "began on n4\nagain on n1\n"
        assert output(driver, "2", 1).endswith("again on n2\n")
    finally:
        slurm.boot("n4")
    ears.node("n4", "up")


# --- shadow mode ---------------------------------------------------------------------------------

SHADOW = "from rota.cli.shadow import shadow; shadow()"
WRAPPER = """#!/bin/bash
printf '%s\\n' "{name} $*" >>"{record}"
exec "{real}" "$@"
"""


def all_told(path, ended, started):
    """Do the lines so far tell the end of these jobs and the start of that one?"""
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    looks = [json.loads(line) for line in lines]
    ends = {name for look in looks for name in look["slurm_ended"]}
    return set(ended) <= ends and any(
        started in look["same"] + look["only_slurm"] for look in looks
    )


def test_shadow_mode_reads_only(slurm, tmp_path):
    """Every command of Slurm on the PATH is a wrapper that writes down how it was called."""
    record, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "sinfo", "sacct", "scontrol", "sbatch", "scancel", "srun", "salloc",
                 "strigger", "sacctmgr", "sattach", "sbcast"):  # fmt: skip
        wrapper = folder / name
        wrapper.write_text(WRAPPER.format(name=name, record=record, real=f"/usr/bin/{name}"))
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    go = tmp_path / "go"
    blockers = [
        slurm.call("sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:4", f"--nodelist={n}",
                   f"--wrap={until_file(go)}").stdout.strip() for n in slurm.nodes
    ]  # fmt: skip
    waiting = slurm.call(
        "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:2", "--wrap=sleep 900"
    ).stdout.strip()
    eventually(lambda: running(slurm) >= set(blockers))  # what starts later would be counted, too
    env = {**os.environ, **slurm.env, "PATH": f"{folder}:{os.environ['PATH']}"}
    watching = subprocess.Popen(
        [sys.executable, "-c", SHADOW, "--policy", "fifo", "--interval", "0.5",
         "-o", str(tmp_path / "out")],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with watching:
        seen = tmp_path / "out" / "shadow.jsonl"
        eventually(lambda: watching.poll() is not None or (seen.exists() and seen.read_text()))
        go.touch()
        eventually(lambda: watching.poll() is not None or all_told(seen, blockers, waiting))
        watching.send_signal(signal.SIGINT)
        stdout, stderr = watching.communicate(timeout=PATIENCE_S)
    slurm.call("scancel", waiting)
    assert watching.returncode == 0, stderr
    calls = record.read_text().splitlines()
    assert {re.sub(r" .*", "", call) for call in calls} <= {"squeue", "sinfo"}
    looks = [json.loads(line) for line in (tmp_path / "out/shadow.jsonl").read_text().splitlines()]
    assert len(calls) >= 2 * len(looks) > 2
    assert any(waiting in look["same"] for look in looks), looks
    assert all(waiting not in look["only_slurm"] for look in looks)
    assert set(blockers) <= {name for look in looks for name in look["slurm_ended"]}
    totals = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert totals["looks"] == len(looks)
    assert totals["same"] + totals["only_slurm"] == totals["slurm_started"] > 0
    assert "started by Slurm" in stdout


def test_options_are_plain_data():
    options = SlurmOptions(partition="gpu", poll_s=2.0)
    assert msgspec.convert(msgspec.to_builtins(options), SlurmOptions) == options
