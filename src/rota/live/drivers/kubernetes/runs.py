"""Brings pods, step by step, to where their runs want them.

Nothing is remembered that the API server does not tell: a pod has a name that follows from its run,
so none is created twice, and a finaliser, so none is gone before its end was understood.
`step` looks at what a run wants and at its pods, and does the next thing; it may be called again
and again.
"""

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from time import monotonic, time
from typing import TypeAlias

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, parts, text, time_of
from rota.live.clock import boot_time_s
from rota.live.driver import RunOrder, RunStatus
from rota.live.drivers.kubernetes.api import CONFLICT, NOT_FOUND, KubeApi, KubeError, KubeObject
from rota.live.drivers.kubernetes.cache import ObjectCache, key_of
from rota.live.drivers.kubernetes.launcher import PartEnd, read_end
from rota.live.drivers.kubernetes.logs import PodLogs
from rota.live.drivers.kubernetes.manifest import ENDED, STORE, pod, pod_name, short
from rota.live.drivers.kubernetes.manifest import RUN as RUN_LABEL
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.orders import (
    KILL,
    REFUSED,
    RUN,
    OrderedRun,
    OrderedRuns,
    describe_code,
)

log = logging.getLogger("rota.kubernetes")

NODE_GONE = "its node is gone"
PodKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


class KubeRun(OrderedRun):
    """A run and how far it has come."""

    def __init__(self, order: RunOrder, want: str = RUN) -> None:
        super().__init__(order, want)
        self.deleted: set[int] = set()  # parts that were asked to end
        self.forced: set[int] = set()  # parts that were deleted without grace
        self.began_unix: float | None = None

    @property
    def job(self) -> str:
        """The job of Rota."""
        return self.order.job

    @property
    def number(self) -> int:
        """Which one of the runs of its job."""
        return int(self.order.run.rpartition(".")[2])


