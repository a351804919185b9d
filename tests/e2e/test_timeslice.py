"""Several jobs on one GPU in turns, on a real daemon that is killed in between."""

from pathlib import Path

from agents_net import eventually

NODES = "nodes: [{name: n0, gpus: 1, sharing: timeslice}]\n"
WAIT = "echo $CUDA_VISIBLE_DEVICES; while [ ! -e {} ]; do sleep 0.05; done"


def stopped(go):
    """Processes that wait for this file and are stopped."""
    found = 0
    for entry in Path("/proc").iterdir():
        try:
            mine = entry.name.isdigit() and b"ROTA_RUN_KEY=" in (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if mine else ""
            found += state == "T" and go.parent.name in str((entry / "cwd").resolve())
        except OSError:
            continue
    return found


def test_three_jobs_take_turns_and_none_is_lost_by_a_kill(daemons, tmp_path):
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    daemon = daemons("--nodes", str(nodes), "--policy", "olympian", "--check")
    go = daemon.folder / "go"
    jobs = [
        daemon.client.submit({"run": WAIT.format(go), "resources": {"gpus": 1}}).id
        for _ in range(3)
    ]
    for job in jobs:
        daemon.until(job, "RUNNING")
    eventually(lambda: stopped(go) >= 2)

    daemon.kill()
    assert stopped(go) >= 2  # nobody deals out turns now
    daemon.start()
    go.touch()

    assert [job.state for job in daemon.all_over()] == ["SUCCEEDED"] * 3
    assert {daemon.output(job).strip() for job in jobs} == {"0"}
    assert all(daemon.client.job(job).preemptions == 0 for job in jobs)
