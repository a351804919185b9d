"""The policy under test, and what the checks share."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rota.core.jobs import DONE, FAILED, REJECTED
from rota.core.policy import Policy, PriorityPolicy
from rota.engine.loop import Engine
from rota.testing.logs import difference, entries
from rota.testing.naive import Entry
from rota.testing.report import Skip
from rota.testing.scenario import Scenario, random_scenario, to_the_end

UNIT_S = 300  # typical durations are then between minutes and hours, as policies' constants expect
POWERS = (1, 1, 2, 4, 8)  # sizes whose levels are reached at times that floats represent exactly


class Subject(msgspec.Struct):
    """The policy under test."""

    make: Callable[[], Policy[Any]]
    name: str
    seeds: tuple[int, ...]
    scale_free: bool | None
    work_conserving: bool | None

    def priority(self) -> Callable[[], PriorityPolicy[Any]]:
        """The same, known to be a priority policy."""
        if not isinstance(self.make(), PriorityPolicy):
            raise Skip("not a priority policy")
        return self.make  # type: ignore[return-value]  # checked in the line before

    def scenarios(self, **options: Any) -> Iterator[Scenario]:
        """Random ones; the same for every check with the same options."""
        for seed in self.seeds:
            yield random_scenario(seed, unit_s=UNIT_S, lossy=False, **options)


def run(subject: Subject, scenario: Scenario, **options: Any) -> Engine:
    """Run to the end, with all invariants."""
    return to_the_end(scenario.engine(subject.make(), **options))


def happened(engine: Engine) -> list[Entry]:
    """What the log says."""
    return entries(engine.log, engine.cluster.topology)


def same(real: list[Entry], expected: list[Entry], scenario: Scenario) -> None:
    """Fail unless the logs agree."""
    found = difference(real, expected)
    assert not found, f"the logs differ:\n{found}\n  in {scenario}"  # noqa: S101


def must(holds: object, message: str) -> None:
    """Fail with a message unless it holds."""
    if not holds:
        raise AssertionError(message)


def ends(engine: Engine) -> dict[str, float]:
    """When each job ended, by its id."""
    return {job.id: job.end_s for job in engine.jobs.values()}


def everybody_done(engine: Engine) -> None:
    """Fail unless all jobs are done or refused, or failed as they were meant to."""
    for job in engine.jobs.values():
        fails = job.behaviour.fails_at < job.work
        must(job.phase in (FAILED if fails else DONE, REJECTED), f"{job} did not end as it should")