class KubeRuns(OrderedRuns[KubeRun]):
    """All runs. Everything but `read_log` is called by one thread."""

    def __init__(
        self, api: KubeApi, pods: ObjectCache, logs: PodLogs, options: KubernetesOptions,
        store: str, namespace: str,
    ) -> None:  # fmt: skip
        super().__init__()
        self.lost: set[str] = set()  # nodes of which nothing more is expected
        self.refusals: dict[str, tuple[float, str]] = {}  # by node: when it refused a pod, and why
        self.free: Callable[[str, frozenset[PodKey]], float] = lambda _node, _mine: 0.0
        self._api = api
        self._pods = pods
        self._logs = logs
        self._options = options
        self._store = store
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._swept_s = 0.0

    # --- what is there ----------------------------------------------------------------------------

    def _seen(self, run: KubeRun) -> list[KubeObject | None]:
        """Its pods, by rank; None: not there."""
        return [self._pods.get(key) for key in self._keys(run)]

    def _keys(self, run: KubeRun) -> list[PodKey]:
        """Of its pods, by rank."""
        count = len(run.order.parts)
        return [(self._namespace, pod_name(self._store, run.order.run, r)) for r in range(count)]

    def is_mine(self, item: KubeObject) -> bool:
        """Is it a pod of this daemon?"""
        return part(item, "metadata", "labels").get(STORE) == short(self._store)

    def claim(self) -> None:
        """After a start: pods of this store that belong to no run are ended at once."""
        wanted = {name for run in self.runs.values() for _, name in self._keys(run)}
        for item in self._pods.values():
            name = key_of(item)[1]
            labels = part(item, "metadata", "labels")
            if self.is_mine(item) and name not in wanted and ENDED not in labels:
                log.warning("pod %s (run %s) is not wanted any more", name, labels.get(RUN_LABEL))
                self._remove(name, item)

    # --- what to do next --------------------------------------------------------------------------

    def step(self, run: KubeRun) -> None:
        """Do the next thing for a run."""
        if run.over is not None:
            return
        seen = self._seen(run)
        ends = [self._end_of(run, rank, item) for rank, item in enumerate(seen)]
        if all(item is None for item in seen) and not run.forced:
            if run.ending:
                self._over(run, RunStatus(run.order.run, "ended", asked=True))
            else:
                self._launch(run, seen)
            return
        there = [rank for rank, item in enumerate(seen) if item is not None]
        failed = any(end is not None and (end.code or not end.known) for end in ends)
        complete = len(there) == len(seen) or run.ending or failed
        if complete and all(ends[rank] is not None for rank in there):
            self._finish(run, [end for end in ends if end is not None])
            return
        if run.ending or failed:
            self._end(run, seen, ends)
        elif len(there) < len(seen):
            self._launch(run, seen)
        elif not run.running:
            self._tell_running(run, seen)

    def _end_of(self, run: KubeRun, rank: int, item: KubeObject | None) -> PartEnd | None:
        """How a part ended; None: it has not, or was never there."""
        node = run.order.parts[rank].node
        if item is None:
            if rank in run.forced or rank in run.deleted:
                return PartEnd(-int(signal.SIGKILL), asked=True, why="deleted")
            return None
        end = read_end(item)
        if end is None and node in self.lost:
            return PartEnd(1, why=NODE_GONE, known=False)
        return end

    def _launch(self, run: KubeRun, seen: Sequence[KubeObject | None]) -> None:
        """Create the pods that are missing, if all of them have room."""
        missing = [rank for rank, item in enumerate(seen) if item is None]
        mine = frozenset(self._keys(run))
        if any(
            run.order.parts[rank].gpus > self.free(run.order.parts[rank].node, mine)
            for rank in missing
        ):
            return  # somebody is leaving; the next change of a pod looks again
        try:
            for rank in missing:
                self._create(pod(self._store, self._namespace, run.order, rank, self._options))
        except ClusterError as error:
            if error.retryable:
                raise
            self._refused(run, str(error))

    def _create(self, body: KubeObject) -> None:
        try:
            self._pods.enter(self._api.create(self._path, body))
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            self._pods.enter(self._api.get(f"{self._path}/{body['metadata']['name']}"))

    def owns(self, key: tuple[str, str]) -> bool:
        """Is a pod, by (namespace, name), one of ours?"""
        item = self._pods.get(key)
        return item is not None and self.is_mine(item)

    def _refused(self, run: KubeRun, why: str) -> None:
        """Kubernetes does not take it: what was created goes, and the run has failed."""
        for rank, item in enumerate(self._seen(run)):
            if item is not None:
                self._remove(pod_name(self._store, run.order.run, rank), item)
        self._over(run, RunStatus(run.order.run, "ended", REFUSED, why=f"refused: {why}"))

    def _tell_running(self, run: KubeRun, seen: Sequence[KubeObject | None]) -> None:
        began = [started(item) for item in seen if item is not None]
        if all(at is not None for at in began):
            run.began_unix = max(at for at in began if at is not None)
            run.running = True
            self.tell(RunStatus(run.order.run, "running", began_s=moment(run.began_unix)))

    # --- ends -------------------------------------------------------------------------------------

    def _end(
        self, run: KubeRun, seen: Sequence[KubeObject | None], ends: Sequence[PartEnd | None]
    ) -> None:
        """Ask all parts that are left to end."""
        grace_s = 0 if run.want == KILL else max(1, ceil(run.order.launch.grace_s))
        for rank, item in enumerate(seen):
            if item is None or ends[rank] is not None:
                continue
            asked = run.forced if grace_s == 0 else run.deleted
            if rank in asked:
                continue
            if grace_s:
                self.keep_output(run, rank)
            name = pod_name(self._store, run.order.run, rank)
            if self._delete(name, item, grace_s):
                asked.add(rank)

    def _delete(self, name: str, item: KubeObject, grace_s: int) -> bool:
        uid = text(part(item, "metadata"), "uid")
        body = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": uid}}
        try:
            self._pods.enter(self._api.delete(f"{self._path}/{name}", body))
        except KubeError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise
            self._pods.drop((self._namespace, name))
        return True

    def _finish(self, run: KubeRun, ends: Sequence[PartEnd]) -> None:
        """All its parts are over: how did it end?"""
        for rank in range(len(run.order.parts)):
            self.keep_output(run, rank)
        status = judge(run.order.run, ends, ending=run.ending)
        for share, item in zip(run.order.parts, self._seen(run), strict=True):
            end = read_end(item) if item is not None else None
            if end is not None and not end.known and end.began_unix is None:
                self.refusals[share.node] = (monotonic(), end.why)
        self._over(run, timed(status, ends, len(run.order.parts), run.began_unix))

    def _over(self, run: KubeRun, status: RunStatus) -> None:
        run.over = status
        self.tell(status)

    def keep_output(self, run: KubeRun, rank: int) -> None:
        """Take the output of a part before its pod goes; that it fails costs no more than lines."""
        name = pod_name(self._store, run.order.run, rank)
        item = self._pods.get((self._namespace, name))
        if item is None or not part(item, "status").get("containerStatuses"):
            return
        try:
            self._logs.fetch(run.job, run.number, rank, name)
        except (ClusterError, OSError) as error:
            log.info("output of pod %s: %s", name, error)

    # --- what is left -----------------------------------------------------------------------------

    def forget(self, name: str) -> None:
        """Its end was understood: its pods may go."""
        run = self.runs.pop(name, None)
        if run is None:
            return
        for rank, item in enumerate(self._seen(run)):
            if item is not None:
                self._let_go(pod_name(self._store, name, rank), item)

    def _let_go(self, name: str, item: KubeObject) -> None:
        """Without its finaliser; one that nobody deleted stays for people to look at."""
        if item.get("metadata", {}).get("deletionTimestamp") is None and read_end(item) is None:
            self._delete(name, item, 0)
        change = {"metadata": {"finalizers": None, "labels": {ENDED: "true"}}}
        try:
            left = self._api.patch(f"{self._path}/{name}", change)
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            self._pods.drop((self._namespace, name))
        else:
            if part(left, "metadata").get("deletionTimestamp") is None:
                self._pods.enter(left)
            else:
                self._pods.drop((self._namespace, name))

    def _remove(self, name: str, item: KubeObject) -> None:
        self._delete(name, item, 0)
        self._let_go(name, item)

    def sweep(self) -> None:
        """Remove pods that ended long enough ago, all with one request now and then."""
        if monotonic() - self._swept_s < self._options.keep_s / 4:
            return
        self._swept_s = monotonic()
        old = time() - self._options.keep_s
        mine = [
            item for item in self._pods.values()
            if self.is_mine(item) and ENDED in part(item, "metadata", "labels")
        ]  # fmt: skip
        if mine and all((_ended_unix(item) or 0.0) < old for item in mine):
            chosen = f"{STORE}={short(self._store)},{ENDED}=true"
            self._api.delete(self._path, labelSelector=chosen)
            return
        for item in mine:
            if (_ended_unix(item) or 0.0) < old:
                self._delete(key_of(item)[1], item, 0)


