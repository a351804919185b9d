r"""Slurm's accounting as `sacct` prints it: `--parsable2`, or `--json`.

```sh
sacct --allusers --duplicates --parsable2 --starttime 2026-01-01 --format \
  JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Priority,Submit,Eligible,Start,End,State,\
ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NodeList,SubmitLine > jobs.txt
```

Steps (`123.batch`) are skipped and counted. Without its header (`--noheader`) the columns are named
by `fields=JobIDRaw/User/...`. GPUs come from AllocTRES or ReqTRES, in older logs from ReqGRES (per
node). The GPU type is what was asked for. Machines come from `nodes=FILE`, as `scontrol show node`
prints them. How records become jobs, what times mean and which lists of nodes are understood is
told by `slurm_records`, `slurm_times` and `slurm_nodes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.formats import Head, first_look
from rota.traces.imported import Imported
from rota.traces.reader import Reader
from rota.traces.sacct_json import read_json
from rota.traces.slurm_nodes import read_nodes_file
from rota.traces.slurm_plain import MOST_GPUS, plain_ones
from rota.traces.slurm_records import STEP, Record, SlurmParams, import_records
from rota.traces.slurm_table import TIMES, Typed, lines_of, split_lines
from rota.traces.slurm_times import Clock, Ran, hour_off, suggested
from rota.traces.slurm_words import (
    Amounts,
    read_gres,
    read_limit,
    read_nodes,
    read_tres,
    state_of,
)

if TYPE_CHECKING:
    import polars as pl

USUAL = (
    "JobIDRaw", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End",
    "State", "ElapsedRaw", "TimelimitRaw", "ReqTRES", "AllocTRES", "NNodes", "NodeList",
)  # fmt: skip
"""Without a header and without `fields` these come first, as many as there are (or more follow)."""
MORE = ("Restarts", "Priority", "ExitCode")
FREE = ("submitline", "jobname", "comment", "workdir", "admincomment", "systemcomment")
"""Columns that may hold the delimiter: at the end of a line they take what is too much."""
GPUS = ("alloctres", "reqtres", "allocgres", "reqgres")
BAD = "line that cannot be read"


class Sacct(Reader):
    """Reads what `sacct` prints."""

    name = "sacct"
    description = "accounting of Slurm (sacct --parsable2 or --json)"
    verified = True
    forms: ClassVar[Mapping[str, bool]] = {"--parsable2": True, "--json": True}
    params = SlurmParams

    def recognises(self, head: Head) -> float:
        """By its titles, or by the keys of its JSON."""
        if head.is_json:
            keys = ('"jobs"', '"submission"', '"eligible"', '"tres"', '"openapi/db', '"data_parser')
            return min(1.0, sum(key in head.text for key in keys) / 3)
        line = next(filter(str.strip, head.text.splitlines()), "").lower()
        titles = line.split("|")
        if "jobid" not in titles and "jobidraw" not in titles:
            return 0.0
        return 1.0 if sum(title in titles for title in (*TIMES, "state", *GPUS)) > 1 else 0.5

    def import_file(self, path: Path, params: SlurmParams) -> Imported:
        """All jobs that ran."""
        cluster = read_nodes_file(Path(params.nodes)) if params.nodes else ()
        if first_look(path).is_json:
            records, quality = read_json(path, params)
            return import_records(path, records, params, quality, cluster)
        quality = Quality()
        lines = _Lines(path, params, quality)
        records, plain = lines.read()
        imported = import_records(path, records, params, quality, cluster, plain)
        imported.notes += lines.notes(records, plain)
        return imported


FORMAT = Sacct()


class _Lines:
    """The records of a table."""

    def __init__(self, path: Path, params: SlurmParams, quality: Quality) -> None:
        self._path = path
        self._params = params
        self._quality = quality
        self._clock = Clock(params.tz)
        self._lists: dict[str, tuple[str, ...]] = {}
        self._latest: dict[str, Record] = {}  # by name of the job
        self._skipped_times = 0

    def read(self) -> "tuple[list[Record], pl.DataFrame | None]":
        """Records that need a closer look, and the others as a table (see `slurm_table`)."""
        import polars as pl

        blocks = list(self._blocks())
        if not blocks:
            raise TraceError(f"{self._path}: is empty: it needs a header line and at least one row")
        cells = pl.concat(blocks)
        self._quality.rows = cells.height
        if not cells.height:
            raise TraceError(f"{self._path}: has a header but no rows: ask sacct for a longer time")
        if self._params.since == "submit" and "submitline" in cells.columns:
            records = self._records(cells)  # they may wait for each other
            self._count_skipped(cells)
            return records, None
        typed = Typed(cells, self._clock, _amounts, _limit_s).frame
        plain = plain_ones(typed)
        skipped = self._skipped(typed, plain)
        many = int(skipped.sum())
        if many:
            self._quality.dropped[STEP] = many
        self._count_skipped(cells)
        return self._records(cells.filter(~(plain | skipped))), typed.filter(plain)

    def _count_skipped(self, cells: "pl.DataFrame") -> None:
        import polars as pl

        if self._clock.skipped:
            times = [pl.col(title) for title in TIMES if title in cells.columns]
            found = pl.any_horizontal(time.is_in(list(self._clock.skipped)) for time in times)
            self._skipped_times = int(cells.select(found.sum()).item())

    def notes(self, records: Sequence[Record], plain: "pl.DataFrame | None") -> list[str]:
        """What is odd about the clock."""
        import polars as pl

        zone, told = self._params.tz, []
        if self._skipped_times:
            told.append(
                f"{self._skipped_times:,} rows have a time that {zone} does not have, since the "
                f"clock was set forward: is tz={zone} right?"
            )
        ran: list[Ran] = [
            (one.start_s, one.over_s, one.elapsed_s)
            for one in records
            if one.start_s is not None and one.over_s is not None and one.elapsed_s is not None
        ]
        if plain is not None:
            off_s = (pl.col("end_s") - pl.col("start_s") - pl.col("elapsed_s")).abs()
            far = plain.filter(off_s > 1)  # the others need no closer look
            ran += [*far.select("start_s", "end_s", "elapsed_s").iter_rows()]
        off = sorted(filter(hour_off, ran))
        note = suggested(off, zone) if off else ""
        return [*told, note] if note else told

    @staticmethod
    def _skipped(typed: "pl.DataFrame", plain: "pl.Series") -> "pl.Series":
        """Steps that tell nothing: all but batch steps of jobs that need a closer look."""
        import polars as pl

        jobs = typed.filter(~plain & ~typed["step"])["id"]
        batch = pl.col("id").str.ends_with(".batch")
        mine = batch & pl.col("id").str.strip_suffix(".batch").is_in(jobs.implode())
        return typed.select(pl.col("step") & ~pl.col("odd") & ~mine).to_series()

    def _blocks(self) -> "Iterator[pl.DataFrame]":
        """The cells of the file as texts."""
        titles: list[str] = []
        for first, lines in lines_of(self._path):
            begin = 0
            if not titles:
                begin = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
                if begin == len(lines):
                    continue
                titles, is_header = self._titles(lines[begin].rstrip("\r"))
                begin += is_header
            yield split_lines(
                first + begin,
                lines[begin:],
                titles,
                self._params.delimiter,
                free=titles[-1] in FREE,
            )

    def _titles(self, line: str) -> tuple[list[str], bool]:
        """The columns in lower case, and whether the first line told them."""
        cells = [cell.strip().lower() for cell in line.split(self._params.delimiter)]
        if "jobid" in cells or "jobidraw" in cells:
            return self._checked(cells), True
        if self._params.fields:
            return self._checked([name.lower() for name in self._params.fields]), False
        usual = [name.lower() for name in (*USUAL, *MORE)]
        if len(cells) < len(USUAL) or len(cells) > len(usual):
            raise TraceError(
                f"{self._path}: line 1: there is no header with JobID: let sacct print it, or name "
                f"the {len(cells)} columns with fields=JobIDRaw/User/..."
            )
        if len(cells) == len(usual) - 1:  # newer versions of Slurm know Restarts, older do not
            usual.remove("restarts")
        return usual[: len(cells)], False

    def _checked(self, titles: list[str]) -> list[str]:
        known = set(titles)
        if "submit" not in known and "eligible" not in known:
            self._refuse("submit")
        if "start" not in known:
            self._refuse("start")
        if not known & {"end", "elapsedraw"}:
            self._refuse("end")
        if not known & {*GPUS, "ncpus", "alloccpus", "reqcpus"}:
            self._refuse("AllocTRES")
        return titles

    def _refuse(self, title: str) -> None:
        name = title if title[0].isupper() else title.capitalize()
        raise TraceError(f"{self._path}: there is no column {name!r}: ask sacct for it (--format)")

    # --- rows ---------------------------------------------------------------------------------

    def _records(self, rows: "pl.DataFrame") -> list[Record]:
        """Records of rows, one by one."""
        found = []
        dropped = self._quality.dropped
        for cells in rows.iter_rows(named=True):
            record, problem = self._examined(cells)
            if problem and self._params.bad == "refuse":
                raise TraceError(
                    f"{self._path}: line {cells['_place']}: {problem}: correct it, or leave such "
                    f"lines out with the option bad=drop"
                )
            if problem:
                dropped[BAD] = dropped.get(BAD, 0) + 1
            elif record is None:
                dropped[STEP] = dropped.get(STEP, 0) + 1
            else:
                found.append(record)
        return found

    def _examined(self, cells: Mapping[str, Any]) -> tuple[Record | None, str]:
        """A record (None: a step), or what is wrong with it."""
        problem = self._problem(cells)
        if problem:
            return None, problem
        name = cells.get("jobid") or cells["jobidraw"]
        if "." in name:
            self._step(name, cells)
            return None, ""
        record = self._record(cells)
        asked = record.asked
        for what, amount in (("GPUs", asked.gpus), ("nodes", asked.nodes)):
            if amount > MOST_GPUS:
                return None, f"asks for {amount:.15g} {what}, more than {MOST_GPUS:,.0f}"
        self._latest[name] = record
        return record, ""

    def _step(self, name: str, cells: Mapping[str, str]) -> None:
        """The batch step follows its job, and holds what that has on one of its nodes."""
        job, _, step = name.partition(".")
        nodes = self._nodes(cells.get("nodelist", ""))
        if step == "batch" and len(nodes) == 1 and job in self._latest:
            self._latest[job].batch = (nodes[0], read_tres(cells.get("alloctres", "")).gpus)

    def _problem(self, cells: Mapping[str, Any]) -> str:
        if cells["_wide"]:
            return "has another number of fields than the header"
        if not (cells.get("jobid") or cells.get("jobidraw")):
            return "has no job id"
        for title in TIMES:
            if self._clock.wrong(cells.get(title, "")):
                return f"column {title!r}: {cells[title]!r} is not a time"
        try:
            self._nodes(cells.get("nodelist", ""))
        except TraceError as error:
            return str(error)
        return ""

    def _nodes(self, text: str) -> tuple[str, ...]:
        if text not in self._lists:
            self._lists[text] = read_nodes(text)
        return self._lists[text]

    def _record(self, cells: Mapping[str, Any]) -> Record:
        name = cells.get("jobid") or cells["jobidraw"]
        raw = cells.get("jobidraw") or name
        elapsed_s = _number(cells.get("elapsedraw", ""))
        priority = _number(cells.get("priority", ""))
        submit_s, eligible_s, start_s, end_s = self._clock.ordered(
            [cells.get(title, "") for title in TIMES], elapsed_s
        )
        if end_s is None and start_s is not None and elapsed_s is not None:
            end_s = start_s + elapsed_s
        return Record(
            id=name,
            raw=raw,
            leader=name.partition("+")[0] if "+" in name else "",
            user=cells.get("user", ""),
            account=cells.get("account", ""),
            partition=cells.get("partition", ""),
            qos=cells.get("qos", ""),
            priority=None if priority is None else int(priority),
            name=cells.get("jobname", ""),
            state=state_of(cells.get("state", "COMPLETED")),
            submit_s=submit_s if submit_s is not None else eligible_s,
            eligible_s=eligible_s,
            start_s=start_s,
            end_s=end_s,
            elapsed_s=elapsed_s,
            limit_s=_limit_s(cells),
            asked=_amounts(cells),
            nodes=self._nodes(cells.get("nodelist", "")),
            line=cells.get("submitline", ""),
            each=_each(cells),
            place=cells["_place"],
        )


def _amounts(cells: Mapping[str, str]) -> Amounts:
    """What it got, or asked for; the GPU type is what it asked for."""
    got, asked = (read_tres(cells.get(title, "")) for title in ("alloctres", "reqtres"))
    best = got if got.gpus or got.cpus else asked
    nodes = int(_number(cells.get("nnodes", "") or cells.get("reqnodes", "")) or best.nodes or 1)
    gpus, gpu_type = best.gpus or asked.gpus, asked.gpu_type
    if not gpus:
        old = read_gres(cells.get("allocgres") or cells.get("reqgres") or "", nodes)
        gpus, gpu_type = old.gpus, old.gpu_type
    cpus = best.cpus
    for title in ("alloccpus", "ncpus", "reqcpus"):
        cpus = cpus or _number(cells.get(title, "")) or 0.0
    return Amounts(gpus, gpu_type, cpus, best.mem_gib, nodes)


def _each(cells: Mapping[str, str]) -> float | None:
    """GPUs on every node, as older versions tell them."""
    if read_tres(cells.get("alloctres", "")).gpus or read_tres(cells.get("reqtres", "")).gpus:
        return None
    return read_gres(cells.get("allocgres") or cells.get("reqgres") or "", 1).gpus or None


def _limit_s(cells: Mapping[str, str]) -> float | None:
    """The user's time limit; `TimelimitRaw` is in minutes, `Timelimit` D-HH:MM:SS."""
    return read_limit(cells.get("timelimitraw", "")) or read_limit(cells.get("timelimit", ""))


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else None  # noqa: PLR2004 - seconds
