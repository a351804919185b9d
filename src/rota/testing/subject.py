"""The policy under test, and what the checks share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from rota.core.errors import RotaError
from rota.core.jobs import DONE, FAILED, REJECTED
from rota.core.policy import Policy, PriorityPolicy
from rota.engine.loop import Engine
from rota.testing.logs import difference, entries
from rota.testing.naive import Entry
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
        fails = job.truth.fails_at < job.true_work
        must(job.phase in (FAILED if fails else DONE, REJECTED), f"{job} did not end as it should")


# --- Running checks -------------------------------------------------------------------------------

T = TypeVar("T")


class CheckFailed(AssertionError):  # noqa: N818 - as it is read in a test
    """A check of the kit failed; the message says which, for what, and shows an example."""


class Skip(Exception):  # noqa: N818 - not an error
    """This check does not apply."""


class Report:
    """Which checks passed, and which did not apply and why."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.passed: list[str] = []
        self.skipped: dict[str, str] = {}

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.passed)} checks passed"]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def run_checks(what: str, checks: Iterable[Callable[[T], None]], subject: T) -> Report:
    """All checks in order; the first failure ends it."""
    report = Report(what)
    for check in checks:
        name = check.__name__
        try:
            check(subject)
        except Skip as skip:
            report.skipped[name] = str(skip)
        except (AssertionError, RotaError) as error:
            raise CheckFailed(f"{what}: {name}: {type(error).__name__}: {error}") from error
        else:
            report.passed.append(name)
    return report
