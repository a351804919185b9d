"""`rota lab`: exercises about scheduling, and their grader."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from rota.cli.show import FORMAT, emit, listing

LIMIT_S = 300


class TooLongError(BaseException):
    """Not an Exception: what a solution catches must not hide it."""


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    from rota.lab.exercises import EXERCISES

    return [CompletionItem(name, help=exercise.title) for name, exercise in EXERCISES.items()
            if name.startswith(incomplete)]  # fmt: skip


_NEW_FILE = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    required=True, help="The file to write; one that is there is never replaced.",
)  # fmt: skip
_EXERCISE = click.argument("exercise", metavar="EX", shell_complete=_names)


@click.group()
def lab() -> None:
    """Learn scheduling by writing it: exercises with a grader.

    \b
    Examples:
      rota lab ls
      rota lab start srtf -o my_policy.py
      rota lab check srtf my_policy.py
    """  # noqa: D301 - \b keeps click from wrapping the lines


@lab.command()
@FORMAT
def ls(output: str) -> None:
    """List the exercises.

    \b
    Example:
      rota lab ls -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.lab.exercises import EXERCISES

    rows = [
        {"name": each.name, "title": each.title, "checks": len(each.checks)}
        for each in EXERCISES.values()
    ]
    listing(rows, output)


@lab.command()
@_EXERCISE
def show(exercise: str) -> None:
    """Say what EX asks for, and what is checked.

    \b
    Example:
      rota lab show srtf
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.lab.exercises import find_exercise

    found = find_exercise(exercise)
    click.echo(f"{found.title}\n\n{found.task}\n\nChecks:")
    for name, _ in found.checks:
        click.echo(f"  {name}")
    click.echo(f"\nBegin with: rota lab start {exercise} -o my_{exercise}.py")


@lab.command()
@_EXERCISE
@_NEW_FILE
def start(exercise: str, output: Path) -> None:
    """Write a file to start from: it runs, and is not yet a solution.

    \b
    Example:
      rota lab start srtf -o mine.py
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.lab.exercises import find_exercise

    _write_new(output, find_exercise(exercise).starter)
    click.echo(f"{output}: change it, then `rota lab check {exercise} {output}`")


@lab.command()
@_EXERCISE
@_NEW_FILE
def notebook(exercise: str, output: Path) -> None:
    """Write EX as a Jupyter notebook: the task, a first version, pictures and the grader.

    \b
    Example:
      rota lab notebook srtf -o mine.ipynb
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.lab.exercises import find_exercise
    from rota.lab.page import notebook_of

    _write_new(output, notebook_of(find_exercise(exercise)))
    click.echo(f"{output}: open it with Jupyter")


def _write_new(path: Path, text: str) -> None:
    from rota.core.errors import OutputError, why_unwritten

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise OutputError(f"{path}: is there already: name another file with -o") from error
    except OSError as error:
        raise OutputError(f"{path}: {why_unwritten(error, 'name another file')}") from error


@lab.command()
@_EXERCISE
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--timeout", metavar="S", type=click.IntRange(min=1, max=86_400), default=LIMIT_S,
    show_default=True, help="Seconds after which a solution that does not end has failed.",
)  # fmt: skip
@FORMAT
def check(exercise: str, file: Path, timeout: int, output: str) -> None:
    """Grade FILE as a solution of EX: every check, and why one is missed.

    FILE is executed: grade what strangers hand in inside a sandbox. The exit code is 0 if all
    checks pass and 1 if one does not; `-o json` is for courses.

    \b
    Examples:
      rota lab check srtf my_policy.py
      rota lab check own my_policy.py -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.core.errors import InputError
    from rota.lab.exercises import find_exercise
    from rota.lab.grade import grade

    found = find_exercise(exercise)
    if not file.is_file():
        raise InputError(f"{file}: there is no such file: `rota lab start {exercise} -o {file}`")
    with _limited(timeout, file):
        result = grade(exercise, found.checks, file)
    if output == "table":
        click.echo(str(result))
    else:
        import msgspec

        emit(msgspec.to_builtins(result), output)
    click.get_current_context().exit(0 if result.passed else 1)


@contextmanager
def _limited(seconds: int, file: Path) -> Iterator[None]:
    """A solution may loop for ever: its next line raises an error then."""
    from rota.core.errors import InputError

    def over(number: int, frame: Any) -> None:  # noqa: ARG001 - the signal's interface
        raise TooLongError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except TooLongError as error:
        raise InputError(
            f"{file}: was not done after {seconds} s: does it loop for ever? (--timeout)"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
