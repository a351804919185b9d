"""The kinds of checks: the kit, small scenes computed by hand, and measures on drawn workloads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.policy import Policy
from rota.core.words import duration
from rota.core.workload import Workload
from rota.engine.parts import make_policy
from rota.lab.grade import Missed
from rota.study.config import RunConfig
from rota.study.run import RunResult, simulate

SEEDS = range(3)
LEAST_S = 1e-6

Setting = Callable[[str], dict[str, Any]]
"""The options of a run with the file of a solution: as its policy, or as its placement."""


def as_policy(file: str) -> dict[str, Any]:
    """The solution is a policy."""
    return {"policy": file}


def as_placement(file: str) -> dict[str, Any]:
    """The solution is a placement, under the policy that shows it best."""
    return {"policy": "fifo", "placement": file}


class LabJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a scene."""

    id: str
    submit_s: float = 0.0
    gpus: float = 1
    run_s: float
    speeds: dict[str, float] | None = None
    least: int = 0
    most: int = 0
    scaling: tuple[tuple[float, float], ...] | None = None

    def spec(self) -> JobSpec:
        """What is asked; the estimate is the truth."""
        request = Request.of(self.gpus, min_gpus=self.least, max_gpus=self.most)
        return JobSpec(self.id, self.submit_s, request, estimate_s=self.run_s)

    def behaviour(self) -> Behaviour:
        """The truth."""
        return Behaviour(self.run_s, speeds=self.speeds, scaling=self.scaling)


class LabScene(msgspec.Struct, frozen=True, kw_only=True):
    """A few jobs whose schedule can be computed by hand.

    Args:
        cluster: As of `--cluster`.
        jobs: In the order of their submission.
        starts: When jobs must start first, by their ids.
        ends: When jobs must end.
        why: Said if it came out otherwise.
        rates: The rate model.
        used_as: As what the solution is used.
    """

    cluster: str
    jobs: tuple[LabJob, ...]
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    why: str
    rates: str | None = None
    used_as: Setting = as_policy

    def __call__(self, file: Path) -> str:
        """Play it and compare."""
        jobs = play(file, self.workload(), self.cluster, self.used_as, rates=self.rates).jobs
        found = {row["job_id"]: row for row in jobs.iter_rows(named=True)}
        for job, expected_s in self.starts.items():
            self._compare(job, "starts", found[job]["first_start_s"], expected_s)
        for job, expected_s in self.ends.items():
            self._compare(job, "ends", found[job]["end_s"], expected_s)
        told = [f"{job} starts at {duration(at)}" for job, at in self.starts.items()]
        told += [f"{job} ends at {duration(at)}" for job, at in self.ends.items()]
        return ", ".join(told)

    def workload(self) -> Workload:
        """Its jobs."""
        return Workload([job.spec() for job in self.jobs], [job.behaviour() for job in self.jobs])

    def _compare(self, job: str, what: str, found_s: float | None, expected_s: float) -> None:
        if found_s is None or abs(found_s - expected_s) > LEAST_S:
            came = f"at {duration(found_s)}" if found_s is not None else "never"
            raise Missed(
                f"job {job} {what} {came}, it should at {duration(expected_s)}. {self.why}"
            )


class MeasureCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A measure on workloads that are drawn, against that of a policy that is known.

    Args:
        draw: A workload by its seed.
        cluster: As of `--cluster`.
        key: Of summary.json; smaller is better.
        called: The measure, in words.
        against: The options of the run to compare with.
        at_most: Times the other's measure.
        why: Said if it is more.
    """

    draw: Callable[[int], Workload]
    cluster: str
    key: str = "avg_jct_s"
    called: str = "mean JCT"
    against: dict[str, Any]
    at_most: float
    why: str
    seeds: tuple[int, ...] = (1, 2)
    rates: str | None = None
    used_as: Setting = as_policy

    def __call__(self, file: Path) -> str:
        """Run both on every workload, and compare the means."""
        own = other = 0.0
        for seed in self.seeds:
            workload = self.draw(seed)
            own += self._value(play(file, workload, self.cluster, self.used_as, rates=self.rates))
            other += self._value(run(workload, self.cluster, rates=self.rates, **self.against))
        name = self.against.get("placement") or self.against["policy"]
        told = (
            f"{self.called} {duration(own / len(self.seeds))}, {own / other:.2f} times that of "
            f"{name} ({duration(other / len(self.seeds))})"
        )
        if own > self.at_most * other:
            raise Missed(f"{told}; at most {self.at_most:.2f} times is asked for. {self.why}")
        return told

    def _value(self, result: RunResult) -> float:
        return float(result.summary[self.key])


def play(
    file: Path, workload: Workload, cluster: str, used_as: Setting, **options: Any
) -> RunResult:
    """The solution on a workload, with all invariants; every job must end."""
    result = run(workload, cluster, check=True, **used_as(str(file)), **options)
    lost = result.jobs.filter(result.jobs["state"] != "done")["job_id"].to_list()
    if lost:
        raise Missed(f"{len(lost)} jobs were never done, job {lost[0]} among them")
    return result


def run(workload: Workload, cluster: str, **options: Any) -> RunResult:
    """Simulate."""
    return simulate(RunConfig(trace="lab", cluster=cluster, **options), workload=workload)


# --- what the file must be ------------------------------------------------------------------------


class Loads(msgspec.Struct, frozen=True):
    """The file has a policy that declares no more than it may know."""

    may_know: Knowledge = Knowledge.NOTHING

    def __call__(self, file: Path) -> str:
        """Make one."""
        policy: Policy[Any] = make_policy(str(file))
        too_much = policy.knowledge & ~self.may_know
        if too_much:
            raise Missed(
                f"it declares that it knows {too_much.describe()}: here it may know "
                f"{self.may_know.describe()}"
            )
        return f"policy {policy.name}, knows {policy.knowledge.describe()}"


def keeps_the_contract(file: Path) -> str:
    """All checks of the kit for policies."""
    from rota.testing import check_policy

    return str(check_policy(str(file), seeds=SEEDS, scale_free=False)).partition("\n")[0]


def is_a_placement(file: Path) -> str:
    """The file has a placement."""
    from rota.engine.parts import make_placement
    from rota.traces.cluster import parse_cluster

    placement = make_placement(str(file), parse_cluster("2x4")[0], 0)
    return f"placement {placement.name}"


def keeps_the_contract_of_placements(file: Path) -> str:
    """All checks of the kit for placements."""
    from rota.testing import check_placement

    return str(check_placement(str(file))).partition("\n")[0]
