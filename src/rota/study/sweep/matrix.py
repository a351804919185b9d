"""The cells of a sweep: every combination of its axes, less those excluded, plus those included.

An entry of `exclude` leaves out every cell that has all of its values. An entry of `include` adds
cells that have its values, and every value of the axes that it does not name; what it brings need
not be in the lists. Cells are added after others were left out, so it can bring some back. The
order is that of the axes: the seed changes fastest.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.study.sweep.source import Place
from rota.study.sweep.spec import (
    OPTIONS,
    Choice,
    Label,
    Spec,
    WorkloadEntry,
    choice,
    load,
    option,
    workload_entry,
)

MOST = 1_000_000  # cells of a sweep
_WORKLOAD, _LOAD, _SEED = "_workload", "_load", "seed"


class MatrixCell(msgspec.Struct, frozen=True):
    """One run: its `labels` by axis, its jobs, and the options of its configuration."""

    labels: dict[str, Label]
    workload: WorkloadEntry
    load: float | None
    options: dict[str, Any]

    def describe(self) -> str:
        """For messages."""
        return ", ".join(
            f"{axis}={value}" for axis, value in self.labels.items() if value is not None
        )


def make_cells(spec: Spec) -> list[MatrixCell]:
    """All cells, in order, each once."""
    axes = _axes(spec)
    _refuse_too_many(spec, axes)
    found: dict[tuple[Label, ...], MatrixCell] = {}
    used: set[int] = set()
    for cell in _combine(spec, axes):
        matching = {n for n, entry in enumerate(spec.exclude) if _matches(cell, entry)}
        used |= matching
        if not matching:
            found.setdefault(tuple(cell.labels.values()), cell)
    for number, entry in enumerate(spec.exclude):
        if number not in used:
            said = ", ".join(f"{axis}: {value}" for axis, value in entry.items())
            spec.source.fail(
                ("exclude", number), f"no cell has {said}: correct the values, or leave it out"
            )
    for number, entry in enumerate(spec.include):
        for cell in _combine(spec, _fixed(spec, axes, entry, ("include", number))):
            found.setdefault(tuple(cell.labels.values()), cell)
    if not found:
        raise InputError(f"{spec.source.where}: every cell is excluded: leave some in")
    return list(found.values())


def _refuse_too_many(spec: Spec, axes: Mapping[str, list[Choice]]) -> None:
    count = prod(len(choices) for choices in axes.values())
    if count > MOST:
        sizes = ", ".join(f"{len(found)} of {axis}" for axis, found in axes.items())
        raise InputError(
            f"{spec.source.where}: {count:,} cells ({sizes}): give at most {MOST:,} in one sweep"
        )


def _axes(spec: Spec) -> dict[str, list[Choice]]:
    """The choices of every axis; jobs, load and seed are options too until cells are made."""
    return {
        "workload": [Choice(entry.name, {_WORKLOAD: entry}) for entry in spec.workloads],
        "cluster": spec.clusters,
        "policy": spec.policies,
        **spec.parameters,
        "load": [Choice(load, {_LOAD: load}) for load in spec.loads] or [Choice(None, {})],
        "seed": [Choice(seed, {_SEED: seed}) for seed in spec.seeds],
    }


def _combine(spec: Spec, axes: Mapping[str, list[Choice]]) -> Iterator[MatrixCell]:
    shown = spec.axes
    for choices in product(*axes.values()):
        options = dict(spec.options)
        for chosen in choices:
            options |= chosen.options
        labels = dict(zip(axes, (chosen.label for chosen in choices), strict=True))
        if "mtbf" in options and options["mtbf"] is None:
            options["mttr"] = None  # no failures: how long repairs take is no question
        yield MatrixCell(
            {axis: labels.get(axis) for axis in shown},
            options.pop(_WORKLOAD),
            options.pop(_LOAD, None),
            options,
        )


def _matches(cell: MatrixCell, entry: Mapping[str, Any]) -> bool:
    return all(same(cell.labels.get(axis), value) for axis, value in entry.items())


def same(label: Label, value: Any) -> bool:
    """0.9 is 0.90, and a name that looks like a number is a name all the same."""
    return label == value or (None not in (label, value) and str(label) == str(value))


def _fixed(
    spec: Spec, axes: Mapping[str, list[Choice]], entry: Mapping[str, Any], place: Place
) -> dict[str, list[Choice]]:
    """The axes of an entry of `include`."""
    fixed = dict(axes)
    for axis, value in entry.items():
        known = [chosen for chosen in axes.get(axis, ()) if same(chosen.label, value)]
        fixed[axis] = known or [_new(spec, axis, value, (*place, axis))]
    return fixed


def _new(spec: Spec, axis: str, value: Any, place: Place) -> Choice:
    """A value that the lists do not have."""
    source = spec.source
    if axis == "workload":
        entry = workload_entry(source, place, value)
        return Choice(entry.name, {_WORKLOAD: entry})
    if axis in ("cluster", "policy"):
        return choice(source, place, value, axis)
    if axis == "load":
        factor = load(source, place, value)
        return Choice(factor, {_LOAD: factor})
    if axis == "seed":
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            source.fail(place, f"seed {value!r}: give a whole number from 0 on")
        return Choice(value, {_SEED: value})
    if axis not in OPTIONS:
        known = ", ".join(str(chosen.label) for chosen in spec.parameters[axis])
        source.fail(place, f"{axis} {value!r} is not in parameters.{axis}: it has {known}")
    return Choice(value, {axis: option(source, place, axis, value)})
