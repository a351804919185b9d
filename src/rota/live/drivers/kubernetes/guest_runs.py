"""Binds pods of others to nodes, and follows them to their end.

Before a pod is bound it gets a finaliser and annotations: of which store, for which run and to
which node. So a run finds its pods again after a restart, binds the rest of a gang where it began
to, and none is gone before its end was understood. A pod that waits carries nothing of Rota: it
simply waits while no daemon is there.
"""

import logging
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from rota.core.kubernetes import part, pod_gpus, text
from rota.live.driver import RunOrder, RunStatus
from rota.live.drivers.kubernetes.api import (
    CONFLICT,
    NOT_FOUND,
    STRATEGIC,
    KubeApi,
    KubeError,
    KubeObject,
)
from rota.live.drivers.kubernetes.cache import ObjectCache, key_of
from rota.live.drivers.kubernetes.guests import (
    ORIGINS,
    TAKEN,
    TAKEN_NODE,
    TAKEN_RUN,
    annotation,
    gang_size,
    guest_end,
    is_guest,
    origin,
    read_work,
    uid_of,
    waits,
)
from rota.live.drivers.kubernetes.launcher import PartEnd
from rota.live.drivers.kubernetes.manifest import FINALIZER, short
from rota.live.drivers.kubernetes.notes import ObjectNotes
from rota.live.drivers.kubernetes.runs import NODE_GONE, PodKey, judge, moment, started, timed
from rota.live.drivers.orders import KILL, RUN, OrderedRun, OrderedRuns
from rota.live.external import OVER, ExternalSource, ExternalWork, is_repeated, origin_of

log = logging.getLogger("rota.kubernetes")
DELETED = "its pod was deleted"


class GuestRun(OrderedRun):
    """A run of pods that others made."""

    def __init__(self, order: RunOrder, want: str = RUN) -> None:
        super().__init__(order, want)
        self.members: dict[str, PodKey] = {}  # pods that were taken for it, by uid
        self.bound: set[str] = set()  # of these, though they may not show it yet
        self.asked: set[str] = set()  # of these to end
        self.forced: set[str] = set()  # and without grace
        self.began_unix: float | None = None


