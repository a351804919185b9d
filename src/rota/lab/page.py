"""An exercise as a Jupyter notebook."""

import json
from typing import Any

from rota.lab.checks import LabScene
from rota.lab.exercises import Exercise


def notebook_of(exercise: Exercise) -> str:
    """The task, a first version, a picture for each scene, the grader; the same text every time."""
    file = f"my_{exercise.name}.py"
    cells = [
        _text(f"# {exercise.title}\n\n{exercise.task}"),
        _text(f"A first version. It runs, but it is not yet a solution. This cell writes `{file}`: "
              "change it, and run the notebook again."),
        _code(f"%%writefile {file}\n{exercise.starter.rstrip()}"),
    ]  # fmt: skip
    for name, check in exercise.checks:
        if isinstance(check, LabScene):
            cells += [
                _text(f"## {name.capitalize()}\n\n{_jobs(check)}"),
                _code(f"from rota.lab import play\n\n"
                      f"play({exercise.name!r}, {name!r}, {file!r}).plot_gantt()"),
            ]  # fmt: skip
    cells += [
        _text("## Is it right?"),
        _code(f"from rota.lab import check\n\nprint(check({exercise.name!r}, {file!r}))"),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"{exercise.name}-{number}"
    data = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _jobs(scene: LabScene) -> str:
    rows = [f"| {job.id} | {job.submit_s:g} | {_gpus(job.least, job.most, job.gpus)} | "
            f"{job.run_s:g} |" for job in scene.jobs]  # fmt: skip
    head = "| Job | Submitted (s) | GPUs | Runs for (s) |\n| --- | --- | --- | --- |"
    return f"The cluster is `{scene.cluster}`.\n\n{head}\n" + "\n".join(rows)


def _gpus(least: int, most: int, asked: float) -> str:
    return f"{least} to {most}" if most else f"{asked:g}"


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
