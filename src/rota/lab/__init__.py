"""Exercises about scheduling, and a grader: `rota lab`, and for notebooks `check` and `play`."""

from pathlib import Path

from rota.core.errors import OptionError
from rota.lab.checks import LabScene
from rota.lab.checks import play as play_scene
from rota.lab.exercises import find_exercise
from rota.lab.grade import Grade, grade
from rota.notebook import Result

__all__ = ["check", "play"]


def check(exercise: str, file: str | Path) -> Grade:
    """Grade a file as a solution; `print` what comes back."""
    found = find_exercise(exercise)
    return grade(found.name, found.checks, Path(file))


def play(exercise: str, scene: str, file: str | Path) -> Result:
    """The run of a small scene with a solution: `play(...).plot_gantt()` shows it."""
    scenes = {
        name: test for name, test in find_exercise(exercise).checks if isinstance(test, LabScene)
    }
    if scene not in scenes:
        raise OptionError(f"scene {scene!r} is unknown: use {', '.join(map(repr, scenes))}")
    chosen = scenes[scene]
    workload = chosen.workload()
    return Result.of(
        play_scene(Path(file), workload, chosen.cluster, chosen.used_as, rates=chosen.rates)
    )
