"""Grading: the checks of an exercise, one after the other, each with a verdict and its reason."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

import msgspec

from rota.core.errors import RotaError

WIDTH, INDENT = 96, " " * 8


class Missed(Exception):  # noqa: N818 - what a check says of a solution, not an error of ours
    """A check did not pass; the text says what was expected, what came out, and why."""


Check = Callable[[Path], str]
"""Looks at the file of a solution: what it found, or `Missed`."""


class LabVerdict(msgspec.Struct, frozen=True):
    """Of one check."""

    check: str
    passed: bool
    told: str


class Grade(msgspec.Struct, frozen=True):
    """Of a solution."""

    exercise: str
    file: str
    passed: bool
    points: int
    of: int
    verdicts: list[LabVerdict]

    def __str__(self) -> str:
        """For people: every check, and what was found."""
        lines = []
        for verdict in self.verdicts:
            lines.append(f"{'passed' if verdict.passed else 'MISSED'}  {verdict.check}")
            for told in verdict.told.splitlines():
                lines += wrap(told, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
        tried = len(self.verdicts)
        if tried < self.of:
            lines.append(f"{INDENT}the other {self.of - tried} checks were not tried")
        lines.append(f"{self.points} of {self.of} checks passed")
        return "\n".join(lines)


def grade(exercise: str, checks: Sequence[tuple[str, Check]], file: Path) -> Grade:
    """Run the checks; if the first fails (the file cannot be used), the others are not tried."""
    verdicts = list(_verdicts(checks, file))
    points = sum(verdict.passed for verdict in verdicts)
    return Grade(exercise, str(file), points == len(checks), points, len(checks), verdicts)


def _verdicts(checks: Sequence[tuple[str, Check]], file: Path) -> Iterator[LabVerdict]:
    for number, (name, check) in enumerate(checks):
        try:
            verdict = LabVerdict(name, passed=True, told=check(file))
        except Missed as missed:
            verdict = LabVerdict(name, passed=False, told=str(missed))
        except (RotaError, AssertionError) as error:
            verdict = LabVerdict(name, passed=False, told=_short(str(error)))
        except Exception as error:  # noqa: BLE001 - the file is somebody else's: anything may happen
            verdict = LabVerdict(name, passed=False, told=_where(error, file))
        yield verdict
        if not number and not verdict.passed:
            return


def _where(error: Exception, file: Path) -> str:
    """The last line of the solution on the way to an error."""
    told = f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if Path(frame.filename).resolve() == file.resolve()]  # fmt: skip
    if not frames:
        return told
    return f"line {frames[-1].lineno} (`{frames[-1].line}`): {told}"


def _short(text: str) -> str:
    """Without the workload that shows it, which nobody reads in a table."""
    return text.split("\n  in ", maxsplit=1)[0]
