"""A small run of jobs that share two GPUs."""

from rota.study.config import RunConfig
from rota.study.run import simulate


def shared_run(folder, mode, policy):
    """Simulate jobs that ask for parts of GPUs, or share whole ones in turns."""
    lines = ["job_id,submit_s,num_gpus,duration_s,gpu_mem_gib,gpu_mem_step_gib"]
    lines += [f"{i},{i * 40},{(0.25, 1, 0.5)[i % 3]},{200 + i * 77 % 300},8,2" for i in range(24)]
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    cluster = folder / "gpus.yaml"
    cluster.write_text(f"nodes: 1x2:a100\ngpu_mem_gib: 40\nsharing: {mode}\n")
    config = RunConfig(trace=str(folder / "jobs.csv"), cluster=str(cluster), policy=policy)
    return simulate(config)
