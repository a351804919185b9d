"""Writing jobs in the Standard Workload Format 2.2 (see `swf`).

Users, queues, names and ids that are no numbers (or above 2^53) get numbers, and the header says
which. Processors are GPUs; of a trace in which no job has GPUs they are CPUs, and the header says
so. If only some jobs have no GPUs, these are left out. What the format has no room for (GPU types,
priorities, deadlines, models, elastic ranges, CPUs beside GPUs, nodes, further attempts) is lost:
`write_swf` returns what, so that a caller can say so.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.errors import OutputError
from rota.traces.formats.swf import CPUS, HEADER, MOST_EXACT
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, PREEMPTED, UNKNOWN
from rota.traces.schema import JOBS
from rota.traces.sources import replacing
from rota.traces.write import number

if TYPE_CHECKING:
    import polars as pl

_STATUS = {DONE: 1, FAILED: 0, CANCELLED: 5, PREEMPTED: 2}
_KIB_PER_GIB = 1024.0 * 1024.0
_HELD = frozenset({
    "job_id", "submit_s", "num_gpus", "duration_s", "vc", "user", "name", "cpus", "mem_gib",
    "estimate_s", "depends_on",
})  # fmt: skip


class _Numbers:
    """Numbers for texts: their own if they are whole numbers, else free ones."""

    def __init__(self, texts: list[str]) -> None:
        self.named: dict[str, int] = {}
        self._known = known = {text: _whole(text) for text in dict.fromkeys(texts) if text}
        taken = {value for value in known.values() if value is not None}
        free = 1
        for text, value in known.items():
            if value is None:
                while free in taken:
                    free += 1
                self.named[text] = free
                taken.add(free)

    def of(self, text: str) -> int:
        """The number of a text; -1 for an empty one, or a job that is left out."""
        if text in self.named:
            return self.named[text]
        whole = self._known.get(text)
        return -1 if whole is None else whole


def write_swf(imported: Imported, path: str | Path, *, force: bool = False) -> list[str]:
    """Write the jobs; the file appears whole or not at all.

    Returns:
        What the format cannot hold and the file therefore lacks.

    Raises:
        OutputError: The file is there or cannot be written.
    """
    path = Path(path)
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already: choose another name or use --force")
    sized, unit = sized_jobs(imported)
    if not sized.height:
        raise OutputError(f"{path}: no job asks for GPUs or CPUs: swf has no room for such jobs")
    numbers = {
        "job": _Numbers(sized["job_id"].to_list()),
        "user": _Numbers(sized["user"].to_list()),
        "queue": _Numbers(sized["vc"].to_list()),
        "executable": _Numbers(sized["name"].to_list()),
    }
    seen = {row["job"]: row for row in imported.observed.per_job().iter_rows(named=True)}
    lines = [
        *_header(imported, sized.height, numbers),
        *([CPUS] if unit == "cpus" else []),
        *(_line(row, numbers, seen.get(row["_job"])) for row in sized.iter_rows(named=True)),
    ]
    _replace(path, lines)
    left_out = len(imported) - sized.height
    lost = [f"jobs that ask for no GPUs ({left_out:,} are left out)"] if left_out else []
    return lost + _lost(imported, sized) + _unseen(imported)


def sized_jobs(imported: Imported) -> "tuple[pl.DataFrame, str]":
    """Jobs that the format has room for, with `_job` (position) and `_size`; what a size counts."""
    jobs = imported.jobs
    unit = "num_gpus" if (jobs["num_gpus"] > 0).any() else "cpus"
    sized = jobs.with_columns(_size=jobs[unit]).with_row_index("_job").filter(jobs[unit] > 0)
    return sized, unit


def _header(imported: Imported, count: int, numbers: dict[str, _Numbers]) -> list[str]:
    lines = ["; Version: 2.2", f"; MaxJobs: {count}", f"; MaxRecords: {count}"]
    start_s = _since_1970(imported.origin)
    if start_s is not None:
        lines.append(f"; UnixStartTime: {start_s}")
    elif imported.origin:
        lines.append(f"; Note: second 0 is {imported.origin}")
    lines += [
        f"; {note.removeprefix(HEADER)}"
        for note in imported.notes
        if note.startswith(HEADER) and "Note: second 0 is" not in note and note.isprintable()
    ]
    for kind, table in numbers.items():
        for text, value in table.named.items():
            lines.append(f"; Note: {kind} {value} is {msgspec.json.encode(text).decode()}")
    return lines


def _since_1970(origin: str) -> int | None:
    """A date, taken as UTC, in whole seconds; None: it is no date."""
    try:
        date = datetime.fromisoformat(origin)
    except ValueError:
        return None
    time_s = date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    return int(time_s) if time_s == int(time_s) and time_s > 0 else None


def _line(row: dict[str, Any], numbers: dict[str, _Numbers], seen: dict[str, Any] | None) -> str:
    size = row["_size"]
    others = row["depends_on"]
    wait_s = -1.0 if seen is None else seen["start_s"] - row["submit_s"]
    status = -1 if seen is None else _STATUS.get(seen["state"], -1)
    memory = row["mem_gib"] * _KIB_PER_GIB / size if row["mem_gib"] else -1
    fields = (
        numbers["job"].of(row["job_id"]), row["submit_s"], wait_s, row["duration_s"], size, -1, -1,
        size, _or_unknown(row["estimate_s"]), memory, status, numbers["user"].of(row["user"]), -1,
        numbers["executable"].of(row["name"]), numbers["queue"].of(row["vc"]), -1,
        numbers["job"].of(others[0]) if others else -1, -1,
    )  # fmt: skip
    return " ".join(number(float(field)) or "-1" for field in fields)


def _or_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _whole(text: str) -> int | None:
    """A number that is written as swf would write it, and read back exactly."""
    short = text.isascii() and text.isdigit() and len(text) <= len(str(int(MOST_EXACT)))
    return int(text) if short and int(text) < MOST_EXACT and str(int(text)) == text else None


def _lost(imported: Imported, jobs: "pl.DataFrame") -> list[str]:
    """Columns with values that are not in the file."""
    lost = []
    for name, (kind, default) in JOBS.items():
        if name in _HELD:
            continue
        values = jobs[name].unique().to_list()
        said = any(values) if kind == "texts" else any(value != default for value in values)
        if said:
            lost.append(name)
    if (jobs["depends_on"].list.len() > 1).any():
        lost.append("depends_on (all but the first)")
    if ((jobs["num_gpus"] > 0) & (jobs["cpus"] > 0)).any():
        lost.append("cpus beside GPUs")
    if imported.cluster:
        lost.append("the machines")
    if imported.events.height:
        lost.append("cluster events")
    return lost


def _unseen(imported: Imported) -> list[str]:
    """What of the observed schedule is not in the file."""
    frame = imported.observed.frame
    lost = []
    if (frame["nodes"].list.len() > 0).any():
        lost.append("the nodes of the observed schedule")
    if (frame["attempt"] > 0).any():
        lost.append("attempts of a job after its first start")
    states = sorted(set(frame["state"].unique()) - {*_STATUS, UNKNOWN})
    if states:
        lost.append(f"how attempts ended ({', '.join(states)})")
    return lost


def _replace(path: Path, lines: list[str]) -> None:
    with replacing(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
