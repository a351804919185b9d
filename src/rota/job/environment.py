"""What the environment says about this process: one job, one run of it, one rank."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

N = TypeVar("N", int, float)

HERE = "checkpoint"  # where checkpoints go outside Rota, in the working directory


class Info(NamedTuple):
    """One process of a job. Outside Rota: a job without an id, with one process."""

    job_id: str
    run_id: str  # a job has a new run each time it is started
    restart_count: int  # how often it was started before
    checkpoint_dir: Path
    report_file: Path | None
    grace_s: float  # between SIGTERM and SIGKILL; inf: unknown
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    num_nodes: int
    node_name: str
    gpus: float  # of the job on this node

    @property
    def inside(self) -> bool:
        """Rota started this process."""
        return bool(self.job_id)

    @property
    def is_first(self) -> bool:
        """This is the process that saves and reports for all (rank 0)."""
        return self.rank == 0


def info() -> Info:
    """What is known about this process, read from the environment at each call.

    Raises:
        ValueError: A variable holds something that is no number.
    """
    get = os.environ.get
    report_file = get("ROTA_REPORT_FILE", "")
    return Info(
        job_id=get("ROTA_JOB_ID", ""),
        run_id=get("ROTA_RUN_ID", ""),
        restart_count=_number("ROTA_RESTART_COUNT", int, 0),
        checkpoint_dir=_checkpoints(),
        report_file=Path(report_file) if report_file else None,
        grace_s=_number("ROTA_GRACE_S", float, inf),
        rank=_number("RANK", int, 0),
        world_size=_number("WORLD_SIZE", int, 1),
        local_rank=_number("LOCAL_RANK", int, 0),
        local_world_size=_number("LOCAL_WORLD_SIZE", int, 1),
        node_rank=_number("NODE_RANK", int, 0),
        num_nodes=_number("ROTA_NUM_NODES", int, 1),
        node_name=get("ROTA_NODE_NAME", "") or os.uname().nodename,
        gpus=_number("ROTA_GPUS", float, 0.0),
    )


def checkpoint_dir() -> Path:
    """The folder that is kept between the runs of this job; created if it is not there."""
    folder = _checkpoints()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _checkpoints() -> Path:
    return Path(os.environ.get("ROTA_CHECKPOINT_DIR", "") or HERE)


def _number(name: str, kind: Callable[[str], N], default: N) -> N:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} in the environment is not a number") from None
