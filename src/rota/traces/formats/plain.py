"""The plain csv format: what Rota writes itself and what is easiest to make by hand.

Required columns: `job_id`, `submit_s`, `num_gpus`, `duration_s`. Optional: `vc` (also called
`queue` or `tenant`), `user`, `group`, `name`, `model`, `gpu_type` (alternatives `A|B`), `labels`
(all of which its nodes must have, `A;B`), `cpus` and `mem_gib` (of the whole job), `gpu_mem_gib`
(GPU memory of each task, which must fit on its GPU beside that of others), `gpu_mem_step_gib` (how
much of that only its steps need), `resources` (of kinds that the cluster declares, of the whole
job, `licence=1;net_gbps=5`), `demand` (what it uses of a GPU when it has it alone, from 0 to 1,
`compute=0.6;memory=0.3;pcie=0.1`), `priority` (a whole number), `deadline_s`, `estimate_s`, `gang`
(true or false), `min_gpus` and `max_gpus` (elastic range), `sizes` (the only numbers of GPUs that
an elastic job takes, `1;2;4`), `depends_on` (ids separated by `;`: jobs that must be done),
`after_any` (that must be over) and `after_fail` (that must have ended without success), `account`,
`partition` and `qos` (as Slurm calls them; they bind a job to no node), `time_limit_s` (seconds of
running after which it is ended), `fails_at_s` (seconds of work after which it fails), `retries`
(how often it is then tried again, from its beginning) and `backoff_s` (before the first of them;
each further one waits twice as long), `array` (the name of its array) and `array_limit` (how many
of the array may be in the queue or run at once).

All times are seconds on one clock, and `deadline_s` is a point on it, not a delay after the
submission. An empty optional cell means "not given". `num_gpus` is a whole number, a fraction below
1, or 0 for a job that asks for CPUs or memory. `duration_s` must be more than 0: a job without work
is more often a mistake than a job. Rows may be in any order; the workload keeps theirs.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.core.errors import TraceError
from rota.core.registry import unknown
from rota.core.spec import DEMANDS
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.schema import DEPENDENCIES, as_json
from rota.traces.table import Column, Layout, Table

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("job_id", required=True, key=True),
        Column("submit_s", "number", required=True, least=0),
        Column("num_gpus", "number", required=True, least=0),
        Column("duration_s", "number", required=True, above=0),
        Column("vc", optional=True, other=("queue", "tenant")),
        Column("user", optional=True),
        Column("group", optional=True),
        Column("name", optional=True),
        Column("model", optional=True),
        Column("gpu_type", optional=True),
        Column("labels", optional=True),
        Column("cpus", "number", optional=True, least=0),
        Column("mem_gib", "number", optional=True, least=0),
        Column("gpu_mem_gib", "number", optional=True, least=0),
        Column("gpu_mem_step_gib", "number", optional=True, least=0),
        Column("resources", optional=True),
        Column("demand", optional=True),
        Column("priority", "number", optional=True, whole=True),
        Column("deadline_s", "number", optional=True, least=0),
        Column("estimate_s", "number", optional=True, above=0),
        Column("gang", "flag", optional=True),
        Column("min_gpus", "number", optional=True, least=0, whole=True),
        Column("max_gpus", "number", optional=True, least=0, whole=True),
        Column("sizes", optional=True),
        Column("depends_on", optional=True),
        Column("account", optional=True),
        Column("partition", optional=True),
        Column("qos", optional=True),
        Column("time_limit_s", "number", optional=True, above=0),
        Column("retries", "number", optional=True, least=0, whole=True),
        Column("backoff_s", "number", optional=True, least=0),
        Column("fails_at_s", "number", optional=True, least=0),
        Column("after_any", optional=True),
        Column("after_fail", optional=True),
        Column("array", optional=True),
        Column("array_limit", "number", optional=True, least=0, whole=True),
    ),
    strict=True,
    remedy="ignore unknown columns with --format csv:ignore=yes",
    missing=("",),
    no_text=(),
)


class PlainParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    ignore: bool = False


class PlainCsv(Reader):
    """Reads the plain csv format."""

    name = "csv"
    description = "job_id, submit_s, num_gpus, duration_s and optional columns"
    verified = True
    params = PlainParams

    def import_file(self, path: Path, params: PlainParams) -> Imported:
        """All rows, in the order of the file."""
        import polars as pl

        table = Table(path, LAYOUT, ignore=params.ignore)
        frame = table.whole()
        _check(table, frame)
        frame = frame.select(name for name in LAYOUT.names if name in table.names)
        lists = {"gpu_type": "|", "labels": ";", **dict.fromkeys(DEPENDENCIES, ";")}
        frame = frame.with_columns(
            *(_parts(name, mark) for name, mark in lists.items() if name in frame),
            *(
                pl.col(column.name).cast(pl.Int64)
                for column in LAYOUT.columns
                if column.whole and column.name in frame
            ),
        )
        kinds: Sequence[str]
        for name, most, kinds in (("resources", inf, ()), ("demand", 1.0, DEMANDS)):
            if name in frame:
                cells = _amounts(table, frame, name, most, kinds)
                frame = frame.with_columns(pl.Series(name, cells, dtype=pl.String))
        if "sizes" in frame:
            frame = frame.with_columns(pl.Series("sizes", _sizes(table, frame), dtype=pl.String))
        _check_dependencies(table, frame)
        return Imported(frame, name=path.stem)


FORMAT = PlainCsv()


def split_texts(text: str, separator: str) -> tuple[str, ...]:
    """The parts of a cell that holds several texts."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _parts(name: str, separator: str) -> "pl.Expr":
    """The same for a column."""
    import polars as pl

    part = pl.element().str.strip_chars()
    return pl.col(name).str.split(separator).list.eval(part.filter(part != ""))


