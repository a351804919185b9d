"""Two queues on a real daemon: one borrows what is idle, the other takes it back."""

import json
from pathlib import Path

import polars as pl

from agents_net import eventually
from rota.policies import capacity

CONFIG = f"""\
policy: {Path(capacity.__file__)}
cluster: 1x2
queues:
  research: {{quota: 1}}
  production: {{quota: 1}}
priority_classes:
  urgent: {{value: 10, preemptible: false}}
"""


def test_borrow_and_reclaim(daemons, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(CONFIG)
    daemon = daemons("--config", config, "--check")
    jobs = [daemon.submit("sleep 600", queue="research") for _ in range(2)]
    for job in jobs:
        daemon.until(job, "RUNNING")
    found = json.loads(daemon.rota("queues", "-o", "json").stdout)
    assert {queue["name"]: queue["gpus"] for queue in found} == {"research": 2, "production": 0}
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.05; done"
    owner = daemon.submit(waits, queue="production", priority_class="urgent")
    daemon.until(owner, "RUNNING")
    assert daemon.state_of(jobs[0]) == "RUNNING"
    assert daemon.client.job(jobs[1]).reason in ("quota", "capacity", "")
    assert daemon.client.explain(jobs[1]).preempted_by == [owner]
    go.touch()
    daemon.until(owner, "SUCCEEDED")
    eventually(lambda: daemon.client.job(jobs[1]).starts == 2)  # what is idle is lent again
    daemon.rota("export", "-o", tmp_path / "out")
    log = pl.read_parquet(tmp_path / "out" / "events.parquet")
    (stop,) = log.filter(pl.col("event") == "stop").select("job", "other", "text").rows()
    assert stop == (
        int(jobs[1]), int(owner),
        "queue 'production' has 0 of the 1 GPUs it is owed, queue 'research' has 2 of 1",
    )  # fmt: skip
