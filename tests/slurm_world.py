"""A small Slurm of its own: it makes a log, and the files that describe the cluster behind it.

Written from Slurm's documentation and structured like slurmctld (a queue that is rebuilt for every
pass, a table of times with the nodes that are free then), apart from Rota: it imports nothing of
it. Users give generous time limits, main scheduling comes a few seconds after an event, backfill at
its own pace, priorities are decayed in steps. One seed gives one log.

No model can be closer to a log than the cluster is to itself when its timers start a few seconds
later (`phases`), with the same jobs. Near saturation that is not close at all: with 85 % of a100
and v100 asked for, jobs of up to 47 hours and a `scavenge` that only lived on what others left, its
mean wait was 43 minutes or 1 h 44 min, by the timers alone, because a few starved periods made it
up. So the loads, lengths and nodes are chosen by this measure alone, not by what any model makes
of them: with three quarters asked for, and three nodes of its own for `scavenge`, four choices of
phases give mean waits within 8 % of their mean in every partition (6,000 jobs).
"""

import heapq
import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

EPOCH = datetime(2026, 3, 2, tzinfo=UTC)
DAY = 86_400
CALC, BF_INTERVAL, BF_WINDOW, BF_RESOLUTION, BF_TESTED = 300, 30, 2 * DAY, 60, 400
MAX_AGE, HALF_LIFE = 3 * DAY, 2 * DAY
WEIGHTS = {"age": 4_000, "fairshare": 8_000, "size": 500, "partition": 1_000, "qos": 6_000}
LIMITS_H = (0.5, 1, 2, 4, 8, 12, 24, 48)
MAX_H = {"a100": 48, "v100": 48, "debug": 1, "scavenge": 12}
LOADS = {"a100": (80, 0.75), "v100": (56, 0.75), "debug": (12, 0.75), "scavenge": (12, 0.625)}
"""Of a partition: its own GPUs, and the part of them that its jobs ask for in the mean."""
PHASES = (11, 0, 1)
"""When the first backfill and the first decay come, and the seed of the delays."""


@dataclass
class Node:
    name: str
    number: int
    kind: str
    gpus: int
    cpus: int
    mem: int
    partitions: tuple[str, ...]
    busy: dict = field(default_factory=dict)  # job -> GPUs here
    free: int = 0
    lent: int = 0  # GPUs of jobs that others may preempt
    ready: dict = field(default_factory=dict)  # GPUs -> when so many are free, by time limits


@dataclass
class Part:
    name: str
    tier: int
    factor: int
    max_h: int
    mask: int = 0


@dataclass
class Quality:
    name: str
    priority: int
    preempts: tuple[str, ...] = ()
    gpus_per_user: float = math.inf
    jobs_per_user: float = math.inf


@dataclass
class Work:
    """One job, as its user sees it."""

    number: int
    user: str
    account: str
    part: str
    qos: str
    gpus: int
    nodes: int
    submit: int
    length: int  # that it really needs
    limit: int
    kind: str  # GPU type that it asks for; empty: any
    since: int = 0  # in the queue
    priority: int = 0
    start: int = -1
    epoch: int = 0
    places: tuple[int, ...] = ()
    attempts: list = field(default_factory=list)

    def __post_init__(self):
        self.each = self.gpus // self.nodes

    @property
    def runs_for(self):
        return min(self.length, self.limit)


SHARES = {  # account -> (its shares, users and theirs)
    "vision": (40, {"ada": 10, "bob": 10, "cem": 5, "dia": 5, "eli": 5, "fay": 1}),
    "speech": (25, {"gus": 10, "hal": 10, "ina": 10, "jon": 10}),
    "robots": (20, {"kay": 3, "leo": 2, "mia": 1, "ned": 1, "ola": 1}),
    "guests": (15, {"pia": 1, "quy": 1, "ron": 1, "sue": 1, "tom": 1, "uwe": 1}),
}
QOS = {
    "normal": Quality("normal", 50, ("scavenger",)),
    "high": Quality("high", 100, ("scavenger",), gpus_per_user=24),
    "debug": Quality("debug", 60, (), jobs_per_user=3),
    "scavenger": Quality("scavenger", 0),
}
PREEMPTIBLE = {name for quality in QOS.values() for name in quality.preempts}
BILLING = {"cpu": 0.25, "gpu": 2.0}
CPUS_PER_GPU = 8


