"""The loop of Lucid's own policy in its simulator, and how fast jobs run there that share GPUs.

The simulator counts seconds: in each it ends the jobs that have nothing left, takes the speed of
every other from what it has left, and then serves the queue. Nothing but that happens between two
events, so looking at events is the same; `SecondsRates` keeps what is left as the simulator does,
to the last bit.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import msgspec
import numpy as np

from rota.core.allocation import BESIDE, Allocation, host_of
from rota.core.changes import Changes
from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.ports import RatePhase
from rota.core.topology import Topology
from rota.core.view import View
from rota.models.colocation import Colocation, KindProfile
from rota.models.rates import Rates
from rota.reproduce.helios.loop import HeliosJob, HeliosLoop

MEMORY_MIB = 24576  # of the GPUs on which pairs were measured
MOST_SHARED_GPUS = 8
MOST_LABELS = 2  # of both jobs of a pair together
LONGER = 2.0  # a guest may be so many times as large as its host
HARMLESS = frozenset({"NeuMF", "ResNet50", "BERT", "Transformer"})
"""Models that the simulator takes to run beside any other as fast as alone."""

MINE, HOSTS = "rate", "host_rate"
"""In the allocation of a guest: its speed, and that of its host."""


# --- Speeds ---------------------------------------------------------------------------------------

NEARLY = 1e-6  # relative: sums of so many seconds are rounded by less
MOST_STEPS = 5_000_000  # seconds that are taken off one by one
EARLY_S = 0.5  # work is done so long before the whole second at which its end is seen


class Countdown(msgspec.Struct, frozen=True):
    """What a job had left at a time, how much of it a second takes, and the rate for the engine."""

    start_s: float
    at_s: float
    left: float
    speed: float
    rate: float
    guest: bool

    def left_at(self, now_s: float) -> float:
        """Taken off second by second, as floating point has it."""
        seconds = now_s - self.at_s
        if self.speed == 1 or seconds > MOST_STEPS or seconds % 1:
            return self.left - seconds * self.speed  # exact if the speed is 1
        steps = np.full(int(seconds) + 1, -self.speed)
        steps[0] = self.left
        return float(np.cumsum(steps)[-1])


class SecondsRates(Rates):
    """Jobs end at whole seconds: one after their last unit of work was taken off.

    A guest says in its allocation how fast it and its host are. It stays as fast when its host has
    ended; a host is as fast as alone again when its guest has.
    """

    name = "lucid-seconds"

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        super().__init__(topology, params)
        self.neighbours = self.packs = self.phased = True
        self._counted: dict[int, Countdown] = {}

    def keys(self, job: Job) -> Sequence[int]:
        """Its own number and that of its host; below 0, where no vertex is."""
        host = host_of(job.allocation)
        return (-1 - job.index,) if host < 0 else (-1 - job.index, -1 - host)

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """The speed of the simulator: what a second takes off."""
        if host_of(allocation) >= 0:
            return float((allocation.config or {}).get(MINE, 1.0))
        for other in sharers:
            if host_of(other.allocation) == job.index:
                return float((other.allocation.config or {}).get(HOSTS, 1.0))
        before = self._counted.get(job.index)
        kept = before is not None and before.guest and before.start_s == job.start_s
        return before.speed if before is not None and kept else 1.0

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,
        now_s: float,
    ) -> RatePhase:
        """So fast that the work is done when the simulator sees it, whatever came before."""
        speed = self.rate(job, allocation, sharers)
        left = job.true_work - done
        before = self._counted.get(job.index)
        if before is None or before.start_s != job.start_s:
            counted, guest = left, False
        elif before.speed == speed:
            return RatePhase(before.rate)
        else:
            counted, guest = before.left_at(now_s), before.guest
        lasts_s = seconds_until_end(counted, speed)
        rate = left / (lasts_s - EARLY_S) if lasts_s < INF else 0.0
        guest = guest or host_of(allocation) >= 0
        self._counted[job.index] = Countdown(job.start_s, now_s, counted, speed, rate, guest)
        return RatePhase(rate)

    def snapshot(self) -> Mapping[str, Any]:
        """What jobs have left."""
        return {"counted": [(k, *msgspec.structs.astuple(c)) for k, c in self._counted.items()]}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:  # noqa: ARG002
        """Take the state of `snapshot` up again."""
        self._counted = {index: Countdown(*rest) for index, *rest in state["counted"]}


def seconds_until_end(left: float, speed: float) -> float:
    """After how many seconds a job is found to have nothing left: at least one."""
    if speed <= 0:
        return INF
    steps = left / speed
    whole = round(steps)
    if abs(steps - whole) <= NEARLY * max(1.0, steps) and whole > 0:
        still = Countdown(0.0, 0.0, left, speed, 0.0, guest=False).left_at(float(whole)) > 0
        return 1.0 + whole + still
    return 1.0 + max(0, ceil(steps))


# --- The policy -----------------------------------------------------------------------------------


class PackingScheduler(HeliosLoop):
    """Lucid: the smallest jobs first, beside a running one if that is harmless, else alone.

    Each job of the queue, in the order of its priority (duration times GPUs), looks first for a
    running job that is alone, even if there are idle GPUs: the one that runs for longest among
    those with as many GPUs, whose memory and label go together with its own and whose priority is
    at least half of its own. Jobs that find neither a partner nor a place do not hold up others.
    A job whose host has ended stays alone to its end.
    """

    def __init__(self, name: str, topology: Topology, colocation: Colocation, *, like: str) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK, like=like)
        self._colocation = colocation
        self._since: dict[int, int] = {}  # running jobs, counted as they started
        self._starts = 0
        self._alone: dict[float, list[tuple[int, int]]] = {}  # by GPUs: (start, job) of hosts to be
        self._guest_of: dict[int, int] = {}  # host -> guest
        self._host_of: dict[int, int] = {}  # guest -> host
        self._profiles: dict[int, KindProfile] = {}

    # --- the queue --------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """The whole queue, in order; only starts change anything."""
        if not view.sharing:
            raise OptionError(
                "dialect 'lucid': the policy 'lucid' runs jobs in pairs, and these rates know of "
                "none: leave --rates out"
            )
        blocked: dict[int, Job] = {}
        hopeless = INF  # so many GPUs of a node, or more, are not to be had
        for entry in sorted(self.waiting.values(), key=_priority):
            gpus = entry.job.gpus
            if gpus <= MOST_SHARED_GPUS and self._pair(entry, changes):
                continue
            if gpus <= self.nodes.size and gpus >= hopeless:
                blocked[entry.job.shape.number] = entry.job
            elif not self.launch(entry, changes, 0.0):
                blocked[entry.job.shape.number] = entry.job
                hopeless = min(hopeless, gpus) if gpus <= self.nodes.size else hopeless
            else:
                self._starts_alone(entry.job)
        self.tell(changes, blocked)
        return changes

    def _pair(self, entry: HeliosJob, changes: Changes) -> bool:
        """Start it beside the first running job that suits."""
        job, candidates = entry.job, self._alone.get(entry.job.gpus, [])
        mine, most = self._profile(job), _priority(entry) / LONGER
        for start, index in candidates:
            host = self.running[index]
            theirs = self._profile(host.job)
            if (
                theirs.gmem < MEMORY_MIB - mine.gmem
                and theirs.label + mine.label <= MOST_LABELS
                and most <= _priority(host)
            ):
                candidates.remove((start, index))
                self._begin_beside(entry, host, changes)
                return True
        return False

    def _begin_beside(self, entry: HeliosJob, host: HeliosJob, changes: Changes) -> None:
        job = entry.job
        speed, hosts = self._speeds(job, host.job)
        self.leaves(entry)
        self._occupy(entry, [])
        self._counts(job)
        self._guest_of[host.job.index], self._host_of[job.index] = job.index, host.job.index
        slices = [(self.nodes.vertices[position], 0) for position, _ in host.held or []]
        config = {BESIDE: host.job.index, MINE: speed, HOSTS: hosts}
        changes.starts.append((job, Allocation(slices, config=config)))

    def _speeds(self, job: Job, host: Job) -> tuple[float, float]:
        mine, theirs = self._profile(job), self._profile(host)
        if {mine.model, theirs.model} & HARMLESS:
            return 1.0, 1.0
        found = self._colocation.speeds(mine, theirs)
        if found is None:
            raise OptionError(
                f"dialect 'lucid': jobs {job.id} ({mine.name}) and {host.id} ({theirs.name}) share "
                "GPUs, and this pair was not measured: add its row to pair_speeds.csv"
            )
        return found

    def _profile(self, job: Job) -> KindProfile:
        found = self._profiles.get(job.index)
        if found is None:
            found = self._profiles[job.index] = self._colocation.of(job)
        return found

    # --- who runs ---------------------------------------------------------------------------------

    def _starts_alone(self, job: Job) -> None:
        self._counts(job)
        self._may_host(job)

    def _counts(self, job: Job) -> None:
        self._starts += 1
        self._since[job.index] = self._starts

    def _may_host(self, job: Job) -> None:
        if job.gpus <= MOST_SHARED_GPUS:
            insort(self._alone.setdefault(job.gpus, []), (self._since[job.index], job.index))

    def ended(self, job: Job) -> None:
        """What it held is its guest's from now on."""
        if job.index in self.running:
            self._part(job)
            self._profiles.pop(job.index, None)
        super().ended(job)

    def lost(self, job: Job, now_s: float) -> None:
        """So is what a lost job held, until its guest is lost as well."""
        self._part(job)
        super().lost(job, now_s)

    def interrupted(self, entry: HeliosJob, now_s: float) -> None:
        """A failure costs no overhead."""

    def _part(self, job: Job) -> None:
        """It leaves its partner."""
        start = self._since.pop(job.index)
        guest = self._guest_of.pop(job.index, None)
        host = self._host_of.pop(job.index, None)
        if guest is not None:
            self.running[guest].held = self.running[job.index].held
            self.running[job.index].held = []
            del self._host_of[guest]
        elif host is not None:
            del self._guest_of[host]
            self._may_host(self.running[host].job)
        else:
            self._not_alone(job, start)

    def _not_alone(self, job: Job, start: int) -> None:
        candidates = self._alone.get(job.gpus, [])
        place = bisect_left(candidates, (start, job.index))
        if candidates[place : place + 1] == [(start, job.index)]:  # not if its host has ended
            del candidates[place]

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Also pairs, and who may be the host of one."""
        alone = [index for candidates in self._alone.values() for _, index in candidates]
        return {**super().snapshot(), "pairs": list(self._guest_of.items()), "alone": alone}

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Running jobs were saved in the order of their starts."""
        super().restore(view, state)
        for entry in self.running.values():
            self._counts(entry.job)
        self._guest_of = dict(state["pairs"])
        self._host_of = {guest: host for host, guest in self._guest_of.items()}
        for guest in self._host_of:
            self.running[guest].held = []
        for index in state["alone"]:
            self._may_host(self.running[index].job)


def _priority(entry: HeliosJob) -> float:
    return entry.job.duration_s() * entry.job.gpus
