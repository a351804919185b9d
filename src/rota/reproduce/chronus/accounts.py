"""The accounts of Chronus' simulator: jobs in leases, minute by minute, without nodes.

The simulator looks at the clock every minute. Jobs that are done are taken off; every `lease`
minutes the leases are given out anew; every `slot` minutes new jobs are admitted and GPUs without a
lease are given to whoever waits; and in every odd minute whoever waits fills what is free.

Jobs never depend on nodes here: the placement of the simulator always finds room where there are
enough GPUs, and a job is as fast on many nodes as on one.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, inf, log2
from typing import Any

from rota.core.jobs import Job
from rota.solvers.leases import LeaseNeed, pack_leases, share_leases

LATE, ACCEPTED, DECLINED, BEST_EFFORT = -1, 0, 1, 2
"""What became of a job: its deadline cannot be met any more, is promised, is not; it has none."""

NODE = 8  # GPUs of a node in the simulator's tables
RESTART_MIN = 0.5  # of a checkpoint and its loading, with one GPU
MARGIN = 1.1  # durations are planned with so much more
MOST, HOUR = 1200, 60  # jobs that are planned together, with leases of an hour


def whole_share(gpus: int) -> int:
    """GPUs that a lease counts: parts of a node are 1, 2, 4 or 8."""
    return gpus if gpus > NODE else 1 << (gpus - 1).bit_length()


def restart_min(gpus: int) -> float:
    """What one start takes, in minutes."""
    return RESTART_MIN * (1 + log2(gpus))


class LeaseJob:
    """A job in the accounts; times are minutes.

    Attributes:
        standing: What became of it; see above.
        pressing: The larger, the sooner it is served.
        ran: Minutes on GPUs, those of its starts among them.
        checked: Up to when `ran` is counted.
        needed: Leases that it still needs by its estimate.
        leases: Which of the coming leases it has; None before they were given out.
        leased: It runs by a lease.
        assured: It runs without a lease, but nobody takes its GPUs before the lease ends.
        overdue: It has run for longer than was estimated.
        planned: It takes part when leases are given out.
    """

    __slots__ = (
        "assured", "checked", "deadline", "due", "duration", "estimate", "gpus", "job", "leased",
        "leases", "needed", "overdue", "planned", "preempts", "pressing", "ran", "resumes",
        "standing", "submit",
    )  # fmt: skip

    def __init__(self, job: Job, *, unit_s: float, origin: int, lease: int) -> None:
        self.job = job
        self.gpus = int(job.gpus)
        self.submit = job.submit_s / unit_s + origin
        self.duration = job.true_work / unit_s
        self.deadline = job.deadline_s / unit_s + origin
        self.due = self.deadline  # once promised: the end of its last lease
        slower = 1 + restart_min(self.gpus) / lease
        self.estimate = int(self.duration * slower * MARGIN)
        self.needed = ceil(self.estimate / lease)
        self.standing = ACCEPTED if self.deadline < inf else BEST_EFFORT
        self.planned = self.deadline < inf
        self.pressing = inf
        self.ran = 0
        self.checked = 0
        self.resumes = self.preempts = 0
        self.leases: list[bool] | None = None
        self.leased = self.assured = self.overdue = False

    @property
    def length(self) -> float:
        """Minutes on GPUs until its end, with those of all starts."""
        return self.duration + self.resumes * restart_min(self.gpus)

    @property
    def end(self) -> float:
        """When it is done if it goes on."""
        return self.checked + self.length - self.ran

    @property
    def number(self) -> tuple[int, str]:
        """Ids in order; those that are numbers by their value."""
        return (int(self.job.id) if self.job.id.isdecimal() else 0, self.job.id)

    def recount(self, lease: int) -> None:
        """Leases that it has earned by running without one are given back, the next ones first."""
        needed = ceil((self.estimate - self.ran) / lease)
        back = self.needed - needed
        if back <= 0:
            return
        self.needed = needed
        for t, has in enumerate(self.leases or ()):
            if has and back and self.leases is not None:
                self.leases[t] = False
                back -= 1

    def press(self, now: int) -> None:
        """How pressing it is now, and whether its deadline is out of reach."""
        if self.standing in (ACCEPTED, DECLINED) and self.due < now + self.duration - self.ran:
            self.standing = LATE
        if self.standing in (BEST_EFFORT, DECLINED):
            self.pressing = -(self.estimate - self.ran) * self.gpus
        else:
            self.pressing = -(self.due - now - self.estimate + self.ran) * self.gpus

    def turn(self) -> tuple[bool, int, float, float]:
        """Larger is served first, and displaced last."""
        return self.overdue, min(self.standing, DECLINED), self.pressing, -self.submit

    def state(self) -> tuple[Any, ...]:
        """As plain data, the job's index first."""
        rest = [getattr(self, name) for name in SAVED]
        return (self.job.index, *rest)

    def restore(self, state: Sequence[Any]) -> None:
        """Take the state up again, without the job's index."""
        for name, value in zip(SAVED, state, strict=True):
            setattr(self, name, value)


