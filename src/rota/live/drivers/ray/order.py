"""From a run to actors: what each is told."""

import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Any

from rota.live.agent import environment
from rota.live.agent.folders import SEEN, folder_name
from rota.live.agent.messages import LaunchPart
from rota.live.agent.parts import LOG_KEEP, LOG_LIMIT
from rota.live.drivers.ray.port import NewPart

GIB = 1 << 30
VISIBLE = (environment.VISIBLE, "local_accessible_gpu", "local_accessible_gpus")
"""Variables that list all GPUs of a part: Ray chooses them, so its actor sets them."""


def namespace_of(store: str) -> str:
    """Where groups and actors of a store have their names."""
    return f"rota-{sha256(store.encode()).hexdigest()[:8]}"


def node_folder(folder: str, namespace: str) -> Path:
    """Where jobs of this daemon have their files, on each node."""
    if folder:
        return Path(folder) / namespace
    return Path(f"/tmp/{namespace}-{os.geteuid()}")  # noqa: S108 - made for us alone


def new_part(launch: LaunchPart, node_id: str, root: Path) -> NewPart:
    """What an actor is made from; `root`: the folder for files of jobs, on its node."""
    part, wanted = launch.part, launch.launch
    amounts = {"GPU": part.gpus, "CPU": part.cpus, "memory": float(int(part.mem_gib * GIB))}
    bundle = {kind: amount for kind, amount in amounts.items() if amount > 0}
    folder = root / "runs" / f"{folder_name(launch.run)}-{part.node_rank}"
    asked = {
        "root": str(root),
        "folder": str(folder),
        "make": _folders(launch, root),
        "visible": [name for name in VISIBLE if name not in wanted.envs],
        "order": _order(launch, folder, root),
        "files": {
            f"{SEEN}/setup.sh": wanted.setup,
            f"{SEEN}/run.sh": wanted.run,
            f"{SEEN}/pre_stop.sh": wanted.pre_stop,
        },
    }
    return NewPart(node_id, bundle, asked)


def _folders(launch: LaunchPart, root: Path) -> list[str]:
    """Those that are made for it, outermost first."""
    top = root / "jobs" / folder_name(launch.job)
    return [str(root / "runs"), str(root / "jobs"), str(top), str(top / "work"),
            str(top / "checkpoint")]  # fmt: skip


def _order(launch: LaunchPart, folder: Path, root: Path) -> dict[str, Any]:
    """For the shim; see `rota.live.agent.shim`."""
    wanted, key = launch.launch, secrets.token_hex(8)
    top = root / "jobs" / folder_name(launch.job)
    workdir = top / "work" / wanted.workdir
    checkpoint = workdir / wanted.checkpoint_dir if wanted.checkpoint_dir else top / "checkpoint"
    env = environment.common(
        launch, (), checkpoint=checkpoint, report=folder / SEEN / "report", key=key
    )
    return {
        "key": key,
        "name": launch.run,
        "setup": f"{SEEN}/setup.sh" if wanted.setup.strip() else "",
        "run": f"{SEEN}/run.sh",
        "workdir": str(workdir),
        "make": [str(checkpoint)] if wanted.checkpoint_dir else [],
        "env": env,
        "unset": [] if "LC_CTYPE" in env else ["LC_CTYPE"],  # Python adds it for itself
        "processes": [
            environment.of_process(launch, (), number) for number in range(launch.part.processes)
        ],
        "terminal": False,
        "grace_s": wanted.grace_s,
        "limit_s": launch.limit_s,
        "warn_s": wanted.warn_s,
        "warn_signal": wanted.warn_signal,
        "pre_stop": f"{SEEN}/pre_stop.sh" if wanted.pre_stop.strip() else "",
        "hooks": {},
        "out": str(folder / "logs/0.out"),
        "err": str(folder / "logs/0.err"),
        "order": str(folder / "logs/0.order"),
        "log_limit": LOG_LIMIT,
        "log_keep": LOG_KEEP,
        "wake": str(folder / "wake"),
        "lease": "",
    }