def judge(run: str, ends: Sequence[PartEnd], *, ending: bool) -> RunStatus:
    """What to tell of a run all of whose parts are over."""
    unknown = next((end for end in ends if not end.known), None)
    failed = next((end for end in ends if end.known and end.code and not end.asked), None)
    asked = ending and any(end.asked for end in ends)
    if unknown is not None and not asked and failed is None:
        return RunStatus(run, "lost", why=unknown.why or "nobody knows how it ended")
    if failed is None:
        failed = next((end for end in ends if end.code), None)
    if failed is None:
        return RunStatus(run, "ended", 0, asked)
    if not ending and failed.asked:  # somebody else deleted its pod
        return RunStatus(run, "lost", why="its pod was deleted by somebody else")
    setup = "setup failed: " if failed.phase == "setup" else ""
    return RunStatus(
        run, "ended", failed.code, asked, setup + (failed.why or describe_code(failed.code))
    )


def timed(
    status: RunStatus, ends: Sequence[PartEnd], parts: int, began_unix: float | None
) -> RunStatus:
    """With the moments at which the run began and ended, if all its parts tell."""
    began = [end.began_unix for end in ends if end.began_unix is not None]
    ended = [end.ended_unix for end in ends if end.ended_unix is not None]
    if not began or len(began) != parts:
        return status
    lasted = (max(ended) if ended else max(began)) - max(began)
    began_s = moment(began_unix if began_unix is not None else max(began))
    ended_s = began_s + max(0.0, lasted)
    return RunStatus(
        status.run, status.state, status.code, status.asked, status.why, began_s, ended_s
    )


def started(item: KubeObject) -> float | None:
    """When the container of a pod began; None: it has not."""
    for one in parts(part(item, "status"), "containerStatuses"):
        state: Mapping[str, object] = part(one, "state", "running") or part(
            one, "state", "terminated"
        )
        at = time_of(state.get("startedAt"))
        if at is not None:
            return at
    return None


def _ended_unix(item: KubeObject) -> float | None:
    end = read_end(item)
    return end.ended_unix if end is not None else None


def moment(unix_s: float) -> float:
    """A time of day as a moment of `boot_time_s`: the clocks of a cluster's machines agree."""
    return boot_time_s() - (time() - unix_s)
