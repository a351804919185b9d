"""The columns of an imported trace, and the way from a frame of jobs to objects and back.

`JOBS` is one row per job. Required are `job_id`, `submit_s`, `num_gpus` and `duration_s`; a frame
inside Rota may lack the others, which then have their default. `roles` is null unless a job has
tasks that `num_gpus`, `cpus` and `mem_gib` (all of the whole job) cannot describe.
"""

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.sensitivity import Sensitivity
from rota.core.workload import Quality, Workload

if TYPE_CHECKING:
    import polars as pl

VERSION = 3
NODE_DOWN = "node_down"  # subject: the node; value 1: what jobs lost is in their run times
NODE_UP = "node_up"
CAPACITY = "capacity"  # subject: the tenant, empty for the whole cluster; value: its GPUs from now

# Column: (kind, default). None as a default: null, "not said".
JOBS: dict[str, tuple[str, Any]] = {
    "job_id": ("text", ""),
    "submit_s": ("float", 0.0),
    "num_gpus": ("float", 0.0),
    "duration_s": ("float", 0.0),
    "vc": ("text", ""),
    "user": ("text", ""),
    "group": ("text", ""),
    "name": ("text", ""),
    "model": ("text", ""),
    "gpu_type": ("texts", ()),
    "labels": ("texts", ()),
    "cpus": ("float", 0.0),
    "mem_gib": ("float", 0.0),
    "priority": ("int", 0),
    "deadline_s": ("float", None),
    "estimate_s": ("float", None),
    "gang": ("flag", True),
    "apart": ("flag", False),
    "min_gpus": ("int", 0),
    "max_gpus": ("int", 0),
    "depends_on": ("texts", ()),
    "roles": ("roles", None),
    "speeds": ("json", None),
    "scaling": ("json", None),
    "fails_at_s": ("float", None),
    "sensitivity": ("json", None),
    "account": ("text", ""),
    "partition": ("text", ""),
    "qos": ("text", ""),
}
ADDED = {"sensitivity": 2, "account": 3, "partition": 3, "qos": 3}
"""Columns that are not in the first version: from which on."""
EVENTS = {"time_s": "float", "kind": "text", "subject": "text", "value": "float", "text": "text"}

_ROLE = {
    "role": "text", "count": "int", "gpus": "float", "cpus": "float", "mem_gib": "float",
    "min_count": "int", "max_count": "int",
}  # fmt: skip
_ASKED = (
    "num_gpus", "gpu_type", "labels", "cpus", "mem_gib", "gang", "apart", "min_gpus", "max_gpus",
    "roles",
)  # fmt: skip
_SPEC_FIELDS = {
    "job_id": "id", "submit_s": "submit_s", "vc": "tenant", "user": "user", "group": "group",
    "name": "name", "model": "model", "priority": "priority", "depends_on": "depends_on",
    "account": "account", "partition": "partition", "qos": "qos",
}  # fmt: skip


def kinds() -> "dict[str, pl.DataType]":
    """The Polars type of every kind of column."""
    import polars as pl

    plain: dict[str, pl.DataType] = {
        "text": pl.String(),
        "float": pl.Float64(),
        "int": pl.Int64(),
        "flag": pl.Boolean(),
        "json": pl.String(),
        "texts": pl.List(pl.String()),
    }
    role = pl.Struct({name: plain[kind] for name, kind in _ROLE.items()})
    return {**plain, "roles": pl.List(role)}


