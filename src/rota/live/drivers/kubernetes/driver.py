"""The driver of Kubernetes: threads that watch, and one that carries out what is wanted."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

from rota.core.errors import ClusterError
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.live.driver import (
    Capabilities,
    Listener,
    NodeStatus,
    RunOrder,
)
from rota.live.drivers.kubernetes.access import KubeAccess, find_access
from rota.live.drivers.kubernetes.api import CONFLICT, KubeApi, KubeError
from rota.live.drivers.kubernetes.cache import ObjectCache
from rota.live.drivers.kubernetes.guest_runs import GuestRun, GuestRuns
from rota.live.drivers.kubernetes.logs import PodLogs
from rota.live.drivers.kubernetes.manifest import service
from rota.live.drivers.kubernetes.nodes import (
    KubeNode,
    NodeHealth,
    PodOccupancy,
    other_gpus,
    read_node,
)
from rota.live.drivers.kubernetes.notes import ObjectNotes
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.kubernetes.preflight import check
from rota.live.drivers.kubernetes.queued import ORIGIN
from rota.live.drivers.kubernetes.queued_runs import QueuedRun, QueuedRuns
from rota.live.drivers.kubernetes.runs import KubeRun, KubeRuns
from rota.live.drivers.orders import ThreadedDriver
from rota.live.external import origin_of

log = logging.getLogger("rota.kubernetes")

NAP_S, LONGEST_NAP_S = 0.2, 15.0
LOOK_S = 5.0  # a look at everything, even if nothing was heard
REFUSED_S = 30.0  # a node that refused a pod gets no other for so long
UNHEARD_S = 10.0  # then the trouble is worth telling


class KubernetesDriver(ThreadedDriver):
    """Implements `Driver`: Rota decides, Kubernetes executes.

    Args:
        store: A name for the daemon's store: by it the driver knows its pods again.
        folder: For the output of jobs.
        options: How to use the cluster.
        access: Where it is; found as `kubectl` does unless given.

    Which GPUs of a node a pod gets is up to its kubelet.
    """

    name = "kubernetes"
    capabilities = Capabilities(fractions=False, devices=False, measured=False, images=True)

    def __init__(
        self,
        store: str,
        folder: Path,
        options: KubernetesOptions | None = None,
        *,
        access: KubeAccess | None = None,
    ) -> None:
        super().__init__("rota-kubernetes")
        self.options = options or KubernetesOptions()
        found = access or find_access(self.options.kubeconfig, self.options.context)
        self.api = KubeApi(found, self.options.timeout_s)
        self.namespace = self.options.namespace or found.namespace
        self._store = store
        self._dirty: set[tuple[str, str]] = set()
        self._dirty_lock = threading.Lock()
        self._settled = False
        self._asked: dict[str, int] = {}
        self._ready = False
        self._stuck = ""
        self._pods = ObjectCache(self.api, "/api/v1/pods", self._pod_changed)
        self._nodes = ObjectCache(self.api, "/api/v1/nodes", self._node_changed)
        self._logs = PodLogs(self.api, folder / "logs", self.namespace)
        self._carrier = KubeRuns(
            self.api, self._pods, self._logs, self.options, store, self.namespace
        )
        self._occupied = PodOccupancy(self.options.gpu_resource)
        self._carrier.free = self._free
        self.guests = GuestRuns(
            self.api, self._pods, store, self.options.scheduler_name, self.options.successor_s,
            self.options.gpu_resource, ObjectNotes(self.api, self.options.note_after_s),
        )  # fmt: skip
        self.guests.free = self._free
        self.guests.lost = self._carrier.lost
        self.guests.wake = self._thread.wake
        self.queued = QueuedRuns(
            self.api, self._pods, store, self.options.queue_kinds, self.options.scheduler_name,
            self.options.gpu_resource, self._thread.wake,
            ObjectNotes(self.api, self.options.note_after_s),
        )  # fmt: skip
        self.queued.free = self._free
        self.queued.lost = self._carrier.lost
        self._caches = [self._pods, self._nodes, *self.queued.caches.values()]
        self._health = NodeHealth(self.options.lost_s)
        self._known: dict[str, KubeNode] = {}
        self._told: dict[str, tuple[str, str]] = {}  # by node: its health, and why it is closed

    # --- before it starts -------------------------------------------------------------------------

    def preflight(self) -> list[str]:
        """Can this cluster be used? Raises if not; otherwise what is worth knowing."""
        remarks = check(self.api, self.options, self.namespace)
        others = other_gpus(self.api.pages("/api/v1/nodes")[0], self.options)
        if others:
            remarks.append(
                f"nodes offer {', '.join(others)}, too: this daemon hands out "
                f"{self.options.gpu_resource} only (`kubernetes.gpu_resource`)"
            )
        try:
            self.api.create(
                f"/api/v1/namespaces/{self.namespace}/services",
                service(self._store, self.namespace),
            )
        except KubeError as error:
            if error.status != CONFLICT:
                raise
        return remarks

    def nodes(self) -> list[NodeSpec]:
        """The machines, for the daemon's topology; raises if there are none."""
        items, _ = self.api.pages("/api/v1/nodes")
        found = [node.spec for item in items if (node := read_node(item, self.options))]
        if not found:
            raise ClusterError(
                f"no node of this cluster has {self.options.gpu_resource} and matches "
                "`kubernetes.node_selector`: is the device plug-in installed?"
            )
        return found

    # --- the protocol -----------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Begin to watch."""
        self._asked = dict(self.api.calls)
        self._carrier.tell = self.guests.tell = self.queued.tell = listener
        for cache in self._caches:
            cache.start()
        self._thread.start()

    def _take(self, order: RunOrder, want: str, *, adopted: bool) -> None:  # noqa: ARG002 - all are looked for
        if origin_of(order.launch.external).startswith(ORIGIN):
            self.queued.runs.setdefault(order.run, QueuedRun(order, want))
        elif order.launch.external:
            self.guests.runs.setdefault(order.run, GuestRun(order, want))
        else:
            self._carrier.runs.setdefault(order.run, KubeRun(order, want))

    def _holder(self, run: str) -> KubeRuns | GuestRuns | QueuedRuns:
        for each in (self.guests, self.queued):
            if run in each.runs:
                return each
        return self._carrier

    def retire(self, job: str) -> None:
        """Nothing is kept for another run."""

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output of a job."""
        for run in [run for run in list(self._carrier.runs.values()) if run.job == job]:
            self._carrier.keep_output(run, node_rank)
        return self._logs.read(job, stream, node_rank, offset, limit)

    def trouble(self) -> str:
        """What keeps jobs from being started and watched."""
        for cache in self._caches:
            since_s = cache.unheard_since_s
            if since_s is not None and monotonic() - since_s > UNHEARD_S:
                return cache.trouble
        return self._stuck

    def close(self) -> None:
        """Stop watching; what runs goes on."""
        for cache in self._caches:
            cache.close()
        self._thread.close()
        self.api.end_watches()
        for cache in self._caches:
            cache.join()
        self.api.close()
        log.info("%s", self._requests())

    def _requests(self) -> str:
        """What was asked of the API server since it began to watch."""
        asked = [
            f"{many - self._asked.get(verb, 0)} {verb}"
            for verb, many in sorted(self.api.calls.items())
            if many > self._asked.get(verb, 0)
        ]
        notes = self.guests.notes.requests + self.queued.notes.requests
        return f"requests to the API server: {', '.join(asked)}; {notes} of them for notes"

    # --- what the watches hear --------------------------------------------------------------------

    def _pod_changed(self, key: tuple[str, str]) -> None:
        with self._dirty_lock:
            self._dirty.add(key)
        if self.options.scheduler_name:
            self.guests.look_at(key)
        if self.options.queue_kinds:
            self.queued.look_at(key)
        self._thread.wake()

    def _node_changed(self, key: tuple[str, str]) -> None:  # noqa: ARG002 - all are looked at
        self._thread.wake()

    # --- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        nap_s, next_look_s = NAP_S, 0.0
        while self._thread.goes_on(next_look_s):
            with self._dirty_lock:
                dirty, self._dirty = self._dirty, set()
            for key in dirty:
                self._occupied.update(key, self._pods.get(key))
            try:
                self._thread.obey()
                if all(cache.listed for cache in self._caches):
                    self._look()
                nap_s, self._stuck = NAP_S, ""
                next_look_s = monotonic() + LOOK_S
            except ClusterError as error:
                log.warning("%s; next try in %g s", error, nap_s)
                self._stuck = str(error)
                next_look_s = monotonic() + nap_s
                self._thread.pause(nap_s)
                nap_s = min(2 * nap_s, LONGEST_NAP_S)
            except Exception:
                log.exception("the Kubernetes driver stumbled; it goes on")
                self._thread.pause(nap_s)
                nap_s = min(2 * nap_s, LONGEST_NAP_S)

    def _look(self) -> None:
        self._look_at_nodes()
        if self._adopted:
            self._adopted = False
            self._carrier.claim()
            self._settled = True
        trouble: KubeError | None = None
        steps: list[Callable[[], None]] = []
        steps += [partial(self._carrier.step, run) for run in self._carrier.runs.values()]
        steps += [partial(self.guests.step, run) for run in self.guests.runs.values()]
        steps += [partial(self.queued.step, run) for run in self.queued.runs.values()]
        if self._settled:  # before, no run is known
            steps += [self.guests.tidy, self.queued.tidy]
        for step in steps:
            try:
                step()
            except KubeError as error:  # of this run; the others go on, if the server answers
                if not error.status:
                    raise
                trouble = error
        if trouble is not None:
            raise trouble
        self._carrier.sweep()

    def _look_at_nodes(self) -> None:
        seen = {
            node.spec.name: node
            for item in self._nodes.values()
            if (node := read_node(item, self.options)) is not None
        }
        for name, node in seen.items():
            state = self._health.of(name, ready=node.ready)
            self._tell_node(name, state, node)
        for name in self._known.keys() - seen.keys():
            self._carrier.lost.add(name)
            self._told.pop(name, None)
            self._carrier.tell(NodeStatus(name, "lost", why="Kubernetes does not know it any more"))
        self._known = seen

    def _tell_node(self, name: str, state: str, node: KubeNode) -> None:
        strangers = [
            "/".join(key)
            for key in self._occupied.holders(name)
            if not any(each.owns(key) for each in (self._carrier, self.guests, self.queued))
        ]
        closed = node.closed or (
            f"pods of others hold GPUs: {', '.join(strangers[:3])}" if strangers else ""
        )
        refused_s, why_refused = self._carrier.refusals.get(name, (-REFUSED_S, ""))
        if not closed and monotonic() - refused_s < REFUSED_S:
            closed = f"refused a pod: {why_refused}"
        before = self._told.get(name)
        if state == "lost":
            self._carrier.lost.add(name)
        else:
            self._carrier.lost.discard(name)
        if before is None or before[0] != state or self._known.get(name) != node:
            why = "" if state == "up" else "not ready, says Kubernetes"
            spec = node.spec if state == "up" else None
            self._carrier.tell(NodeStatus(name, state, spec, why))  # type: ignore[arg-type]
        if closed != (before[1] if before else ""):
            self._carrier.tell(NodeStatus(name, "sick" if closed else "well", why=closed))
        self._told[name] = (state, closed)

    def _free(self, node: str, mine: frozenset[tuple[str, str]]) -> float:
        """GPUs of a node that nobody but these pods holds."""
        known = self._known.get(node)
        if known is None:
            return 0.0
        held = self._occupied.held(node) - ordered_sum(
            self._occupied.amount(key) for key in mine if self._occupied.on(key) == node
        )
        return known.spec.gpus - held
