"""What DeepBoot's simulator asks every minute: its versions of AFS, Aryl, Optimus and Tiresias."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.core.events import INF
from rota.policies.lyra import GrowthChoice, knapsack
from rota.reproduce.deepboot.jobs import BootAccounts, BootJob, Nodes


class Minute(NamedTuple):
    """What a policy is shown: the accounts, jobs that are there, who holds what, and the time."""

    loop: BootAccounts
    jobs: Sequence[BootJob]
    before: Mapping[str, Nodes]
    now_s: float

    @property
    def training(self) -> list[BootJob]:
        """Jobs that train."""
        return [job for job in self.jobs if job.trainee is not None]

    @property
    def serving(self) -> list[BootJob]:
        """Inference that is under way or protected."""
        asleep = self.loop.asleep()
        return [job for job in self.jobs if job.trainee is None and job.name not in asleep]

    def keep_asleep(self, held: dict[str, Nodes]) -> dict[str, Nodes]:
        """Pods that sleep stay where there is room."""
        left = _free(self.loop, held.values())
        asleep = self.loop.asleep()
        for job in self.jobs:
            nodes = self.before.get(job.name)
            if job.name in asleep and nodes and left[nodes[0]] > 0:
                held[job.name] = nodes
                left[nodes[0]] -= 1
        return held


QUEUE_GPU_S = 3600 * 16
RESTART_S = 10  # that DeepBoot's own policy counts for a change


class MinutePolicy:
    """Common part: sizes for training, placed after inference."""

    tunes = False
    """Batches are tuned."""
    fixes_ncf = True
    keeps_pods = False
    """Pods outlive their requests (ATS-I)."""
    reuses = False
    """Containers are reused (AFE)."""
    whole_nodes = True
    """Inference has whole nodes of the second half, and drives training away there (Aryl)."""
    emptiest = False
    """Jobs go to the emptiest node; else to the fullest with room."""

    def plan(self, minute: Minute) -> dict[str, Nodes]:
        """Nodes of everyone."""
        before = minute.before
        train = sorted(minute.training, key=self.rank)
        if not train:
            return dict(before)
        held = {job.name: before[job.name] for job in minute.serving if job.name in before}
        free = _free(minute.loop, held.values())
        sizes = self.sizes(train, free, minute)
        mine = {job.name: before[job.name] for job in train if job.name in before}
        return minute.keep_asleep(held | self._placed(train, sizes, mine, free))

    def memory(self) -> dict[str, Any]:
        """What it remembers from minute to minute, as plain data."""
        return {}

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take up what `memory` gave."""

    def rank(self, job: BootJob) -> tuple[float, ...]:
        """The order of training jobs."""
        return (job.submit_s,)

    def sizes(self, train: Sequence[BootJob], free: Counter[int], minute: Minute) -> dict[str, int]:
        """GPUs of every training job."""
        raise NotImplementedError

    def _placed(
        self,
        train: Sequence[BootJob],
        sizes: Mapping[str, int],
        before: Mapping[str, Nodes],
        free: Counter[int],
    ) -> dict[str, Nodes]:
        """Who keeps its size keeps its nodes; the others from small to large."""
        held = {name: nodes for name, nodes in before.items() if len(nodes) == sizes[name]}
        left = Counter(free)
        left.subtract(Counter(node for nodes in held.values() for node in nodes))
        for job in sorted(train, key=lambda job: sizes[job.name]):
            if sizes[job.name] and not held.get(job.name):
                held[job.name] = self.find(sizes[job.name], left)
        return held

    def find(self, gpus: int, left: Counter[int]) -> Nodes:
        """Take so many GPUs."""
        found: Nodes = []
        while len(found) < gpus:
            missing = gpus - len(found)
            node = max(left, key=lambda node: left[node])
            if not self.emptiest and missing <= left[node]:
                room = [node for node in left if left[node] >= missing]
                node = min(room, key=lambda node: left[node])
            many = min(left[node], missing)
            if many <= 0:
                break
            found += [node] * many
            left[node] -= many
        return found

    def least_loss(
        self,
        loop: BootAccounts,
        jobs: Sequence[BootJob],  # noqa: ARG002 - for those that compare
        train: Sequence[BootJob],
        state: Mapping[str, Counter[int]],
    ) -> tuple[BootJob, int]:
        """The training GPU that is given up for a request: the first one, if all are alike."""
        return next(
            (job, node)
            for job in train
            for node in range(len(loop.topology.nodes))
            if state[job.name][node] > 0
        )


