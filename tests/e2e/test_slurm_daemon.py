"""The daemon on a real Slurm: preemption, a dead slurmd, a restart; nothing lost or doubled."""

import time

import pytest

from agents_net import eventually
from daemon_process import PATIENCE_S, DaemonProcess
from rota.core.log import Record
from rota.daemon.store import Store
from rota.jobfile.model import Checkpoint, JobFile, Resources
from slurm_cluster import SlurmCluster, require_slurm

require_slurm()

# Works for $WORK_DS tenths of a second in all, over as many runs as it takes, and at least until
# the file `go` is there; one line at every start and at the end.
SCRIPT = """
[ "$NODE_RANK" = 0 ] && echo "$ROTA_RUN_ID" >> "$TRACES/$ROTA_JOB_ID.runs"
done_ds=$(cat "$ROTA_CHECKPOINT_DIR/done" 2>/dev/null || echo 0)
trap 'echo $done_ds > "$ROTA_CHECKPOINT_DIR/done"; exit 0' TERM
while [ "$done_ds" -lt "$WORK_DS" ] || [ ! -e "$TRACES/go" ]; do
  sleep 0.1; done_ds=$((done_ds + 1))
done
[ "$NODE_RANK" != 0 ] || echo "$ROTA_RUN_ID" >> "$TRACES/$ROTA_JOB_ID.ends"
"""


def job(traces, gpus, work_s):
    return JobFile(
        run=SCRIPT,
        resources=Resources(gpus=gpus),
        envs={"TRACES": str(traces), "WORK_DS": str(int(work_s * 10))},
        estimate=work_s,
        checkpoint=Checkpoint(grace_s=5.0),
        retries=1,
    )


@pytest.fixture
def slurm(tmp_path):
    with SlurmCluster(tmp_path / "slurm") as cluster:
        yield cluster


@pytest.fixture
def daemon(slurm, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(
        f"backend: slurm\npolicy: tiresias:limits=6\nslurm: {{conf: '{slurm.conf}', poll_s: 0.3}}\n"
    )
    made = DaemonProcess(tmp_path / "daemon", "--config", config, "--check")
    made.start()
    yield made
    made.close()


def wait_until(daemon, holds, longest_s=PATIENCE_S):
    end_s = time.monotonic() + longest_s
    while time.monotonic() < end_s:
        jobs = list(daemon.client.jobs())
        if holds(jobs):
            return jobs
        time.sleep(0.3)
    raise AssertionError(f"{[(j.id, j.state, j.message) for j in jobs]}\n{daemon.log()[-3000:]}")


def rows(daemon):
    """The whole log, from the store of a daemon that was stopped."""
    daemon.stop()
    store = Store(daemon.state / "rota.db")
    found = [Record(row[2]).name.lower() for row in store.rows(0, 10**6)]
    store.close()
    return found


def test_twenty_jobs_with_preemption_a_dead_node_and_a_restart(slurm, daemon, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    sizes = [4, 4, 4, 4, 2, 1, 8, 1, 2, 4] * 2
    first = [job(traces, gpus, 3.0) for gpus in sizes[:6]]
    later = [job(traces, gpus, 1.5) for gpus in sizes[6:]]
    daemon.client.submit_many(first)
    wait_until(daemon, lambda jobs: sum(j.state == "RUNNING" for j in jobs) >= 4)
    daemon.client.submit_many(later)
    wait_until(daemon, lambda jobs: any(j.preemptions for j in jobs))
    daemon.kill()
    daemon.start()
    slurm.crash("n2")
    eventually(lambda: {n.name: n.state for n in daemon.client.nodes()}["n2"] == "down")
    (traces / "go").touch()
    jobs = wait_until(daemon, lambda jobs: all(j.state == "SUCCEEDED" for j in jobs))
    assert len(jobs) == 20
    for info in jobs:
        runs = (traces / f"{info.id}.runs").read_text().split()
        assert len(set(runs)) == len(runs), f"a run of job {info.id} was started twice"
        ends = (traces / f"{info.id}.ends").read_text().split()
        # only one whose end could not be seen (asked to stop, or its node died) comes again
        assert ends == runs[-1:] or len(runs) > 1
    events = rows(daemon)
    assert {"stop", "stopped", "node_down", "evicted"} <= set(events)
    assert events.count("done") == 20


@pytest.mark.soak
def test_slurm_ends_a_job_at_its_time_limit(daemon, tmp_path):
    """It takes Slurm more than a minute: its limits are whole minutes."""
    done = daemon.rota(
        "submit", "--gpus", "1", "--time", "1m", "--", "sh", "-c",
        f"trap 'echo saved > {tmp_path}/saved; exit 0' TERM; while :; do sleep 0.1; done",
    )  # fmt: skip
    job = done.stdout.strip()
    found = daemon.until(job, "TIMEOUT")
    assert found.message == "its time limit of 1m is reached"
    assert (tmp_path / "saved").read_text() == "saved\n"  # it was asked first
    assert found.starts == 1
