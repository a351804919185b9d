"""Gandiva's examples (Xiao et al., OSDI 2018): affinity, migration, packing that is undone."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import EventLog
from rota.core.log import Record
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds
from rota.study.config import RunConfig
from rota.study.run import RunResult

LONG_S = 100_000
SLICE_S = 60.0
LITTLE, MUCH = 0.45, 1.0  # of the compute of a GPU
KINDS = {Record.START: "start", Record.STOP: "stop", Record.MOVE: "move"}

Job = tuple[float, float, float, float]
"""When it comes, its GPUs, seconds of work, and what it uses of a GPU alone."""

AFFINITY: Sequence[Job] = [
    *((at, 1, LONG_S, MUCH) for at in range(4)),
    *((at, 2, LONG_S, MUCH) for at in range(4, 6)),
    (6, 4, LONG_S, MUCH),
]
FRAGMENTS: Sequence[Job] = [
    *((0, 2, 100 if number % 2 else LONG_S, MUCH) for number in range(8)),
    (200, 4, 500, MUCH),
]
NEARLY_IDLE: Sequence[Job] = [
    (0, 1, LONG_S if number % 4 < left else 50, MUCH)
    for number, left in enumerate(left for left in (1, 2, 3, 3) for _ in range(4))
]


class GandivaScene(msgspec.Struct, frozen=True):
    """Some jobs on some servers."""

    jobs: Sequence[Job]
    servers: int
    gpus: int
    mode: str = "mps"


SCENES = {
    "affinity": GandivaScene(AFFINITY, 4, 4),
    "fragments": GandivaScene(FRAGMENTS, 4, 4),
    "nearly-idle": GandivaScene(NEARLY_IDLE, 4, 4),
    "turns": GandivaScene([(0, 1, 3600, MUCH)] * 3, 1, 1, "exclusive"),
    "good-pair": GandivaScene([(0, 1, 3600, LITTLE)] * 2, 1, 1),
    "bad-pair": GandivaScene([(0, 1, 3600, MUCH)] * 2, 1, 1),
}


class GandivaFigures(Recipe):
    """What Gandiva does in small scenes that can be followed by hand."""

    name = "gandiva-figures"
    summary = "Gandiva: 16 GPUs by affinity, defragmentation, turns, packing that is undone"
    paper = "Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018"
    source = (
        "the paper's examples in words: servers of one job size in a cluster of 16 GPUs, migration "
        "until fewer than 3 of 4 GPUs are free, packing by trial; no numbers are compared"
    )
    takes: Mapping[Scale, str] = {Scale.SMALL: "2 s", Scale.PAPER: "2 s"}
    leaves_out = ""
    known = ("the paper's testbed and its traces are not published: what is checked are its rules",)

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """One run for each scene."""
        return {name: _config(setting, name, scene) for name, scene in SCENES.items()}

    def digest(self, result: RunResult) -> Any:
        """Every start, stop and move: when, what, which job, on which servers."""
        events = EventLog(result.log)
        slices, nodes = events.slices, events.nodes
        names = [*nodes.names, ""]
        found = []
        for row in events.rows_of(*KINDS):
            which, where = slices.of(np.array([events.ref[row]]))
            slots = nodes.slots_of(slices.vertex[where]).tolist() if len(which) else []
            servers = sorted({names[slot] for slot in slots})
            kind = KINDS[Record(int(events.event[row]))]
            found.append((float(events.time_s[row]), kind, int(events.job[row]), servers))
        return found

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:  # noqa: ARG002 - both scales are the same
        """The rules of the paper, scene by scene."""
        return [
            *_affinity(runs["affinity"].extra),
            *_fragments(runs["fragments"].extra),
            *_nearly_idle(runs["nearly-idle"].extra),
            *_turns(runs["turns"].extra),
            *_pairs(runs),
        ]

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """All that happened."""
        rows = [
            (scene, *event[:3], " ".join(event[3]))
            for scene, run in runs.items()
            for event in run.extra
        ]
        return pl.DataFrame(
            rows, schema=["scene", "time_s", "event", "job", "servers"], orient="row"
        )


def _config(setting: RecipeSetting, name: str, scene: GandivaScene) -> RunConfig:
    rows = ["job_id,submit_s,num_gpus,duration_s,demand"]
    rows += [
        f"j{number},{at:g},{gpus:g},{work:g},compute={uses:g}"
        for number, (at, gpus, work, uses) in enumerate(scene.jobs)
    ]
    cluster = f"nodes:\n  - {{count: {scene.servers}, gpus: {scene.gpus}, sharing: {scene.mode}}}\n"
    return RunConfig(
        trace=setting.write(f"{name}.csv", "\n".join([*rows, ""])),
        cluster=setting.write(f"{name}.yaml", cluster),
        policy=f"gandiva:slice_s={SLICE_S:g}",
        check=True,
    )


Event = tuple[float, str, int, list[str]]


def _where(events: Sequence[Event], until_s: float) -> dict[int, list[str]]:
    """Where jobs run at a time."""
    found: dict[int, list[str]] = {}
    for at_s, kind, job, servers in events:
        if at_s > until_s:
            break
        if kind == "stop":
            found.pop(job, None)
        else:
            found[job] = servers
    return found


def _affinity(events: Sequence[Event]) -> list[Check]:
    where = _where(events, 10.0)
    by_size: dict[float, set[str]] = {}
    for number, (_, gpus, _, _) in enumerate(AFFINITY):
        by_size.setdefault(gpus, set()).update(where.get(number, ["nowhere"]))
    apart = sum(map(len, by_size.values())) == len(set().union(*by_size.values()))
    text = "; ".join(f"{gpus:g} GPUs on {', '.join(sorted(on))}" for gpus, on in by_size.items())
    return [
        holds("16 GPUs: servers for 1 GPU", "1", len(by_size[1]), ok=len(by_size[1]) == 1),
        holds("16 GPUs: sizes of jobs", "servers of their own", text, ok=apart),
    ]  # fmt: skip


def _fragments(events: Sequence[Event]) -> list[Check]:
    last = len(FRAGMENTS) - 1
    before, after = _where(events, 199.0), _where(events, 200 + SLICE_S)
    stay = [number for number in range(last) if not number % 2]
    spread = {server for number in stay for server in before.get(number, [])}
    moves = sum(kind == "move" for _, kind, _, _ in events)
    on = after.get(last, [])
    alone = on and all(set(on).isdisjoint(after[number]) for number in stay)
    return [
        holds("4 jobs of 2 GPUs: servers before", "4", len(spread), ok=len(spread) == 4),  # noqa: PLR2004 - one each
        holds("a job of 4 GPUs: has a server within a slice", "yes", ", ".join(on), ok=bool(alone)),
        holds("jobs moved for it", "1", moves, ok=moves == 1),
    ]  # fmt: skip


def _nearly_idle(events: Sequence[Event]) -> list[Check]:
    where = _where(events, 10 * SLICE_S)
    long = [number for number, job in enumerate(NEARLY_IDLE) if job[2] == LONG_S]
    counts: dict[str, int] = {}
    for number in long:
        for server in where.get(number, []):
            counts[server] = counts.get(server, 0) + 1
    found = sorted(counts.values())
    return [
        holds(
            "servers with 1, 2, 3 and 3 of 4 GPUs in use, later",
            "2, 3 and 4: the one with 3/4 free is emptied, and no other",
            ", ".join(map(str, found)),
            ok=found == [2, 3, 4],
        )
    ]


def _turns(events: Sequence[Event]) -> list[Check]:
    slices = [_where(events, SLICE_S * (number + 0.5)) for number in range(30)]
    had = [sum(job in where for where in slices) for job in range(3)]
    spread = max(had) - min(had)
    at_once = max(map(len, slices))
    return [
        holds("3 jobs on a GPU, 30 slices: each has", "a third within one",
              ", ".join(map(str, had)), ok=spread <= 1 and sum(had) == len(slices)),
        holds("3 jobs on a GPU: at the same time", "1", at_once, ok=at_once == 1),
    ]  # fmt: skip


def _pairs(runs: Mapping[str, RecipeRun]) -> list[Check]:
    together: dict[str, list[bool]] = {
        name: [len(_where(runs[name].extra, SLICE_S * (n + 0.5))) > 1 for n in range(30)]
        for name in ("good-pair", "bad-pair")
    }
    good, bad = together["good-pair"], together["bad-pair"]
    begun = good.index(True) if any(good) else len(good)
    return [
        holds("a pair that uses 0.9 of a GPU: packed after slices", "at most 3, and stays",
              begun, ok=begun <= 3 and all(good[begun:])),  # noqa: PLR2004 - one alone each
        holds("a pair that uses 2 of a GPU: slices together", "1 or 2, then never again",
              sum(bad), ok=1 <= sum(bad) <= 2),  # noqa: PLR2004 - two measurements
        holds("mean JCT (s): the good pair, the bad one", "the good one is shorter",
              f"{runs['good-pair'].summary['avg_jct_s']:,.0f}, "
              f"{runs['bad-pair'].summary['avg_jct_s']:,.0f}",
              ok=runs["good-pair"].summary["avg_jct_s"] < runs["bad-pair"].summary["avg_jct_s"]),
    ]  # fmt: skip


RECIPE = GandivaFigures()
