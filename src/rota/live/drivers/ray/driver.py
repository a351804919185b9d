"""The driver of Ray: one thread that looks at Ray, and carries out what is wanted."""

import logging
from collections import defaultdict
from pathlib import Path
from time import monotonic

from rota.core.errors import ClusterError
from rota.core.topology import NodeSpec
from rota.live.agent.messages import NODE_NAME
from rota.live.driver import Capabilities, Listener, NodeStatus, RunOrder
from rota.live.drivers.orders import ThreadedDriver
from rota.live.drivers.ray.logs import RayLogs
from rota.live.drivers.ray.options import RayOptions
from rota.live.drivers.ray.order import namespace_of, node_folder
from rota.live.drivers.ray.port import RayBridge, RayNode, RayPort, RayView
from rota.live.drivers.ray.runs import RayRun, RayRuns

log = logging.getLogger("rota.ray")

LONGEST_NAP_S = 30.0
SOON_S = 0.1  # after something happened: Ray tells a little late which GPUs are free
STRANGERS_S = 5.0  # GPUs that are held for so long by nobody we know are held by others
GIB = 1 << 30
ACCELERATOR = "accelerator_type:"


class RayDriver(ThreadedDriver):
    """Implements `Driver`: Rota decides, Ray executes.

    Args:
        store: A name for the daemon's store: by it the driver knows its groups and actors again.
        folder: For notes of runs and the output of jobs.
        options: How to use the cluster.
        port: What speaks with Ray; a process of its own unless given.

    Which GPUs of a node an actor gets is up to Ray.
    """

    name = "ray"
    capabilities = Capabilities(fractions=False, devices=False)

    def __init__(
        self,
        store: str,
        folder: Path,
        options: RayOptions | None = None,
        *,
        port: RayPort | None = None,
    ) -> None:
        self.options = options or RayOptions()
        namespace = namespace_of(store)
        super().__init__("rota-ray")
        self.port = port or RayBridge(namespace, folder, self.options, self._thread.wake)
        self._logs = RayLogs(self.port, folder / "logs")
        root = node_folder(self.options.folder, namespace)
        self._carrier = RayRuns(self.port, self._logs, folder / "runs", root)
        self._stuck = ""
        self._ending = False
        self._known: dict[str, RayNode] = {}
        self._strange: dict[str, float] = {}  # by node: since when GPUs are held by nobody we know
        self._closed: dict[str, str] = {}  # by node: why nothing is started there

    # --- before it starts -------------------------------------------------------------------------

    def preflight(self) -> list[str]:
        """Can this cluster be used? Raises if not; otherwise what is worth knowing."""
        usable = usable_nodes(self.port.look(), {})
        gpus = sum(spec_of(node).gpus for node in usable.values())
        remarks = [f"{len(usable)} nodes with {gpus} GPUs"]
        if isinstance(self.port, RayBridge):
            remarks.insert(0, self.port.version)
        return remarks

    # --- the protocol -----------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Begin to look at Ray."""
        self._carrier.tell = listener
        self._thread.start()

    def _take(self, order: RunOrder, want: str, *, adopted: bool) -> None:  # noqa: ARG002 - all are looked for
        self._carrier.runs.setdefault(order.run, RayRun(order, want))

    def _holder(self, run: str) -> RayRuns:  # noqa: ARG002 - there is one
        return self._carrier

    def retire(self, job: str) -> None:
        """Nothing is kept for another run."""

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output of a job."""
        for run in list(self._carrier.runs.values()):
            if run.order.job == job and run.running and run.over is None:
                self._carrier.copy(run)
        return self._logs.read(job, stream, node_rank, offset, limit)

    def trouble(self) -> str:
        """What keeps jobs from being started and watched."""
        return self._stuck

    def close(self) -> None:
        """Stop looking; what runs goes on."""
        self._ending = True
        self.port.close()
        self._thread.close()

    # --- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        failures, next_look_s = 0, 0.0
        while self._thread.goes_on(next_look_s):
            try:
                ordered = self._thread.obey()
                busy = self._look() or ordered
                failures, self._stuck = 0, ""
                next_look_s = monotonic() + (SOON_S if busy else self.options.poll_s)
                continue
            except ClusterError as error:
                if self._ending:
                    return
                self._stuck = str(error)
            except Exception:
                log.exception("the Ray driver stumbled; it goes on")
            failures += 1
            nap_s = min(LONGEST_NAP_S, self.options.poll_s * 2.0 ** min(failures - 1, 10))
            if self._stuck:
                log.warning("%s; next try in %g s", self._stuck, nap_s)
            next_look_s = monotonic() + nap_s
            self._thread.pause(nap_s)

    def _look(self) -> bool:
        """Look at Ray, and do the next thing for each run; is any about to begin or to end?"""
        view = self.port.look()
        self._look_at_nodes(view)
        self._carrier.begin(view)
        if self._adopted:
            self._adopted = False
            self._carrier.claim(view)
        for run in list(self._carrier.runs.values()):
            self._carrier.step(run, view)
        return any(
            run.over is None and (run.ending or not run.running)
            for run in self._carrier.runs.values()
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _look_at_nodes(self, view: RayView) -> None:
        usable = usable_nodes(view, self._known)
        why = {node.name: node.why for node in view.nodes if not node.alive}
        for name in self._known.keys() - usable.keys():
            self._strange.pop(name, None)
            self._closed.pop(name, None)
            told = why.get(name, "") or "Ray does not know it any more"
            self._carrier.tell(NodeStatus(name, "lost", why=f"Ray: {told}"))
        ours: defaultdict[str, float] = defaultdict(float)
        for group in view.groups.values():
            for place, gpus in group.held:
                ours[place] += gpus
        for name, node in usable.items():
            before = self._known.get(name)
            if before is not None and before.id != node.id:
                self._carrier.tell(NodeStatus(name, "lost", why="Ray was restarted there"))
            if before is None or before.id != node.id or spec_of(before) != spec_of(node):
                self._carrier.tell(NodeStatus(name, "up", spec_of(node)))
            self._look_for_strangers(node, ours[node.id])
        self._known = self._carrier.nodes = usable

    def _look_for_strangers(self, node: RayNode, ours: float) -> None:
        """GPUs that somebody else took from Ray: the node is closed until they are free."""
        strange = node.resources["GPU"] - node.free - ours
        since = self._strange.setdefault(node.name, monotonic())
        if strange < 0.001:  # noqa: PLR2004 - of a GPU
            del self._strange[node.name]
            why = ""
        elif monotonic() - since < STRANGERS_S:
            return
        else:
            why = f"others hold {strange:g} of its GPUs in Ray"
        if why != self._closed.get(node.name, ""):
            self._carrier.tell(NodeStatus(node.name, "sick" if why else "well", why=why))
            self._closed[node.name] = why


def usable_nodes(view: RayView, known: dict[str, RayNode]) -> dict[str, RayNode]:
    """Living nodes with GPUs, by name; of several with one name the one that was there first."""
    found: dict[str, RayNode] = {}
    for node in sorted(view.nodes, key=lambda node: node.id):
        if (
            not node.alive
            or node.resources.get("GPU", 0.0) < 1
            or not NODE_NAME.fullmatch(node.name)
        ):
            continue
        other = found.get(node.name)
        first = known.get(node.name)
        if other is None or (first is not None and first.id == node.id):
            found[node.name] = node
        if other is not None:
            log.warning(
                "two nodes of Ray are called %s, one is not used: start them with --node-name",
                node.name,
            )
    return found


def spec_of(node: RayNode) -> NodeSpec:
    """What a node has."""
    kind = next((n for n in node.resources if n.startswith(ACCELERATOR)), "")
    return NodeSpec(
        node.name, int(node.resources.get("GPU", 0)), kind.removeprefix(ACCELERATOR),
        node.resources.get("CPU", 0.0), round(node.resources.get("memory", 0.0) / GIB, 3),
    )  # fmt: skip
