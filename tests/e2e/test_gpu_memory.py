"""Parts of one GPU on a real daemon: what jobs find, who fits, and who uses too much memory."""

import os

NODES = "nodes: [{name: n0, gpus: 1, sharing: fraction, gpu_mem_gib: 16}]\n"
SMI = """#!/bin/sh
case "$1" in
*compute-apps*)
  for entry in $(grep -lsz '^HUNGRY=' /proc/[0-9]*/environ); do
    pid=${entry#/proc/}
    echo "${pid%/environ}, GPU-a, 8192"
  done ;;
*) echo "0, GPU-a, 90" ;;
esac
"""
MPS = "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
WAIT = f"echo $CUDA_VISIBLE_DEVICES {MPS}; while [ ! -e {{}} ]; do sleep 0.05; done"


def test_jobs_share_a_gpu_and_who_uses_too_much_memory_is_stopped(daemons, tmp_path):
    tools, nodes, config = (tmp_path / name for name in ("tools", "nodes.yaml", "rota.yaml"))
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    nodes.write_text(NODES)
    config.write_text("local: {gpu_mem_excess: stop, health_check: 'off'}\n")
    daemon = daemons(
        "--nodes", str(nodes), "--config", str(config), "--check",
        env={"PATH": f"{tools}:{os.environ['PATH']}"},
    )  # fmt: skip
    go = daemon.folder / "go"

    def submit(gpus, gib, **envs):
        asked = {"gpus": gpus, "gpu_mem_gib": gib}
        return daemon.submit(WAIT.format(go), resources=asked, envs=envs)

    modest, hungry = submit(0.5, 6), submit(0.25, 7.5, HUNGRY="1")
    third = submit(0.25, 6)  # there is compute for it, and no memory
    daemon.until(modest, "RUNNING")
    assert "(gpu_mem_gib)" in daemon.until(hungry, "FAILED").message
    daemon.until(third, "RUNNING")
    go.touch()
    daemon.until(modest, "SUCCEEDED")
    daemon.until(third, "SUCCEEDED")
    assert daemon.output(modest).strip() == "0 50 0=6144M"
    assert daemon.output(hungry).strip() == "0 25 0=7680M"
    assert daemon.client.job(third).started_at >= daemon.client.job(hungry).ended_at
    refused = daemon.rota(
        "submit", "--gpus", "0.5", "--gpu-mem-gib", "17", "--", "true", check=False
    )
    assert refused.returncode == 1
    assert "17" in refused.stderr
