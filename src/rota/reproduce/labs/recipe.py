"""Five labs with HiveD on two nodes of one GPU: what students see, played and checked.

A lab is a scenario file in the folder `labs` beside its cluster: what is submitted, and what is
expected of each event. It is played, every event with an expectation is a check, and its jobs are
run once more as a workload for the picture, which must show the same starts.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rota.core.jobs import Behaviour
from rota.core.workload import Workload
from rota.reproduce.labs.timeline import LabHistory, draw, tell
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, same_rows
from rota.study.config import RunConfig
from rota.study.run import RunResult
from rota.study.scenario.play import ScenarioLine, read_scenarios, run_scenario
from rota.study.scenario.queue import Submission
from rota.traces.cluster import parse_cluster

FOLDER = files("rota.reproduce.labs")
RUN, PICTURE = "lab", "lanes.svg"


class Lab(Recipe):
    """One lab."""

    paper = "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020"
    source = (
        "what the published scheduler decides in exercise 6 of the course AI-System (OpenPAI with "
        "HiveD on two one-GPU machines), as sequences of decisions"
    )
    takes: Mapping[Scale, str] = {Scale.SMALL: "1 s", Scale.PAPER: "1 s"}
    leaves_out = ""
    known = (
        "the lengths of jobs are ours: a minute of training, and five minutes of sleep if any",
        "a job is over when all its tasks are; the exercise ends it with the first of them",
    )

    def __init__(self, name: str, summary: str) -> None:
        self.name = f"lab6-{name}"
        self.summary = summary
        self._file = f"{name}.json"

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """The jobs of the scenario as a workload, under its policy."""
        scenario = self._bring(setting)
        cluster = str(setting.folder / scenario["cluster"])
        submitted = _submissions(scenario)
        workload = Workload(
            [given.spec(given.at_s or 0.0) for given in submitted],
            [Behaviour(given.work_s) for given in submitted],
            name=self.name,
        )
        return {
            RUN: RunConfig(
                trace=setting.keep(workload, "jobs"),
                cluster=cluster,
                policy=f"hived:config={cluster}",
                costs=scenario.get("costs"),
            )
        }

    def _bring(self, setting: RecipeSetting) -> dict[str, Any]:
        """Write the lab's files to the folder of inputs; its scenario."""
        text = (FOLDER / self._file).read_text(encoding="utf-8")
        scenario = read_scenarios(Path(setting.write(self._file, text)))[0]
        cluster = scenario["cluster"]
        setting.write(cluster, (FOLDER / cluster).read_text(encoding="utf-8"))
        return scenario

    def digest(self, result: RunResult) -> dict[str, Any]:
        """The story of the run."""
        story: dict[str, Any] = msgspec.to_builtins(tell(result.log))
        return story

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Every expectation of the scenario, and that the run of the picture is the same."""
        scenario = read_scenarios(setting.folder / self._file)[0]
        nodes = _nodes(setting.folder / scenario["cluster"])
        lines = list(run_scenario(scenario, setting.folder))
        found = [
            _observed(event, line, nodes)
            for event, line in zip(scenario["events"], lines, strict=True)
            if event.get("expect")
        ]
        ours = _story(runs).starts()
        return [*found, same_rows("starts in the picture", ours, _starts(lines))]

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """Who was on which node, from when to when."""
        return pl.DataFrame([msgspec.structs.asdict(bar) for bar in _story(runs).bars])

    def pictures(self, runs: Mapping[str, RecipeRun]) -> dict[str, str]:
        """Lanes of nodes and of jobs that wait."""
        return {PICTURE: draw(_story(runs), f"{self.name}: {self.summary}")}


def _story(runs: Mapping[str, RecipeRun]) -> LabHistory:
    return msgspec.convert(runs[RUN].extra, LabHistory)


def _submissions(scenario: Mapping[str, Any]) -> list[Submission]:
    events = scenario["events"]
    return [msgspec.convert(event, Submission) for event in events if event["op"] == "submit"]


def _nodes(cluster: Path) -> list[str]:
    topology, _ = parse_cluster(str(cluster))
    return [node.name for node in topology.nodes]


def _starts(lines: Sequence[ScenarioLine]) -> dict[str, float]:
    """When who began to run where, as a scenario tells it; as `LabHistory.starts`."""
    told = [told for line in lines for told in line.outcome["decisions"]]
    return {
        f"{one['job']} on {node}, {one['time_s']:g} s": one["time_s"]
        for one in told
        if one["what"] == "start"
        for node in one["nodes"]
    }


# --- words ---------------------------------------------------------------------------------------


def _observed(event: Mapping[str, Any], line: ScenarioLine, nodes: Sequence[str]) -> Check:
    """An event and what is to be seen after it, as sentences."""
    expected, outcome = event["expect"], line.outcome
    seen = {key: outcome[key] for key in ("running", "waiting", "reasons")}
    for what in ("done", "preempt", "reject"):
        told = [told for told in outcome["decisions"] if told["what"] == what]
        seen[what] = [one["job"] for one in told]
        if what == "preempt":
            seen[what] = {one["job"]: one.get("because_of") for one in told}
    what = f", {event['job']} comes" if event["op"] == "submit" else ""
    return holds(
        f"{outcome['now_s']:g} s{what}",
        _words(expected, nodes),
        _words({key: seen[key] for key in expected if key in seen}, nodes),
        ok=not line.unmet,
    )


def _words(state: Mapping[str, Any], nodes: Sequence[str]) -> str:
    """What is the case, in words; nodes are named as idle only where somebody waits."""
    parts = [f"{job} ends" for job in state.get("done", ())]
    parts += [f"{job} is turned away" for job in state.get("reject", ())]
    parts += [f"{job} leaves for {other}" for job, other in state.get("preempt", {}).items()]
    running = state.get("running", {})
    parts += [f"{job} on {' and '.join(places)}" for job, places in running.items()]
    waiting = list(state.get("waiting", ()))
    used = {node for places in running.values() for node in places}
    idle = [node for node in nodes if node not in used]
    if waiting:
        although = f" although {', '.join(idle)} idles" if idle else ""
        verb = "waits" if len(waiting) == 1 else "wait"
        parts.append(f"{', '.join(waiting)} {verb}{although}")
    return "; ".join(parts) or "nobody runs"


VC_SAFETY = Lab("vc-safety", "a tenant's jobs queue for its own node while another's idles")
PRIORITY = Lab("priority", "a production job makes a test job of its tenant leave at once")
OPPORTUNISTIC = Lab("opportunistic", "a job runs on another tenant's idle node until that comes")
GANG = Lab("gang", "two tasks start together or not at all")
INCREMENTAL = Lab("incremental", "two tasks start one by one, as GPUs become free")
LABS = (VC_SAFETY, PRIORITY, OPPORTUNISTIC, GANG, INCREMENTAL)