class GuestRuns(OrderedRuns[GuestRun], ExternalSource):
    """All of them. Runs are for one thread; what `ExternalSource` has may be asked by any."""

    def __init__(
        self, api: KubeApi, pods: ObjectCache, store: str, scheduler: str, successor_s: float,
        resource: str, notes: ObjectNotes,
    ) -> None:  # fmt: skip
        super().__init__()
        self._resource = resource  # what it hands out
        self.successor_s = successor_s
        self.lost: set[str] = set()
        self.free: Callable[[str, frozenset[PodKey]], float] = lambda _node, _mine: 0.0
        self.wake: Callable[[], None] = lambda: None
        self._api = api
        self._pods = pods
        self._store = short(store)
        self._scheduler = scheduler
        self.notes = notes
        self._assigned: dict[str, set[str]] = {}  # by job: uids of its pods
        self._offered: dict[str, list[KubeObject]] = {}  # by key
        self._guests: dict[PodKey, tuple[str, ...]] = {}  # pods, and where they stand in the index
        self._index: dict[str, set[PodKey]] = {}  # by uid, run and job
        self._lock = threading.Lock()

    def look_at(self, key: PodKey) -> None:
        """A pod has changed; from any thread."""
        with self._lock:
            item = self._pods.get(key)  # inside: who looked earlier must not note it later
            for mark in self._guests.pop(key, ()):
                self._index[mark].discard(key)
                if not self._index[mark]:
                    del self._index[mark]
            if item is not None and is_guest(item, self._scheduler):
                marks = [f"uid {uid_of(item)}"]
                if self.is_mine(item):
                    marks += [f"run {annotation(item, TAKEN_RUN)}", f"job {_job_of(item)}"]
                self._guests[key] = tuple(marks)
                for mark in marks:
                    self._index.setdefault(mark, set()).add(key)

    def _marked(self, *marks: str) -> list[KubeObject]:
        with self._lock:
            keys = {key for mark in marks for key in self._index.get(mark, ())}
        return [item for key in sorted(keys) if (item := self._pods.get(key)) is not None]

    # --- what waits -------------------------------------------------------------------------------

    def claims(self, origin: str) -> bool:
        """Is it a pod or a gang?"""
        return origin.startswith(ORIGINS)

    def ready(self) -> bool:
        """Were all pods listed?"""
        return self._pods.listed

    def recall(self, job: str, origin: str) -> None:
        """Its pods tell: those that wait are offered again, those that were taken name the run."""

    def offers(self) -> list[ExternalWork]:
        """Pods that wait and belong to no job; those of a gang when all of them are there."""
        self._offered = {uid_of(pods[0]): pods for pods in self._groups()}
        return [read_work(pods, self._resource) for pods in self._offered.values()]

    def _groups(self) -> list[list[KubeObject]]:
        groups: dict[tuple[str, str], list[KubeObject]] = {}
        with self._lock:
            known = set().union(*self._assigned.values())
        for item in self._all():
            if waits(item) and uid_of(item) not in known and not annotation(item, TAKEN):
                gang = gang_size(item) > 1
                groups.setdefault((origin(item), "" if gang else uid_of(item)), []).append(item)
        found = []
        for pods in groups.values():
            pods.sort(key=key_of)
            size = gang_size(pods[0]) or 1
            if len(pods) >= size:
                found.append(pods[:size])
            else:
                self._note(pods, "RotaGang", f"{len(pods)} of {size} pods of its gang are there")
        return sorted(found, key=lambda pods: _made(pods[-1]))

    def _all(self) -> list[KubeObject]:
        with self._lock:
            keys = list(self._guests)
        return [item for key in keys if (item := self._pods.get(key)) is not None]

    def assign(self, key: str, job: str) -> None:
        """The work with this key is that job."""
        with self._lock:
            found = {uid_of(item) for item in self._offered.get(key, ())}
            self._assigned.setdefault(job, set()).update(found)
        self.wake()

    def alive(self, job: str) -> bool:
        """Is there a pod of it that waits or runs, or whose end is still to be told?"""
        return any(
            part(item, "metadata").get("deletionTimestamp") is None
            and (guest_end(item) is None or _is_pinned(item))
            for item in self._of_job(job)
        )

    def _of_job(self, job: str) -> list[KubeObject]:
        with self._lock:
            mine = [f"uid {uid}" for uid in self._assigned.get(job, ())]
        return self._marked(f"job {job}", *mine)

    def explain(self, key: str, reason: str, text: str) -> None:
        """Tell why work that is assigned to no job waits."""
        self._note(self._offered.get(key, []), reason, text, urgent=True)

    def explain_job(self, job: str, reason: str, text: str) -> None:
        """Tell why the pods of a job wait."""
        pods = [item for item in self._of_job(job) if waits(item)]
        self._note(pods, reason, text, urgent=reason == OVER)

    def forget_jobs(self, kept: Collection[str]) -> None:
        """Pods that are gone need not be known; those of a job that is over stay its own."""
        there = {uid_of(item) for item in self._all()}
        with self._lock:
            for job in self._assigned.keys() - set(kept):
                self._assigned[job] &= there
                if not self._assigned[job]:
                    del self._assigned[job]
        self.notes.forget(there)

    def _note(
        self, pods: Sequence[KubeObject], reason: str, text: str, *, urgent: bool = False
    ) -> None:
        for item in pods:
            condition = partial(self._condition, item)
            self.notes.tell("v1", "Pod", item, reason, text, condition, urgent=urgent)

    def _condition(self, item: KubeObject, told: Mapping[str, str]) -> None:
        condition = {**told, "type": "PodScheduled", "status": "False"}
        body = {"status": {"conditions": [condition]}}
        self._api.patch(f"{_path(item)}/status", body, kind=STRATEGIC)

    # --- what is taken ----------------------------------------------------------------------------

    def is_mine(self, item: KubeObject) -> bool:
        """Was it taken by this daemon?"""
        return annotation(item, TAKEN) == self._store

    def owns(self, key: PodKey) -> bool:
        """Is it, by (namespace, name), a pod that we bound?"""
        item = self._pods.get(key)
        return item is not None and is_guest(item, self._scheduler) and self.is_mine(item)

    def _taken(self, run: GuestRun) -> list[KubeObject]:
        """Pods that were taken for a run and are there; what a pod says of itself is checked."""
        wanted = origin_of(run.order.launch.external)
        return [item for item in self._marked(f"run {run.order.run}") if origin(item) == wanted]

    def step(self, run: GuestRun) -> None:
        """Do the next thing for a run."""
        if run.over is not None:
            return
        taken = self._taken(run)
        run.members.update((uid_of(item), key_of(item)) for item in taken)
        if not run.members:
            if run.ending:
                self._over(run, RunStatus(run.order.run, "ended", asked=True))
            else:
                self._bind(run, taken)
            return
        there = {uid_of(item): item for item in taken}
        ends = {uid: self._end_of(run, uid, there.get(uid)) for uid in run.members}
        failed = any(end is not None and (end.code or not end.known) for end in ends.values())
        over = [end for end in ends.values() if end is not None]
        if not (run.ending or failed) and self._incomplete(run, taken):
            self._bind(run, taken)
        elif len(over) == len(ends):
            self._finish(run, over)
        elif run.ending or failed:
            for uid, item in there.items():
                if ends[uid] is None:
                    self._end(run, uid, item)
        elif not run.running:
            self._tell_running(run, taken)

    def _incomplete(self, run: GuestRun, taken: Sequence[KubeObject]) -> bool:
        """Is a pod still to be taken, or to be bound?"""
        unbound = any(waits(item) for item in taken)
        return unbound or len(run.members) < len(self._slots(run, taken))

    def _slots(self, run: GuestRun, pods: Sequence[KubeObject]) -> list[str]:
        """The node of each of its pods, which are all of one size."""
        each = pod_gpus(part(pods[0], "spec")).get(self._resource, 0.0) if pods else 0.0
        if not each:
            return []
        return [share.node for share in run.order.parts for _ in range(round(share.gpus / each))]

    def _divided(self, run: GuestRun, item: KubeObject) -> str:
        """Which pod would be on two nodes, as the placement divided the GPUs; empty: none."""
        each = pod_gpus(part(item, "spec")).get(self._resource, 0.0)
        if not each or all(share.gpus % each == 0 for share in run.order.parts):
            return ""
        shares = ", ".join(f"{share.gpus:g} on {share.node}" for share in run.order.parts)
        return (
            f"pods with {each:g} GPUs each cannot share the nodes as the placement chose them "
            f"({shares}): let a pod ask for all GPUs of a node, or for a divisor of their number"
        )

    def _bind(self, run: GuestRun, taken: list[KubeObject]) -> None:
        """Take pods of its job and bind them, if all of them are there and have room."""
        job = run.order.job
        fresh = [
            item for item in self._of_job(job) if waits(item) and not annotation(item, TAKEN)
        ]  # fmt: skip
        slots = self._slots(run, taken or fresh)
        for item in taken:
            if annotation(item, TAKEN_NODE) in slots:
                slots.remove(annotation(item, TAKEN_NODE))
        if not (fresh or taken):
            return  # the intake looks for others, or gives the job up
        broken = self._divided(run, (taken or fresh)[0])
        if broken:
            self._over(run, RunStatus(run.order.run, "ended", 1, why=broken))
            return
        if len(fresh) < len(slots):
            return  # as above
        mine = frozenset(map(key_of, (*taken, *fresh)))
        if any(share.gpus > self.free(share.node, mine) for share in run.order.parts):
            return  # somebody is leaving; the next change of a pod looks again
        chosen = [(item, annotation(item, TAKEN_NODE)) for item in taken]
        for item, node in zip(fresh, slots, strict=False):
            chosen.append((self._take(run, item, node), node))
        for item, node in chosen:
            if not text(part(item, "spec"), "nodeName") and uid_of(item) not in run.bound:
                self._bind_one(item, node)
                run.bound.add(uid_of(item))

    def _take(self, run: GuestRun, item: KubeObject, node: str) -> KubeObject:
        about = part(item, "metadata")
        finalizers = about.get("finalizers")
        kept = list(finalizers) if isinstance(finalizers, list) else []
        change = {"metadata": {
            "resourceVersion": text(about, "resourceVersion"),  # nobody else's finaliser is lost
            "finalizers": [*kept, FINALIZER],
            "annotations": {TAKEN: self._store, TAKEN_RUN: run.order.run, TAKEN_NODE: node},
        }}  # fmt: skip
        taken = self._api.patch(_path(item), change)
        self._pods.enter(taken)
        run.members[uid_of(taken)] = key_of(taken)
        return taken

    def _bind_one(self, item: KubeObject, node: str) -> None:
        space, name = key_of(item)
        body = {
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": space, "uid": uid_of(item)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        try:
            self._api.create(f"{_path(item)}/binding", body)
        except KubeError as error:  # it was bound already, or is gone: the watch tells
            if error.status not in (CONFLICT, NOT_FOUND):
                raise

    def _tell_running(self, run: GuestRun, taken: Sequence[KubeObject]) -> None:
        began = [at for item in taken if (at := started(item)) is not None]
        if len(began) == len(run.members):
            run.began_unix = max(began)
            run.running = True
            self.tell(RunStatus(run.order.run, "running", began_s=moment(run.began_unix)))

    # --- ends -------------------------------------------------------------------------------------

    def _end_of(self, run: GuestRun, uid: str, item: KubeObject | None) -> PartEnd | None:
        if item is None:
            asked = uid in run.asked or uid in run.forced
            return PartEnd(-int(signal.SIGKILL), asked=asked, why=DELETED, known=asked)
        end = guest_end(item)
        if end is None and text(part(item, "spec"), "nodeName") in self.lost:
            return PartEnd(1, why=NODE_GONE, known=False)
        return end

    def _end(self, run: GuestRun, uid: str, item: KubeObject) -> None:
        """Let a pod end, within the grace period that it asks for."""
        forced = run.want == KILL
        asked = run.forced if forced else run.asked
        if uid not in asked and self._delete(item, forced=forced):
            asked.add(uid)

    def _delete(self, item: KubeObject, *, forced: bool) -> bool:
        body: dict[str, object] = {"preconditions": {"uid": uid_of(item)}}
        if forced:
            body["gracePeriodSeconds"] = 0
        try:
            self._pods.enter(self._api.delete(_path(item), body))
        except KubeError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise
            self._pods.drop(key_of(item))
        return True

    def _finish(self, run: GuestRun, ends: Sequence[PartEnd]) -> None:
        status = judge(run.order.run, ends, ending=run.ending)
        if status.state == "lost" and not is_repeated(run.order.launch.external):
            why = f"{status.why}, and nobody makes another one"
            status = RunStatus(run.order.run, "ended", -int(signal.SIGKILL), why=why)
        self._over(run, timed(status, ends, len(run.members), run.began_unix))

    def _over(self, run: GuestRun, status: RunStatus) -> None:
        run.over = status
        self.tell(status)

    def forget(self, name: str) -> None:
        """Its end was understood: its pods may go."""
        run = self.runs.get(name)
        if run is not None:
            for item in self._taken(run):
                self._let_go(item)
            del self.runs[name]

    def _let_go(self, item: KubeObject) -> None:
        """Without our finaliser; one that still runs, on a node that is gone, is deleted."""
        if guest_end(item) is None and part(item, "metadata").get("deletionTimestamp") is None:
            self._delete(item, forced=True)
        self._unpin(item)

    def _unpin(self, item: KubeObject) -> None:
        item = self._pods.get(key_of(item)) or item
        about = part(item, "metadata")
        if not _is_pinned(item):
            return
        kept = [each for each in about["finalizers"] if each != FINALIZER]
        change = {"metadata": {
            "resourceVersion": text(about, "resourceVersion"), "finalizers": kept or None,
        }}  # fmt: skip
        try:
            left = self._api.patch(_path(item), change)
        except KubeError as error:
            if error.status == NOT_FOUND:
                self._pods.drop(key_of(item))
                return
            raise
        if part(left, "metadata").get("deletionTimestamp") is None or kept:
            self._pods.enter(left)
        else:
            self._pods.drop(key_of(item))

    def tidy(self) -> None:
        """Let go of pods that were taken for runs that are no more."""
        for item in self._all():
            if (
                self.is_mine(item)
                and annotation(item, TAKEN_RUN) not in self.runs
                and _is_pinned(item)
            ):
                log.info("pod %s/%s is of no run any more", *key_of(item))
                self._let_go(item)


def _is_pinned(item: KubeObject) -> bool:
    """Does our finaliser keep it?"""
    return FINALIZER in (part(item, "metadata").get("finalizers") or ())


def _job_of(item: KubeObject) -> str:
    return annotation(item, TAKEN_RUN).rpartition(".")[0]


def _made(item: KubeObject) -> tuple[str, PodKey]:
    return text(part(item, "metadata"), "creationTimestamp"), key_of(item)


def _path(item: KubeObject) -> str:
    space, name = key_of(item)
    return f"/api/v1/namespaces/{space}/pods/{name}"