class AfsMinutes(MinutePolicy):
    """Every GPU goes to the winner of a contest of pairs; see the policy `afs`, tie=artifact."""

    def sizes(
        self,
        train: Sequence[BootJob],
        free: Counter[int],
        minute: Minute,  # noqa: ARG002 - for others
    ) -> dict[str, int]:
        """GPUs of every training job."""
        share = dict.fromkeys((job.name for job in train), 0)

        def worth(job: BootJob) -> float:
            after = job.learner.throughput(share[job.name] + 1)
            return (after - job.learner.throughput(share[job.name])) / after

        for _ in range(sum(free.values())):
            able = [job for job in train if job.learner.divides(share[job.name] + 1)]
            if not able:
                break
            best = able[0]
            for other in able[1:]:
                a, b = best, other
                if not share[a.name] and not share[b.name]:
                    best = a if _length_s(a) < _length_s(b) else b
                    continue
                if share[a.name] >= share[b.name]:
                    a, b = b, a
                best = b if worth(b) > worth(a) else a
            share[best.name] += 1
        return share


class ArylMinutes(MinutePolicy):
    """A knapsack of remaining time; see the policy `lyra`."""

    def sizes(
        self,
        train: Sequence[BootJob],
        free: Counter[int],
        minute: Minute,  # noqa: ARG002 - for others
    ) -> dict[str, int]:
        """GPUs of every training job."""
        order = sorted(train, key=_length_s)
        choices = []
        for job in order:
            most = 1 if job.app == "ncf" else job.asked
            if most == 1:
                choices.append([GrowthChoice(1, _length_s(job))])
            else:
                choices.append(
                    [GrowthChoice(w, _length_s(job) * w / (w + 1)) for w in range(1, most + 1)]
                )
        picked = knapsack(choices, sum(free.values()))
        return {
            job.name: own[number].gpus if number >= 0 else 0
            for job, own, number in zip(order, choices, picked, strict=True)
        }


class OptimusMinutes(MinutePolicy):
    """A GPU each, then always to the job that saves the most time by one more."""

    fixes_ncf = False
    emptiest = True

    def plan(self, minute: Minute) -> dict[str, Nodes]:
        """Requests are placed, too; nobody trains on nodes of the second half that they use."""
        loop, before, train = minute.loop, minute.before, minute.training
        if not train:
            return dict(before)
        half = len(loop.topology.nodes) // 2
        lent = {node for job in minute.serving for node in before.get(job.name, ()) if node >= half}
        share = self._shares(minute)
        asleep = loop.asleep()
        held = {
            name: nodes for name, nodes in before.items()
            if name in share and name not in asleep and len(nodes) == share[name]
        }  # fmt: skip
        free = _free(loop, held.values())
        for job in [*minute.serving, *sorted(train, key=lambda job: share[job.name])]:
            if share.get(job.name) and not held.get(job.name):
                held[job.name] = self.find(share[job.name], free)
        for job in train:
            if job.name in held:
                held[job.name] = [node for node in held[job.name] if node not in lent]
        return minute.keep_asleep(held)

    def _shares(self, minute: Minute) -> dict[str, int]:
        """GPUs of everyone."""
        left = minute.loop.topology.gpus
        share: dict[str, int] = {}
        for job in minute.serving[:left]:
            share[job.name] = 1
            left -= 1
        gain: dict[str, float] = {}
        for job in minute.training:
            share[job.name] = 1 if left > 0 else 0
            left -= share[job.name]
            gain[job.name] = self._gain(job, share[job.name], left) if share[job.name] else 0.0
        named = {job.name: job for job in minute.training}
        while left > 0 and max(gain.values()) > 0:
            name = max(gain, key=lambda name: gain[name])
            share[name] += 1
            gain[name] = self._gain(named[name], share[name], left)
            left -= 1
        return share

    def _gain(self, job: BootJob, gpus: int, left: int) -> float:
        trainee = job.learner
        most = 1 if job.app == "ncf" else (trainee.batch or 0) // trainee.profile.limits.local_least
        if gpus + 1 > most or left < 1:
            return 0.0
        return (trainee.foreseen(gpus)[0] - trainee.foreseen(gpus + 1)[0]) * trainee.left


