"""Several jobs on one GPU in turns, on a real daemon that is killed in between."""

import json
from pathlib import Path

from agents_net import eventually, stands_still

PRIORITIES = (1, 2, 1)
NODES = "nodes: [{name: n0, gpus: 1, sharing: timeslice}]\n"
WAIT = "echo $CUDA_VISIBLE_DEVICES; while [ ! -e {} ]; do sleep 0.05; done"


def stopped(go):
    """Processes that wait for this file and are stopped."""
    found = 0
    for entry in Path("/proc").iterdir():
        try:
            mine = entry.name.isdigit() and b"ROTA_RUN_KEY=" in (entry / "environ").read_bytes()
            found += (
                mine
                and stands_still(entry.name)
                and go.parent.name in str((entry / "cwd").resolve())
            )
        except OSError:
            continue
    return found


def test_three_jobs_take_turns_and_none_is_lost_by_a_kill(daemons, tmp_path):
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    daemon = daemons("--nodes", str(nodes), "--policy", "olympian:slices=weighted", "--check")
    go = daemon.folder / "go"
    jobs = [
        daemon.client.submit(
            {"run": WAIT.format(go), "resources": {"gpus": 1}, "priority": priority}
        ).id
        for priority in PRIORITIES
    ]
    for job in jobs:
        daemon.until(job, "RUNNING")
    eventually(lambda: stopped(go) >= 2)

    daemon.kill()
    weights = {
        about["run"]: about["terms"][0]
        for path in daemon.folder.glob("**/runs/*/part.json")
        for about in [json.loads(path.read_text())]
    }
    assert weights == {f"{job}.0": max(1.0, p) for job, p in zip(jobs, PRIORITIES, strict=True)}
    assert stopped(go) >= 2  # nobody deals out turns now
    daemon.start()
    go.touch()

    assert [job.state for job in daemon.all_over()] == ["SUCCEEDED"] * 3
    assert {daemon.output(job).strip() for job in jobs} == {"0"}
    assert all(daemon.client.job(job).preemptions == 0 for job in jobs)
