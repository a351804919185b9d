"""The cluster at a glance: which job has which GPU, for pages that many people look at.

The engine's thread only copies references (`BoardCut`); the board is made of them in any thread.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from rota.core.jobs import HELD, WAITING, Job
from rota.daemon.pictures import picture_nodes
from rota.daemon.state import ClusterState
from rota.engine.executor import on_cluster
from rota.live.runs import LiveRun

UTILISATION = ("gpu_util", "gpu_utilisation", "gpu_utilization", "utilisation", "utilization")
"""What jobs may call the share of their GPUs' time that they use (`rota.job.report`)."""
PERCENT = 1.5  # values above this are meant in per cent


class BoardNode(msgspec.Struct, frozen=True, array_like=True):
    """A node; its GPUs are the next `gpus` places of the board."""

    name: str
    state: str
    gpus: int
    gpu_type: str


class BoardJob(msgspec.Struct, frozen=True, array_like=True):
    """A job that has GPUs. `since`: Unix seconds; `used`: share of its GPUs' time, if it tells."""

    id: int
    gpus: float
    since: float
    name: str
    user: str
    queue: str
    used: float | None


class Board(msgspec.Struct, frozen=True):
    """Everything at one instant; `owners`: the number of the job that has each GPU, 0 for none.

    `shared`: by place, all jobs that have the GPU, where these are several.
    """

    version: int
    last_event: int
    now: float
    nodes: list[BoardNode]
    owners: list[int]
    jobs: dict[int, BoardJob]
    counts: dict[str, float]
    shared: dict[int, list[int]] = {}


class BoardCut:
    """References to what a board shows; made in the engine's thread."""

    def __init__(
        self,
        state: ClusterState,
        epoch_unix: float,
        last_event: int,
        version: int,
        busy: Mapping[int, float],
    ) -> None:
        """Take the references.

        Args:
            state: Of the daemon.
            epoch_unix: Instant 0 of its log.
            last_event: The last row of its log.
            version: What this will be called.
            busy: What was last measured of the GPUs of jobs.
        """
        view, cluster = state.engine.view, state.cluster
        self._version = version
        self._busy = busy
        self._last_event = last_event
        self._epoch = epoch_unix
        self._now = epoch_unix + cluster.now_s
        self._nodes = [
            BoardNode(node.name, node.state, int(node.gpus), node.gpu_type)
            for node in picture_nodes(view, cluster)
        ]
        self._runs = list(cluster.runs.by_id.values())
        self._active = list(view.active.values())

    def board(self) -> Board:
        """Who has what."""
        jobs = {
            (job.parent or job).index: self._job(job.parent or job)
            for job in self._active
            if on_cluster(job)
        }
        owners, shared = self._owners()
        return Board(
            self._version, self._last_event, self._now, self._nodes, owners, jobs, self._counts(),
            shared,
        )  # fmt: skip

    def _job(self, job: Job) -> BoardJob:
        spec = job.spec
        return BoardJob(
            job.index, job.held_gpus or job.gpus, self._epoch + job.start_s, spec.name, spec.user,
            spec.tenant, _used(job.metrics, self._busy.get(job.index)),
        )  # fmt: skip

    def _owners(self) -> tuple[list[int], dict[int, list[int]]]:
        """Who has each GPU, and all who have it where these are several."""
        first: dict[str, int] = {}
        total = 0
        for node in self._nodes:
            first[node.name] = total
            total += node.gpus
        owners = [0] * total
        ends = {node.name: first[node.name] + node.gpus for node in self._nodes}
        on: dict[int, list[int]] = {}  # by place: those who have it and stay
        # those that leave give way to those that have the GPU now
        for run in sorted(self._runs, key=_is_leaving):
            index = (run.job.parent or run.job).index
            for part in run.order.parts:
                at = first.get(part.node)
                if at is not None:
                    _take(owners, at, ends[part.node], part.slices, index)
                    for device, _ in () if _is_leaving(run) else part.slices:
                        if device >= 0 and index not in on.setdefault(at + device, []):
                            on[at + device].append(index)
        return owners, {place: sorted(jobs) for place, jobs in on.items() if len(jobs) > 1}

    def _counts(self) -> dict[str, float]:
        phases: Counter[int] = Counter()
        asked = 0.0
        longest_s = self._now - self._epoch
        for job in self._active:
            if job.parent is None:
                phases[job.phase] += 1
                if job.phase == WAITING:
                    asked += job.gpus
                    longest_s = min(longest_s, job.submit_s)
        waiting, held = phases[WAITING], phases[HELD]
        return {
            "waiting": waiting,
            "held": held,
            "running": phases.total() - waiting - held,
            "asked": asked,
            "longest_s": self._now - self._epoch - longest_s,
        }


def _is_leaving(run: LiveRun) -> bool:
    return run.over or run.halting


def _take(
    owners: list[int], at: int, end: int, slices: Sequence[tuple[int, float]], index: int
) -> None:
    for device, amount in slices:
        if device >= 0:
            if at + device < end and not owners[at + device]:
                owners[at + device] = index
            continue
        left = ceil(amount)  # nobody says which: the next that are free
        for place in range(at, end):
            if not left:
                break
            if not owners[place]:
                owners[place] = index
                left -= 1


def _used(metrics: Mapping[str, float] | None, measured: float | None) -> float | None:
    """What a job tells of its GPUs, else what its agents measured."""
    for name in UTILISATION:
        value = (metrics or {}).get(name)
        if value is not None:
            return min(1.0, max(0.0, value / 100 if value > PERCENT else value))
    return measured
