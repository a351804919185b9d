"""From cells to tasks: everything is checked, every file found and hashed, before the first run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.workload import Workload
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.sweep.keys import Inputs, code_version, make_key
from rota.study.sweep.matrix import MatrixCell, make_cells
from rota.study.sweep.spec import Spec
from rota.study.sweep.work import SweepTask
from rota.study.sweep.workloads import Workloads, anchored

_FILES = ("cluster", "policy", "placement", "admission", "costs", "rates", "like")
"""Options that may name files."""


class SweepPlan(msgspec.Struct, frozen=True):
    """Cells with their tasks, in order; `warnings` of the workloads."""

    spec: Spec
    cells: list[MatrixCell]
    tasks: list[SweepTask]
    warnings: list[str]


def make_plan(spec: Spec, workloads: Path, command: Sequence[str] = ()) -> SweepPlan:
    """Check the whole sweep and say what is to be run.

    Args:
        spec: The sweep.
        workloads: Folder for files with jobs that are drawn or changed.
        command: For the manifests.

    Raises:
        InputError: Something cannot be run; the message names the cell.
    """
    cells = make_cells(spec)
    provided = Workloads(spec.source.base, workloads)
    inputs = Inputs()
    checked: set[RunConfig] = set()
    tasks = []
    for cell in cells:
        options = _anchored(cell.options, spec.source.base)
        try:
            _check(options, checked)
            trace = provided.of(cell, options["cluster"])
        except InputError as error:
            raise InputError(f"{spec.source.where}: {cell.describe()}: {error}") from error
        config = RunConfig(trace=trace.path, format=trace.format, limit=trace.limit, **options)
        files = inputs.of(config)
        key = make_key(config, files)
        tasks.append(SweepTask(key, config, files, spec.keep, list(command), code_version()))
    return SweepPlan(spec, cells, tasks, list(provided.warnings))


def _anchored(options: dict[str, Any], base: Path) -> dict[str, Any]:
    return {
        key: anchored(value, base) if key in _FILES and isinstance(value, str) else value
        for key, value in options.items()
    }


def _check(options: dict[str, Any], checked: set[RunConfig]) -> None:
    """Build the run without jobs: whatever is wrong with its options is said now."""
    config = RunConfig(trace="", **options | {"seed": 0})
    if config not in checked:
        build(config, Workload([], []))
        checked.add(config)
