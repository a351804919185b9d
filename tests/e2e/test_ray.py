"""The driver and the daemon on a real Ray: gangs, preemption, kills, a node that dies."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from agents_net import eventually
from daemon_process import PATIENCE_S, DaemonProcess, processes_of
from ray_cluster import RayCluster, require_ray
from rota.jobfile.model import Checkpoint, JobFile, Resources
from rota.live.drivers.ray import RayDriver, RayOptions
from slurm_runs import Ears, order

require_ray()

UNTIL_TERM = "trap 'echo saved; exit 0' TERM; echo began; while :; do sleep 0.05; done"
# Works for $WORK_DS tenths of a second in all, over as many runs as it takes, and at least until
# the file `go` is there. The lock shows whether another run of the same job is there.
SCRIPT = """
exec 9>"$TRACES/$ROTA_JOB_ID.lock.$NODE_RANK"
flock -n -E 75 9 || { [ $? = 75 ] && echo "$ROTA_RUN_ID" >> "$TRACES/overlaps"; }
echo "$ROTA_RUN_ID $NODE_RANK" >> "$TRACES/$ROTA_JOB_ID.runs"
mine="$TRACES/$ROTA_JOB_ID.done.$NODE_RANK"
done_ds=$(cat "$mine" 2>/dev/null || echo 0)
trap 'echo $done_ds > "$mine"; exit 0' TERM
while [ "$done_ds" -lt "$WORK_DS" ] || [ ! -e "$TRACES/go" ]; do
  sleep 0.1 9>&-; done_ds=$((done_ds + 1))
