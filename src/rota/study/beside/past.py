"""The past of a Slurm: jobs that are over, and the moments at which somebody might have asked."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, sqrt

import msgspec
import numpy as np

from rota.core import machine
from rota.core.allocation import NOTHING
from rota.core.events import INF
from rota.core.jobs import Behaviour, Job, JobSpec, Shape
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.sim.durations import Durations
from rota.sim.foresight import SHARE, Foreseen, foresee
from rota.study.beside.world import SlurmWorld, WorldJob
from rota.study.replay.cluster import with_shares
from rota.traces.imported import Imported

MONTH_S = 30 * 86_400.0
QUESTIONS = 24  # of the back-test
RUNS = 19  # simulations for each: the second and the second last hold 80 %
LEAST = 10  # answers, for a share of them to mean something
BEFORE = 20  # jobs that must have ended before a moment, for there to be anything to learn from
_SURPRISE = 2.5  # standard errors
_SECOND = 1.0  # accounting counts in seconds
LEAST_WIDTH_S = 60.0  # of an interval on each side, when it is widened


class StartsBacktest(msgspec.Struct, kw_only=True, frozen=True):
    """How often the start of a job that waited was in the interval foreseen while it waited.

    What simulations cannot know (who comes later, what others were promised) makes their intervals
    too narrow. So they are widened until as many would have held the start as should: `stretch`
    times. `share_inside` is that of widened ones, each by what the other questions say.
    """

    questions: int
    share_inside: float | None  # None: too few
    earlier: int = 0  # starts before their interval, as simulated
    later: int = 0
    simulated: float | None = None  # share of the intervals as simulated that held the start
    stretch: float = 1.0
    days: float = 30.0
    nominal: float = 0.8

    def __str__(self) -> str:
        """In words."""
        if self.share_inside is None:
            return (
                f"not tested: {self.questions} jobs of this log could be asked for while they "
                f"waited, {LEAST} are needed"
            )
        text = (
            f"asked of {self.questions} jobs that waited in the last {self.days:.0f} days of this "
            f"log, {self.share_inside * 100:.0f} % of the {self.nominal * 100:.0f} % intervals "
            f"held the start"
        )
        if self.stretch > 1:
            text += (
                f"; they are {self.stretch:.1f} times as wide as simulated: those held "
                f"{(self.simulated or 0) * 100:.0f} % ({self.earlier} started earlier, "
                f"{self.later} later)"
            )
        error = sqrt(self.nominal * (1 - self.nominal) / self.questions)
        if self.share_inside < self.nominal - _SURPRISE * error:
            text += ": trust them less"
        return text


class SlurmPast:
    """What the accounting tells. Times are seconds of the world: those of the log, moved."""

    def __init__(self, imported: Imported, nodes: Sequence[NodeSpec], shift_s: float) -> None:
        """Read.

        Args:
            imported: The accounting.
            nodes: The machines.
            shift_s: What is added to its times.
        """
        self._nodes = tuple(nodes)
        known = {node.name for node in nodes}
        frame = with_shares(imported, nodes).frame
        specs = imported.workload.specs
        self.rows: list[tuple[JobSpec, float, float, WorldJob]] = []  # start, end (inf: it runs)
        for job, start_s, end_s, names, gpus in frame.select(
            "job", "start_s", "end_s", "nodes", "gpus"
        ).iter_rows():
            spec = specs[job]
            moved = msgspec.structs.replace(spec, submit_s=spec.submit_s + shift_s)
            shares = gpus if len(gpus) == len(names) else [0.0] * len(names)
            cpus, mem = _each(spec, len(names))
            places = {
                name: (share, cpus, mem)
                for name, share in zip(names, shares, strict=True)
                if name in known
            }
            begin_s = start_s + shift_s
            over_s = INF if end_s is None else end_s + shift_s
            self.rows.append((moved, begin_s, over_s, WorldJob(moved, begin_s, places)))
        self.ranked = len({spec.priority for spec, *_ in self.rows}) > 1
        self._submit = np.array([row[0].submit_s for row in self.rows])
        self._start = np.array([row[1] for row in self.rows])
        self._end = np.array([row[2] for row in self.rows])

    def finished(self) -> list[Job]:
        """Jobs that are over, as `Durations` learns from them."""
        shapes: dict[object, Shape] = {}
        found = []
        for number, (spec, start_s, end_s, _) in enumerate(self.rows):
            if not start_s < end_s < INF:
                continue
            shape = shapes.setdefault(spec.request, Shape(len(shapes), spec.request))
            job = Job(spec, Behaviour(INF), number, shape)
            machine.start(job, NOTHING, start_s, 1.0)
            machine.finish(job, end_s)
            found.append(job)
        return found

    def moments(self, now_s: float, seed: int) -> Iterator[tuple[float, int]]:
        """Moments in the waits of jobs of the last month, with the jobs; at random."""
        waited = np.flatnonzero(
            (self._start - self._submit > _SECOND) & (self._start > now_s - MONTH_S)
        )
        rng = np.random.default_rng([seed, 17])
        ends = np.sort(self._end)
        for row in rng.permutation(waited)[: 4 * QUESTIONS].tolist():
            submit_s, start_s = float(self._submit[row]), float(self._start[row])
            moment_s = max(submit_s, now_s - MONTH_S)
            moment_s += float(rng.random()) * (start_s - moment_s)
            if np.searchsorted(ends, moment_s) >= BEFORE:
                yield moment_s, row

    def world(self, moment_s: float, template: SlurmWorld) -> SlurmWorld:
        """That moment: who ran where, and who waited and has started since."""
        running = np.flatnonzero((self._start <= moment_s) & (self._end > moment_s))
        waiting = np.flatnonzero((self._submit <= moment_s) & (self._start > moment_s))
        latest = {self.rows[row][0].id: row for row in running.tolist()}
        jobs = [self.rows[row][3] for row in latest.values()]
        seen = set(latest)
        for row in waiting.tolist():
            spec = self.rows[row][0]
            if spec.id not in seen:
                seen.add(spec.id)
                jobs.append(WorldJob(spec))
        params = msgspec.structs.replace(template.params, given_priorities=self.ranked)
        return SlurmWorld(self._nodes, jobs, moment_s, params)

    def backtest(self, template: SlurmWorld, durations: Durations, *, seed: int) -> StartsBacktest:
        """Ask at some moments of the last month when a job starts, and look when it did."""
        now_s = template.now_s
        missed: list[float] = []  # by how many widths: 0 to 1 is inside
        earlier = later = 0
        answers: Mapping[int, float] = dict(enumerate(self._start))
        for moment_s, row in self.moments(now_s, seed):
            if len(missed) == QUESTIONS:
                break
            world = self.world(moment_s, template)
            index = world.index.get(self.rows[row][0].id)
            then = durations.as_of(moment_s)
            if index is None or then.doubt:
                continue
            found = foresee(world, then, index, again=False, runs=RUNS, seed=seed, tested=False)
            off = widths_off(found, answers[row])
            missed.append(abs(off))
            earlier += off < -1
            later += off > 1
        asked = len(missed)
        enough = asked >= LEAST
        first_s = max(float(self._submit.min()), now_s - MONTH_S) if self.rows else now_s
        return StartsBacktest(
            questions=asked,
            share_inside=_widened_share(missed) if enough else None,
            earlier=earlier,
            later=later,
            simulated=sum(off <= 1 for off in missed) / asked if enough else None,
            stretch=stretch_of(missed) if enough else 1.0,
            days=max(1.0, (now_s - first_s) / 86_400),
        )


def widths_off(found: Foreseen, true_s: float) -> float:
    """How far a start was from the median, in distances to that end of the interval.

    Negative: it was earlier. An interval is at least a minute wide on each side.
    """
    if found.starts_s is None or found.earliest_s is None:
        return -INF  # it was not expected to start at all
    if true_s < found.starts_s:
        return (true_s - found.starts_s) / max(found.starts_s - found.earliest_s, LEAST_WIDTH_S)
    if found.latest_s is None:
        return 0.0
    return (true_s - found.starts_s) / max(found.latest_s - found.starts_s, LEAST_WIDTH_S)


def stretch_of(missed: Sequence[float]) -> float:
    """Times as wide as simulated, so that 80 % of such intervals hold the start (conformal)."""
    known = sorted(missed)
    place = min(ceil((len(known) + 1) * SHARE) - 1, len(known) - 1)
    finite = [off for off in known if off < INF]
    worst = known[place] if known[place] < INF else (finite[-1] if finite else 1.0)
    return max(1.0, worst)


def _widened_share(missed: Sequence[float]) -> float:
    """Of the questions, each answered with a stretch that the others tell."""
    held = sum(
        off <= stretch_of([*missed[:number], *missed[number + 1 :]])
        for number, off in enumerate(missed)
    )
    return held / len(missed)


def _each(spec: JobSpec, nodes: int) -> tuple[float, float]:
    """CPUs and memory on each of so many nodes."""
    groups = spec.request.groups
    cpus = ordered_sum(group.count * group.cpus for group in groups)
    mem_gib = ordered_sum(group.count * group.mem_gib for group in groups)
    return (cpus / nodes, mem_gib / nodes) if nodes else (0.0, 0.0)
