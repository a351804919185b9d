"""What a job uses is measured on the node, shown to its owner and added up; GPUs are faked."""

import json
import os

import pytest

from agents_net import eventually


def test_a_job_is_measured_shown_and_advised(daemons, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nprintf '0, GPU-a, 90\\n1, GPU-b, 0\\n'\n")
    (tools / "nvidia-smi").chmod(0o755)
    daemon = daemons("--nodes", "1x2", env={"PATH": f"{tools}:{os.environ['PATH']}"})
    job = daemon.rota(
        "submit", "--gpus", "2", "--cpus", "64", "--mem", "1024", "--name", "lazy", "--dry-run",
        "--", "true",
    )  # fmt: skip
    assert "mem: '1024'" in job.stdout
    job = daemon.submit("while :; do :; done", gpus=2, name="lazy")
    info = eventually(
        lambda: (
            (found := daemon.client.job(job)).used is not None and found.used.samples >= 3 and found
        ),
        every_s=0.2,
    )
    assert info.used.cpus_mean > 0
    assert info.used.mem_peak_gib > 0
    assert (info.used.gpu_busy, info.used.gpus_idle) == (0.45, 1.0)
    assert list(info.used.advice) == ["you asked for 2 GPUs, 1 was idle"]
    shown = daemon.rota("show", job).stdout
    assert "advice:      you asked for 2 GPUs, 1 was idle" in shown
    assert "GPUs busy 45%" in shown
    series = daemon.client.usage(job).series
    assert len(series) >= 3
    daemon.kill()
    daemon.start()
    assert len(daemon.client.usage(job).series) >= 3
    daemon.rota("cancel", job)
    summary = daemon.client.job(job).summary()
    assert "cancelled" in summary
    assert summary.endswith("you asked for 2 GPUs, 1 was idle")
    (mine,) = json.loads(daemon.rota("efficiency", "-o", "json").stdout)
    assert (mine["name"], mine["jobs"], mine["gpu_busy"]) == (info.user, 1, pytest.approx(0.45))
    assert "45%" in daemon.rota("efficiency", "--by", "queue").stdout
