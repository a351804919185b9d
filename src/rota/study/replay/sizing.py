"""How many nodes does it take? The smallest change of size that keeps a promise to users.

The log is replayed as `rota replay` does it, so the model of today and how far to trust it are the
same. Then that model runs the same jobs on clusters with more nodes of a shape, or with fewer if
the target is met already, until the smallest that meets it is found: sizes are doubled, then
halved in between. Every size meets the same jobs and failures, and intervals of all sizes come from
the same resamples (common random numbers), so that sizes differ by what they are.

*The interval of a size* says what another log like this one might give (see `jobs_spread`). *The
interval of the answer* goes from the first size that might be enough (the lower end of its interval
meets the target) to the first that is enough even at the upper end. Both ends are searched for, not
only read off the sizes that happened to be tried.

A job that a cluster cannot run waits for ever: fewer nodes never look better because large jobs are
refused. A cluster of one node more may by chance serve a log worse; then several sizes are the
smallest of their neighbourhood, and the one that was met first is told.
"""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import ClusterSpecError, OptionError
from rota.core.eventlog import Floats
from rota.core.registry import nearest
from rota.core.topology import NodeSpec
from rota.core.words import duration
from rota.study.config import RunConfig
from rota.study.fidelity import FAR
from rota.study.output import dump
from rota.study.pool import cores, each, report
from rota.study.replay.changes import ReplayChanges, changed
from rota.study.replay.cluster import write_cluster
from rota.study.replay.replay import (
    Answer,
    Told,
    partitions_of,
    recorded_jobs,
    run_config,
)
from rota.study.replay.tables import attributes
from rota.study.run import simulate
from rota.study.statistics import Percentile, Statistic, jobs_spread
from rota.traces.cluster import parse_counts

LEVEL = 0.8
"""Of all intervals here, as of `rota when`."""
NEVER_S = 1e18
"""What a job waits that a cluster cannot run: a number, so that percentiles can be interpolated."""
ENDLESS_S = 1e12
"""From here on a statistic has such a job in it."""
TOGETHER = 2
"""Sizes that are tried at the same time, however many processes there are."""
SHORT = 2_000
"""Jobs: in fewer, a queue at a load of 0.85 left 80 % intervals in every second of 100 worlds."""
TABLE, JSON, REPORT, SIZES = "plan.csv", "plan.json", "plan.html", "sizes"
MONTH_H = 30 * 24
_GROWTH = 3  # times the GPUs of today are tried at most, unless somebody asks for more
_LEAST_MOST = 16
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_MEASURES = {"wait": "wait_s", "jct": "jct_s"}
_TARGET = re.compile(
    r"\s*(mean|median|p(?P<q>\d{1,2}(?:\.\d+)?))\s+(?P<what>wait|jct)\s*(?P<sign><=?)\s*"
    r"(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>s|min|m|h|d)\s*",
    re.IGNORECASE,
)


class ServiceTarget(msgspec.Struct, frozen=True):
    """What jobs are promised: a statistic of their waits or completion times below a limit."""

    statistic: str  # mean, median, p95
    measure: str  # wait, jct
    limit_s: float
    inclusive: bool = False

    @classmethod
    def parse(cls, text: str) -> "ServiceTarget":
        """From `p95 wait < 1h`."""
        found = _TARGET.fullmatch(text)
        if found is None:
            raise OptionError(
                f"target {text!r} is not understood: write mean, median or pNN, then wait or jct, "
                f"then < and a time (s, m, h or d), e.g. 'p95 wait < 1h'"
            )
        limit_s = float(found["limit"]) * _UNITS_S[found["unit"].lower()]
        if found["sign"] == "<" and not limit_s:
            raise OptionError(f"target {text!r}: no time is below 0: write <= 0s, or a longer time")
        return cls(
            found[1].lower(),
            found["what"].lower(),
            limit_s,
            found["sign"] == "<=",
        )

    @property
    def name(self) -> str:
        """`p95 wait`."""
        return f"{self.statistic} {'JCT' if self.measure == 'jct' else self.measure}"

    def describe(self) -> str:
        """`p95 wait < 1h 00m`."""
        return f"{self.name} {'<=' if self.inclusive else '<'} {duration(self.limit_s)}"

    def met(self, value: float) -> bool:
        """Is this below the limit?"""
        return value <= self.limit_s if self.inclusive else value < self.limit_s

    def of(self) -> Statistic:
        """The statistic, of each row of a table of jobs."""
        if self.statistic == "mean":
            return _mean
        return Percentile(50.0 if self.statistic == "median" else float(self.statistic[1:]))


