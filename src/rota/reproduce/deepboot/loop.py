"""DeepBoot's loop: inference takes what it needs at once, training is planned every minute.

The simulator looks at every second whether something happens: a minute is full, a request comes or
ends, or a request waits that a pod could take. Inference runs in pods of one GPU. Policies see
lists of nodes, a node for each GPU; a job whose list changes in any way is restarted, also if only
the order does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import nextafter
from pathlib import Path
from typing import Any

from rota.core import events as ev
from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import INF
from rota.core.jobs import DONE, Job
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.workload import Workload
from rota.reproduce.deepboot.jobs import (
    ASLEEP,
    PROTECTED,
    RUNNING,
    BootJob,
    DeepBootPod,
    Nodes,
)
from rota.reproduce.deepboot.policies import Minute, MinutePolicy
from rota.reproduce.deepboot.training import DeepBootTrainee, boot_profile
from rota.reproduce.loop import RATE, Replanner, WaitingBlame

INFERENCE = "infer-"
START_S = {"cifar10": 6, "imagenet": 6, "yolov3": 6, "bert": 8, "deepspeech2": 4, "ncf": 4}
"""Until a new pod serves."""
MINUTE_S = 60
LEAST_LEFT = 1e-9


class BootLoop(Replanner):
    """All of the simulator's accounts; the policy is asked every minute."""

    def __init__(
        self, name: str, topology: Topology, policy: MinutePolicy, *, profiles: Path
    ) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK | Knowledge.SCALING)
        self.wake = Wake(on=frozenset({ev.JOB_SUBMIT}))
        self.policy = policy
        self._profiles = profiles
        self._nodes = len(topology.nodes)
        self._size = topology.nodes[0].gpus
        self._jobs: list[BootJob] = []
        self._by_name: dict[str, BootJob] = {}
        self._live: dict[int, Job] = {}
        self.held: dict[str, Nodes] = {}
        self.pods: dict[str, dict[str, DeepBootPod]] = {}
        self._calls: set[float] = set()  # when something is due
        self._now_s = 0.0
        self._next_s = 1.0
        self._blame = WaitingBlame()

    def expect(self, workload: Workload) -> None:
        """The simulator has read its trace."""
        for number, (spec, how) in enumerate(workload):
            trainee = None
            if not spec.model.startswith(INFERENCE):
                batch = int(spec.name.rpartition("@")[2] or 0) or None
                profile = boot_profile(self._profiles / spec.model)
                tuned = self.policy.tunes and spec.model != "ncf"
                if spec.model == "ncf" and self.policy.fixes_ncf:
                    batch = 32768
                trainee = DeepBootTrainee(profile, None if tuned else batch, spec.submit_s)
            job = BootJob(number, spec, how.work, trainee)
            self._jobs.append(job)
            self._by_name[job.name] = job
            if trainee is None:
                self._calls.add(spec.submit_s)
        self._next_s = self._seek(0.0)

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It was expected."""
        self._live[job.index] = job
        self._blame.joins(job)

    def ended(self, job: Job) -> None:
        """As foreseen, or for another reason: then it is gone."""
        self._blame.leaves(job)
        if self._live.pop(job.index, None) is not None and job.phase != DONE:
            entry = self._jobs[job.index]
            entry.done_s = self._now_s
            if entry.trainee is not None:
                entry.trainee.done_s = self._now_s
            self.held.pop(entry.name, None)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - the simulator has no failures
        """It is placed again in the next minute."""
        entry = self._jobs[job.index]
        self.held.pop(entry.name, None)
        if entry.trainee is not None:
            entry.trainee.move((), reuse=False)
        self._blame.joins(job)

    # --- time -------------------------------------------------------------------------------------

    def _seek(self, now_s: float) -> float:
        """The next second at which the simulator acts; pods grow old on the way."""
        if all(job.over_s is not None for job in self._jobs):
            return INF
        waiting = {
            job.app for job in self._jobs
            if job.trainee is None and job.done_s is None and job.submit_s <= now_s
            and not self.held.get(job.name)
        }  # fmt: skip
        while True:
            now_s += 1
            self._age(now_s)
            if now_s % MINUTE_S == 0 or now_s in self._calls or self._could_serve(waiting):
                return now_s

    def _age(self, now_s: float) -> None:
        for pods in self.pods.values():
            for pod in list(pods.values()):
                if pod.state == RUNNING:
                    if now_s >= pod.until_s:
                        if not self.policy.keeps_pods:
                            del pods[pod.name]
                            continue
                        pod.state, pod.live_s, pod.until_s = PROTECTED, pod.protect(), INF
                elif pod.live_s > 0:
                    pod.live_s -= 1
                else:
                    pod.state, pod.hits = ASLEEP, 0

    def _could_serve(self, waiting: set[str]) -> bool:
        """Somebody waits for whom a pod could be taken; new requests are events themselves."""
        return bool(waiting) and any(
            pod.state == ASLEEP or (pod.state == PROTECTED and app in waiting)
            for app, pods in self.pods.items()
            for pod in pods.values()
        )

    # --- an event ---------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """What the simulator does at this second."""
        now_s = view.now_s
        if now_s >= self._next_s and self._jobs:
            self._serve(now_s)
            self._replan(now_s)
            self._now_s = now_s
            self._next_s = self._seek(now_s)
            self._tell(changes, now_s)
            self._blame.tell(changes)
        changes.wake = Wake(on=frozenset(), at_s=self._next_s)
        return changes

    def _serve(self, now_s: float) -> None:
        """Requests take pods that are free, and those that were placed become ready."""
        for job in self._jobs:
            if job.trainee is not None or job.done_s is not None or job.submit_s > now_s:
                continue
            if self.held.get(job.name):
                if job.ready_s < now_s:  # it was made ready since
                    job.done_s = job.ready_s + job.duration_s
                    job.attained = job.ready_s - (job.begun_s or 0.0)
                    pod = self.pods[job.app][job.name]
                    pod.state = PROTECTED if now_s >= job.done_s else RUNNING
                    pod.live_s, pod.until_s = pod.protect(), job.done_s
                    if pod.state == PROTECTED and not self.policy.keeps_pods:
                        del self.pods[job.app][job.name]
                continue
            free = sorted(self.pods.get(job.app, {}).values(), key=lambda pod: -pod.hits)
            for pod in free:
                if pod.state == ASLEEP or (pod.state == PROTECTED and self.policy.keeps_pods):
                    pod.hits = 0 if pod.state == ASLEEP else pod.hits + 1
                    pod.state, pod.live_s = RUNNING, pod.protect()
                    pod.until_s = job.done_s = now_s + job.duration_s
                    job.begun_s, job.ready_s, job.cached, job.pod = now_s, now_s, True, pod
                    self._calls.add(job.done_s)
                    break

    def present(self, now_s: float) -> list[BootJob]:
        """Jobs that policies see: those under way, and pods that are kept."""
        found = []
        for job in self._jobs:
            under_way = now_s >= job.submit_s and job.over_s is None
            if job.trainee is not None and job.over_s is not None:
                under_way = job.over_s > now_s >= job.submit_s
            kept = job.trainee is None and not job.cached and job.name in self.pods.get(job.app, {})
            if under_way or kept:
                found.append(job)
        return found

    def _replan(self, now_s: float) -> None:
        jobs = self.present(now_s)
        if not jobs:
            return
        names = {job.name for job in jobs}
        before = {name: nodes for name, nodes in self.held.items() if name in names}
        if now_s % MINUTE_S == 0:
            after = self.policy.plan(Minute(self, jobs, before, now_s))
        else:
            after = self._make_room(jobs, before)
        if self.policy.whole_nodes:
            after = self._without_neighbours(after)
        for job in self._jobs:
            new = after.get(job.name)
            if new != self.held.get(job.name) and job.name in names | self.held.keys():
                self._move(job, new or [], now_s)
        self.held = after
        self._count_pods()

    def _count_pods(self) -> None:
        """Those that lost their GPU are gone, and those that got one are there."""
        for name, nodes in self.held.items():
            job = self._by_name[name]
            if job.trainee is not None:
                continue
            mine = self.pods.setdefault(job.app, {})
            if not nodes and name in mine and mine[name].state == ASLEEP:
                del mine[name]
            elif nodes and name not in mine and job.done_s is None:
                mine[name] = DeepBootPod(name, job.app)

    def _move(self, job: BootJob, nodes: Nodes, now_s: float) -> None:
        if job.trainee is not None:
            if job.trainee.done_s is None:
                job.trainee.move(_runs(nodes), reuse=self.policy.reuses)
            return
        if nodes and job.begun_s is None:
            job.begun_s = now_s
            delay_s = START_S[job.app.removeprefix(INFERENCE).partition("-")[0]]
            job.ready_s = now_s + delay_s
            self._calls.add(job.ready_s + job.duration_s)

    # --- inference between minutes ----------------------------------------------------------------

    def asleep(self) -> set[str]:
        """Names of pods that may be taken away."""
        return {
            pod.name for pods in self.pods.values() for pod in pods.values() if pod.state == ASLEEP
        }

    def _make_room(self, jobs: Sequence[BootJob], before: Mapping[str, Nodes]) -> dict[str, Nodes]:
        """Requests without a GPU get one: free, asleep, or from training."""
        jobs = sorted(jobs, key=lambda job: (job.service, job.submit_s))
        state = {job.name: Counter(before.get(job.name, ())) for job in jobs}
        asleep = self.asleep()
        waiting = [
            job.name for job in jobs
            if job.trainee is None and job.name not in asleep and not state[job.name]
        ]  # fmt: skip
        if self.policy.whole_nodes:
            self._clear_nodes(jobs, state, waiting)
        else:
            self._take_gpus(jobs, state, waiting)
        return {
            job.name: [node for node in range(self._nodes) for _ in range(state[job.name][node])]
            for job in jobs
        }

    def _clear_nodes(
        self, jobs: Sequence[BootJob], state: dict[str, "Counter[int]"], waiting: list[str]
    ) -> None:
        """On nodes of the second half, from which all training is driven away."""
        train = [job.name for job in jobs if job.trainee is not None]
        half, node = self._nodes // 2, self._nodes // 2
        empty = [
            self._size - sum(held[place] for held in state.values()) for place in range(self._nodes)
        ]

        def clear(node: int) -> int:
            gone = sum(state[name][node] for name in train)
            for name in train:
                state[name][node] = 0
            return gone

        while waiting and node < self._nodes:
            if empty[node] <= 0:
                node += 1
                continue
            state[waiting.pop(0)][node] = 1
            empty[node] += clear(node) - 1
        left = [sum(state[name][place] for name in train) for place in range(self._nodes)]
        order = [
            place for place in sorted(range(self._nodes), key=left.__getitem__) if place >= half
        ]
        for node in order:
            while waiting and left[node] > 0:
                state[waiting.pop(0)][node] = 1
                gone = clear(node)
                left[node] = gone - 1 if gone else left[node] - 1

    def _take_gpus(
        self, jobs: Sequence[BootJob], state: dict[str, "Counter[int]"], waiting: list[str]
    ) -> None:
        """Anywhere: free ones, those of pods that sleep, and then from training, one by one."""
        train = [job for job in jobs if job.trainee is not None]
        asleep = self.asleep()
        sleep = [job.name for job in jobs if job.name in asleep]
        nodes = range(self._nodes)
        order = sorted(nodes, key=lambda node: sum(state[job.name][node] for job in train))
        for node in order:
            free = self._size - sum(held[node] for held in state.values())
            for _ in range(min(free, len(waiting))):
                state[waiting.pop(0)][node] = 1
        for node in order:
            for name in sleep:
                if waiting and state[name][node]:
                    state[name][node] = 0
                    state[waiting.pop(0)][node] = 1
        while waiting and any(state[job.name][node] > 0 for job in train for node in nodes):
            job, node = self.policy.least_loss(self, jobs, train, state)
            state[job.name][node] -= 1
            state[waiting.pop(0)][node] = 1

    def _without_neighbours(self, held: Mapping[str, Nodes]) -> dict[str, Nodes]:
        """Whole nodes are lent: nobody trains where inference is."""
        taken = {
            nodes[0] for name, nodes in held.items()
            if nodes and self._by_name[name].trainee is None
        }  # fmt: skip
        return {
            name: list(nodes) if self._by_name[name].trainee is None
            else [node for node in nodes if node not in taken]
            for name, nodes in held.items()
        }  # fmt: skip

    # --- what to do -------------------------------------------------------------------------------

    def _tell(self, changes: Changes, now_s: float) -> None:
        """Everyone who runs gets a rate up to the next second that matters."""
        next_s = self._next_s
        vertices = [node.id for node in self.topology.nodes]
        for number, live in list(self._live.items()):
            entry = self._jobs[number]
            nodes, done_s = self._course(entry, now_s, next_s)
            if not nodes:
                if live.running:
                    changes.stop(live)
                    self._blame.joins(live)
                continue
            rate = self._rate(live, entry, now_s, next_s, done_s)
            if not live.running:
                self._blame.leaves(live)
            counts = Counter(nodes)
            slices = [(vertices[node], many) for node, many in sorted(counts.items())]
            allocation = Allocation(slices, config={RATE: rate})
            if not live.running or allocation != live.allocation:
                changes.starts.append((live, allocation))

    def _course(
        self, entry: BootJob, now_s: float, next_s: float
    ) -> tuple[Sequence[int], float | None]:
        """Where it is until the next event, and when it is done if that is before."""
        if entry.trainee is not None:
            if entry.trainee.done_s is not None:
                return (), None
            seconds = int(min(next_s, now_s + 1e9) - now_s)
            entry.trainee.step(now_s, seconds)
            return self.held.get(entry.name, ()), entry.trainee.done_s
        if entry.begun_s is None:
            return (), None
        pod = entry.pod
        nodes = self.held.get(entry.name if pod is None else pod.name, ())
        return nodes, entry.ready_s + entry.duration_s

    def _rate(
        self, live: Job, entry: BootJob, now_s: float, next_s: float, done_s: float | None
    ) -> float:
        left = live.left_at(now_s)
        if done_s is None:
            if next_s == INF or entry.trainee is None:
                return 1.0
            share = 1 - entry.trainee.progress / entry.trainee.profile.total
            target = max(share, LEAST_LEFT) * live.true_work
            return max(0.0, left - target) / (next_s - now_s)
        done_s = max(done_s, nextafter(now_s, INF))
        rate = left / (done_s - now_s)
        while now_s + left / rate > done_s:
            rate = nextafter(rate, INF)
        return rate

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Everyone's accounts, the pods, and what is due."""
        return {
            "jobs": [job.snapshot() for job in self._jobs],
            "live": list(self._live),
            "held": list(self.held.items()),
            "pods": [(app, [pod.snapshot() for pod in some.values()])
                     for app, some in self.pods.items()],
            "calls": sorted(self._calls),
            "now_s": self._now_s,
            "next_s": self._next_s,
            "policy": self.policy.memory(),
            **self._blame.snapshot(),
        }  # fmt: skip

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again; the same jobs are expected."""
        self.pods = {
            app: {name: DeepBootPod.restored(name, app, rest) for name, *rest in some}
            for app, some in state["pods"]
        }
        for job, saved in zip(self._jobs, state["jobs"], strict=True):
            job.restore(saved, self.pods.get(job.app, {}))
        self._live = {index: view.everyone[index] for index in state["live"]}
        self.held = {name: list(nodes) for name, nodes in state["held"]}
        self._calls = set(state["calls"])
        self._now_s, self._next_s = state["now_s"], state["next_s"]
        self.policy.remember(state["policy"])
        self._blame = WaitingBlame.restored(state, view.everyone)


def _runs(nodes: Sequence[int]) -> list[int]:
    """GPUs on each node, in the order of the list."""
    found: list[int] = []
    for place, node in enumerate(nodes):
        if place and node == nodes[place - 1]:
            found[-1] += 1
        else:
            found.append(1)
    return found