done
[ "$NODE_RANK" != 0 ] || echo "$ROTA_RUN_ID" >> "$TRACES/$ROTA_JOB_ID.ends"
"""


@pytest.fixture(scope="module")
def ray():
    with RayCluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def drive(ray, tmp_path, request):
    """Return `drive()`: a driver that is open, and its ears. All of them use the same store."""
    store = re.sub(r"\W", "-", request.node.name)
    opened = []

    def start(runs=(), halting=()):
        driver = RayDriver(store, tmp_path / "state", RayOptions(**ray.settings))
        ears = Ears()
        opened.append(driver)
        driver.open(ears)
        driver.adopt(runs, frozenset(halting))
        return driver, ears

    yield start
    for driver in opened:
        driver.close()
    driver, _ = start()  # it wants nothing: what was left over goes
    eventually(lambda: not driver.port.look().groups)
    driver.close()
    eventually(lambda: not processes_of(ray.folder))


def output(driver, job, rank=0):
    return driver.read_log(job, "all", rank, 0, 100_000).decode()


def test_a_gang_a_preemption_and_a_driver_that_takes_over(ray, drive, tmp_path):
    driver, ears = drive()
    told = "$RANK/$WORLD_SIZE $ROTA_NODE_NAME $ROTA_RUN_ID $CUDA_VISIBLE_DEVICES"
    script = f'echo "{told}"; {UNTIL_TERM}'
    gang = order("1.0", [("n1", 3), ("n2", 2)], run=script, grace_s=60)
    waits = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    waits += """; echo '{"steps": 3}' >> "$ROTA_REPORT_FILE"; exit 5"""
    driver.launch(gang)
    assert ears.run("1.0", "running").began_s is not None
    eventually(lambda: "began" in output(driver, "1", 0))
    driver.close()

    stray, late = order("9.0", [("n2", 1)], run=UNTIL_TERM), order("2.0", [("n1", 4)], run=waits)
    driver, ears = drive([gang, stray])  # another driver: it finds the one, and starts the other
    ears.run("9.0", "running")
    assert ears.run("1.0", "running")
    driver.launch(late)  # waits until the gang has left
    driver.halt("1.0")
    end = ears.ends("1.0")
    assert (end.state, end.code, end.asked) == ("ended", 0, True)
    assert end.began_s <= end.ended_s
    driver.forget("1.0")
    said, began, *_ = output(driver, "1", 0).splitlines()
    assert (said[:11], len(set(said[11:].split(","))), began) == ("0/2 n1 1.0 ", 3, "began")
    assert output(driver, "1", 1).splitlines()[0].startswith("1/2 n2 1.0 ")
    assert output(driver, "1", 1).splitlines()[-1] == "saved"
    ears.run("2.0", "running")
    driver.close()

    (tmp_path / "go").touch()  # it ends while nobody looks, and nobody wants the other one
    driver, ears = drive([late])
    end = ears.ends("2.0")
    assert (end.state, end.code, end.why) == ("ended", 5, "exit code 5")
    assert ears.measured("2.0").values == {"steps": 3.0}
    eventually(lambda: driver.port.look().groups.keys() == {"2.0"})
    eventually(lambda: not [c for c in processes_of(ray.folder).values() if "9.0" in c])


@pytest.mark.soak
def test_a_killed_run_ends_at_once_and_a_failed_part_ends_the_others(drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run="trap '' TERM; echo began; sleep 300"))
    ears.run("1.0", "running")
    driver.kill("1.0")
    end = ears.ends("1.0")
    assert (end.state, end.asked) == ("ended", True)
    script = '[ "$RANK" = 1 ] && exit 7; sleep 300'
    driver.launch(order("2.0", [("n1", 1), ("n2", 1)], run=script, grace_s=1))
    end = ears.ends("2.0")
    assert (end.state, end.code, end.why) == ("ended", 7, "node n2: exit code 7")
    driver.launch(order("3.0", [("n1", 1)], setup="echo preparing; exit 4", run="echo never"))
    end = ears.ends("3.0")
    assert (end.code, end.why) == (4, "setup failed: exit code 4")
    assert output(driver, "3") == "preparing\n"


@pytest.mark.soak
def test_whoever_kills_the_actor_kills_the_job_and_the_run_is_lost(ray, drive):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1)], run=UNTIL_TERM))
    ears.run("1.0", "running")
    shim = next(pid for pid, said in processes_of(ray.folder).items() if "shim-" in said)
    worker = next(pid for pid in ancestors(shim) if "ray::" in command(pid))
    os.kill(worker, signal.SIGKILL)
    assert ears.ends("1.0").state == "lost"
    eventually(lambda: not processes_of(ray.folder))


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


def ancestors(pid):
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


# --- the daemon -----------------------------------------------------------------------------------


def serve(ray, folder, policy):
    folder.mkdir(parents=True)
    config = folder / "rota.yaml"
    config.write_text(f"backend: ray\npolicy: {policy}\nray: {json.dumps(ray.settings)}\n")
    daemon = DaemonProcess(folder / "daemon", "--config", config, "--check")
    daemon.roots.append(ray.folder)
    return daemon.start()


def states(daemon):
    return Counter(info.state for info in daemon.client.jobs())


def wait_until(daemon, holds):
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found = states(daemon)
        if holds(found):
            return
        assert time.monotonic() < end_s, f"{found}\n{daemon.log()[-3000:]}"
        time.sleep(0.1)


def play(ray, daemon, traces, count, kills, sizes):
    """Submit; kill the daemon and a node; until all ended."""
    draw = random.Random(1)  # noqa: S311 - repeatable
    jobs = [
        JobFile(
            run=SCRIPT, resources=Resources(gpus=draw.choice(sizes)),
            envs={"TRACES": str(traces), "WORK_DS": draw.choice(("2", "5", "15"))},
            checkpoint=Checkpoint(grace_s=20.0),
        )
        for _ in range(count)
    ]  # fmt: skip
    daemon.client.submit_many(jobs)
    for number in range(kills):
        wait_until(daemon, lambda found: found["RUNNING"] or found["SUCCEEDED"])
        if number == kills // 2:
            ray.kill("n2")
            eventually(lambda: node_states(daemon).get("n2") == "down", PATIENCE_S)
            (traces / "go").touch()
        done = states(daemon)["SUCCEEDED"]
        daemon.kill()
        daemon.start()
        if (traces / "go").exists():  # something happens between two kills
            least = min(done + 1, count)
            wait_until(daemon, lambda found, least=least: found["SUCCEEDED"] >= least)
    ray.add("n2")
    wait_until(daemon, lambda found: found["SUCCEEDED"] == count)


def node_states(daemon):
    return {node.name: node.state for node in daemon.client.nodes()}


def check(ray, daemon, traces):
    assert not (traces / "overlaps").exists(), (traces / "overlaps").read_text()
    for info in daemon.client.jobs():
        parts = (traces / f"{info.id}.runs").read_text().splitlines()
        assert len(set(parts)) == len(parts), f"a part of job {info.id} was started twice: {parts}"
        ends = (traces / f"{info.id}.ends").read_text().split()
        assert len(ends) == 1 or len({part.split()[0] for part in parts}) > 1
    eventually(lambda: not processes_of(ray.folder))
    eventually(lambda: not list((daemon.state / "ray/runs").iterdir()))


def test_jobs_survive_kills_of_the_daemon_and_of_a_node(ray, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    daemon = serve(ray, tmp_path / "run", "fifo-skip")
    try:
        play(ray, daemon, traces, 4, 2, (2, 2, 6))
        check(ray, daemon, traces)
    finally:
        daemon.close()


@pytest.mark.soak
def test_sixty_jobs_on_four_nodes_ten_kills_and_a_node_that_dies(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    with RayCluster(nodes=4) as ray:
        daemon = serve(ray, tmp_path / "run", "tiresias:limits=6")
        try:
            play(ray, daemon, traces, 60, 10, (1, 1, 2, 4, 4, 8))
            check(ray, daemon, traces)
        finally:
            daemon.close()
