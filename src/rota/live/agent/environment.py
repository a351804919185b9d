"""What a job finds in its environment.

All of it is *added to* what the agent inherited, without any variable that begins with ROTA_ (so no
token of a daemon or an agent gets through) and without the password of the daemon's database; a job
of another account inherits only what `rota.live.agent.sandbox` says. The `envs` of the job win,
except over ROTA_*.

*Processes*: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and NODE_RANK count the processes that
Rota starts: one on each node (`per: node`) or one for each GPU (`per: gpu`). MASTER_ADDR and
MASTER_PORT are the same for all of them. `setup` sees everything but RANK and LOCAL_RANK.

*GPUs*: CUDA_VISIBLE_DEVICES has all GPUs of the job on this node, in both cases: with `per: gpu` a
process chooses by LOCAL_RANK, as under torchrun, so that its peers stay reachable directly. It is
empty for a job without GPUs. On GPUs whose mode is `fraction` or `mps` a job that has a part of one
finds CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, and one that says how much memory it needs
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: they mean something to CUDA where NVIDIA's MPS runs.

*Blox's names*: local_gpu_id (the GPU of this process, as this machine counts), master_ip_address,
world_size, dist_rank, job_id, local_accessible_gpus (its README says local_accessible_gpu).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.core.sharing import FRACTION, MPS
from rota.live.agent.devices import Share
from rota.live.agent.messages import AgentNode, LaunchPart
from rota.live.driver import RunPart

OWN = "ROTA_"
DAEMONS = frozenset({"PGPASSWORD"})  # of its database
VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS, PINNED = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def inherited(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a job may inherit."""
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if not name.startswith(OWN) and name not in DAEMONS
    }


def common(
    order: LaunchPart, devices: Sequence[str], *, checkpoint: Path, report: Path, key: str
) -> dict[str, str]:
    """Variables of every process of a part."""
    part, visible = order.part, ",".join(devices)
    texts: dict[str, object] = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi numbers them
        VISIBLE: visible,
        "LOCAL_WORLD_SIZE": part.processes,
        "MASTER_ADDR": order.master_address,
        "MASTER_PORT": order.master_port,
        "NODE_RANK": part.node_rank,
        "WORLD_SIZE": order.world_size,
        "job_id": order.job,
        "local_accessible_gpu": visible,
        "local_accessible_gpus": visible,
        "master_ip_address": order.master_address,
        "world_size": order.world_size,
    }
    own: dict[str, object] = {
        "ROTA_CHECKPOINT_DIR": checkpoint,
        "ROTA_GPUS": f"{part.gpus:g}",
        "ROTA_GRACE_S": f"{order.launch.grace_s:g}",
        "ROTA_JOB_ID": order.job,
        "ROTA_JOB_NAME": order.name,
        "ROTA_NODE_NAME": part.node,
        "ROTA_NUM_NODES": order.nodes,
        "ROTA_REPORT_FILE": report,
        "ROTA_RESTART_COUNT": order.restart,
        "ROTA_RUN_ID": order.run,
        "ROTA_RUN_KEY": key,  # by which the agent recognises what is left of a run
    }
    if order.limit_s:
        own["ROTA_TIME_LIMIT_S"] = f"{order.limit_s:g}"  # of this run
    if order.user:
        own["ROTA_JOB_USER"] = order.user
    if order.launch.task is not None:
        own |= order.launch.task.variables()
    merged = {**texts, **order.launch.envs, **own}
    return {name: str(value) for name, value in merged.items()}


def of_mps(part: RunPart, node: AgentNode, shares: Sequence[Share]) -> dict[str, str]:
    """What limits a part on GPUs that it shares at the same time as others.

    GPUs count from 0 in the order of CUDA_VISIBLE_DEVICES; there is one percentage for all of them.
    """
    modes = node.spec.modes
    shared = [
        (place, amount)
        for place, (device, amount) in enumerate(sorted(shares))
        if device < len(modes) and modes[device] in (FRACTION, MPS)
    ]
    found = {}
    most = part.gpu_limit or max((amount for _, amount in shared), default=1.0)
    if shared and most < 1:
        found[THREADS] = str(max(1, round(100 * most)))
    if shared and part.gpu_mem_gib:
        mib = max(1, int(1024 * part.gpu_mem_gib))
        found[PINNED] = ",".join(f"{place}={mib}M" for place, _ in shared)
    return found


def of_process(order: LaunchPart, devices: Sequence[str], local_rank: int) -> dict[str, str]:
    """Variables of one process of a part."""
    rank = order.part.first_rank + local_rank
    texts = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "dist_rank": str(rank)}
    texts["local_gpu_id"] = devices[local_rank % len(devices)] if devices else ""
    return {name: value for name, value in texts.items() if name not in order.launch.envs}