def _check(table: Table, frame: "pl.DataFrame") -> None:
    """What cells of a row say together."""
    import polars as pl

    gpus, least, most = pl.col("num_gpus"), pl.col("min_gpus"), pl.col("max_gpus")
    asked = gpus + pl.col("cpus").fill_null(0.0) + pl.col("mem_gib").fill_null(0.0)
    checks = [
        (
            "num_gpus",
            (gpus > 1) & (gpus != gpus.floor()),
            "is neither whole nor below 1: give a whole number of GPUs or a fraction of one",
        ),
        (
            "num_gpus",
            asked == 0,
            "asks for nothing: give at least one GPU, or CPUs (cpus) or memory (mem_gib)",
        ),
        (
            "gpu_mem_step_gib",
            pl.col("gpu_mem_step_gib") > pl.col("gpu_mem_gib").fill_null(0.0),
            "is more than gpu_mem_gib, of which it is a part: give at most that",
        ),
        ("min_gpus", least > gpus, "is more than num_gpus: give at most num_gpus"),
        ("max_gpus", (most > 0) & (most < gpus), "is less than num_gpus: give at least num_gpus"),
        (
            "deadline_s",
            pl.col("deadline_s") < pl.col("submit_s"),
            "is before the submission: give it on the same clock as submit_s",
        ),
    ]
    if frame.select(pl.any_horizontal(wrong for _, wrong, _ in checks).any()).item():
        for name, wrong, problem in checks:
            table.refuse(frame, name, wrong, problem)


def _amounts(
    table: Table, frame: "pl.DataFrame", name: str, most: float, kinds: Sequence[str] = ()
) -> list[str | None]:
    """Cells like `licence=1;net_gbps=5`, as the schema has them; `kinds`: there are no others."""
    found: list[str | None] = []
    for row, text in enumerate(frame[name].to_list()):
        pairs = dict(part.partition("=")[::2] for part in split_texts(text or "", ";"))
        try:
            amounts = {kind.strip(): float(amount) for kind, amount in sorted(pairs.items())}
        except ValueError:
            amounts = {"": -1.0}
        if not all(
            kind and 0 <= amount <= most and amount < inf for kind, amount in amounts.items()
        ):
            upper = "" if most == inf else f" and at most {most:g}"
            table.fail(row, name, f"is no list of amounts: write KIND=AMOUNT;.., 0 or more{upper}")
        strange = next((kind for kind in amounts if kinds and kind not in kinds), "")
        if strange:
            table.fail(row, name, f"names {unknown('kind', strange, list(kinds))}")
        found.append(as_json(amounts) if amounts else None)
    return found


def _sizes(table: Table, frame: "pl.DataFrame") -> list[str | None]:
    """The listed sizes of every row, as the schema has them; what was asked for is one of them."""
    elastic = [name for name in ("min_gpus", "max_gpus") if name in frame]
    found: list[str | None] = []
    for row, (text, gpus, *ends) in enumerate(
        frame.select("sizes", "num_gpus", *elastic).iter_rows()
    ):
        if not text:
            found.append(None)
            continue
        if any(ends):
            table.fail(row, "sizes", "stands beside min_gpus or max_gpus: give one or the other")
        try:
            sizes = sorted({int(part) for part in split_texts(text, ";")})
        except ValueError:
            sizes = []
        if not sizes or sizes[0] < 1:
            table.fail(row, "sizes", "is no list of sizes: write whole numbers of GPUs (1;2;4)")
        if gpus not in sizes:
            table.fail(row, "sizes", f"lacks num_gpus, {gpus:g}: list it, too")
        found.append(as_json(sizes))
    return found


def _check_dependencies(table: Table, frame: "pl.DataFrame") -> None:
    """Every job that another waits for is there, and none waits for itself through others."""
    columns = [name for name in DEPENDENCIES if name in frame]
    if not columns:
        return
    ids = frame["job_id"].to_list()
    known = set(ids)
    graph: dict[str, list[str]] = {}
    for name in columns:
        for row, others in enumerate(frame[name].to_list()):
            for other in others or ():
                if other not in known:
                    table.fail(row, name, f"names {other!r}, which is no job_id: correct it")
            if others:
                graph.setdefault(ids[row], []).extend(others)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise TraceError(
            f"{table.path}: line {table.line(ids.index(error.args[1][0]))}, column {columns[0]!r}: "
            f"jobs wait for each other ({cycle}): remove one of these dependencies"
        ) from error
