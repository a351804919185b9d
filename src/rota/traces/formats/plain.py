"""The plain csv format: what Rota writes itself and what is easiest to make by hand.

Required columns: `job_id`, `submit_s`, `num_gpus`, `duration_s`. Optional: `vc` (also called
`queue` or `tenant`), `user`, `group`, `name`, `model`, `gpu_type` (alternatives `A|B`), `cpus` and
`mem_gib` (of the whole job), `priority` (a whole number), `deadline_s`, `estimate_s`, `gang` (true
or false), `min_gpus` and `max_gpus` (elastic range), `depends_on` (ids separated by `;`),
`account`, `partition` and `qos` (as Slurm calls them).

All times are seconds on one clock, and `deadline_s` is a point on it, not a delay after the
submission. An empty optional cell means "not said". `num_gpus` is a whole number, a fraction below
1, or 0 for a job that asks for CPUs or memory. `duration_s` must be more than 0: a job without work
is more often a mistake of whoever made the file than a job. Rows may be in any order; the workload
keeps theirs.
"""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec

from rota.core.errors import TraceError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.format import Head, share_of
from rota.traces.imported import Imported
from rota.traces.table import Rule, Schema, Table, read_table

SCHEMA = Schema(
    required=("job_id", "submit_s", "num_gpus", "duration_s"),
    optional=(
        "vc", "user", "group", "name", "model", "gpu_type", "cpus", "mem_gib", "priority",
        "deadline_s", "estimate_s", "gang", "min_gpus", "max_gpus", "depends_on", "account",
        "partition", "qos",
    ),
    synonyms={"queue": "vc", "tenant": "vc"},
    remedy="ignore unknown columns with --format csv:ignore=yes",
)  # fmt: skip

NOT_NEGATIVE = Rule(least=0)
POSITIVE = Rule(above=0)
COUNT = Rule(least=0, whole=True)
WHOLE = Rule(whole=True)

_SIZE_PROBLEM = "is neither whole nor below 1: give a whole number of GPUs or a fraction of one"
_NOTHING_PROBLEM = "asks for nothing: give at least one GPU, or CPUs (cpus) or memory (mem_gib)"


class PlainParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    ignore: bool = False


class PlainCsv:
    """Reads the plain csv format."""

    name = "csv"
    description = "job_id, submit_s, num_gpus, duration_s and optional columns"
    verified = True

    def recognises(self, head: Head) -> float:
        """By the required columns; with one of them missing the file is still most likely this."""
        return share_of(SCHEMA.required, head)

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All rows, in the order of the file."""
        params: PlainParams = parse_params("format csv", PlainParams, options)
        table = read_table(path, SCHEMA, ignore=params.ignore)
        ids = table.keys("job_id")
        submits_s = table.numbers("submit_s", NOT_NEGATIVE)
        requests = _requests(table)
        durations_s = table.numbers("duration_s", POSITIVE)
        deadlines_s = table.numbers("deadline_s", NOT_NEGATIVE, INF)
        early = [deadline < submit for deadline, submit in zip(deadlines_s, submits_s, strict=True)]
        table.refuse(
            "deadline_s", early, "is before the submission: give it on the same clock as submit_s"
        )
        specs = map(
            JobSpec,
            ids,
            submits_s,
            requests,
            table.texts("vc"),
            table.texts("user"),
            table.texts("name"),
            table.texts("group"),
            table.texts("model"),
            map(int, table.numbers("priority", WHOLE, 0.0)),
            deadlines_s,
            table.numbers("estimate_s", POSITIVE, INF),
            _dependencies(table, ids),
            table.texts("account"),
            table.texts("partition"),
            table.texts("qos"),
        )
        return Workload(list(specs), list(map(Behaviour, durations_s)), name=path.stem)

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """The same as a frame, which is quicker; a file with anything unusual is read by `read`."""
        from rota.traces.formats.plain_frame import quick_frame

        params: PlainParams = parse_params("format csv", PlainParams, options)
        frame = quick_frame(path, ignore=params.ignore)
        if frame is None:
            return Imported(self.read(path, options))
        return Imported(frame, name=path.stem)


FORMAT = PlainCsv()


class _Requests(dict[tuple[float, str, float, float, bool, float, float], Request]):
    """One request object for all rows that ask for the same."""

    def __missing__(self, key: tuple[float, str, float, float, bool, float, float]) -> Request:
        gpus, gpu_type, cpus, mem_gib, gang, min_gpus, max_gpus = key
        request = Request.of(
            gpus,
            gpu_types=split_texts(gpu_type, "|"),
            cpus=cpus,
            mem_gib=mem_gib,
            gang=gang,
            min_gpus=int(min_gpus),
            max_gpus=int(max_gpus),
        )
        self[key] = request
        return request


def split_texts(text: str, separator: str) -> tuple[str, ...]:
    """The parts of a cell that holds several texts."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def read_sizes(table: Table, name: str) -> list[float]:
    """A column of numbers of GPUs: whole, or a fraction below 1."""
    gpus = table.numbers(name, NOT_NEGATIVE)
    for size in sorted(set(gpus)):
        if size > 1 and size != int(size):
            table.fail(gpus.index(size), name, _SIZE_PROBLEM)
    return gpus


def _requests(table: Table) -> list[Request]:
    gpus = read_sizes(table, "num_gpus")
    cpus = table.numbers("cpus", NOT_NEGATIVE, 0.0)
    mem_gib = table.numbers("mem_gib", NOT_NEGATIVE, 0.0)
    if 0.0 in gpus:
        nothing = [not any(asked) for asked in zip(gpus, cpus, mem_gib, strict=True)]
        table.refuse("num_gpus", nothing, _NOTHING_PROBLEM)
    min_gpus = table.numbers("min_gpus", COUNT, 0.0)
    max_gpus = table.numbers("max_gpus", COUNT, 0.0)
    if "min_gpus" in table:
        wrong = [least > size for least, size in zip(min_gpus, gpus, strict=True)]
        table.refuse("min_gpus", wrong, "is more than num_gpus: give at most num_gpus")
    if "max_gpus" in table:
        wrong = [0 < most < size for most, size in zip(max_gpus, gpus, strict=True)]
        table.refuse("max_gpus", wrong, "is less than num_gpus: give at least num_gpus")
    gangs = table.flags("gang", default=True)
    keys = zip(gpus, table.texts("gpu_type"), cpus, mem_gib, gangs, min_gpus, max_gpus, strict=True)
    return list(map(_Requests().__getitem__, keys))


def _dependencies(table: Table, ids: list[str]) -> list[tuple[str, ...]]:
    cells = [split_texts(text, ";") if text else () for text in table.texts("depends_on")]
    if not any(cells):
        return cells
    known = set(ids)
    for row, others in enumerate(cells):
        for other in others:
            if other not in known:
                table.fail(row, "depends_on", f"names {other!r}, which is no job_id: correct it")
    graph = {job: others for job, others in zip(ids, cells, strict=True) if others}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise TraceError(
            f"{table.path}: line {table.line(ids.index(error.args[1][0]))}, column 'depends_on': "
            f"jobs wait for each other ({cycle}): remove one of these dependencies"
        ) from error
    return cells
