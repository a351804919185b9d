"""What a job costs, counted instead of timed: run with `make bench-table`, checked by `make test`.

A *step* is an executed line of Rota's own code, from the first event of a run to its last. The
number of steps is the same in every run of one Python version, however busy the machine is, and a
loop that looks at more jobs than before shows in it. `steps.json` holds the steps and calls per job
of every policy and placement, with few jobs and with many.

    python benchmarks/steps.py             # compare with the table; a tenth more is an error
    python benchmarks/steps.py --update    # write the table anew
    python benchmarks/steps.py --full      # how steps per job grow from 5,000 to 320,000 jobs

`growth.json` holds what the last form counted, for as many jobs as `--jobs` asked for; without
`--update` it is compared with that.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import rota
from rota.core.events import INF
from rota.core.workload import Workload
from rota.study.build import build
from rota.study.config import RunConfig
from rota.traces.synth.generate import generate

TABLE = Path(__file__).resolve().parent / "steps.json"
CURVES = TABLE.with_name("growth.json")
RENEW = "if it is worth that, renew the table with `make bench-table` and commit it"
MORE = 1.1  # a regression: more than a tenth above the table
PACKAGE = str(Path(rota.__file__).parent)

POLICIES = (
    "fifo", "fifo-skip", "sjf", "qssf", "srtf", "srsf", "las", "tiresias", "elas", "gittins",
    "easy", "conservative", "drf", "tetris", "yarn-cs", "capacity", "hierarchical-fair", "synergy",
)  # fmt: skip
CLUSTER, GPUS = "3x8", 24
BUSY = 1.5  # load: the queue grows with the number of jobs, so it shows if its length matters
STEADY = 0.95  # load: a queue comes and goes
FEW, MANY = 100, 300
CASES = (("count", FEW), ("consolidate", FEW), ("count", MANY))
WHOLE_CURVE = (5_000, 20_000, 80_000, 320_000)


class Steps(NamedTuple):
    """Lines and calls of Rota's own code."""

    lines: int
    calls: int


class Meter:
    """Counts the lines and calls of a piece of work by tracing it."""

    def __init__(self) -> None:
        self._lines = self._calls = 0
        self._own: dict[CodeType, bool] = {}

    def count(self, work: Callable[[], object]) -> Steps:
        """Do the work and count; whoever traces already (a debugger) goes on afterwards."""
        self._lines = self._calls = 0
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            work()
        finally:
            sys.settrace(before)
        return Steps(self._lines, self._calls)

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        own = self._own.get(code)
        if own is None:
            own = self._own[code] = code.co_filename.startswith(PACKAGE)
        if not own or event != "call":
            return None
        self._calls += 1
        return self._line

    def _line(self, _: FrameType, event: str, __: object) -> Any:
        if event == "line":
            self._lines += 1
        return self._line


@cache
def workload(jobs: int, load: float) -> Workload:
    """Jobs of at most four hours: a few longer ones would carry the load."""
    options = {"max_s": "14400", "vcs": "4", "estimate_factor": "2"}
    return generate("philly-like", jobs=jobs, gpus=GPUS, load=load, seed=1, options=options)


def count(policy: str, placement: str, jobs: int, load: float) -> Steps:
    """The steps of one run.

    It runs once before that: what is imported or remembered for good is not a cost of the job.
    """
    config = RunConfig(trace="generated", cluster=CLUSTER, policy=policy, placement=placement)

    def prepared() -> Callable[[], object]:
        engine = build(config, workload(jobs, load)).engine
        return lambda: engine.run(INF, busy=engine.view.active)

    prepared()()
    return Meter().count(prepared())


# --- the table -----------------------------------------------------------------------------------


def measured(policies: Iterable[str] = POLICIES) -> dict[str, Any]:
    """Costs as they are now: steps and calls per job, by policy, placement and number of jobs."""
    costs = {}
    for policy in policies:
        for placement, jobs in CASES:
            steps = count(policy, placement, jobs, BUSY)
            costs[f"{policy}/{placement}/{jobs}"] = {
                "steps": round(steps.lines / jobs, 1), "calls": round(steps.calls / jobs, 1),
            }  # fmt: skip
    return {"python": python(), "costs": costs}


