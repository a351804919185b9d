"""Writing a workload as the plain csv (see `plain`): what is written is read back equal."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, TypeAlias

import msgspec

from rota.core.errors import OutputError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.workload import Workload, fields
from rota.traces.formats.plain import LAYOUT, split_texts
from rota.traces.schema import SPEC_COLUMNS
from rota.traces.sources import replacing

Row: TypeAlias = dict[str, str]

_NOTHING_SAID = JobSpec("", 0.0, Request.of())
_NEEDS_QUOTES = re.compile('[",\r\n]')


def write_workload(workload: Workload, path: str | Path, *, force: bool = False) -> Path:
    """Write the jobs in their order; the file appears whole or not at all.

    Args:
        workload: Jobs that ask for one kind of task and whose behaviour is a duration.
        path: The file; its folder must exist.
        force: Replace a file that is there.

    Raises:
        OutputError: The file is there or cannot be written, or csv cannot hold a job.
    """
    path = Path(path)
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already: choose another name or use --force")
    used = _used(workload)
    columns = [name for name in LAYOUT.names if name in LAYOUT.needed or name in used]
    _replace(path, columns, _rows(workload))
    return path


def _used(workload: Workload) -> set[str]:
    """Columns in which a job has something to say; nothing is written before that is known."""
    specs = workload.specs
    said = {
        column
        for field, column in SPEC_COLUMNS.items()
        if any(value != getattr(_NOTHING_SAID, field) for value in fields(specs, field))
    }
    first: dict[int, int] = {}  # job with each request
    for row, request in enumerate(fields(specs, "request")):
        first.setdefault(id(request), row)
    if any(fails_at < INF for fails_at in fields(workload.behaviours, "fails_at")):
        said.add("fails_at_s")
    asked = (_request_cells(specs[row]) for row in first.values())
    return said.union(column for cells in asked for column, text in cells.items() if text)


def _replace(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(columns) + "\n")
        file.writelines(
            ",".join([_quoted(row[column]) for column in columns]) + "\n" for row in rows
        )


def _quoted(text: str) -> str:
    """A cell; the standard writer leaves a carriage return bare, which would end the row."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _rows(workload: Workload) -> Iterator[Row]:
    requests: dict[Request, Row] = {}
    for spec, behaviour in workload:
        if spec.request not in requests:
            requests[spec.request] = _request_cells(spec)
        yield {**_spec_cells(spec, behaviour), **requests[spec.request]}


def _spec_cells(spec: JobSpec, behaviour: Behaviour) -> Row:
    plain = Behaviour(behaviour.work, fails_at=behaviour.fails_at, demand=behaviour.demand)
    if behaviour != plain or not 0 < behaviour.work < INF:
        _refuse(spec, "its behaviour is not just a finite duration above 0")
    return {
        "job_id": _text(spec, "id", spec.id),
        "submit_s": number(spec.submit_s),
        "duration_s": number(behaviour.work),
        "vc": _text(spec, "tenant", spec.tenant),
        "user": _text(spec, "user", spec.user),
        "group": _text(spec, "group", spec.group),
        "name": _text(spec, "name", spec.name),
        "model": _text(spec, "model", spec.model),
        "priority": number(spec.priority) if spec.priority else "",
        "deadline_s": number(spec.deadline_s),
        "estimate_s": number(spec.estimate_s),
        "depends_on": _joined(spec, "depends_on", spec.depends_on, ";"),
        "account": _text(spec, "account", spec.account),
        "partition": _text(spec, "partition", spec.partition),
        "qos": _text(spec, "qos", spec.qos),
        "time_limit_s": number(spec.limit_s),
        "retries": number(spec.retries) if spec.retries else "",
        "backoff_s": number(spec.backoff_s) if spec.backoff_s else "",
        "fails_at_s": number(behaviour.fails_at),
        "after_any": _joined(spec, "after_any", spec.after_any, ";"),
        "after_fail": _joined(spec, "after_fail", spec.after_fail, ";"),
        "array": _text(spec, "array", spec.array),
        "array_limit": number(spec.array_limit) if spec.array_limit else "",
        "demand": _amounts(behaviour.demand or {}),
    }