def complete(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The frame with every column of `JOBS`, in this order and of the right type."""
    import polars as pl

    types = kinds()
    columns = []
    for name, (kind, default) in JOBS.items():
        value = pl.lit(list(default) if kind == "texts" else default, types[kind])
        if name not in frame.columns:
            columns.append(value.alias(name))
        elif default is None:
            columns.append(pl.col(name).cast(types[kind]))
        else:
            columns.append(pl.col(name).cast(types[kind]).fill_null(value))
    return frame.select(columns)


def events_frame(rows: Iterable[tuple[float, str, str, float, str]] = ()) -> "pl.DataFrame":
    """Rows of `EVENTS`, sorted by time."""
    import polars as pl

    types = kinds()
    schema = {name: types[kind] for name, kind in EVENTS.items()}
    return pl.DataFrame(list(rows), schema=schema, orient="row").sort("time_s", maintain_order=True)


def to_workload(frame: "pl.DataFrame", *, name: str, quality: Quality) -> Workload:
    """Objects for a simulation; equal requests share one object."""
    count = frame.height
    column = _columns(frame)
    asked = [column(key) for key in _ASKED]
    requests = list(map(_Requests().__getitem__, zip(*asked, strict=False))) if count else []
    specs = map(
        JobSpec,
        column("job_id"),
        column("submit_s"),
        requests,
        column("vc"),
        column("user"),
        column("name"),
        column("group"),
        column("model"),
        column("priority"),
        _or_infinite(column("deadline_s")),
        _or_infinite(column("estimate_s")),
        column("depends_on"),
        column("account"),
        column("partition"),
        column("qos"),
    )
    return Workload(list(specs), _behaviours(column), name=name, quality=quality)


def _columns(frame: "pl.DataFrame") -> Callable[[str], Iterable[Any]]:
    """How to get a column as Python values; an absent one is its default again and again."""

    def column(name: str) -> Iterable[Any]:
        kind, default = JOBS[name]
        if name not in frame.columns:
            return repeat(default, frame.height)
        values = frame[name]
        if kind == "texts":
            return [tuple(texts or ()) for texts in values.to_list()]
        if kind == "roles":
            return [
                roles and tuple(TaskGroup(**role) for role in roles) for roles in values.to_list()
            ]
        if default is None:
            return list(values.to_list())
        plain: list[Any] = values.fill_null(default).to_list()
        if kind == "text" and name != "job_id":  # most are there many times: one object will do
            shared: dict[str, str] = {}
            return [shared.setdefault(text, text) for text in plain]
        return plain

    return column


def _behaviours(column: Callable[[str], Iterable[Any]]) -> list[Behaviour]:
    speeds = (text and msgspec.json.decode(text) for text in column("speeds"))
    scaling = (text and tuple(map(tuple, msgspec.json.decode(text))) for text in column("scaling"))
    fails = _or_infinite(column("fails_at_s"))
    tables = map(_Tables().__getitem__, column("sensitivity"))
    return list(map(Behaviour, column("duration_s"), speeds, scaling, fails, tables))


def _or_infinite(values: Iterable[float | None]) -> list[float]:
    return [INF if value is None else value for value in values]


class _Tables(dict[str | None, Sensitivity | None]):
    """One table for all jobs with the same."""

    def __missing__(self, text: str | None) -> Sensitivity | None:
        table = None if text is None else msgspec.json.decode(text, type=Sensitivity)
        self[text] = table
        return table


class _Requests(dict[tuple[Any, ...], Request]):
    """One request object for all rows that ask for the same."""

    def __missing__(self, key: tuple[Any, ...]) -> Request:
        gpus, gpu_types, labels, cpus, mem_gib, gang, apart, min_gpus, max_gpus, roles = key
        if roles:
            request = Request(roles, gpu_types, labels, gang, apart)
        else:
            request = Request.of(
                gpus,
                gpu_types=gpu_types,
                cpus=cpus,
                mem_gib=mem_gib,
                labels=labels,
                gang=gang,
                min_gpus=min_gpus,
                max_gpus=max_gpus,
            )
            if apart:
                request = _in_one_piece(request, gpus, cpus, mem_gib)
        self[key] = request
        return request


def _in_one_piece(request: Request, gpus: float, cpus: float, mem_gib: float) -> Request:
    """The same as one task, which needs all of it on one node."""
    task = TaskGroup("worker", 1, int(gpus) if gpus == int(gpus) else gpus, cpus, mem_gib)
    return msgspec.structs.replace(request, groups=(task,), apart=True)


def from_workload(workload: Workload) -> "pl.DataFrame":
    """The jobs as a frame."""
    import polars as pl

    specs, behaviours = workload.specs, workload.behaviours
    texts: dict[Sensitivity | None, str | None] = {
        table: None if table is None else as_json(table)
        for table in {behaviour.sensitivity for behaviour in behaviours}
    }
    cells = {request: _asked(request) for request in {spec.request for spec in specs}}
    asked = [cells[spec.request] for spec in specs]
    columns: dict[str, list[Any]] = {name: [cell[name] for cell in asked] for name in _ASKED}
    columns |= {
        name: [getattr(spec, field) for spec in specs] for name, field in _SPEC_FIELDS.items()
    }
    columns |= {
        "deadline_s": [_or_null(spec.deadline_s) for spec in specs],
        "estimate_s": [_or_null(spec.estimate_s) for spec in specs],
        "duration_s": [behaviour.work for behaviour in behaviours],
        "speeds": [it.speeds and as_json(dict(it.speeds)) for it in behaviours],
        "scaling": [it.scaling and as_json(list(map(list, it.scaling))) for it in behaviours],
        "fails_at_s": [_or_null(behaviour.fails_at) for behaviour in behaviours],
        "sensitivity": [texts[behaviour.sensitivity] for behaviour in behaviours],
    }
    types = kinds()
    said = {
        name: pl.Series(columns[name], dtype=types[kind])
        for name, (kind, default) in JOBS.items()
        if name == "job_id" or any(value != default for value in columns[name])
    }
    return complete(pl.DataFrame(said))


def _asked(request: Request) -> dict[str, Any]:
    shape = {
        "num_gpus": sum(group.count * group.gpus for group in request.groups),
        "cpus": sum(group.count * group.cpus for group in request.groups),
        "mem_gib": sum(group.count * group.mem_gib for group in request.groups),
        "min_gpus": request.groups[0].min_count,
        "max_gpus": request.groups[0].max_count,
    }
    again = Request.of(
        shape["num_gpus"],
        gpu_types=request.gpu_types,
        cpus=shape["cpus"],
        mem_gib=shape["mem_gib"],
        labels=request.labels,
        gang=request.gang,
        min_gpus=int(shape["min_gpus"]),
        max_gpus=int(shape["max_gpus"]),
    )
    if request.apart:
        again = _in_one_piece(again, shape["num_gpus"], shape["cpus"], shape["mem_gib"])
    plain = again.groups == request.groups
    return {
        **shape,
        "gpu_type": request.gpu_types,
        "labels": request.labels,
        "gang": request.gang,
        "apart": request.apart,
        "roles": None if plain else [msgspec.structs.asdict(group) for group in request.groups],
    }


def _or_null(value: float) -> float | None:
    return None if value == INF else value


def as_json(value: Any) -> str:
    """Compact JSON text."""
    return msgspec.json.encode(value).decode()
