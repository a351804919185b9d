"""Starts objects that wait suspended, suspends them again, and follows them to their end.

One request starts an object: it turns the switch, names the nodes, and writes store and run on it,
with a finaliser. So a run finds its object again after a restart, and no object is gone before its
end was understood. An object that waits carries nothing of Rota.
"""

import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from rota.core.kubernetes import part, pod_gpus, text
from rota.live.driver import RunOrder, RunStatus
from rota.live.drivers.kubernetes.api import CONFLICT, NOT_FOUND, KubeApi, KubeError, KubeObject
from rota.live.drivers.kubernetes.cache import ObjectCache, key_of
from rota.live.drivers.kubernetes.guests import (
    QUEUED_BY,
    QUEUED_RUN,
    TAKEN,
    TAKEN_RUN,
    annotation,
    controller,
    guest_end,
    uid_of,
)
from rota.live.drivers.kubernetes.manifest import label, short
from rota.live.drivers.kubernetes.notes import ObjectNotes
from rota.live.drivers.kubernetes.queued import (
    KINDS,
    ORIGIN,
    QueuedKind,
    origin_key,
    pods_of,
    read_queued,
    released,
    taken,
)
from rota.live.drivers.kubernetes.runs import NODE_GONE, PodKey, moment, started
from rota.live.drivers.orders import KILL, RUN, OrderedRun, OrderedRuns
from rota.live.external import OVER, ExternalSource, ExternalWork, origin_of

log = logging.getLogger("rota.kubernetes")
SUSPENDED = "it waits for its turn in Rota's queue"


class QueuedRun(OrderedRun):
    """A run of an object that others made."""

    def __init__(self, order: RunOrder, want: str = RUN) -> None:
        super().__init__(order, want)
        kind, self.key, self.uid = origin_key(origin_of(order.launch.external))
        self.kind = KINDS[kind]
        self.bound: dict[str, str] = {}  # by uid: nodes of pods, though they may not show it yet
        self.forced: set[str] = set()  # pods that were deleted without grace
        self.failed = ""  # why it cannot go on, not its own fault