def _mean(jobs: Floats) -> Floats:
    return np.asarray(jobs.mean(axis=1))


class PlanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to know of a log that was replayed."""

    target: ServiceTarget
    shapes: tuple[str, ...] = ()  # 8, 8:a100, 8:a100@gpu+debug; none: the most common node
    partition: str | None = None  # whose jobs count
    tenant: str | None = None
    most: int | None = None  # nodes to add
    prices: tuple[tuple[str, float], ...] = ()  # (GPU type or nothing, money per GPU-hour)

    def price(self, gpu_type: str) -> float | None:
        """Money for an hour of a GPU; None: not given."""
        prices = dict(self.prices)
        return prices.get(gpu_type, prices.get(""))


class SizeTried(msgspec.Struct):
    """What the jobs get from a cluster of another size."""

    nodes: int  # more than today
    gpus: int  # of the whole cluster
    value_s: float
    low_s: float | None
    high_s: float | None
    refused: int
    use: float | None
    fragment_gpu_h: float | None  # free GPUs that were of no use to the usual job

    @property
    def told(self) -> str:
        """`48m 10s [31m 00s, 1h 20m]`."""
        if self.low_s is None or self.high_s is None:
            return lasting(self.value_s)
        return f"{lasting(self.value_s)} [{lasting(self.low_s)}, {lasting(self.high_s)}]"


class ShapeAnswer(msgspec.Struct):
    """How many nodes of one shape it takes."""

    shape: str
    gpus: int  # of a node
    gpu_type: str
    nodes: int | None  # more than today; None: not even the most that was tried
    low: int | None  # the first size that might do; None: as `nodes`
    high: int | None
    sizes: list[SizeTried]  # that were tried, from small to large
    price_per_month: float | None = None

    def at(self, nodes: int) -> SizeTried:
        """What this size gives."""
        return next(size for size in self.sizes if size.nodes == nodes)


class PlanAnswer(msgspec.Struct):
    """The answers for all shapes, and what they rest on."""

    question: PlanQuestion
    replayed: Answer
    observed_s: float | None  # what really happened
    shapes: list[ShapeAnswer]
    warnings: list[str]

    @property
    def best(self) -> ShapeAnswer | None:
        """The shape that costs least, or needs fewest GPUs; None: no shape will do."""
        done = [one for one in self.shapes if one.nodes is not None]
        if all(one.price_per_month is not None for one in done):
            return min(done, key=lambda one: one.price_per_month or 0.0, default=None)
        return min(done, key=lambda one: (one.nodes or 0) * one.gpus, default=None)

    def sentence(self, one: ShapeAnswer) -> str:
        """The answer in words."""
        target, kind = self.question.target, _kind(one)
        if one.nodes is None:
            most = one.sizes[-1]
            return (
                f"even {most.nodes:,} more {kind} do not bring {target.describe()}: the "
                f"{target.name} is {most.told} then"
            )
        found = one.at(one.nodes)
        if one.nodes > 0:
            what = f"{one.nodes:,} more {kind} ({one.nodes * one.gpus:,} GPUs)"
        elif one.nodes < 0:
            what = f"{-one.nodes:,} fewer {kind} ({-one.nodes * one.gpus:,} GPUs less)"
        else:
            what = f"the {kind} of today"
        verb = "is enough" if abs(one.nodes) == 1 else "are enough"
        text = f"{what} {verb} for {target.describe()}: the {target.name} is {found.told} then"
        if one.low is not None and (one.low, one.high) != (one.nodes, one.nodes):
            high = f"{one.high:+,}" if one.high is not None else "more than was tried"
            text += f"; {100 * LEVEL:.0f} % interval of the answer: {one.low:+,} to {high}"
        if one.price_per_month is not None and one.nodes:
            more = "saves" if one.nodes < 0 else "costs"
            text += f"; it {more} {abs(one.price_per_month):,.0f} per 30 days"
        return text

    def facts(self) -> dict[str, Any]:
        """Everything as plain data."""
        model = self.replayed.model
        return {
            "plan": 1,
            "log": self.replayed.asked.log,
            "target": self.question.target.describe(),
            "partition": self.question.partition,
            "tenant": self.question.tenant,
            "level": LEVEL,
            "observed_s": self.observed_s,
            "model": {
                "policy": model.policy,
                "verdict": model.verdict,
                "sentence": model.sentence,
            },
            "trusted": model.verdict != FAR,
            "best": self.best.shape if self.best else None,
            "shapes": [
                {**msgspec.to_builtins(one), "sentence": self.sentence(one)} for one in self.shapes
            ],
            "warnings": self.warnings,
        }


def lasting(seconds: float) -> str:
    """A duration; that of a job which cannot run is for ever."""
    return duration(math.inf if seconds >= ENDLESS_S else max(seconds, 0.0))


def _kind(one: ShapeAnswer) -> str:
    shape, _, place = one.shape.partition("@")
    kind = f"nodes of {shape.replace(':', ' ')} GPUs"
    return f"{kind} in {place.replace('+', ' and ')}" if place else kind


def parse_price(text: str) -> tuple[str, float]:
    """From `2.5` (of any GPU) or `a100=2.5`, per GPU-hour."""
    kind, _, amount = text.rpartition("=")
    try:
        price = float(amount)
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        raise OptionError(
            f"price {text!r} is not understood: write the price of a GPU-hour, e.g. 2.5, or of one "
            f"type, e.g. a100=2.5"
        )
    return kind.strip(), price


def plan(
    question: PlanQuestion,
    replayed: Answer,
    folder: Path,
    told: Told | None = None,
    *,
    workers: int | None = None,
) -> PlanAnswer:
    """Find the smallest size of each shape and write all files but the page.

    Args:
        question: What shall hold, and of which nodes.
        replayed: The log, replayed without changes.
        folder: An existing folder for the files.
        told: Called from time to time.
        workers: Processes; None: all cores.
    """
    tell = told or (lambda *_: None)
    counted = _whose(question, replayed)
    shapes = question.shapes or (_usual_shape(replayed),)
    if len(set(shapes)) < len(shapes):
        raise OptionError(f"--shape {' --shape '.join(shapes)}: the same one twice")
    (folder / SIZES).mkdir()
    searches = [
        _SizeSearch(shape, question, replayed, counted, folder / SIZES, tell, workers or cores())
        for shape in shapes
    ]
    found = [search.answer() for search in searches]
    answer = PlanAnswer(question, replayed, _observed(question, replayed, counted), found, [])
    answer.warnings = _warnings(answer, len(counted))
    _write(answer, folder)
    return answer


def _whose(question: PlanQuestion, replayed: Answer) -> Floats:
    """Positions of the jobs that the target is about: those that ran, of the group."""
    groups = attributes(replayed.imported).filter(pl.col("job").is_in(replayed.recorded.jobs))
    for by in ("partition", "tenant"):
        wanted = getattr(question, by)
        if wanted is None:
            continue
        known = sorted(groups[by].unique().to_list())
        if wanted not in known:
            near = nearest(wanted, known)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise OptionError(
                f"--{by} {wanted}: no job is of it{hint}; there are: {', '.join(known)}"
            )
        groups = groups.filter(pl.col(by) == wanted)
    if question.target.measure == "jct":  # those that still ran have none yet
        open_ended = replayed.imported.observed.per_job().filter(pl.col("end_s").is_null())["job"]
        groups = groups.filter(~pl.col("job").is_in(open_ended.implode()))
    if not groups.height:
        raise OptionError("no job is left for the target: none has ended in this group")
    return np.asarray(groups["job"].to_numpy())


def _usual_shape(replayed: Answer) -> str:
    """The most common node, if it is clear where it would be."""
    partitions = partitions_of(replayed.imported)
    if len(partitions) > 1:
        raise OptionError(
            f"which nodes? Give --shape, e.g. --shape 8@{partitions[0]}: there are the partitions "
            f"{', '.join(partitions)}"
        )
    nodes = [node for node in replayed.nodes if node.gpus]
    kinds = [(node.gpus, node.gpu_type) for node in nodes]
    gpus, gpu_type = max(kinds, key=kinds.count)
    return f"{gpus}:{gpu_type}" if gpu_type else str(gpus)


class _SizeSearch:
    """The smallest number of nodes of one shape, by running few sizes."""

    def __init__(
        self,
        shape: str,
        question: PlanQuestion,
        replayed: Answer,
        counted: Floats,
        folder: Path,
        tell: Told,
        workers: int,
    ) -> None:
        self._shape, self._question, self._replayed = shape, question, replayed
        self._counted, self._folder, self._tell, self._workers = counted, folder, tell, workers
        self._partitions = partitions_of(replayed.imported)
        kind, _, place = shape.partition("@")
        try:
            (self._node,) = parse_counts(f"1x{kind}", "shape")
        except (ClusterSpecError, ValueError):
            raise OptionError(
                f"shape {shape!r} is not understood: write GPUs of a node, then its type and its "
                f"partitions if there are several: 8, 8:a100, 8:a100@gpu+debug"
            ) from None
        if len(self._partitions) > 1 and not place:
            raise OptionError(
                f"shape {shape!r}: does not say in which partition the nodes are: write "
                f"{shape}@{self._partitions[0]}; there are: {', '.join(self._partitions)}"
            )
        places = set(place.split("+")) if place else set(self._partitions)
        self._mine = [
            node.name
            for node in replayed.nodes
            if node.gpus == self._node.gpus
            and self._node.gpu_type in ("", node.gpu_type)
            and (not places or places <= set(node.labels))
        ]
        gpus = sum(node.gpus for node in replayed.nodes)
        usual = max(_LEAST_MOST, math.ceil(_GROWTH * gpus / self._node.gpus))
        self._most = question.most if question.most is not None else usual
        self._least = -len(self._mine)
        if len(self._mine) == len(replayed.nodes):
            self._least += 1  # something must be left
        self._sizes: dict[int, SizeTried] = {}
        self._machines(1)  # a typing error is found before a long search

    def answer(self) -> ShapeAnswer:
        """Search for the size and for both ends of its interval."""
        target = self._question.target
        nodes = self._smallest(lambda size: target.met(size.value_s))
        low = self._smallest(lambda size: target.met(_or(size.low_s, size.value_s)))
        high = self._smallest(lambda size: target.met(_or(size.high_s, size.value_s)))
        sizes = [self._sizes[number] for number in sorted(self._sizes)]
        price = self._question.price(self._node.gpu_type or _type_of(self._replayed, self._mine))
        cost = None
        if price is not None and nodes is not None:
            cost = nodes * self._node.gpus * price * MONTH_H
        return ShapeAnswer(
            self._shape, self._node.gpus, self._node.gpu_type, nodes,
            nodes if low is None else low, high, sizes, cost,
        )  # fmt: skip

    def _smallest(self, enough: Callable[[SizeTried], bool]) -> int | None:
        """The smallest size that is enough, where one node less is not."""
        below, above = self._bracket(enough)
        while above is not None and above - below > 1:
            parts = min(TOGETHER + 1, above - below)
            between = [below + (above - below) * part // parts for part in range(1, parts)]
            for size in self._try(between):
                if enough(size):
                    above = size.nodes
                    break
                below = size.nodes
        return above

    def _bracket(self, enough: Callable[[SizeTried], bool]) -> tuple[int, int | None]:
        """A size that is not enough, and a larger one that is; from today on in doubled steps.

        One less than all there is stands for the first, and None for the second, if all sizes are
        alike.
        """
        known, step = 0, 1
        first = enough(self._try([known])[0])
        end = self._least if first else self._most
        while known != end:
            steps = [step << number for number in range(TOGETHER)]
            step = steps[-1] << 1
            wanted = [-one if first else one for one in steps]
            for size in self._try([max(self._least, min(one, self._most)) for one in wanted]):
                if enough(size) != first:
                    return (size.nodes, known) if first else (known, size.nodes)
                known = size.nodes
        return (known - 1, known) if first else (known, None)

    def _try(self, numbers: Sequence[int]) -> list[SizeTried]:
        """Run the sizes that were not run before."""
        new = [number for number in dict.fromkeys(numbers) if number not in self._sizes]
        configs = [self._config(number) for number in new]
        total = len(self._replayed.imported)
        title = f"{self._shape}: {', '.join(f'{number:+}' for number in new)} nodes"

        def told(done: float) -> None:
            self._tell(title, int(done * total), len(new) * total)

        with closing(each(_run_size, configs, self._workers, told=told)) as answers:
            for number, run in answers:
                if isinstance(run, Exception):
                    raise run
                self._sizes[new[number]] = self._judge(new[number], run)
        return [self._sizes[number] for number in dict.fromkeys(numbers)]

    def _config(self, number: int) -> RunConfig:
        nodes = self._machines(number)
        name = re.sub(r"[^\w.-]+", "-", self._shape)
        file = self._folder / f"{name}{number:+}.yaml"
        replayed = self._replayed
        write_cluster(nodes, replayed.levels, {}, file, site=replayed.site)
        return run_config(replayed.asked, replayed.imported, replayed.model.policy, file)

    def _machines(self, number: int) -> tuple[NodeSpec, ...]:
        replayed = self._replayed
        if number < 0:
            gone = set(self._mine[number:])
            return tuple(node for node in replayed.nodes if node.name not in gone)
        kind, at, place = self._shape.partition("@")
        add = (f"{number}x{kind}{at}{place}",) if number else ()
        changes = ReplayChanges(add=add)
        return changed(replayed.nodes, changes, self._partitions, replayed.levels)

    def _judge(self, number: int, run: "SizeRun") -> SizeTried:
        times = getattr(run, _MEASURES[self._question.target.measure])[self._counted]
        values = np.where(np.isnan(times), NEVER_S, times)
        statistic = self._question.target.of()
        value_s = float(statistic(values[None, :])[0])
        low_s, high_s = jobs_spread(values, statistic, level=LEVEL) or (None, None)
        if value_s >= ENDLESS_S:  # what does not fit is no matter of chance
            low_s = high_s = value_s
        gpus = sum(node.gpus for node in self._machines(number))
        useless = run.frag_amount
        return SizeTried(
            nodes=number,
            gpus=gpus,
            value_s=value_s,
            low_s=low_s,
            high_s=high_s,
            refused=int(np.isnan(times).sum()),
            use=run.use,
            fragment_gpu_h=None if useless is None else useless * gpus * run.makespan_s / 3_600,
        )


class SizeRun(msgspec.Struct):
    """A run at one size: what is needed of it, by position of the job."""

    wait_s: Floats
    jct_s: Floats
    use: float | None
    frag_amount: float | None
    makespan_s: float


def _run_size(config: RunConfig) -> SizeRun:
    workload = recorded_jobs(config.trace, config.format, config.limit)
    result = simulate(config, report, workload=workload)
    times = [result.jobs[name].fill_null(math.nan).to_numpy() for name in ("wait_s", "jct_s")]
    summary = result.summary
    return SizeRun(
        times[0],
        times[1],
        summary["gpu_utilisation"],
        summary["frag_amount"],
        summary["makespan_s"],
    )


def _observed(question: PlanQuestion, replayed: Answer, counted: Floats) -> float | None:
    """The statistic of what really happened."""
    column = _MEASURES[question.target.measure]
    seen = pl.DataFrame(
        {"job": replayed.recorded.jobs, "time_s": replayed.recorded.result.jobs[column]},
        schema_overrides={"job": pl.Int64},
    ).filter(pl.col("job").is_in(counted.tolist()))
    times = seen["time_s"].drop_nulls().to_numpy()
    return float(question.target.of()(times[None, :])[0]) if len(times) else None


def _type_of(replayed: Answer, names: Sequence[str]) -> str:
    """The GPU type of these nodes, if it is the same."""
    kinds = {node.gpu_type for node in replayed.nodes if node.name in set(names)}
    return kinds.pop() if len(kinds) == 1 else ""


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _warnings(answer: PlanAnswer, jobs: int) -> list[str]:
    """What a careful reader of the answer must know."""
    model = answer.replayed.model
    found = []
    if model.verdict == FAR:
        found.append(
            f"the answer cannot be trusted: no policy that was tried comes close to what happened "
            f"({model.sentence})"
        )
    if any(size.low_s is None for one in answer.shapes for size in one.sizes):
        found.append(f"only {jobs:,} jobs count: too few for intervals")
    elif jobs < SHORT:
        found.append(f"only {jobs:,} jobs count: the intervals of so short a log may be too narrow")
    today = answer.shapes[0].at(0)
    if answer.observed_s is not None and answer.observed_s > 0:
        off = today.value_s / answer.observed_s - 1
        if abs(off) > 0.15:  # noqa: PLR2004 - as far as `close` allows for a mean
            found.append(
                f"the model's {answer.question.target.name} of today is {off:+.0%} off what "
                f"happened ({lasting(today.value_s)}, observed {lasting(answer.observed_s)}): the "
                f"same holds for the answer"
            )
    if answer.question.prices:
        dear = [one.shape for one in answer.shapes if one.nodes and one.price_per_month is None]
        if dear:
            found.append(
                f"no --price is that of the GPUs of {', '.join(dear)}: the answer says nothing of "
                f"its costs; give --price PRICE for all, or --price TYPE=PRICE"
            )
    return found


def _write(answer: PlanAnswer, folder: Path) -> None:
    (folder / JSON).write_text(dump(answer.facts()), encoding="utf-8")
    rows = [
        {"shape": one.shape, **msgspec.structs.asdict(size)}
        for one in answer.shapes
        for size in one.sizes
    ]
    pl.DataFrame(rows, infer_schema_length=None).write_csv(folder / TABLE)


def own_plan_files(folder: Path) -> list[str]:
    """Files that an earlier plan wrote into a folder, relative to it."""
    sizes = sorted(path.name for path in (folder / SIZES).glob("*.yaml"))
    return [TABLE, JSON, REPORT, *(f"{SIZES}/{name}" for name in sizes)]
