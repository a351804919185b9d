"""The trace of Gavel's simulator (Narayanan et al., OSDI 2020): tab-separated, no header.

Ten columns: job type, command, working folder, name of the steps argument, needs data, steps, GPUs,
priority, deadline (seconds after the arrival; -1: none), arrival (s). Shockwave's traces have two
more: mode and duration. Run times follow from a table of steps per second by GPU type, so the
option `throughputs=FILE` is needed. A job's work is its seconds on GPUs of type `reference`
(default v100), and its speeds are relative to it. Jobs are numbered from 0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.models.throughputs import parse_throughputs
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.schema import as_json
from rota.traces.sources import read_bytes
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = (
    Column("job_type", required=True),
    Column("command"),
    Column("working_directory"),
    Column("num_steps_arg"),
    Column("needs_data_dir"),
    Column("total_steps", "number", required=True, least=0),
    Column("scale_factor", "number", required=True, least=1),
    Column("priority_weight", "number", least=-1e15, most=1e15),
    Column("slo", "number"),
    Column("arrival_time", "number", required=True),
)
LAYOUT = Layout(_COLUMNS, separator="\t", headerless=True)
SHOCKWAVE = Layout(
    (*_COLUMNS, Column("mode"), Column("duration", "number")), separator="\t", headerless=True
)

Speeds = Mapping[tuple[str, int], Mapping[str, float]]


class GavelParams(Common, frozen=True):
    """Options of the format."""

    throughputs: str = ""
    reference: str = "v100"


class Gavel(Reader):
    """Reads a trace with a table of throughputs."""

    name = "gavel"
    description = "trace of Gavel's simulator; needs throughputs=FILE (steps/s by GPU type)"
    verified = True
    forms: ClassVar[Mapping[str, bool]] = {"10 fields": True, "12 fields (Shockwave)": False}
    params = GavelParams

    def import_file(self, path: Path, params: GavelParams) -> Imported:
        """All jobs, in the order of the file."""
        if not params.throughputs:
            raise OptionError(
                "format gavel: a trace has steps, not run times: give the table of steps per "
                "second with gavel:throughputs=FILE"
            )
        speeds = read_throughputs(Path(params.throughputs))
        quality = Quality()
        first = next(filter(bytes.strip, read_bytes(path, TraceError).splitlines()))
        layout = LAYOUT if first.count(b"\t") < len(_COLUMNS) else SHOCKWAVE
        table = Table(path, layout, bad=params.bad, quality=quality).whole()
        frame = _jobs(path, table, speeds, params)
        return import_rows(path, frame, params, quality, rest=Rest(name=path.stem))


FORMAT = Gavel()


def read_throughputs(path: Path) -> dict[tuple[str, int], dict[str, float]]:
    """Steps per second of (job type, GPUs) by GPU type, alone on its GPUs."""
    try:
        return parse_throughputs(read_bytes(path, TraceError)).alone
    except ValueError as error:
        raise TraceError(
            f"{path}: is not a table of throughputs: give Gavel's JSON, {{type: {{job: ...}}}} "
            f"({error})"
        ) from error


def _jobs(path: Path, table: "pl.DataFrame", speeds: Speeds, params: GavelParams) -> "pl.DataFrame":
    import polars as pl

    kinds = table.select("job_type", "scale_factor").unique(maintain_order=True)
    known = {}
    for name, gpus in kinds.rows():
        rates = speeds.get((name, int(gpus)))
        if rates is None:
            raise TraceError(
                f"{path}: {params.throughputs} has no throughput of {name!r} on {int(gpus)} GPUs: "
                f"give the table that belongs to the trace"
            )
        known[name, gpus] = _relative(path, name, rates, params.reference)
    rate = [known[key][0] for key in table.select("job_type", "scale_factor").rows()]
    relative = [known[key][1] for key in table.select("job_type", "scale_factor").rows()]
    slo = pl.col("slo")
    return table.with_row_index("_row").select(
        pl.col("_row").cast(pl.String).alias("job_id"),
        pl.col("arrival_time").alias("submit_s"),
        pl.col("scale_factor").alias("num_gpus"),
        (pl.col("total_steps") / pl.Series(rate, dtype=pl.Float64)).alias("duration_s"),
        pl.Series("speeds", relative, dtype=pl.String),
        pl.col("job_type").alias("model"),
        pl.col("priority_weight").fill_null(1.0).cast(pl.Int64).alias("priority"),
        pl.when(slo > 0).then(pl.col("arrival_time") + slo).alias("deadline_s"),
    )


def _relative(
    path: Path, name: str, rates: Mapping[str, float], reference: str
) -> tuple[float, str]:
    """Steps per second on the reference, and all speeds relative to it."""
    rate = rates.get(reference, 0.0)
    if rate <= 0:
        raise TraceError(
            f"{path}: {name!r} makes no progress on {reference!r}: "
            f"name another GPU type with reference=TYPE (known: {', '.join(sorted(rates))})"
        )
    return rate, as_json({gpu_type: speed / rate for gpu_type, speed in rates.items()})