def compare(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What has become dearer; counts of another version of Python tell only how costs grow."""
    if now["python"] != before["python"]:
        return regressions(growth(now), growth(before))
    wrong = []
    for what in ("steps", "calls"):
        wrong += regressions(column(now, what), column(before, what))
    return wrong


def regressions(found: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """What is more than a tenth above the table, or not in it."""
    wrong = []
    for key, value in found.items():
        if key not in expected:
            wrong.append(f"{key}: {value:g}, and the table does not have it")
        elif value > expected[key] * MORE:
            more = value / expected[key] - 1
            wrong.append(f"{key}: {value:g}, and {expected[key]:g} in the table ({more:+.0%})")
    return wrong


def column(table: Mapping[str, Any], what: str) -> dict[str, float]:
    """The costs of one kind."""
    return {f"{key}: {what} per job": values[what] for key, values in table["costs"].items()}


def growth(table: Mapping[str, Any]) -> dict[str, float]:
    """How many times the steps of a job when many jobs come, and wait, instead of few."""
    costs = table["costs"]
    policies = dict.fromkeys(key.partition("/")[0] for key in costs)
    return {
        policy: costs[f"{policy}/count/{MANY}"]["steps"] / costs[f"{policy}/count/{FEW}"]["steps"]
        for policy in policies
    }


def read_table() -> dict[str, Any]:
    """The table that is in the repository."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def python() -> str:
    """Versions of Python differ in what they call a line."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def commit() -> str:
    """The commit on which a table is made."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],  # noqa: S607 - git is on the path
        cwd=TABLE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return git.stdout.strip()


def show(table: Mapping[str, Any]) -> None:
    """Print a table."""
    print(f"steps per job, Python {table['python']}, load {BUSY:g}")
    titles = "".join(f"{f'{placement} {jobs}':>16}" for placement, jobs in CASES)
    print(f"{'policy':<18}{titles}{'growth':>8}")
    for policy, times in growth(table).items():
        steps = [table["costs"][f"{policy}/{place}/{jobs}"]["steps"] for place, jobs in CASES]
        print(f"{policy:<18}" + "".join(f"{step:>16.1f}" for step in steps) + f"{times:>8.2f}")


def curves(sizes: Sequence[int], policies: Iterable[str]) -> dict[str, Any]:
    """Steps per job at a steady load, printed as they are counted (up to 320,000 jobs: hours)."""
    print(f"{'policy':<18}" + "".join(f"{jobs:>9,}" for jobs in sizes) + "   growth")
    found: dict[str, dict[str, float]] = {}
    for policy in policies:
        per_job = found[policy] = {}
        for jobs in sizes:
            per_job[str(jobs)] = round(count(policy, "count", jobs, STEADY).lines / jobs, 1)
            workload.cache_clear()
        line = "".join(f"{steps:>9.1f}" for steps in per_job.values())
        first, *_, last = per_job.values()
        print(f"{policy:<18}{line} {last / first:>8.2f}", flush=True)
    return {"python": python(), "load": STEADY, "curves": found}


def compare_curves(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What has become dearer, or grows faster."""
    found, expected = (
        {
            f"{policy}: steps per job of {jobs}": steps
            for policy, curve in table["curves"].items()
            for jobs, steps in curve.items()
        }
        for table in (now, before)
    )
    return regressions({key: found[key] for key in found if key in expected}, expected)


def main() -> None:
    """Compare, renew, or show the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the table anew")
    parser.add_argument("--full", action="store_true", help="growth up to 320,000 jobs")
    parser.add_argument("--jobs", help="with --full: so many jobs instead, e.g. 5000,20000")
    parser.add_argument("--policies", help="with --full: only these, e.g. fifo,easy")
    options = parser.parse_args()
    if options.full:
        sizes = [int(jobs) for jobs in options.jobs.split(",")] if options.jobs else WHOLE_CURVE
        policies = options.policies.split(",") if options.policies else POLICIES
        table = curves(sizes, policies)
        if options.update and options.policies:  # the others are as they were
            table["curves"] = {**json.loads(CURVES.read_text())["curves"], **table["curves"]}
        finish(table, CURVES, compare_curves, update=options.update)
        return
    table = measured()
    show(table)
    finish(table, TABLE, compare, update=options.update)


def finish(
    table: Mapping[str, Any],
    path: Path,
    compared: Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]],
    *,
    update: bool,
) -> None:
    """Write a table, or fail if it is dearer than the one that is there."""
    if update:
        path.write_text(json.dumps({"commit": commit(), **table}, indent=1) + "\n")
        print(f"wrote {path.name}")
        return
    wrong = compared(table, json.loads(path.read_text()))
    if wrong:
        raise SystemExit("\n".join(["\nmore than a tenth above the table:", *wrong, RENEW]))


if __name__ == "__main__":
    main()
