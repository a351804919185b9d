"""Writing jobs in the Standard Workload Format 2.2 (see `swf`).

Users, queues, names and ids that are no numbers get numbers, and the header says which. What the
format has no room for (GPU types, priorities, deadlines, models, elastic ranges, CPUs beside GPUs)
is lost: `write_swf` returns what, so that a caller can say so.
"""

from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import OutputError
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED
from rota.traces.replacing import replacing
from rota.traces.schema import JOBS
from rota.traces.write import number

_STATUS = {DONE: 1, FAILED: 0, CANCELLED: 5}
_KIB_PER_GIB = 1024.0 * 1024.0
_HELD = frozenset({
    "job_id", "submit_s", "num_gpus", "duration_s", "vc", "user", "name", "cpus", "mem_gib",
    "estimate_s", "depends_on",
})  # fmt: skip


class _Numbers:
    """Numbers for texts: their own if they are whole numbers, else free ones."""

    def __init__(self, texts: list[str]) -> None:
        self.named: dict[str, int] = {}
        known = {text: _whole(text) for text in dict.fromkeys(texts) if text}
        taken = {value for value in known.values() if value is not None}
        free = 1
        for text, value in known.items():
            if value is None:
                while free in taken:
                    free += 1
                self.named[text] = free
                taken.add(free)

    def of(self, text: str) -> int:
        """The number of a text; -1 for an empty one."""
        if not text:
            return -1
        return self.named[text] if text in self.named else int(text)


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
    jobs = imported.jobs
    numbers = {
        "job": _Numbers(jobs["job_id"].to_list()),
        "user": _Numbers(jobs["user"].to_list()),
        "queue": _Numbers(jobs["vc"].to_list()),
        "executable": _Numbers(jobs["name"].to_list()),
    }
    seen = {row["job"]: row for row in imported.observed.per_job().iter_rows(named=True)}
    lines = [
        *_header(imported, numbers),
        *(
            _line(row, numbers, seen.get(index))
            for index, row in enumerate(jobs.iter_rows(named=True))
        ),
    ]
    _replace(path, lines)
    return _lost(imported)


def _header(imported: Imported, numbers: dict[str, _Numbers]) -> list[str]:
    count = len(imported)
    lines = ["; Version: 2.2", f"; MaxJobs: {count}", f"; MaxRecords: {count}"]
    if imported.origin:
        lines.append(f"; Note: second 0 is {imported.origin}")
    for kind, table in numbers.items():
        for text, value in table.named.items():
            lines.append(f"; Note: {kind} {value} is {msgspec.json.encode(text).decode()}")
    return lines


def _line(row: dict[str, Any], numbers: dict[str, _Numbers], seen: dict[str, Any] | None) -> str:
    size = row["num_gpus"] or row["cpus"]
    others = row["depends_on"]
    wait_s = -1.0 if seen is None else seen["start_s"] - row["submit_s"]
    status = -1 if seen is None else _STATUS.get(seen["state"], -1)
    memory = row["mem_gib"] * _KIB_PER_GIB / size if row["mem_gib"] and size else -1
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
    return int(text) if text.isascii() and text.isdigit() and str(int(text)) == text else None


def _lost(imported: Imported) -> list[str]:
    """Columns with values that are not in the file."""
    jobs = imported.jobs
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
    return lost


def _replace(path: Path, lines: list[str]) -> None:
    with replacing(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
