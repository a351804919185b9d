"""Writing a history as `sacct --duplicates --parsable2` prints it, so that tools of Slurm read it.

Every attempt is a row; those of a job have its number, as after a requeue. Slurm counts in whole
seconds, GPUs and minutes of a limit; parts of GPUs are shards (`gres/shard`). Numbers of jobs are
kept where they are numbers, and counted from 1 otherwise; the name is then in JobName. A log that
does not tell its date begins in 2000.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor, lcm
from pathlib import Path
from typing import Any

from rota.core.errors import OutputError
from rota.core.sums import ordered_sum
from rota.traces.imported import Imported
from rota.traces.observed import (
    CANCELLED,
    DONE,
    FAILED,
    NODE_FAIL,
    PREEMPTED,
    RUNNING,
    TIMEOUT,
    UNKNOWN,
    Seen,
)
from rota.traces.sources import replacing

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "State", "ElapsedRaw", "TimelimitRaw", "ReqTRES", "AllocTRES", "NNodes",
    "NodeList", "Priority",
)  # fmt: skip
STATES = {
    DONE: "COMPLETED", FAILED: "FAILED", CANCELLED: "CANCELLED", TIMEOUT: "TIMEOUT",
    NODE_FAIL: "NODE_FAIL", PREEMPTED: "PREEMPTED", RUNNING: "RUNNING", UNKNOWN: "COMPLETED",
}  # fmt: skip
NEVER = "Unknown"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MOST_SHARDS = 1000  # that make a GPU
_FORBIDDEN = str.maketrans(dict.fromkeys("|\r\n", "_"))


def write_sacct(imported: Imported, path: str | Path, *, force: bool = False) -> list[str]:
    """Write jobs and attempts; the file appears whole or not at all.

    Returns:
        What the form cannot hold.

    Raises:
        OutputError: The file is there or cannot be written, or no job ran.
    """
    path = Path(path)
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already: choose another name or use --force")
    attempts: dict[int, list[Seen]] = {}
    for seen in imported.observed.rows():
        attempts.setdefault(seen.job, []).append(seen)
    if not attempts:
        raise OutputError(f"{path}: the log does not say when jobs ran: sacct has no use for it")
    table = _Table(imported)
    lines = ["|".join(FIELDS)]
    for number, job in enumerate(imported.jobs.iter_rows(named=True)):
        rows: list[Seen | None] = [*attempts.get(number, ())] or [None]
        lines += ["|".join(table.row(number, job, seen)) for seen in rows]
    with replacing(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return table.lost()


class _Table:
    """Cells of rows, and what had to be rounded or left out on the way."""

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        try:
            origin = datetime.fromisoformat(imported.origin)
        except ValueError:
            origin = _EPOCH
        self._origin = origin.replace(tzinfo=origin.tzinfo or UTC)
        names = imported.jobs["job_id"].to_list()
        self._numbered = all(name.isascii() and name.isdigit() for name in names)
        self._shards = shards_for(imported.jobs["num_gpus"].to_list())

    def row(self, number: int, job: Mapping[str, Any], seen: Seen | None) -> list[str]:
        """One attempt; None: the job never started."""
        name = job["job_id"] if self._numbered else str(number + 1)
        title = job["name"] or job["job_id"]
        start_s = None if seen is None else round(seen.start_s)
        end_s = None if seen is None or seen.end_s is None else round(seen.end_s)
        until_s = round(self._imported.until_s) if end_s is None else end_s
        submitted = self._date(floor(job["submit_s"]))
        limit_s = job["estimate_s"]
        cells = {
            "JobID": name, "JobIDRaw": name, "JobName": title, "User": job["user"],
            "Account": job["account"] or job["vc"], "Partition": job["partition"],
            "QOS": job["qos"], "Submit": submitted, "Eligible": submitted,
            "Start": self._date(start_s), "End": self._date(end_s),
            "State": "PENDING" if seen is None else STATES[seen.state],
            "ElapsedRaw": "0" if start_s is None else str(until_s - start_s),
            "TimelimitRaw": "UNLIMITED" if limit_s is None else str(ceil(limit_s / 60)),
            "ReqTRES": _tres(job, job["num_gpus"], 1, self._shards),
            "AllocTRES": "" if seen is None else _tres(
                job, ordered_sum(seen.gpus) if seen.gpus else job["num_gpus"], len(seen.nodes) or 1,
                self._shards),
            "NNodes": str(len(seen.nodes) or 1 if seen is not None else 1),
            "NodeList": ",".join(seen.nodes) if seen is not None and seen.nodes else "None",
            "Priority": str(job["priority"]),
        }  # fmt: skip
        return [str(cells[field]).translate(_FORBIDDEN) for field in FIELDS]

    def _date(self, time_s: float | None) -> str:
        if time_s is None:
            return NEVER
        moment = self._origin + timedelta(seconds=time_s)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")

    def lost(self) -> list[str]:
        """What the file does not say as the history does."""
        jobs, frame = self._imported.jobs, self._imported.observed.frame
        found = []
        if not self._numbered:
            found.append("names of jobs (they are in JobName, jobs are numbered from 1)")
        if self._shards:
            found.append(
                f"how many shards make a GPU, and the types of shared ones (read it with --format "
                f"sacct:shards={self._shards})"
            )
            if any((gpus * self._shards) % 1 for gpus in jobs["num_gpus"]):
                found.append("smaller parts of GPUs than that (rounded up)")
        if ((frame["start_s"] % 1 != 0) | (frame["end_s"].fill_null(0.0) % 1 != 0)).any():
            found.append("parts of seconds (rounded)")
        if (frame["state"] == PREEMPTED).any():
            found.append(
                "the progress of preempted jobs (--format sacct:runtime=sum adds up their attempts)"
            )
        if self._imported.cluster:
            found.append("the machines (give --nodes or --cluster)")
        return found


def shards_for(amounts: Iterable[float]) -> int:
    """As many shards of a GPU as make all these parts whole numbers of them, within reason.

    0: all of them are whole GPUs.
    """
    found = 1
    for gpus in sorted({amount for amount in amounts if amount % 1}):
        more = lcm(found, Fraction(gpus).limit_denominator(MOST_SHARDS).denominator)
        if more > MOST_SHARDS:
            return MOST_SHARDS
        found = more
    return found if found > 1 else 0


def _tres(job: Mapping[str, Any], gpus: float, nodes: int, shards: int) -> str:
    """`cpu=16,mem=180G,node=1,gres/gpu:a100=2,gres/gpu=2`, or `gres/shard=1`."""
    parts = [f"cpu={ceil(job['cpus'])}"] if job["cpus"] else []
    parts += [f"mem={ceil(job['mem_gib'])}G"] if job["mem_gib"] else []
    parts.append(f"node={nodes}")
    if gpus % 1:
        parts.append(f"gres/shard={ceil(round(gpus * shards, 6))}")
    elif gpus:
        kinds: list[str] = job["gpu_type"] or []
        parts += [f"gres/gpu:{kinds[0]}={gpus:.0f}"] if len(kinds) == 1 else []
        parts.append(f"gres/gpu={gpus:.0f}")
    return ",".join(parts)