class TiresiasMinutes(MinutePolicy):
    """Two queues by GPU time, in order of arrival; sizes are fixed."""

    fixes_ncf = False
    whole_nodes = False
    emptiest = True

    def __init__(self) -> None:
        self._queues: tuple[list[str], list[str]] = ([], [])
        self._runs: dict[str, bool] = {}
        self._checked: dict[str, float] = {}
        self._executed: dict[str, float] = {}

    def plan(self, minute: Minute) -> dict[str, Nodes]:
        """Who comes first runs, if there are enough GPUs."""
        loop, asleep = minute.loop, minute.loop.asleep()
        train = {job.name: job for job in minute.training}
        self._account(train, minute.now_s)
        held = {name: nodes for name, nodes in minute.before.items() if name not in asleep}
        order = [*self._queues[0], *self._queues[1]]
        left = loop.topology.gpus - len(minute.serving)
        for name in order:
            self._runs[name] = train[name].asked <= left
            if self._runs[name]:
                left -= train[name].asked
            else:
                held.pop(name, None)
        free = _free(loop, held.values())
        for name in order:
            if self._runs[name] and not held.get(name):
                held[name] = self.find(train[name].asked, free)
        return minute.keep_asleep(held)

    def _account(self, train: Mapping[str, BootJob], now_s: float) -> None:
        """Who ran for long enough leaves the first queue."""
        first, second = self._queues
        first[:] = [name for name in first if name in train]
        second[:] = [name for name in second if name in train]
        self._runs = {name: runs for name, runs in self._runs.items() if name in train}
        for name, job in train.items():
            if name not in self._runs:
                self._runs[name] = False
                first.append(name)
            if self._runs[name]:
                self._executed[name] = self._executed.get(name, 0) + now_s - self._checked[name]
                if name in first and int(self._executed[name] * job.asked) >= QUEUE_GPU_S:
                    first.remove(name)
                    second.append(name)
            self._checked[name] = now_s

    def memory(self) -> dict[str, Any]:
        """Queues and times."""
        return {
            "queues": [list(queue) for queue in self._queues],
            "runs": dict(self._runs),
            "checked": dict(self._checked),
            "executed": dict(self._executed),
        }

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take them up."""
        first, second = state["queues"]
        self._queues = (list(first), list(second))
        self._runs = dict(state["runs"])
        self._checked, self._executed = dict(state["checked"]), dict(state["executed"])


class DeepBootMinutes(MinutePolicy):
    """A knapsack of Pollux' speedups; a change is worth less for who was restarted often."""

    tunes = True
    keeps_pods = True
    reuses = True
    whole_nodes = False

    def rank(self, job: BootJob) -> tuple[float, ...]:
        """Who got least comes first."""
        return (job.service, job.submit_s)

    def sizes(self, train: Sequence[BootJob], free: Counter[int], minute: Minute) -> dict[str, int]:
        """GPUs of every training job."""
        gpus = sum(free.values())
        speedup = self._speedups(train, gpus, len(minute.loop.topology.nodes), len(train))
        choices = []
        for job in train:
            trainee = job.learner
            profiled = max((n for _, n, _ in trainee.timings), default=0)
            limits = trainee.profile.limits
            most = min(max(2 * profiled, 1), 64, limits.most // limits.local_least)
            most = 1 if job.app == "ncf" else most
            age = minute.now_s - job.submit_s
            factor = max(age - (trainee.restarts or 0) * RESTART_S, 0.0) / (age + RESTART_S)
            own = []
            for w in range(1, most + 1):
                value = speedup(job, -(-w // 4), w)
                if job.name not in minute.before or w != len(minute.before[job.name]):
                    value *= factor
                own.append(GrowthChoice(w, value))
            choices.append(own)
        picked = knapsack(choices, gpus)
        return {
            job.name: own[number].gpus if number >= 0 else 0
            for job, own, number in zip(train, choices, picked, strict=True)
        }

    def least_loss(
        self,
        loop: BootAccounts,
        jobs: Sequence[BootJob],
        train: Sequence[BootJob],
        state: Mapping[str, Counter[int]],
    ) -> tuple[BootJob, int]:
        """The training GPU whose loss costs the least speedup."""
        speedup = self._speedups(train, loop.topology.gpus, len(loop.topology.nodes), len(jobs))
        now = {}
        for job in train:
            counts = [many for many in state[job.name].values() if many > 0]
            now[job.name] = speedup(job, len(counts), sum(counts)) if counts else 0.0
        best, found = INF, super().least_loss(loop, jobs, train, state)
        for job in train:
            for node in range(len(loop.topology.nodes)):
                if state[job.name][node] <= 0:
                    continue
                counts = [
                    many - (place == node)
                    for place, many in state[job.name].items()
                    if many - (place == node) > 0
                ]
                loss = now[job.name] - (speedup(job, len(counts), sum(counts)) if counts else 0.0)
                if loss < best - 1e-12:
                    best, found = loss, (job, node)
        return found

    def _speedups(
        self, train: Sequence[BootJob], gpus: float, nodes: int, among: int
    ) -> Callable[[BootJob, int, int], float]:
        """Goodput relative to a fair share, which counts as if it were on few nodes."""
        fair = max(1, -(-int(gpus) // max(among, 1)))
        fair_nodes = -(-nodes // max(int(gpus), 1))
        tables = {job.name: job.learner.table for job in train}

        def speedup(job: BootJob, on: int, replicas: int) -> float:
            table = tables[job.name]
            if table is None:
                return replicas / fair
            base = table.best(fair_nodes, max(fair, fair_nodes)).goodput
            return table.best(on, replicas).goodput / base if base > 0 else 0.0

        return speedup


def _length_s(job: BootJob) -> float:
    """Remaining time on one GPU."""
    trainee = job.learner
    return trainee.left * trainee.foreseen(1)[0]


def _free(loop: BootAccounts, held: Iterable[Nodes]) -> Counter[int]:
    """GPUs that nobody holds, by node."""
    free = Counter({place: node.gpus for place, node in enumerate(loop.topology.nodes)})
    for nodes in held:
        free.subtract(nodes)
    return free
