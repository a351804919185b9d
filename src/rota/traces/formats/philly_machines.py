"""The machines of Philly, and how busy they were by the minute.

`cluster_machine_list` contradicts the job log: jobs hold more GPUs of a machine than it is said to
have. A machine is therefore as large as the list says, or as the numbers of its GPUs in the job log
show (gpu7: 8), whichever is more.

`cluster_gpu_util` has a row per minute and machine: time with its zone (PDT, from November PST),
machine, the use of each GPU in percent (NA: off), and a comma too many at the end of every line. It
is read with the option `utilisation=FILE`: machines are also as large as the GPUs that it shows,
and the report tells how much they were used. For the table itself there is
`philly_machines.read_utilisation`.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.core.errors import TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.sources import exists
from rota.traces.table import Column, Layout, Table

if TYPE_CHECKING:
    import polars as pl

MACHINES = Layout(
    (
        Column("machineId", required=True),
        Column("number of GPUs", "number", required=True, least=0),
        Column("single GPU mem"),
    ),
    headerless=True,
)
GPUS = tuple(f"gpu{number}" for number in range(8))
UTILISATION = Layout(
    (
        Column("time", required=True),
        Column("machineId", required=True, other=("machine_id",)),
        *(
            Column(f"{gpu}_util", "number", optional=True, other=(gpu, f"{gpu} util"))
            for gpu in GPUS
        ),
    ),
    headerless=True,
)
_FILES = ("cluster_machine_list", "cluster_machine_list.csv")
_HOURS = {"PDT": 7, "PST": 8, "UTC": 0, "": 7}


def machine_list(path: Path) -> Path | None:
    """The list beside a file, if there is one."""
    return next((path.with_name(n) for n in _FILES if exists(path.with_name(n))), None)


class Uses(msgspec.Struct):
    """What the use by the minute shows: sizes of machines, minutes of GPUs, and how busy in all."""

    sizes: dict[str, int] = {}
    minutes: int = 0
    percent: float = 0.0

    def describe(self) -> str:
        """For the report."""
        mean = self.percent / self.minutes if self.minutes else 0.0
        return (
            f"GPUs that were on were used {mean:.0f} % on average "
            f"({self.minutes:,} minutes of GPUs on {len(self.sizes):,} machines)"
        )


def read_uses(path: Path) -> Uses:
    """The use of GPUs, summed up part by part."""
    import polars as pl

    uses = Uses()
    for frame in read_utilisation(path):
        on = [pl.col(gpu).is_not_null().any() for gpu in GPUS]
        for machine, *known in frame.group_by("machine").agg(on).iter_rows():
            size = max((number for number, one in enumerate(known, 1) if one), default=0)
            uses.sizes[machine] = max(size, uses.sizes.get(machine, 0))
        used = frame.select(pl.concat_list(GPUS).explode().alias("used"))["used"].drop_nulls()
        uses.minutes += used.len()
        uses.percent += float(used.sum())
    return uses


def machines_beside(
    path: Path, sizes: Iterable[Mapping[str, int]], uses: Uses | None = None
) -> tuple[tuple[NodeSpec, ...], list[str]]:
    """The machines of the list beside a file, as large as was seen; and what contradicts it.

    Args:
        path: The job log.
        sizes: Of each job: the machines that it was on, as large as it shows them.
        uses: What the use by the minute shows.
    """
    told = [] if uses is None else [uses.describe()]
    file = machine_list(path)
    if file is None:
        return (), told
    most: dict[str, int] = {}
    for seen in sizes:
        for node, size in seen.items():
            most[node] = max(size, most.get(node, 0))
    shown = {} if uses is None else uses.sizes
    nodes = []
    raised = 0
    for listed in read_machines(file):
        size = max(listed.gpus, most.pop(listed.name, 0), shown.get(listed.name, 0))
        raised += size > listed.gpus
        nodes.append(NodeSpec(listed.name, size, listed.gpu_type))
    notes = told
    if raised:
        notes.append(
            f"contradiction: on {raised:,} machines jobs held more GPUs than {file.name} lists; "
            f"their size was raised to what was seen"
        )
    if most:
        notes.append(f"contradiction: {len(most):,} machines of the log are not in {file.name}")
    return tuple(nodes), notes


def read_machines(path: Path) -> list[NodeSpec]:
    """The machines of the list; the memory of a GPU (as in 24GB) is its type."""
    table = Table(path, MACHINES).whole().unique("machineId", keep="first", maintain_order=True)
    return [NodeSpec(name, int(gpus), memory) for name, gpus, memory in table.rows()]


def read_utilisation(path: Path, *, quality: Quality | None = None) -> "Iterator[pl.DataFrame]":
    """The use of GPUs, part by part, with the columns `time_s`, `machine`, `gpu0` to `gpu7`.

    `time_s` counts seconds since 1970 in UTC, so the hour that the clocks were set back is not
    there twice. A use of null: the GPU was off, or the machine has no such GPU.
    """
    import polars as pl

    for chunk in Table(path, UTILISATION, quality=quality):
        text = pl.col("time")
        zone = text.str.slice(19).str.strip_chars()
        local = text.str.slice(0, 19).str.strptime(
            pl.Datetime("ms"), "%Y-%m-%d %H:%M:%S", strict=False
        )
        offset = zone.replace_strict(_HOURS, default=None, return_dtype=pl.Int64)
        frame = chunk.select(
            (local.dt.epoch("ms") / 1_000 + offset * 3_600).alias("time_s"),
            pl.col("machineId").alias("machine"),
            *(pl.col(f"{gpu}_util").alias(gpu) for gpu in GPUS),
            text,
        )
        if frame["time_s"].null_count():
            wrong = frame.filter(pl.col("time_s").is_null())["time"][0]
            raise TraceError(
                f"{path}: column 'time': {wrong!r} is not a time with a zone: "
                f"write YYYY-MM-DD HH:MM:SS PDT or PST"
            )
        yield frame.drop("time")