class QueuedRuns(OrderedRuns[QueuedRun], ExternalSource):
    """All of them. Runs are for one thread; what `ExternalSource` has may be asked by any."""

    successor_s = 0.0

    def __init__(
        self, api: KubeApi, pods: ObjectCache, store: str, kinds: Iterable[str], scheduler: str,
        resource: str, changed: Callable[[], None], notes: ObjectNotes,
    ) -> None:  # fmt: skip
        super().__init__()
        self.lost: set[str] = set()
        self.free: Callable[[str, frozenset[PodKey]], float] = lambda _node, _mine: 0.0
        self.wake = changed
        self.kinds = [KINDS[name] for name in kinds if name in KINDS]  # `preflight` refuses others
        self.caches = {kind.name: ObjectCache(api, kind.path, self._changed) for kind in self.kinds}
        self._api = api
        self._pods = pods
        self._store = short(store)
        self._scheduler = scheduler
        self._resource = resource  # what is handed out
        self.notes = notes
        self._assigned: dict[str, tuple[str, str]] = {}  # by uid: its job, and its kind
        self._offered: dict[str, tuple[QueuedKind, KubeObject]] = {}  # by uid
        self._jobs: dict[str, tuple[QueuedKind, PodKey, str]] = {}
        self._marks: dict[PodKey, tuple[str, ...]] = {}  # pods, and where they stand in the index
        self._index: dict[str, set[PodKey]] = {}
        self._lock = threading.Lock()

    def _changed(self, key: PodKey) -> None:  # noqa: ARG002 - all are looked at
        self.wake()

    def look_at(self, key: PodKey) -> None:
        """A pod has changed; from any thread."""
        item = self._pods.get(key)
        with self._lock:
            for mark in self._marks.pop(key, ()):
                self._index[mark].discard(key)
                if not self._index[mark]:
                    del self._index[mark]
            labels = part(item, "metadata", "labels") if item is not None else {}
            if item is None or QUEUED_RUN not in labels:
                return
            owner = controller(item)
            marks = [f"run {text(labels, QUEUED_RUN)}"] if QUEUED_BY in labels else []
            marks += [f"owner {text(owner, 'uid')}"] if owner is not None else []
            self._marks[key] = tuple(marks)
            for mark in marks:
                self._index.setdefault(mark, set()).add(key)

    def owns(self, key: PodKey) -> bool:
        """Is it a pod of an object that we started?"""
        item = self._pods.get(key)
        if item is None:
            return False
        labels = part(item, "metadata", "labels")
        if labels.get(QUEUED_BY) == self._store:
            return True
        owner = controller(item)
        uid = text(owner, "uid") if owner is not None and QUEUED_RUN in labels else ""
        return bool(uid) and any(run.uid == uid for run in list(self.runs.values()))

    def _objects(self) -> list[tuple[QueuedKind, KubeObject]]:
        return [
            (kind, item)
            for kind in self.kinds
            for item in self.caches[kind.name].values()
            if kind.handles(item)
        ]

    # --- what waits -------------------------------------------------------------------------------

    def claims(self, origin: str) -> bool:
        """Is it an object that waits suspended?"""
        return origin.startswith(ORIGIN)

    def ready(self) -> bool:
        """Were all objects listed?"""
        return self._pods.listed and all(cache.listed for cache in self.caches.values())

    def recall(self, job: str, origin: str) -> None:
        """Its object is known by its uid, in whatever state a restart finds it."""
        kind, _, uid = origin_key(origin)
        with self._lock:
            self._assigned[uid] = (job, kind)

    def offers(self) -> list[ExternalWork]:
        """Objects that wait and belong to no job."""
        offered, jobs = {}, {}
        for kind, item in self._objects():
            uid = uid_of(item)
            known = self._assigned.get(uid)
            run = annotation(item, TAKEN_RUN) if self.is_mine(item) else ""
            job = run.rpartition(".")[0] or (known[0] if known else "")
            if job:
                jobs[job] = (kind, key_of(item), uid)
            elif _waits(kind, item):
                offered[uid] = (kind, item)
        with self._lock:
            self._jobs, self._offered = jobs, offered
        order = sorted(offered.values(), key=lambda pair: _made(pair[1]))
        return [read_queued(kind, item, self._scheduler, self._resource) for kind, item in order]

    def assign(self, key: str, job: str) -> None:
        """The object with this uid is that job."""
        with self._lock:
            found = self._offered.get(key)
            if found is not None:
                kind, item = found
                self._assigned[key] = (job, kind.name)
                self._jobs[job] = (kind, key_of(item), key)
        self.wake()

    def _of_job(self, job: str) -> tuple[QueuedKind, KubeObject] | None:
        with self._lock:
            found = self._jobs.get(job)
        if found is None:
            return None
        kind, key, uid = found
        item = self.caches[kind.name].get(key)
        return (kind, item) if item is not None and uid_of(item) == uid else None

    def alive(self, job: str) -> bool:
        """Is its object there, and if it has ended, is its end still to be told?"""
        found = self._of_job(job)
        if found is None or _deleted(found[1]):
            return False
        return found[0].end(found[1]) is None or self.is_mine(found[1])

    def explain(self, key: str, reason: str, text: str) -> None:
        """Tell why an object that is assigned to no job waits."""
        found = self._offered.get(key)
        if found is not None:
            self._tell(*found, reason, text, urgent=True)

    def explain_job(self, job: str, reason: str, text: str) -> None:
        """Tell why the object of a job waits."""
        found = self._of_job(job)
        if found is not None and found[0].suspended(found[1]):
            self._tell(*found, reason, text, urgent=reason == OVER)

    def forget_jobs(self, kept: Collection[str]) -> None:
        """Objects that are gone need not be known; those of a job that is over stay its own."""
        there = {uid_of(item) for _, item in self._objects()}
        with self._lock:
            for uid in self._assigned.keys() - there:
                if self._assigned[uid][0] not in kept:
                    del self._assigned[uid]
        self.notes.forget(there)

    def _tell(
        self, kind: QueuedKind, item: KubeObject, reason: str, words: str, *, goes: bool = False,
        urgent: bool = False,
    ) -> None:  # fmt: skip
        condition = None
        if kind.conditions:
            condition = partial(self._condition, kind, item, goes=goes)
        self.notes.tell(
            kind.api_version, kind.kind, item, reason, words, condition, urgent=urgent or goes
        )

    def _condition(
        self, kind: QueuedKind, item: KubeObject, told: Mapping[str, str], *, goes: bool
    ) -> None:
        """Add ours to the conditions of its controller, unless that writes at the same moment."""
        item = self.caches[kind.name].get(key_of(item)) or item
        kept = part(item, "status").get("conditions")
        others = [one for one in kept or () if one.get("type") != STARTED]
        mine = {**told, "type": STARTED, "status": "True" if goes else "False"}
        about = {"resourceVersion": text(part(item, "metadata"), "resourceVersion")}
        body = {"metadata": about, "status": {"conditions": [*others, mine]}}
        self._enter(kind, self._api.patch(f"{kind.path_of(item)}/status", body))

    # --- what is taken ----------------------------------------------------------------------------

    def is_mine(self, item: KubeObject) -> bool:
        """Was it started by this daemon?"""
        return annotation(item, TAKEN) == self._store

    def _pods_of(self, run: QueuedRun) -> list[KubeObject]:
        """Its pods with GPUs."""
        mark = f"owner {run.uid}" if run.kind.aim == "nothing" else f"run {label(run.order.run)}"
        with self._lock:
            keys = sorted(self._index.get(mark, ()))
        return [item for key in keys if (item := self._pods.get(key)) is not None]

    def step(self, run: QueuedRun) -> None:
        """Do the next thing for a run."""
        if run.over is not None:
            return
        kind = run.kind
        if kind.name not in self.caches:
            return  # Rota was told to look at such objects no more
        item = self.caches[kind.name].get(run.key)
        if item is None or uid_of(item) != run.uid or _deleted(item):
            self._gone(run)
            return
        end = kind.end(item)
        mine = self.is_mine(item) and annotation(item, TAKEN_RUN) == run.order.run
        if end is not None:  # that counts, also if it was to be suspended: it never goes on
            self._over(run, RunStatus(run.order.run, "ended", end.code, why=end.why))
        elif not mine:
            self._begin(run, item)
        elif run.ending or run.failed:
            self._stop(run, item)
        else:
            self._follow(run, item)

    def _gone(self, run: QueuedRun) -> None:
        """Somebody has deleted it."""
        what = f"{run.kind.kind} {'/'.join(run.key)}"
        code, why = -int(signal.SIGKILL), f"{what} was deleted"
        if run.ending:
            code, why = 0, ""
        self._over(run, RunStatus(run.order.run, "ended", code, run.ending, why))

    def _begin(self, run: QueuedRun, item: KubeObject) -> None:
        """Start it, if there is room for all of its pods."""
        if run.ending:
            self._over(run, RunStatus(run.order.run, "ended", asked=True))
            return
        kind = run.kind
        if not kind.suspended(item) or any(guest_end(pod) is None for pod in self._pods_of(run)):
            return  # `tidy` suspends it
        if any(share.gpus > self.free(share.node, frozenset()) for share in run.order.parts):
            return  # somebody is leaving; the next change of a pod looks again
        if kind.name == "Job" and part(item, "status").get("startTime"):
            # a Job that ran before: its template may change only as long as it has not started
            path = f"{kind.path_of(item)}/status"
            item = self._enter(kind, self._api.patch(path, {"status": {"startTime": None}}))
        nodes = [share.node for share in run.order.parts]
        body = taken(kind, item, self._store, run.order.run, nodes)
        made = self._enter(kind, self._api.replace(kind.path_of(item), body))
        self._tell(kind, made, "RotaStarted", f"job {run.order.job} of Rota was started", goes=True)

    def _follow(self, run: QueuedRun, item: KubeObject) -> None:
        pods = self._pods_of(run)
        if any(share.node in self.lost for share in run.order.parts):
            run.failed = NODE_GONE
            self._stop(run, item)
            return
        if run.kind.suspended(item):
            run.failed = "somebody else suspended it"
            return
        self._bind(run, pods)
        began = [at for each in pods if (at := started(each)) is not None]
        if not run.running and len(began) >= pods_of(run.kind, item):
            run.running = True
            self.tell(RunStatus(run.order.run, "running", began_s=moment(max(began))))

    def _bind(self, run: QueuedRun, pods: list[KubeObject]) -> None:
        """Pods that name us as their scheduler get exactly the nodes of the run."""
        waiting = [
            each
            for each in pods
            if _unbound(each, self._scheduler) and uid_of(each) not in run.bound
        ]
        if not self._scheduler or not waiting:
            return
        size = pod_gpus(part(waiting[0], "spec"))[self._resource]
        slots = [each.node for each in run.order.parts for _ in range(round(each.gpus / size))]
        for each in pods:
            node = text(part(each, "spec"), "nodeName") or run.bound.get(uid_of(each), "")
            if node in slots and guest_end(each) is None:
                slots.remove(node)
        for each, node in zip(waiting, slots, strict=False):
            space, name = key_of(each)
            body = {
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": name, "namespace": space, "uid": uid_of(each)},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }  # fmt: skip
            try:
                self._api.create(f"/api/v1/namespaces/{space}/pods/{name}/binding", body)
            except KubeError as error:  # it was bound already, or is gone: the watch tells
                if error.status not in (CONFLICT, NOT_FOUND):
                    raise
            run.bound[uid_of(each)] = node

    # --- ends -------------------------------------------------------------------------------------

    def _stop(self, run: QueuedRun, item: KubeObject) -> None:
        """Suspend it; it is over when its controller says so and no pod of it is left."""
        kind = run.kind
        if not kind.suspended(item):
            body = kind.turned(item, off=True)
            self._enter(kind, self._api.replace(kind.path_of(item), body))
            return
        left = [
            each
            for each in self._pods_of(run)
            if guest_end(each) is None and text(part(each, "spec"), "nodeName") not in self.lost
        ]
        if run.want == KILL:
            for each in left:
                self._kill(run, each)
        if left or not kind.stopped(item):
            return
        if run.ending:
            self._over(run, RunStatus(run.order.run, "ended", asked=True))
        else:
            self._over(run, RunStatus(run.order.run, "lost", why=run.failed))

    def _kill(self, run: QueuedRun, item: KubeObject) -> None:
        if uid_of(item) in run.forced:
            return
        space, name = key_of(item)
        body = {"preconditions": {"uid": uid_of(item)}, "gracePeriodSeconds": 0}
        try:
            self._api.delete(f"/api/v1/namespaces/{space}/pods/{name}", body)
        except KubeError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise
        run.forced.add(uid_of(item))

    def _over(self, run: QueuedRun, status: RunStatus) -> None:
        run.over = status
        self.tell(status)

    def forget(self, name: str) -> None:
        """Its end was understood: its object is nobody's."""
        run = self.runs.get(name)
        if run is None:
            return
        item = self.caches[run.kind.name].get(run.key) if run.kind.name in self.caches else None
        if item is not None and uid_of(item) == run.uid and annotation(item, TAKEN_RUN) == name:
            self._release(run.kind, item)
        del self.runs[name]

    def _release(self, kind: QueuedKind, item: KubeObject) -> None:
        """Let it go; what nobody wants to run any more is suspended."""
        if not kind.suspended(item) and kind.end(item) is None and not _deleted(item):
            item = kind.turned(item, off=True)
        try:
            self._enter(kind, self._api.replace(kind.path_of(item), released(item)))
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            self.caches[kind.name].drop(key_of(item))

    def tidy(self) -> None:
        """Objects of no run are nobody's, and those that nobody started are suspended."""
        for kind, item in self._objects():
            if self.is_mine(item):
                if annotation(item, TAKEN_RUN) not in self.runs:
                    log.info("%s %s is of no run any more", kind.kind, "/".join(key_of(item)))
                    self._release(kind, item)
            elif not annotation(item, TAKEN) and _active(kind, item):
                body = kind.turned(item, off=True)
                made = self._enter(kind, self._api.replace(kind.path_of(item), body))
                self._tell(kind, made, "RotaSuspended", SUSPENDED, urgent=True)

    def _enter(self, kind: QueuedKind, item: KubeObject) -> KubeObject:
        about = part(item, "metadata")
        if about.get("deletionTimestamp") is not None and not about.get("finalizers"):
            self.caches[kind.name].drop(key_of(item))
        else:
            self.caches[kind.name].enter(item)
        return item


STARTED = "rota.dev/Started"


def _deleted(item: KubeObject) -> bool:
    return part(item, "metadata").get("deletionTimestamp") is not None


def _active(kind: QueuedKind, item: KubeObject) -> bool:
    """Does it run, or is it about to?"""
    return not kind.suspended(item) and kind.end(item) is None and not _deleted(item)


def _waits(kind: QueuedKind, item: KubeObject) -> bool:
    free = not annotation(item, TAKEN) and not _deleted(item)
    return free and kind.suspended(item) and kind.end(item) is None


def _unbound(item: KubeObject, scheduler: str) -> bool:
    spec = part(item, "spec")
    return text(spec, "schedulerName") == scheduler and not text(spec, "nodeName")


def _made(item: KubeObject) -> tuple[str, PodKey]:
    return text(part(item, "metadata"), "creationTimestamp"), key_of(item)