def _request_cells(spec: JobSpec) -> Row:
    request = spec.request
    group = request.groups[0]
    gpus = group.count * group.gpus
    cpus = _total(group, lambda task: task.cpus)
    mem_gib = _total(group, lambda task: task.mem_gib)
    again = Request.of(
        gpus,
        gpu_types=request.gpu_types,
        labels=request.labels,
        cpus=cpus,
        mem_gib=mem_gib,
        gang=request.gang,
        min_gpus=group.min_count,
        max_gpus=group.max_count,
    )
    if request.only:
        again = msgspec.structs.replace(again, only=request.only)
    more = {
        "gpu_mem_gib": group.gpu_mem_gib,
        "gpu_mem_step_gib": group.gpu_mem_step_gib,
        "resources": group.resources,
    }
    again = msgspec.structs.replace(
        again, groups=(msgspec.structs.replace(again.groups[0], **more),)
    )
    if again != request or (request.only and not _plainly_listed(request, gpus)):
        _refuse(spec, "it asks for more than one kind of task, or for split GPUs")
    return {
        "num_gpus": number(gpus),
        "gpu_type": _joined(spec, "gpu_types", request.gpu_types, "|"),
        "labels": _joined(spec, "labels", request.labels, ";"),
        "cpus": number(cpus) if cpus else "",
        "mem_gib": number(mem_gib) if mem_gib else "",
        "gang": "" if request.gang else "false",
        "min_gpus": number(group.min_count) if group.min_count else "",
        "max_gpus": number(group.max_count) if group.max_count else "",
        "sizes": ";".join(number(size) for size in request.only),
        "gpu_mem_gib": number(group.gpu_mem_gib) if group.gpu_mem_gib else "",
        "gpu_mem_step_gib": number(group.gpu_mem_step_gib) if group.gpu_mem_step_gib else "",
        "resources": _amounts(request.resources),
    }


def _amounts(amounts: Mapping[str, float]) -> str:
    return ";".join(f"{kind}={number(amount)}" for kind, amount in amounts.items())


def _plainly_listed(request: Request, gpus: float) -> bool:
    """Are its sizes whole numbers, in order, with what it asks for, and is no range beside them?"""
    group, sizes = request.groups[0], request.only
    return (
        not (group.min_count or group.max_count)
        and list(sizes) == sorted({float(int(size)) for size in sizes})
        and gpus in sizes
    )


def number(value: float) -> str:
    """The shortest text that is read back as the same number; empty for infinity."""
    if value == INF:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))


def _total(group: TaskGroup, amount: Callable[[TaskGroup], float]) -> float:
    """An amount for the whole job that, divided by the tasks, gives exactly theirs."""
    total = group.count * amount(group)
    tidy = float(f"{total:.12g}")  # 3 tasks of 0.1 ask for 0.3, not for 0.30000000000000004
    return tidy if tidy / group.count == amount(group) else total


def _text(spec: JobSpec, field: str, text: str) -> str:
    if text != text.strip() or "\0" in text or (field == "id" and not text):
        _refuse(spec, f"its {field} {text!r} is empty or has blanks at its ends")
    return text


def _joined(spec: JobSpec, field: str, texts: tuple[str, ...], separator: str) -> str:
    joined = separator.join(texts)
    if split_texts(joined, separator) != texts:
        _refuse(spec, f"its {field} {texts!r} contain {separator!r} or blanks")
    return joined


def _refuse(spec: JobSpec, why: str) -> NoReturn:
    raise OutputError(
        f"job {spec.id!r} cannot be written as csv: {why}: change it or leave it out, or write a "
        f"folder, which holds everything (`rota trace convert ... -o NAME`, without an ending)"
    )