SAVED = (
    "assured", "checked", "due", "leased", "leases", "needed", "overdue", "planned", "preempts",
    "pressing", "ran", "resumes", "standing",
)  # fmt: skip


class LeaseAccounts:
    """Who waits and who runs; `gpus` is what there is."""

    def __init__(self, gpus: int, *, lease: int, slot: int) -> None:
        self.gpus = gpus
        self.lease = lease
        self.slot = slot
        self.coming: list[LeaseJob] = []
        self.waiting: list[LeaseJob] = []
        self.running: list[LeaseJob] = []
        self.declined = 0  # jobs that were declined, when the leases were given out or since
        self.begun = 0  # leases; the present one counts once it is given out

    @property
    def free(self) -> int:
        """GPUs that nobody has."""
        return self.gpus - sum(entry.gpus for entry in self.running)

    @property
    def _open(self) -> int:
        """GPUs without a lease or an assurance."""
        return self.gpus - sum(e.gpus for e in self.running if e.leased or e.assured)

    def lost(self, entry: LeaseJob, left: float) -> None:
        """Its node failed: it waits again, with so many minutes of its duration left."""
        self.running.remove(entry)
        self.waiting.append(entry)
        entry.ran = int(entry.length - left)
        entry.leased = entry.assured = False

    # --- a minute ---------------------------------------------------------------------------------

    def minute(self, now: int, over: Iterable[LeaseJob]) -> None:
        """All that happens now; `over` have ended since the last one."""
        for entry in over:
            self.running.remove(entry)
        self._count(now)
        self.begun = now // self.lease
        if now % self.lease == 0:
            self._give_leases(now)
        self.begun += 1
        if now % self.slot == 0:
            self._admit(now)
            self._serve(now)
        if now % 2:
            self._fill()

    def _count(self, now: int) -> None:
        """What the running jobs have done."""
        boundary = now % self.lease == 0
        for entry in self.running:
            entry.ran += now - entry.checked
            entry.checked = now
            if entry.ran >= entry.estimate and (boundary or not entry.leased):
                entry.standing, entry.leases = DECLINED, None
                entry.overdue, entry.planned = True, False
            if not entry.leased and not entry.assured and entry.standing == ACCEPTED:
                entry.recount(self.lease)

    # --- leases -----------------------------------------------------------------------------------

    def _give_leases(self, now: int) -> None:
        """Everyone is stopped, and who has the first of the new leases goes on."""
        before = set(self.running)
        for entry in self.running:
            entry.leased = entry.assured = False
            entry.checked = now
            if entry.standing == ACCEPTED:
                entry.recount(self.lease)
        self.waiting += self.running
        self.running = []
        chosen = self._chosen(fill=not self.declined)
        for entry in chosen:
            entry.leased = True
            entry.needed -= 1
            self.waiting.remove(entry)
            self.running.append(entry)
        for entry in chosen:
            entry.resumes += entry not in before
        for entry in self.waiting:
            entry.preempts += entry in before
        self.declined = sum(e.standing == DECLINED for e in (*self.waiting, *self.running))

    def _chosen(self, *, fill: bool) -> list[LeaseJob]:
        """Who has the first lease: by the programme, else by the leases that they have already."""
        planned = self._planned()
        room: list[float] = [self.gpus] * max((self._within(e) for e in planned), default=0)
        sought, kept = self._sought(planned)
        for entry in kept:
            for t, has in enumerate(entry.leases or ()):
                room[t] -= has * whole_share(entry.gpus)
        found = share_leases([self._need(entry) for entry in sought], room, fill=fill)
        if found is not None:
            for entry, leases in zip(sought, found, strict=True):
                entry.leases = leases
        else:
            self._pack_newcomers(planned)
        chosen = []
        for entry in [*sought, *kept] if found is not None else [*self.waiting]:
            if entry.standing != ACCEPTED:
                continue
            if entry.leases is None:
                entry.standing = DECLINED
            elif entry.leases:
                if entry.leases[0]:
                    chosen.append(entry)
                entry.leases = entry.leases[1:]
        return chosen

    def _sought(self, planned: list[LeaseJob]) -> tuple[list[LeaseJob], list[LeaseJob]]:
        """Who is part of the programme; of too many, the largest and latest keep their leases."""
        spare = len(planned) - MOST * self.lease // HOUR
        if spare <= 0:
            return planned, []
        order = sorted(planned, key=lambda e: (-whole_share(e.gpus), -self._within(e), e.number))
        kept = [entry for entry in order if entry.leases is not None][:spare]
        return sorted(set(planned) - set(kept), key=lambda entry: entry.number), kept

    def _planned(self) -> list[LeaseJob]:
        return [
            entry
            for entry in (*self.waiting, *self.running)
            if entry.standing == ACCEPTED and entry.planned and entry.needed > 0
        ]

    def _need(self, entry: LeaseJob) -> LeaseNeed:
        return LeaseNeed(whole_share(entry.gpus), entry.needed, self._within(entry))

    def _within(self, entry: LeaseJob) -> int:
        """How many of the coming leases end by its deadline."""
        return floor(entry.deadline / self.lease) - self.begun

    def _room(self, planned: Sequence[LeaseJob]) -> list[float]:
        """GPUs that are left of the coming leases."""
        length = max((self._within(entry) for entry in planned), default=0)
        room: list[float] = [self.gpus] * max(length, 0)
        for entry in planned:
            for t, has in enumerate(entry.leases or ()):
                if has and t < len(room):
                    room[t] -= entry.gpus
        return room

    def _pack_newcomers(self, planned: Sequence[LeaseJob]) -> None:
        """Leases for those who have none yet beside those of all others, as late as possible."""
        room = self._room(planned)
        new = [entry for entry in planned if entry.leases is None]
        needs = {entry: self._need(entry) for entry in new}
        order = sorted(new, key=lambda entry: _tightness(needs[entry]))
        packed = pack_leases([needs[entry] for entry in order], room)
        for entry, leases in zip(order, packed, strict=True):
            entry.leases = leases

    # --- admission --------------------------------------------------------------------------------

    def _admit(self, now: int) -> None:
        """New jobs, one by one; who does not fit beside the promises is declined."""
        batch = [entry for entry in self.coming if entry.submit <= now]
        if not batch:
            return
        self.coming = [entry for entry in self.coming if entry.submit > now]
        planned = self._planned()
        room, needs = self._room(planned), self._unleased(planned)
        if not self._packable(needs, room):
            self._lease_newcomers(planned, room)
            room, needs = self._room(planned), self._unleased(planned)
        for entry in batch:
            if entry.planned:
                needs.append(self._need(entry))
                if self._packable(needs, room):
                    entry.due = self.lease * (needs[-1].within + self.begun)
                else:
                    needs[-1] = self._postponed(needs, room)
                    entry.standing = DECLINED
                    self.declined += 1
            entry.checked = now
            self.waiting.append(entry)

    def _unleased(self, planned: Sequence[LeaseJob]) -> list[LeaseNeed]:
        return [self._need(entry) for entry in planned if entry.leases is None]

    def _lease_newcomers(self, planned: Sequence[LeaseJob], room: list[float]) -> None:
        """What the simple check could not pack the programme may."""
        new = [entry for entry in planned if entry.leases is None]
        found = share_leases([self._need(entry) for entry in new], room, fill=not self.declined)
        if found is not None:
            for entry, leases in zip(new, found, strict=True):
                entry.leases = leases

    def _packable(self, needs: Sequence[LeaseNeed], room: Sequence[float]) -> bool:
        """Do all find leases, the largest and tightest first, as late as possible each?"""
        if any(need.leases > need.within for need in needs):
            return False
        left = [*room]
        left += [self.gpus] * (max((need.within for need in needs), default=0) - len(left))
        return None not in pack_leases(sorted(needs, key=_tightness), left)

    def _postponed(self, needs: Sequence[LeaseNeed], room: Sequence[float]) -> LeaseNeed:
        """The last need, with the first deadline that could have been promised.

        A job that is declined keeps others of its batch from these leases all the same.
        """
        *others, new = needs
        low = max(new.within, new.leases)
        high = max(len(room), low, *(need.within for need in needs)) + new.leases + 1
        while low < high:
            middle = (low + high) // 2
            if self._packable([*others, new._replace(within=middle)], room):
                high = middle
            else:
                low = middle + 1
        return new._replace(within=high)

    # --- between leases ---------------------------------------------------------------------------

    def _serve(self, now: int) -> None:
        """Assurances for the short ones, and then GPUs without a lease for whoever waits."""
        before = set(self.running)
        self._assure(now)
        for entry in self.waiting:
            entry.checked = now
            entry.press(now)
        assured = [entry for entry in self.waiting if entry.assured]
        lacks = sum(entry.gpus for entry in assured) - self.free
        if lacks > 0:
            self._displace(lacks, now)
        self._start(assured, now)
        self.waiting.sort(key=lambda e: (e.standing, e.pressing, e.submit), reverse=True)
        if self.free > 0:
            self.waiting.sort(key=LeaseJob.turn, reverse=True)
            self._start(self._fitting(), now)
        for entry in self.running:
            entry.resumes += entry not in before
        for entry in self.waiting:
            entry.preempts += entry in before

    def _assure(self, now: int) -> None:
        """A job that was declined, but would be done before the lease ends, may run undisturbed."""
        left = self.begun * self.lease - now
        short = []
        room = self._open
        for entry in self.waiting:
            rest = entry.duration - entry.ran
            if entry.standing == DECLINED and rest <= left:
                entry.pressing = -rest * entry.gpus
                short.append(entry)
            if entry.standing == ACCEPTED and entry.assured:
                room -= entry.gpus
        for entry in sorted(short, key=lambda entry: entry.pressing, reverse=True):
            if entry.gpus <= room:
                room -= entry.gpus
                entry.assured, entry.planned = True, False
                if entry.submit >= (self.begun - 1) * self.lease:
                    entry.standing = ACCEPTED

    def _displace(self, lacks: int, now: int) -> None:
        """Stop the least pressing of those without a lease until there is room."""
        others = [entry for entry in self.running if not entry.leased and not entry.assured]
        for entry in others:
            entry.press(now)
        for entry in sorted(others, key=LeaseJob.turn):
            if lacks <= 0:
                return
            entry.checked = now
            entry.recount(self.lease)
            self.running.remove(entry)
            self.waiting.append(entry)
            lacks -= entry.gpus

    def _fill(self) -> None:
        """Nobody is stopped for it; it takes no time, and the minutes since the slot count, too."""
        if self.free > 0:
            self.waiting.sort(key=lambda entry: (entry.standing, entry.pressing))
            self._begin(self._fitting())

    def _fitting(self) -> list[LeaseJob]:
        """Who waits and finds room, in order."""
        free, found = self.free, []
        for entry in self.waiting:
            if entry.gpus <= free:
                free -= entry.gpus
                found.append(entry)
        return found

    def _start(self, entries: Iterable[LeaseJob], now: int) -> None:
        for entry in self._begin(entries):
            entry.checked = now

    def _begin(self, entries: Iterable[LeaseJob]) -> Sequence[LeaseJob]:
        started = list(entries)
        for entry in started:
            self.waiting.remove(entry)
            self.running.append(entry)
        return started

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """As plain data."""
        return {
            "coming": [entry.state() for entry in self.coming],
            "waiting": [entry.state() for entry in self.waiting],
            "running": [entry.state() for entry in self.running],
            "declined": self.declined,
            "begun": self.begun,
        }


def _tightness(need: LeaseNeed) -> tuple[float, int, int]:
    """Large ones first, then those with little choice."""
    return -need.gpus, need.within - need.leases, -need.within