def cluster():
    """Two types of GPUs, four partitions; `scavenge` lies over two of them and its own nodes."""
    nodes = [
        *(Node(f"a{i:02}", 0, "a100", 8, 64, 1000, ("a100", "scavenge")) for i in range(1, 11)),
        *(Node(f"v{i:02}", 0, "v100", 4, 32, 380, ("v100", "scavenge")) for i in range(1, 15)),
        *(Node(f"d{i:02}", 0, "v100", 4, 32, 380, ("debug",)) for i in range(1, 4)),
        *(Node(f"s{i:02}", 0, "v100", 4, 32, 380, ("scavenge",)) for i in range(1, 4)),
    ]
    for number, node in enumerate(nodes):
        node.number, node.free = number, node.gpus
    parts = {
        "a100": Part("a100", 2, 10, MAX_H["a100"]),
        "v100": Part("v100", 2, 10, MAX_H["v100"]),
        "debug": Part("debug", 3, 20, MAX_H["debug"]),
        "scavenge": Part("scavenge", 1, 1, MAX_H["scavenge"]),
    }
    for part in parts.values():
        part.mask = sum(1 << n.number for n in nodes if part.name in n.partitions)
    return nodes, parts


# --- who submits what ----------------------------------------------------------------------------


def submissions(seed, count):
    """Jobs of all users, with days and nights."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    users = [(account, user) for account, (_, below) in SHARES.items() for user in below]
    lively = {user: rng.lognormvariate(0, 0.8) for _, user in users}
    found = []
    mix = (("a100", 0.30), ("v100", 0.28), ("debug", 0.20), ("scavenge", 0.22))
    horizon = count / 6_000 * 16 * DAY
    for part, share in mix:
        gpus, load = LOADS[part]
        mine = [draw(rng, part) for _ in range(round(count * share))]
        # the load of a partition is set by how long its jobs run: GPU-seconds over its capacity
        scale = load * gpus * horizon / sum(size * length for size, _, length, _ in mine)
        longest = MAX_H[part] * 3_600 - 100
        for size, nodes, relative, kind in mine:
            account, user = rng.choices(users, [lively[name] for _, name in users])[0]
            length = max(20, min(round(relative * scale), longest))
            qos = {"debug": "debug", "scavenge": "scavenger"}.get(part) or (
                "high" if rng.random() < 0.15 and size <= QOS["high"].gpus_per_user else "normal"
            )
            limit = estimate(rng, length, part)
            found.append(
                Work(
                    0,
                    user,
                    account,
                    part,
                    qos,
                    size,
                    nodes,
                    arrival(rng, horizon),
                    length,
                    limit,
                    kind,
                )
            )
    found.sort(key=lambda work: work.submit)
    for number, work in enumerate(found, 1001):
        work.number = number
        work.since = work.submit
    return found


def draw(rng, part):
    """GPUs, nodes, relative length and type."""
    if part == "a100":
        gpus, nodes = rng.choices([(1, 1), (2, 1), (4, 1), (8, 1), (16, 2)], [40, 15, 15, 20, 8])[0]
        return gpus, nodes, rng.lognormvariate(0, 0.9), rng.choice(["a100", ""])
    if part == "v100":
        gpus, nodes = rng.choices([(1, 1), (2, 1), (4, 1), (8, 2)], [45, 20, 20, 12])[0]
        return gpus, nodes, rng.lognormvariate(0, 0.9), ""
    if part == "debug":
        gpus = rng.choices([1, 2, 4], [60, 25, 15])[0]
        return gpus, 1, rng.lognormvariate(0, 0.9), ""
    gpus = rng.choices([1, 2, 4], [55, 25, 20])[0]
    return gpus, 1, rng.lognormvariate(0, 0.8), ""


def arrival(rng, horizon):
    """More by day than by night."""
    while True:
        at = rng.uniform(0, horizon)
        if rng.random() < 0.6 + 0.4 * math.sin(2 * math.pi * (at / DAY - 0.35)):
            return int(at)


def estimate(rng, length, part):
    """What users ask for: often far too much, now and then too little."""
    if part == "debug":
        return 3_600 if rng.random() < 0.5 else min(3_600, max(600, math.ceil(length / 200) * 300))
    wish = length * rng.choice([0.9, 1.1, 1.5, 2, 3, 6]) / 3_600
    most = MAX_H[part]
    return int(3_600 * min(next((h for h in LIMITS_H if h >= wish), most), most))


def fair_level(share, usage, siblings):
    return share / (usage / siblings) if usage else math.inf


# --- slurmctld -----------------------------------------------------------------------------------


class Controller:
    """Runs the jobs."""

    def __init__(self, seed, count, phases=PHASES):
        self.phases = phases
        self.rng = random.Random(seed + phases[2])  # noqa: S311 - delays, not secrets
        self.nodes, self.parts = cluster()
        self.jobs = submissions(seed, count)
        self.pending = {}
        self.running = {}
        self.usage = defaultdict(float)  # (account, user)
        self.charged = {}
        self.factor = {}
        self.now = 0
        self.heap = []
        self.sequence = 0
        self.changed = True
        self.masks = {}
        self.sorted = {}  # (partition, type, GPUs) -> [(when free, node)]
        self.max_factor = max(part.factor for part in self.parts.values())
        self.preemptions = 0
        self.backfilled = 0

    def mean_waits(self):
        """Of each partition: the mean time in the queue, over all attempts of a job."""
        found = defaultdict(list)
        for job in self.jobs:
            found[job.part].append(sum(start - since for since, start, *_ in job.attempts))
        return {part: sum(waits) / len(waits) for part, waits in found.items()}

    def at(self, when, what, *rest):
        self.sequence += 1
        heapq.heappush(self.heap, (when, self.sequence, what, rest))

    def run(self):
        for job in self.jobs:
            self.at(job.submit, self.submitted, job)
        self.at(self.phases[0], self.backfill_cycle)
        self.at(self.phases[1], self.decay)
        while self.heap and (self.pending or self.running or len(self.heap) > 2):
            self.now, _, what, rest = heapq.heappop(self.heap)
            what(*rest)
        return self

    # --- events -----------------------------------------------------------------------------------

    def submitted(self, job):
        job.priority = self.priority_of(job)
        self.pending[job.number] = job
        self.changed = True
        self.at(self.now, self.main_pass)

    def ended(self, job, epoch):
        if job.epoch != epoch:
            return
        self.leave(job, "COMPLETED" if job.length <= job.limit else "TIMEOUT")
        self.at(self.now + self.rng.choice([0, 1, 2]), self.main_pass)

    def leave(self, job, state):
        self.charge(job)
        del self.running[job.number], self.charged[job.number]
        for place in job.places:
            self.seat(place, job, -1)
        job.attempts.append((job.since, job.start, self.now, state, job.places, job.priority))
        job.epoch += 1
        self.changed = True

    def requeue(self, job):
        self.preemptions += 1
        self.leave(job, "PREEMPTED")
        job.since = self.now
        job.priority = self.priority_of(job)
        self.pending[job.number] = job

    def begin(self, job, places):
        del self.pending[job.number]
        self.running[job.number] = job
        self.charged[job.number] = self.now
        job.start, job.places = self.now, tuple(places)
        for place in places:
            self.seat(place, job, +1)
        self.at(self.now + job.runs_for, self.ended, job, job.epoch)
        self.changed = True

    def seat(self, place, job, sign):
        node = self.nodes[place]
        node.free -= sign * job.each
        node.lent += sign * job.each if job.qos in PREEMPTIBLE else 0
        node.ready.clear()
        self.sorted.clear()
        if sign > 0:
            node.busy[job.number] = job.each
        else:
            del node.busy[job.number]

    # --- priority ---------------------------------------------------------------------------------

    def charge(self, job):
        passed = self.now - self.charged[job.number]
        billed = BILLING["gpu"] * job.gpus + BILLING["cpu"] * CPUS_PER_GPU * job.gpus
        self.usage[job.account, job.user] += billed * passed
        self.charged[job.number] = self.now

    def decay(self):
        """Every PriorityCalcPeriod: usage, fair share, priorities."""
        for key in self.usage:
            self.usage[key] *= 0.5 ** (CALC / HALF_LIFE)
        for job in self.running.values():
            self.charge(job)
        self.fair_tree()
        for job in self.pending.values():
            job.priority = self.priority_of(job)
        self.changed |= bool(self.pending)
        self.at(self.now + CALC, self.decay)

    def fair_tree(self):
        """Rank users: accounts by shares over usage, users within; who ties has the same rank."""
        totals = {a: sum(self.usage[a, u] for u in users) for a, (_, users) in SHARES.items()}
        everything = sum(totals.values())
        every = sum(shares for shares, _ in SHARES.values())
        levels = defaultdict(list)
        for account, (shares, users) in SHARES.items():
            level = fair_level(shares / every, totals[account], everything)
            own = sum(users.values())
            levels[level] += [
                (fair_level(share / own, self.usage[account, user], totals[account]), account, user)
                for user, share in users.items()
            ]
        count = left = sum(len(users) for _, users in SHARES.values())
        for _, members in sorted(levels.items(), reverse=True):
            ties = defaultdict(list)
            for level, account, user in members:
                ties[level].append((account, user))
            for _, tied in sorted(ties.items(), reverse=True):
                for key in tied:
                    self.factor[key] = left / count
                left -= len(tied)

    def priority_of(self, job):
        age = min((self.now - job.since) / MAX_AGE, 1.0)
        nodes, cpus = len(self.nodes), sum(node.cpus for node in self.nodes)
        size = (job.nodes / nodes + CPUS_PER_GPU * job.gpus / cpus) / 2
        return int(
            WEIGHTS["age"] * age
            + WEIGHTS["fairshare"] * self.factor.get((job.account, job.user), 0.0)
            + WEIGHTS["size"] * size
            + WEIGHTS["partition"] * self.parts[job.part].factor / self.max_factor
            + WEIGHTS["qos"] * QOS[job.qos].priority / 100
        )

    def ordered(self):
        return sorted(
            self.pending.values(),
            key=lambda job: (
                not QOS[job.qos].preempts,
                -self.parts[job.part].tier,
                -job.priority,
                job.since,
                job.number,
            ),
        )

    # --- who may run, and where -------------------------------------------------------------------

    def within_limits(self, job):
        qos = QOS[job.qos]
        if qos.jobs_per_user == math.inf == qos.gpus_per_user:
            return True
        mine = [j for j in self.running.values() if j.user == job.user and j.qos == job.qos]
        return (
            len(mine) < qos.jobs_per_user
            and sum(j.gpus for j in mine) + job.gpus <= qos.gpus_per_user
        )

    def eligible(self, job):
        key = (job.part, job.kind)
        if key not in self.masks:
            mask = self.parts[job.part].mask
            if job.kind:
                mask &= sum(1 << n.number for n in self.nodes if n.kind == job.kind)
            self.masks[key] = mask, [n for n in self.nodes if mask >> n.number & 1]
        return self.masks[key][0]

    def there(self, job, mask):
        self.eligible(job)
        nodes = self.masks[job.part, job.kind][1]
        return [node for node in nodes if mask >> node.number & 1]

    def soonest(self, job):
        """Its nodes with the time when they have room by time limits (0: now), in this order."""
        key = (job.part, job.kind, job.each)
        if key not in self.sorted:
            found = []
            for node in self.there(job, self.eligible(job)):
                if job.each not in node.ready:
                    node.ready[job.each] = self.ready(node, job.each)
                found.append((node.ready[job.each], node.number))
            self.sorted[key] = sorted(found)
        return self.sorted[key]

    def pick(self, job, mask, gone=()):
        """Nodes for it now, the fullest first, equal ones as listed; None: there are none."""
        found = []
        if not gone:
            for when, number in self.soonest(job):
                if when:
                    break
                if mask >> number & 1:
                    found.append((self.nodes[number].free, number))
        else:
            for node in self.there(job, mask):
                free = node.free + sum(node.busy[number] for number in gone if number in node.busy)
                if free >= job.each:
                    found.append((free, node.number))
        if len(found) < job.nodes:
            return None
        return [number for _, number in sorted(found)[: job.nodes]]

    def could_preempt(self, job, mask):
        there = self.there(job, mask)
        return sum(node.free + node.lent >= job.each for node in there) >= job.nodes

    def preempt(self, job, mask):
        """Nodes that become free when jobs of lower QOS are requeued, and these jobs."""
        lower = QOS[job.qos].preempts
        if not self.could_preempt(job, mask):
            return None
        candidates = [j for j in self.running.values() if j.qos in lower and self.on(j, mask)]
        candidates.sort(key=lambda j: (QOS[j.qos].priority, j.nodes, -j.start, -j.number))
        gone = []
        for candidate in candidates:
            gone.append(candidate.number)
            places = self.pick(job, mask, gone)
            if places is None:
                continue
            needed = []
            for place in places:
                short = job.each - self.nodes[place].free
                for number in gone:
                    if short > 0 and number in self.nodes[place].busy and number not in needed:
                        needed.append(number)
                        short -= self.nodes[place].busy[number]
            return places, needed
        return None

    def on(self, job, mask):
        return any(mask >> place & 1 for place in job.places)

    def try_start(self, job, mask):
        places = self.pick(job, mask)
        if places is None and QOS[job.qos].preempts:
            found = self.preempt(job, mask)
            if found is not None:
                places, victims = found
                for number in victims:
                    self.requeue(self.running[number])
        if places is None:
            return False
        self.begin(job, places)
        return True

    # --- the two schedulers -----------------------------------------------------------------------

    def main_pass(self):
        """In order of priority; the first of a partition that cannot start ends the partition."""
        open_mask = (1 << len(self.nodes)) - 1
        closed = set()
        for job in self.ordered()[:100]:
            if job.part in closed or not self.within_limits(job):
                continue
            mask = self.eligible(job) & open_mask
            if mask and self.try_start(job, mask):
                continue
            closed.add(job.part)
            open_mask &= ~self.parts[job.part].mask

    def backfill_cycle(self):
        # a cycle takes a moment, and the next comes BF_INTERVAL after its end
        self.at(self.now + BF_INTERVAL + (len(self.pending) > 100), self.backfill_cycle)
        if not self.changed or not self.pending:
            return
        self.changed = False
        queue = self.ordered()[:BF_TESTED]
        hopeful = [place for place, job in enumerate(queue) if self.could_start(job)]
        if not hopeful:
            return
        del queue[hopeful[-1] + 1 :]  # plans for those behind would matter to nobody
        table = [[self.now, self.now + BF_WINDOW, (1 << len(self.nodes)) - 1]]
        for job in queue:
            if job.number in self.pending and self.within_limits(job):
                self.place_in(table, job)

    def could_start(self, job):
        mask = self.eligible(job)
        if QOS[job.qos].preempts:
            return self.could_preempt(job, mask)
        return self.pick(job, mask) is not None

    def place_in(self, table, job):
        """Start it now, or keep nodes for it at the first time at which that is possible."""
        eligible = self.eligible(job)
        mask = self.common(table, self.now, self.now + job.limit) & eligible
        if mask and self.try_start(job, mask):
            self.backfilled += 1
            return
        soonest = max(self.will_run(job, eligible, self.now)[0], self.now + BF_RESOLUTION)
        begins = [soonest, *(row[0] for row in table if row[0] > soonest), math.inf]
        for begin, following in pairwise(begins):
            mask = self.common(table, begin, begin + job.limit) & eligible
            found = self.will_run(job, mask, begin)
            if found is None or found[0] > following:
                continue  # by then nodes are free that are planned for others now: look there
            at = found[0]
            if at > begin:  # later: others may be planned there then
                mask = self.common(table, at, at + job.limit) & eligible
                found = self.will_run(job, mask, at)
            if found is not None and found[0] == at:
                if at <= self.now + BF_WINDOW:
                    chosen = sum(1 << place for place in found[1])
                    self.keep(table, at, at + job.limit, chosen)
                return

    @staticmethod
    def common(table, begin, end):
        mask = -1
        for start, stop, free in table:  # in order of time
            if start >= end:
                break
            if stop > begin:
                mask &= free
        return mask

    def will_run(self, job, mask, begin):
        """When enough nodes are free by the time limits of those who run, and which.

        Then they are chosen as if the job started: the fullest first, equal ones as listed.
        """
        ready = [(when, number) for when, number in self.soonest(job) if mask >> number & 1]
        if len(ready) < job.nodes:
            return None
        at = max(ready[job.nodes - 1][0], begin)
        free = [number for when, number in ready if when <= at]
        if len(free) > job.nodes:
            free.sort(key=lambda number: (self.free_at(number, at), number))
        return at, free[: job.nodes]

    def free_at(self, number, at):
        node = self.nodes[number]
        gone = (
            g for n, g in node.busy.items() if self.running[n].start + self.running[n].limit <= at
        )
        return node.free + sum(gone)

    def ready(self, node, gpus):
        free, when = node.free, 0
        ends = [(self.running[n].start + self.running[n].limit, g) for n, g in node.busy.items()]
        for end, more in sorted(ends):
            if free >= gpus:
                break
            free, when = free + more, end
        return when

    @staticmethod
    def keep(table, begin, end, nodes):
        begin = begin // BF_RESOLUTION * BF_RESOLUTION
        end = math.ceil(end / BF_RESOLUTION) * BF_RESOLUTION
        rows = []
        for row in table:
            start, stop, free = row
            if stop <= begin or start >= end:
                rows.append(row)
                continue
            if start < begin:
                rows.append([start, begin, free])
            rows.append([max(start, begin), min(stop, end), free & ~nodes])
            if stop > end:
                rows.append([end, stop, free])
        table[:] = rows


# --- files ---------------------------------------------------------------------------------------


def stamp(seconds):
    return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def sacct(controller):
    titles = (
        "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|State|"
        "ElapsedRaw|TimelimitRaw|ReqTRES|AllocTRES|NNodes|NodeList|Priority"
    )
    rows = []
    for job in controller.jobs:
        for since, start, end, state, places, priority in job.attempts:
            cpus = CPUS_PER_GPU * job.gpus
            asked = f"billing={job.gpus},cpu={cpus},mem={90 * job.gpus}G,node={job.nodes}"
            kind = f",gres/gpu:{job.kind}={job.gpus}" if job.kind else ""
            tres = f"{asked},gres/gpu={job.gpus}"
            names = ",".join(controller.nodes[place].name for place in sorted(places))
            when = "|".join(stamp(time) for time in (since, since, start, end))
            row = (
                f"{job.number}|{job.number}|train|{job.user}|{job.account}|{job.part}|{job.qos}|"
                f"{when}|{state}|{end - start}|{job.limit // 60}|{tres}{kind}|{tres}|{job.nodes}|"
                f"{names}|{priority}"
            )
            rows.append((since, row))
    return "\n".join([titles, *(row for _, row in sorted(rows, key=lambda r: r[0]))]) + "\n"


def scontrol(controller):
    lines = []
    for node in controller.nodes:
        lines += [
            f"NodeName={node.name} Arch=x86_64 CoresPerSocket={node.cpus // 2}",
            f"   CPUAlloc=0 CPUEfctv={node.cpus} CPUTot={node.cpus} CPULoad=0.01",
            f"   Gres=gpu:{node.kind}:{node.gpus}",
            f"   NodeAddr={node.name} NodeHostName={node.name} RealMemory={node.mem * 1024}",
            f"   State=IDLE Partitions={','.join(node.partitions)}",
            "",
        ]
    return "\n".join(lines)


def slurm_conf(controller):
    options = (
        f"bf_interval={BF_INTERVAL},bf_max_job_test={BF_TESTED},bf_window={BF_WINDOW // 60},"
        f"bf_resolution={BF_RESOLUTION},bf_continue"
    )
    billing = f"CPU={BILLING['cpu']},GRES/gpu={BILLING['gpu']}"
    lines = [
        "ClusterName=synthetic",
        "AccountingStorageEnforce=associations,limits,qos",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={options}",
        "PriorityType=priority/multifactor",
        f"PriorityDecayHalfLife={HALF_LIFE // DAY}-0",
        f"PriorityCalcPeriod={CALC // 60}",
        f"PriorityMaxAge={MAX_AGE // DAY}-0",
        f"PriorityWeightAge={WEIGHTS['age']}",
        f"PriorityWeightFairshare={WEIGHTS['fairshare']}",
        f"PriorityWeightJobSize={WEIGHTS['size']}",
        f"PriorityWeightPartition={WEIGHTS['partition']}",
        f"PriorityWeightQOS={WEIGHTS['qos']}",
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
        "",
        "NodeName=a[01-10] Gres=gpu:a100:8 CPUs=64 RealMemory=1024000",
        "NodeName=v[01-14],d[01-03],s[01-03] Gres=gpu:v100:4 CPUs=32 RealMemory=389120",
        f'PartitionName=DEFAULT TRESBillingWeights="{billing}"',
    ]
    nodes = {
        "a100": "a[01-10]", "v100": "v[01-14]", "debug": "d[01-03]",
        "scavenge": "a[01-10],v[01-14],s[01-03]",
    }  # fmt: skip
    lines += [
        f"PartitionName={part.name} Nodes={nodes[part.name]} PriorityTier={part.tier} "
        f"PriorityJobFactor={part.factor} MaxTime={part.max_h}:00:00 State=UP"
        for part in controller.parts.values()
    ]
    return "\n".join(lines) + "\n"


def sacctmgr_qos():
    lines = ["Name|Priority|GraceTime|Preempt|PreemptMode|UsageFactor|GrpTRES|MaxJobsPU|MaxTRESPU"]
    for qos in QOS.values():
        jobs = "" if qos.jobs_per_user == math.inf else str(qos.jobs_per_user)
        gpus = "" if qos.gpus_per_user == math.inf else f"gres/gpu={qos.gpus_per_user}"
        preempts = ",".join(qos.preempts)
        lines.append(f"{qos.name}|{qos.priority}|00:00:00|{preempts}|cluster|1.0||{jobs}|{gpus}")
    return "\n".join(lines) + "\n"


def sacctmgr_assoc():
    lines = ["Cluster|Account|User|Share|GrpTRES|QOS|Def QOS", "synthetic|root||1||normal|"]
    for account, (shares, users) in SHARES.items():
        lines.append(f"synthetic| {account}||{shares}||normal|normal")
        lines += [
            f"synthetic|  {account}|{user}|{own}||debug,high,normal,scavenger|normal"
            for user, own in users.items()
        ]
    return "\n".join(lines) + "\n"


def write(folder, *, seed=1, jobs=6_000, phases=PHASES):
    """All files of a world in a folder; the controller that made them."""
    controller = Controller(seed, jobs, phases).run()
    for name, text in (
        ("jobs.txt", sacct(controller)),
        ("nodes.txt", scontrol(controller)),
        ("slurm.conf", slurm_conf(controller)),
        ("qos.txt", sacctmgr_qos()),
        ("assoc.txt", sacctmgr_assoc()),
    ):
        (Path(folder) / name).write_text(text, encoding="utf-8")
    return controller
