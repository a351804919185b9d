"""What was free at every instant of a log, and whether the reasons given agree with it.

It reads nothing but the log and shares no code with the product: nodes, starts, ends, allocations
and reasons are added up row by row. GPUs that a stopped job is about to leave count as free: they
can be given away already. Nodes named after their GPU type (`v100-0`) are told apart by it.
"""

from collections import Counter

NONE, ORDER, CAPACITY, FRAGMENTATION, QUOTA, GANG, CONSTRAINT = range(7)
GONE = ("done", "failed", "rejected", "cancelled")
DUST = 1e-6


class Refold:
    """`wrong`: (time_s, shape or job, reason, asked, free) of every false reason."""

    def __init__(self, log, *, instant_stops=True):
        self.instant_stops = instant_stops
        self.size, self.names, self.closed = {}, {}, set()
        self.slices = {}
        self.asked, self.types, self.plain = {}, {}, {}
        self.shape = {}
        self.waiting, self.holds, self.own = set(), {}, {}
        self.blame = {}
        self.true_s = Counter()
        self.false_s = Counter()
        self.wrong = []
        self.now_s = 0.0
        for row in log.select("time_s", "event", "job", "ref", "other", "value", "text").rows():
            if row[0] > self.now_s:
                self.judge(row[0] - self.now_s)
                self.now_s = row[0]
            self.take(*row[1:])

    def take(self, event, job, ref, other, value, text):  # noqa: C901, PLR0912 - one branch per kind
        if event == "vertex" and text.startswith("node:"):
            self.size[ref], self.names[ref] = value, text.removeprefix("node:")
        elif event == "allocation":
            self.slices.setdefault(ref, []).append((other, value))
        elif event == "shape":
            self.asked[ref] = value
            self.types[ref] = next(
                (part.split(" of type ")[1].split("|") for part in text.split(", ")
                 if " of type " in part), [],
            )  # fmt: skip
            self.plain[ref] = "CPUs" not in text and "GiB" not in text and "labelled" not in text
        elif event in ("submit", "task"):
            self.shape[job] = ref
            self.waiting.add(job)
            if event == "task":
                self.waiting.discard(other)
        elif event in ("start", "move"):
            self.waiting.discard(job)
            self.own.pop(job, None)
            self.holds[job] = ref
        elif event in ("stop", "evicted", "stopped"):
            self.holds.pop(job, None)
            if event != "stop" or self.instant_stops:
                self.waiting.add(job)
        elif event in GONE:
            self.holds.pop(job, None)
            self.waiting.discard(job)
        elif event == "held":
            self.waiting.discard(job)
        elif event == "admitted":
            self.waiting.add(job)
        elif event in ("node_down", "node_closed"):
            self.closed.add((ref, event.removeprefix("node_")))
        elif event in ("node_up", "node_opened"):
            self.closed.discard((ref, {"node_up": "down", "node_opened": "closed"}[event]))
        elif event == "reason" and ref >= 0:
            self.blame[ref] = int(value)
        elif event == "reason":
            self.own[job] = int(value)

    def node_of(self, vertex):
        at = max((node for node in self.size if node <= vertex), default=None)
        return at if at is not None and vertex <= at + self.size[at] else None

    def free(self, types=()):
        """GPUs on nodes that are up and open, of these types, that nobody holds."""
        shut = {node for node, _ in self.closed}
        open_ = {
            node for node in self.size
            if node not in shut and (not types or self.names[node].split("-")[0] in types)
        }  # fmt: skip
        left = sum(self.size[node] for node in open_)
        for ref in self.holds.values():
            for vertex, amount in self.slices.get(ref, ()):
                node = self.node_of(vertex)
                if node in open_ or (node is None and not types):
                    left -= amount
        return left

    def judge(self, seconds):
        """Of every shape with a head, and of every job that was told a reason of its own."""
        told = {}
        for job in self.waiting:
            number = self.shape[job]
            if not self.plain[number]:
                continue
            if self.own.get(job, NONE) == NONE:
                told["shape", number] = (number, self.blame.get(number, NONE))
            else:
                told["job", job] = (number, self.own[job])
        if not told:
            return
        everywhere = self.free()
        for who, (number, reason) in told.items():
            if reason not in (CAPACITY, FRAGMENTATION, GANG, CONSTRAINT):
                continue
            asked = self.asked[number]
            enough = asked <= everywhere + DUST
            types = self.types[number]
            eligible = enough and (not types or asked <= self.free(types) + DUST)
            true = {
                CAPACITY: not enough,
                CONSTRAINT: enough and not eligible,
                FRAGMENTATION: eligible,
                GANG: eligible,
            }[reason]
            (self.true_s if true else self.false_s)[reason] += seconds
            if not true:
                self.wrong.append((self.now_s, who, reason, asked, everywhere))
