"""Several jobs on one GPU in turns, on a real daemon that is killed in between."""

from pathlib import Path

from agents_net import eventually

NODES = "nodes: [{name: n0, gpus: 1, sharing: timeslice}]\n"
POLICY = '''
"""Everybody on the first GPU."""

from rota.core.allocation import Allocation
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params


class Together(DecidePolicy[Params]):
    """Everybody on the first GPU."""

    name = "together"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan(ExplicitPlan)
        first = view.topology.nodes[0]
        for job in view.jobs:
            if first.open or job.running:
                plan.place_at(job, Allocation([(view.topology.devices(first.id)[0], 1)]))
        return plan
'''
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
    nodes, policy = tmp_path / "nodes.yaml", tmp_path / "together.py"
    nodes.write_text(NODES)
    policy.write_text(POLICY)
    daemon = daemons("--nodes", str(nodes), "--policy", str(policy))
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
