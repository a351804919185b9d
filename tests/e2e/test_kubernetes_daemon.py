"""The daemon on a real API server: queues, preemption, kills, a vanished node; nothing lost."""

import random
from collections import Counter

import pytest

from agents_net import eventually
from kube_cluster import KubeCluster, require_kubernetes
from kube_daemon import POLICIES, lose_n2, restart_server, serve, state_counts, wait_until
from rota.jobfile.model import Checkpoint, JobFile, Resources

require_kubernetes()

# Works for $WORK_DS tenths of a second in all, over as many runs as it takes, and at least until
# the file `go` is there. The lock shows whether another run of the same job is there.
SCRIPT = """
exec 9>"$TRACES/$ROTA_JOB_ID.lock.$NODE_RANK"
flock -n -E 75 9 || { [ $? = 75 ] && echo "$ROTA_RUN_ID" >> "$TRACES/overlaps"; }
[ "$NODE_RANK" = 0 ] && echo "$ROTA_RUN_ID" >> "$TRACES/$ROTA_JOB_ID.runs"
mine="$TRACES/$ROTA_JOB_ID.done.$NODE_RANK"
done_ds=$(cat "$mine" 2>/dev/null || echo 0)
trap 'echo $done_ds > "$mine"; exit 0' TERM
while [ "$done_ds" -lt "$WORK_DS" ] || [ ! -e "$TRACES/go" ]; do
  sleep 0.1 9>&-; done_ds=$((done_ds + 1))
done
[ "$NODE_RANK" != 0 ] || echo "$ROTA_RUN_ID" >> "$TRACES/$ROTA_JOB_ID.ends"
"""
QUOTAS = {"research": 8, "product": 4, "students": 4}


def job(traces, number, gpus, work_s):
    return JobFile(
        run=SCRIPT,
        resources=Resources(gpus=gpus),
        envs={"TRACES": str(traces), "WORK_DS": str(int(work_s * 10))},
        estimate=work_s,
        queue=list(QUOTAS)[number % len(QUOTAS)],
        checkpoint=Checkpoint(grace_s=10.0),
    )


@pytest.fixture
def kube(tmp_path):
    with KubeCluster(tmp_path / "kube") as cluster:
        yield cluster


def play(kube, daemon, traces, count, kills, *, seed):
    """Submit; kill the daemon, restart the API server, lose a node; until all ended."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    sizes = [draw.choice((1, 1, 2, 4, 4, 8)) for _ in range(count)]
    jobs = [job(traces, n, gpus, draw.choice((0.2, 0.5, 1.5))) for n, gpus in enumerate(sizes)]
    half = count // 2
    daemon.client.submit_many(jobs[:half])
    wait_until(daemon, lambda found: found["RUNNING"] >= 2)
    daemon.client.submit_many(jobs[half:])
    for number in range(kills):
        done = state_counts(daemon)["SUCCEEDED"]
        if number == kills // 3 or (kills > 4 and number == 2 * kills // 3):
            (traces / "go").touch()
            restart_server(kube)
        if number == kills // 2:
            lose_n2(kube, daemon)
        daemon.kill()
        daemon.start()
        if (traces / "go").exists():  # something happens between two kills
            least = min(done + 1, count)
            wait_until(daemon, lambda found, least=least: found["SUCCEEDED"] >= least)
    wait_until(daemon, lambda found: found["SUCCEEDED"] == count)
    return jobs


def check(kube, daemon, traces, count):
    assert not (traces / "overlaps").exists(), (traces / "overlaps").read_text()
    for info in daemon.client.jobs():
        runs = (traces / f"{info.id}.runs").read_text().split()
        assert len(set(runs)) == len(runs), f"a run of job {info.id} was started twice: {runs}"
        ends = (traces / f"{info.id}.ends").read_text().split()
        assert ends[-1] == runs[-1]
        # a run whose end nobody could see, because its node vanished, is repeated
        assert len(ends) == 1 or len(runs) > 1
    started = Counter(name for name, _ in kube.kubelets.started)
    assert max(started.values()) == 1, "a pod was created twice"
    eventually(lambda: kube.kubelets.running() == [])
    left = [p for p in kube.pods() if "rota.dev/ended" not in p["metadata"]["labels"]]
    eventually(lambda: not [p for p in left if p["metadata"].get("finalizers")])


def test_jobs_in_three_queues_survive_kills_and_a_vanished_node(kube, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    daemon = serve(kube.kubeconfig, tmp_path / "run", "tiresias:limits=6", QUOTAS, image="none")
    try:
        play(kube, daemon, traces, 12, 4, seed=1)
        check(kube, daemon, traces, 12)
    finally:
        daemon.close()


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
def test_sixty_jobs_and_twenty_kills(kube, tmp_path, policy):
    traces = tmp_path / "traces"
    traces.mkdir()
    daemon = serve(kube.kubeconfig, tmp_path / "run", policy, QUOTAS, image="none")
    try:
        play(kube, daemon, traces, 60, 20, seed=2)
        check(kube, daemon, traces, 60)
    finally:
        daemon.close()
