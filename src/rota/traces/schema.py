"""The columns of an imported trace, and the way from a frame of jobs to objects and back.

`JOBS` is one row per job. Required are `job_id`, `submit_s`, `num_gpus` and `duration_s`; a frame
inside Rota may lack the others, which then have their default. `roles` is null unless a job has
tasks that `num_gpus`, `cpus` and `mem_gib` (all of the whole job) cannot describe. GPU memory is
that of each task with GPUs, whatever its role.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.sensitivity import Sensitivity
from rota.core.sums import ordered_sum
from rota.core.workload import OnDemand, Quality, Workload, fields

if TYPE_CHECKING:
    import polars as pl

VERSION = 6
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
    "sizes": ("json", None),
    "course": ("json", None),
    "time_limit_s": ("float", None),
    "retries": ("int", 0),
    "backoff_s": ("float", 0.0),
    "after_any": ("texts", ()),
    "after_fail": ("texts", ()),
    "array": ("text", ""),
    "array_limit": ("int", 0),
    "gpu_mem_gib": ("float", 0.0),
    "gpu_mem_step_gib": ("float", 0.0),
    "resources": ("json", None),
    "demand": ("json", None),
}
ADDED = {
    "sensitivity": 2, "account": 3, "partition": 3, "qos": 3, "sizes": 4, "course": 4,
    "time_limit_s": 5, "retries": 5, "backoff_s": 5, "after_any": 5, "after_fail": 5, "array": 5,
    "array_limit": 5, "gpu_mem_gib": 6, "gpu_mem_step_gib": 6, "resources": 6, "demand": 6,
}  # fmt: skip
"""Columns that are not in the first version: from which on."""
DEPENDENCIES = ("depends_on", "after_any", "after_fail")
"""Columns that name other jobs."""
EVENTS = {"time_s": "float", "kind": "text", "subject": "text", "value": "float", "text": "text"}

_ROLE = {
    "role": "text", "count": "int", "gpus": "float", "cpus": "float", "mem_gib": "float",
    "min_count": "int", "max_count": "int",
}  # fmt: skip
_ASKED = (
    "num_gpus", "gpu_type", "labels", "cpus", "mem_gib", "gang", "apart", "min_gpus", "max_gpus",
    "roles", "sizes", "gpu_mem_gib", "gpu_mem_step_gib", "resources",
)  # fmt: skip
_SPEC_FIELDS = {
    "job_id": "id", "submit_s": "submit_s", "vc": "tenant", "user": "user", "group": "group",
    "name": "name", "model": "model", "priority": "priority", "depends_on": "depends_on",
    "account": "account", "partition": "partition", "qos": "qos", "retries": "retries",
    "backoff_s": "backoff_s", "after_any": "after_any", "after_fail": "after_fail",
    "array": "array", "array_limit": "array_limit",
}  # fmt: skip

SPEC_COLUMNS = {field: name for name, field in _SPEC_FIELDS.items()} | {
    "deadline_s": "deadline_s", "estimate_s": "estimate_s", "limit_s": "time_limit_s",
}  # fmt: skip
"""The column of every field of a `JobSpec` but the request."""
_IN_SPECS = frozenset(SPEC_COLUMNS.values())
_BEHAVIOUR_COLUMNS = {
    "work": "duration_s", "speeds": "speeds", "scaling": "scaling", "fails_at": "fails_at_s",
    "sensitivity": "sensitivity", "course": "course", "demand": "demand",
}  # fmt: skip
_IN_BEHAVIOURS = frozenset(_BEHAVIOUR_COLUMNS.values())


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
    """Jobs for a simulation, made from the rows on demand; equal requests share one object."""
    specs = OnDemand(SpecColumns(frame), frame.height)
    behaviours = OnDemand(BehaviourColumns(frame), frame.height)
    return Workload(specs, behaviours, name=name, quality=quality)


class SpecColumns:
    """What jobs ask for, from a frame with columns of `JOBS`."""

    def __init__(self, frame: "pl.DataFrame") -> None:
        self._frame = frame.select(name for name in frame.columns if name in _IN_SPECS)
        self._shared: dict[str, str] = {}  # most texts are there many times: one object will do
        asked = [_values(frame, key) for key in _ASKED]
        self._requests = [*map(_Requests().__getitem__, zip(*asked, strict=False))]

    def make(self, rows: slice | Sequence[int]) -> list[JobSpec]:
        """The specs of these rows."""
        frame = self._frame[rows]
        requests = (
            self._requests[rows]
            if isinstance(rows, slice)
            else [self._requests[row] for row in rows]
        )
        columns = [self._field(frame, field) for field in JobSpec.__struct_fields__[3:]]
        ids, submits_s = self._field(frame, "id"), self._field(frame, "submit_s")
        return list(map(JobSpec, ids, submits_s, requests, *columns))

    def field(self, name: str) -> Sequence[Any]:
        """One attribute of all specs."""
        if name == "request":
            return self._requests
        return list(self._field(self._frame, name))

    def _field(self, frame: "pl.DataFrame", field: str) -> Iterable[Any]:
        name = SPEC_COLUMNS[field]
        values = _values(frame, name)
        if field in ("deadline_s", "estimate_s", "limit_s"):
            return _or_infinite(values)
        if JOBS[name][0] == "text" and field != "id" and name in frame.columns:
            shared = self._shared
            return [shared.setdefault(text, text) for text in values]
        return values


class BehaviourColumns:
    """How jobs behave, from a frame with columns of `JOBS`."""

    def __init__(self, frame: "pl.DataFrame") -> None:
        self._frame = frame.select(name for name in frame.columns if name in _IN_BEHAVIOURS)
        self._tables = _Tables()

    def make(self, rows: slice | Sequence[int]) -> list[Behaviour]:
        """The behaviours of these rows."""
        frame = self._frame[rows]
        columns = [self._field(frame, field) for field in Behaviour.__struct_fields__]
        return list(map(Behaviour, *columns))

    def field(self, name: str) -> Sequence[Any]:
        """One attribute of all behaviours."""
        return list(self._field(self._frame, name))

    def _field(self, frame: "pl.DataFrame", field: str) -> Iterable[Any]:
        if field == "training":  # what a reader knows beyond the columns, it adds itself
            return [None] * frame.height
        values = _values(frame, _BEHAVIOUR_COLUMNS[field])
        if field in ("speeds", "demand"):
            return [text and msgspec.json.decode(text) for text in values]
        if field in ("scaling", "course"):
            return [text and tuple(map(tuple, msgspec.json.decode(text))) for text in values]
        if field == "fails_at":
            return _or_infinite(values)
        if field == "sensitivity":
            return [self._tables[text] for text in values]
        return values


def _values(frame: "pl.DataFrame", name: str) -> Iterable[Any]:
    """A column as Python values; an absent one is its default again and again."""
    kind, default = JOBS[name]
    if name not in frame.columns:
        return repeat(default, frame.height)
    values = frame[name]
    if kind == "texts":
        return [tuple(texts or ()) for texts in values.to_list()]
    if kind == "roles":
        return [roles and tuple(TaskGroup(**role) for role in roles) for roles in values.to_list()]
    plain: list[Any] = (values if default is None else values.fill_null(default)).to_list()
    return plain


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
        (
            gpus, gpu_types, labels, cpus, mem_gib, gang, apart, min_gpus, max_gpus, roles, sizes,
            gpu_mem_gib, gpu_mem_step_gib, resources,
        ) = key  # fmt: skip
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
        if sizes:
            only = msgspec.json.decode(sizes, type=tuple[float, ...])
            request = msgspec.structs.replace(request, only=only)
        if gpu_mem_gib or resources:
            kinds = msgspec.json.decode(resources, type=dict[str, float]) if resources else {}
            request = _with_more(request, gpu_mem_gib, gpu_mem_step_gib, kinds)
        self[key] = request
        return request


def _in_one_piece(request: Request, gpus: float, cpus: float, mem_gib: float) -> Request:
    """The same as one task, which needs all of it on one node."""
    task = TaskGroup("worker", 1, int(gpus) if gpus == int(gpus) else gpus, cpus, mem_gib)
    return msgspec.structs.replace(request, groups=(task,), apart=True)


def _with_more(
    request: Request, gpu_mem_gib: float, gpu_mem_step_gib: float, resources: dict[str, float]
) -> Request:
    """GPU memory for every task with GPUs; of other kinds, what the first tasks ask together."""
    groups = [
        msgspec.structs.replace(group, gpu_mem_gib=gpu_mem_gib, gpu_mem_step_gib=gpu_mem_step_gib)
        if group.gpus
        else group
        for group in request.groups
    ]
    each = tuple((kind, total / groups[0].count) for kind, total in sorted(resources.items()))
    groups[0] = msgspec.structs.replace(groups[0], resources=each)
    return msgspec.structs.replace(request, groups=tuple(groups))


def _without_more(group: TaskGroup) -> TaskGroup:
    return msgspec.structs.replace(group, gpu_mem_gib=0.0, gpu_mem_step_gib=0.0, resources=())


def from_workload(workload: Workload) -> "pl.DataFrame":
    """The jobs as a frame."""
    import polars as pl

    specs = partial(fields, workload.specs)
    behaviours = partial(fields, workload.behaviours)
    tables = behaviours("sensitivity")
    texts: dict[Sensitivity | None, str | None] = {
        table: None if table is None else as_json(table) for table in set(tables)
    }
    requests = {id(request): request for request in specs("request")}
    cells = {key: _asked(request) for key, request in requests.items()}
    asked = [cells[id(request)] for request in specs("request")]
    columns: dict[str, Sequence[Any]] = {name: [cell[name] for cell in asked] for name in _ASKED}
    columns |= {name: specs(field) for name, field in _SPEC_FIELDS.items()}
    columns |= {
        "deadline_s": list(map(_or_null, specs("deadline_s"))),
        "estimate_s": list(map(_or_null, specs("estimate_s"))),
        "time_limit_s": list(map(_or_null, specs("limit_s"))),
        "duration_s": behaviours("work"),
        "speeds": [speeds and as_json(dict(speeds)) for speeds in behaviours("speeds")],
        "scaling": [sizes and as_json(list(map(list, sizes))) for sizes in behaviours("scaling")],
        "course": [course and as_json(list(map(list, course))) for course in behaviours("course")],
        "demand": [demand and as_json(dict(demand)) for demand in behaviours("demand")],
        "fails_at_s": list(map(_or_null, behaviours("fails_at"))),
        "sensitivity": [texts[table] for table in tables],
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
        "num_gpus": ordered_sum(group.count * group.gpus for group in request.groups),
        "cpus": ordered_sum(group.count * group.cpus for group in request.groups),
        "mem_gib": ordered_sum(group.count * group.mem_gib for group in request.groups),
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
    bare = tuple(map(_without_more, request.groups))
    plain = again.groups == bare
    return {
        **shape,
        "gpu_mem_gib": max((group.gpu_mem_gib for group in request.groups), default=0.0),
        "gpu_mem_step_gib": max((group.gpu_mem_step_gib for group in request.groups), default=0.0),
        "resources": as_json(request.resources) if request.resources else None,
        "gpu_type": request.gpu_types,
        "labels": request.labels,
        "gang": request.gang,
        "apart": request.apart,
        "sizes": as_json(request.only) if request.only else None,
        "roles": None
        if plain
        else [{name: getattr(group, name) for name in _ROLE} for group in bare],
    }


def without_lost(frame: "pl.DataFrame") -> "tuple[pl.DataFrame, int]":
    """Without dependencies on jobs that are not in the frame; of how many jobs they were."""
    import polars as pl

    known = pl.element().is_in(frame["job_id"].implode())
    kept = [
        pl.col(name).list.eval(pl.element().filter(known)).alias(name)
        for name in DEPENDENCIES
        if name in frame.columns
    ]
    if not kept:
        return frame, 0
    fewer = pl.any_horizontal(
        each.list.len() != pl.col(name).list.len()
        for each, name in zip(kept, (n for n in DEPENDENCIES if n in frame.columns), strict=True)
    )
    lost = int(frame.select(fewer.sum()).item())
    return (frame.with_columns(kept) if lost else frame), lost


def _or_null(value: float) -> float | None:
    return None if value == INF else value


def as_json(value: Any) -> str:
    """Compact JSON text."""
    return msgspec.json.encode(value).decode()
