"""Running a list of checks and telling what came out."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from rota.core.errors import RotaError

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
