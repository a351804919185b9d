r"""Slurm's accounting as `sacct` prints it: `--parsable2`, or `--json`.

```sh
sacct --allusers --duplicates --parsable2 --starttime 2026-01-01 --format \
  JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Priority,Submit,Eligible,Start,End,State,\
ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NodeList,SubmitLine > jobs.txt
```

Steps (`123.batch`) are skipped and counted. sacct does not mark a delimiter within a name: such a
line is put together again if there is one way only in which its fields make sense, else it is left
out; both are counted. Without its header (`--noheader`) the columns are named
by `fields=JobIDRaw/User/...`. GPUs come from AllocTRES or ReqTRES, in older logs from ReqGRES (per
node). The GPU type is what was asked for. Machines come from `nodes=FILE`, as `scontrol show node`
prints them. How records become jobs, what times mean and which lists of nodes are understood is
told by `records`, `fields` and `nodes`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.slurm.fields import (
    OPEN_SHARD,
    SHARD,
    WORDS,
    Amounts,
    Clock,
    NodeSharing,
    Ran,
    hour_off,
    read_gres,
    read_limit,
    read_nodes,
    read_tres,
    state_of,
    suggested,
    together,
)
from rota.traces.formats.slurm.nodes import read_nodes_file, shards_per_gpu
from rota.traces.formats.slurm.records import (
    MOST_GPUS,
    STEP,
    SlurmParams,
    SlurmRecord,
    import_records,
    plain_ones,
)
from rota.traces.formats.slurm.sacct_json import read_json
from rota.traces.formats.slurm.table import TIMES, USED, Typed, lines_of, split_lines
from rota.traces.imported import Imported
from rota.traces.sniff import first_look

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
TORN = "line with more fields than the header, as with the delimiter in a name"
MENDED = "delimiter in a name: its line was put together again"
_SHOWN = 10  # lines in a note
_MOST_TORN = 12  # delimiters too many in a line


class Sacct(Reader):
    """Reads what `sacct` prints."""

    name = "sacct"
    description = "accounting of Slurm (sacct --parsable2 or --json)"
    verified = True
    forms: ClassVar[Mapping[str, bool]] = {"--parsable2": True, "--json": True}
    params = SlurmParams

    def import_file(self, path: Path, params: SlurmParams) -> Imported:
        """All jobs that ran."""
        cluster = read_nodes_file(Path(params.nodes)) if params.nodes else ()
        sharing, notes = _sharing(params)
        if first_look(path).is_json:
            records, quality = read_json(path, params, sharing)
            imported = import_records(path, records, params, quality, cluster)
        else:
            quality = Quality()
            lines = _Lines(path, params, quality, sharing)
            records, plain = lines.read()
            imported = import_records(path, records, params, quality, cluster, plain)
            imported.notes += lines.notes(records, plain)
        imported.notes += notes if {SHARD, OPEN_SHARD} & set(quality.repaired) else []
        return imported


FORMAT = Sacct()


def _sharing(params: SlurmParams) -> tuple[NodeSharing, list[str]]:
    """What parts of GPUs count, and what to say where jobs have shards."""
    if not 0 <= params.shards < MOST_GPUS:
        raise OptionError(f"format sacct: shards={params.shards:g}: give how many make a GPU")
    shards, alike = params.shards, True
    if not shards and params.nodes:
        shards, alike = shards_per_gpu(Path(params.nodes))
    notes = [f"{shards:g} shards make a GPU"] * bool(shards)
    if not alike:
        notes = [f"nodes differ in how many shards make a GPU: {shards:g}, as most have, is taken"]
    return NodeSharing(shards, params.mig), notes


class _Lines:
    """The records of a table."""

    def __init__(
        self, path: Path, params: SlurmParams, quality: Quality, sharing: NodeSharing
    ) -> None:
        self._path = path
        self._params = params
        self._quality = quality
        self._sharing = sharing
        self._clock = Clock(params.tz)
        self._lists: dict[str, tuple[str, ...]] = {}
        self._latest: dict[str, SlurmRecord] = {}  # by name of the job
        self._skipped_times = 0
        self._columns: list[str] = []
        self._raw: dict[int, str] = {}  # lines with too many fields, by their number
        self._torn: list[int] = []

    def read(self) -> "tuple[list[SlurmRecord], pl.DataFrame | None]":
        """Records that need a closer look, and the others as a table (see `table`)."""
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
        typed = Typed(cells, self._clock, self._amounts, _limit_s).frame
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

    def notes(self, records: Sequence[SlurmRecord], plain: "pl.DataFrame | None") -> list[str]:
        """What is odd about the clock."""
        import polars as pl

        zone, notes = self._params.tz, []
        if self._skipped_times:
            notes.append(
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
        if self._torn:
            few = ", ".join(map(str, sorted(self._torn)[:_SHOWN]))
            more = " and more" if len(self._torn) > _SHOWN else ""
            notes.append(f"left out for more fields than the header has: line {few}{more}")
        note = suggested(off, zone) if off else ""
        return [*notes, note] if note else notes

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
                self._columns = titles
            yield split_lines(
                first + begin,
                lines[begin:],
                titles,
                self._params.delimiter,
                free=titles[-1] in FREE,
            )

    def _titles(self, line: str) -> tuple[list[str], bool]:
        """The columns in lower case, and whether the first line names them."""
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

    def _records(self, rows: "pl.DataFrame") -> list[SlurmRecord]:
        """Records of rows, one by one."""
        found = []
        dropped = self._quality.dropped
        self._look_up(rows)
        for cells in rows.iter_rows(named=True):
            record, problem = self._examined(cells)
            if problem == TORN:
                self._torn.append(cells["_place"])
                dropped[TORN] = dropped.get(TORN, 0) + 1
                continue
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

    def _examined(self, cells: Mapping[str, Any]) -> tuple[SlurmRecord | None, str]:
        """A record (None: a step), or what is wrong with it."""
        problem = self._problem(cells)
        if cells["_more"] and (problem or state_of(cells.get("state") or "COMPLETED") not in WORDS):
            mended, problem = self._mended(cells, problem)
            cells = mended or cells
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

    def _look_up(self, rows: "pl.DataFrame") -> None:
        """Find the lines with too many fields once more."""
        wanted = set(rows.filter("_more")["_place"])
        if not wanted:
            return
        for first, lines in lines_of(self._path):
            self._raw |= {n: text for n, text in enumerate(lines, first) if n in wanted}

    def _mended(
        self, cells: Mapping[str, Any], problem: str
    ) -> tuple[Mapping[str, Any] | None, str]:
        """The fields of a line with the delimiter in a name, or what is wrong."""
        parts = self._raw[cells["_place"]].rstrip("\r").split(self._params.delimiter)
        free = [place for place, title in enumerate(self._columns) if title in FREE]
        many = len(parts) - len(self._columns)
        if free == [len(self._columns) - 1] or many < 1:
            return None, problem  # there is no other way to read it
        if many > _MOST_TORN:
            return None, TORN
        found: dict[tuple[str, ...], Mapping[str, Any]] = {}
        for places in combinations_with_replacement(free, many):
            made = dict(cells) | self._joined(parts, Counter(places))
            if self._makes_sense(made):
                found[tuple(made[t] for t in self._columns if t in made and t not in FREE)] = made
        if len(found) != 1:
            return None, TORN
        self._quality.repair(MENDED)
        return next(iter(found.values())), ""

    def _joined(self, parts: Sequence[str], extra: Mapping[int, int]) -> dict[str, Any]:
        """The cells, if these columns hold so many delimiters."""
        made: dict[str, Any] = {"_wide": False, "_more": False}
        begin = 0
        for place, title in enumerate(self._columns):
            end = begin + 1 + extra.get(place, 0)
            if title in USED:
                made[title] = self._params.delimiter.join(parts[begin:end]).strip()
            begin = end
        return made

    def _makes_sense(self, cells: Mapping[str, Any]) -> bool:
        numbers = ("elapsedraw", "nnodes", "ncpus", "alloccpus")
        return (
            not self._problem(cells)
            and ("state" not in cells or state_of(cells["state"]) in WORDS)
            and all(cells.get(title, "").isdecimal() or not cells.get(title) for title in numbers)
            and all(cells.get(title, "1")[:1].isdecimal() for title in ("jobid", "jobidraw"))
        )

    def _step(self, name: str, cells: Mapping[str, str]) -> None:
        """The batch step follows its job, and holds what that has on one of its nodes."""
        job, _, step = name.partition(".")
        nodes = self._nodes(cells.get("nodelist", ""))
        if step == "batch" and len(nodes) == 1 and job in self._latest:
            held = read_tres(cells.get("alloctres", ""), self._sharing)
            self._latest[job].batch = (nodes[0], held.gpus)

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

    def _record(self, cells: Mapping[str, Any]) -> SlurmRecord:
        name = cells.get("jobid") or cells["jobidraw"]
        raw = cells.get("jobidraw") or name
        elapsed_s = _number(cells.get("elapsedraw", ""))
        priority = _number(cells.get("priority", ""))
        submit_s, eligible_s, start_s, end_s = self._clock.ordered(
            [cells.get(title, "") for title in TIMES], elapsed_s
        )
        if end_s is None and start_s is not None and elapsed_s is not None:
            end_s = start_s + elapsed_s
        return SlurmRecord(
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
            asked=self._amounts(cells),
            nodes=self._nodes(cells.get("nodelist", "")),
            line=cells.get("submitline", ""),
            each=self._each(cells),
            place=cells["_place"],
        )

    def _amounts(self, cells: Mapping[str, str]) -> Amounts:
        """What it got, or asked for; the GPU type is what it asked for."""
        texts = (cells.get(title, "") for title in ("alloctres", "reqtres"))
        best = together(*(read_tres(text, self._sharing) for text in texts))
        many = _number(cells.get("nnodes", "") or cells.get("reqnodes", ""))
        nodes, cpus = int(many or best.nodes or 1), best.cpus
        for title in ("alloccpus", "ncpus", "reqcpus"):
            cpus = cpus or _number(cells.get(title, "")) or 0.0
        if best.gpus:
            return msgspec.structs.replace(best, cpus=cpus, nodes=nodes)
        old = read_gres(_old_gres(cells), nodes, self._sharing)
        return msgspec.structs.replace(old, cpus=cpus, mem_gib=best.mem_gib)

    def _each(self, cells: Mapping[str, str]) -> float | None:
        """GPUs on every node, as older versions tell them."""
        if any(read_tres(cells.get(title, "")).gpus for title in ("alloctres", "reqtres")):
            return None
        return read_gres(_old_gres(cells), 1, self._sharing).gpus or None


def _old_gres(cells: Mapping[str, str]) -> str:
    return cells.get("allocgres") or cells.get("reqgres") or ""


def _limit_s(cells: Mapping[str, str]) -> float | None:
    """The user's time limit; `TimelimitRaw` is in minutes, `Timelimit` D-HH:MM:SS."""
    return read_limit(cells.get("timelimitraw", "")) or read_limit(cells.get("timelimit", ""))


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else None  # noqa: PLR2004 - seconds
