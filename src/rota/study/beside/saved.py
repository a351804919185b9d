"""What Slurm's commands printed, in a folder: recognised by content, whatever the files are called.

| What | Printed by |
| --- | --- |
| jobs | `squeue --states=all --json`, or `scontrol show job`, or `squeue -a -t all -o %all` |
| nodes | `sinfo --json`, `scontrol show nodes --json`, or `scontrol show node` |
| rules | `scontrol show config`, `scontrol show partition` |
| the past | `sacct --allusers --duplicates --parsable2 --format ...`, or `sacct --json` |
| limits | `sacctmgr show qos --parsable2`, `sacctmgr show assoc --parsable2` |

Jobs and nodes are needed, everything else makes the answer better.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from time import time
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from rota.core.errors import ClusterError, InputError, OutputError
from rota.live.drivers.slurm.commands import SlurmQueries
from rota.live.drivers.slurm.layout import SeenJob, SeenNode, joined, seen_node
from rota.live.drivers.slurm.texts import asked_at, jobs_of, nodes_of, queue_of
from rota.traces.imported import Imported
from rota.traces.read import read_trace

ASKED = "asked.json"
DAYS = 31  # of accounting
FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Priority,Submit,Eligible,Start,End,State,"
    "ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NodeList"
)
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "squeue.json": ("squeue", "--states=all", "--json"),
    "nodes.json": ("sinfo", "--json"),
    "config.txt": ("scontrol", "show", "config"),
    "partitions.txt": ("scontrol", "show", "partition"),
    "sacct.txt": (
        "sacct", "--allusers", "--duplicates", "--parsable2", "--starttime", f"now-{DAYS}days",
        "--format", FIELDS,
    ),
}  # fmt: skip
NEEDED = ("squeue.json", "nodes.json")
_AS_OF = re.compile(r"Configuration data as of (\S+)")
_LARGEST = 512 * 2**20  # bytes of a file


class SlurmPicture(msgspec.Struct):
    """The state of a Slurm at a moment, and what it did before. Times are Unix seconds."""

    now: float
    jobs: list[SeenJob]
    nodes: list[SeenNode]
    rules: dict[str, str] = {}  # texts for the parameters of the policy `slurm`: conf, qos, assoc
    history: Imported | None = None
    history_began: float = 0.0  # second 0 of the history
    notes: list[str] = []


def save_live(folder: Path, queries: SlurmQueries | None = None) -> None:
    """Ask Slurm's commands and keep what they print; they only read."""
    queries = queries or SlurmQueries()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, argv in COMMANDS.items():
            asked = argv
            if name == "nodes.json" and queries.shows_nodes():
                asked = ("scontrol", "show", "nodes", "--json")
            try:
                text = queries.call(*asked, unix_times=name == "sacct.txt")
            except ClusterError as error:
                if name in NEEDED:
                    raise
                text = f"# not available: {error}\n"
            (folder / name).write_text(text, encoding="utf-8")
        (folder / ASKED).write_text(json.dumps({"at": time()}) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot keep what Slurm printed ({error.strerror}): choose another folder"
        ) from error


# --- reading --------------------------------------------------------------------------------------


class _Clock:
    """Times of one zone."""

    def __init__(self, zone: str | None) -> None:
        try:
            self._zone: tzinfo | None = ZoneInfo(zone) if zone else None
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InputError(f"--tz {zone!r}: there is no such zone: e.g. Europe/Berlin") from error

    def __call__(self, text: str) -> float:
        if text.isdecimal():
            return float(text)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return 0.0
        if found.tzinfo is None:  # of the zone that was given, else of this machine
            found = found.replace(tzinfo=self._zone) if self._zone else found.astimezone()
        return found.timestamp()


class _Found(msgspec.Struct):
    """The files of a folder by what they hold."""

    jobs: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    rules: dict[str, str] = {}
    history: list[Path] = []
    asked: list[float] = []  # when, by what is surest first
    notes: list[str] = []
    latest: float = 0.0  # the time of the youngest file


def read_saved(folder: Path, *, at: str | None = None, zone: str | None = None) -> SlurmPicture:
    """The picture that a folder holds.

    Args:
        folder: With the files.
        at: When they were made, if they do not tell.
        zone: Of times without one; None: that of this machine.
    """
    if not folder.is_dir():
        raise InputError(
            f"--slurm {str(folder)!r}: is no folder: give one with the output of Slurm's commands, "
            f"or `live`"
        )
    clock = _Clock(zone)
    found = _Found()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            _sort_in(path, found, clock)
    if not found.jobs and not found.nodes:
        raise InputError(f"{folder}: no file holds jobs or nodes of a Slurm: {_needed()}")
    if not found.nodes:
        raise InputError(f"{folder}: no file lists nodes: {_needed('nodes.json')}")
    now = _moment(at, clock, found, folder)
    history, began = _history(found, zone, folder)
    return SlurmPicture(
        now=now,
        jobs=joined(found.jobs),
        nodes=[seen_node(raw) for raw in found.nodes],
        rules=found.rules,
        history=history,
        history_began=began,
        notes=found.notes,
    )


def _needed(*names: str) -> str:
    wanted = [" ".join(COMMANDS[name]) for name in names or NEEDED]
    return f"save what {' and '.join(f'`{command}`' for command in wanted)} prints"


def _moment(at: str | None, clock: _Clock, found: _Found, folder: Path) -> float:
    if at is not None:
        moment = clock(at)
        if not moment:
            raise InputError(f"--at {at!r}: is not a time: write 2026-11-18T06:38:10")
        return moment
    if found.asked:
        return found.asked[0]
    found.notes.append(
        f"{folder} does not tell when Slurm was asked: the time of its files is taken (--at)"
    )
    return found.latest


def _sort_in(path: Path, found: _Found, clock: _Clock) -> None:
    """See what a file holds."""
    text = path.read_text(encoding="utf-8", errors="replace")
    start = text.lstrip()[:4096]
    found.latest = max(found.latest, path.stat().st_mtime)
    if start.startswith("{"):
        _from_json(path, text, found)
    elif re.search(r"(?:^|\s)JobId=\d", start):
        found.jobs += jobs_of(text, clock)
        moment = asked_at(text, clock)
        found.asked += [moment] if moment else []
    elif re.search(r"(?:^|\s)NodeName=\S", start) and "PartitionName=" not in start:
        found.nodes += nodes_of(text)
    elif "Configuration data as of" in start or re.search(r"(?m)^PartitionName=", start):
        found.rules["conf"] = f"{found.rules.get('conf', '')}\n{text}"
        told = _AS_OF.search(start)
        moment = clock(told[1]) if told else 0.0
        found.asked += [moment] if moment else []
    elif "|" in start.partition("\n")[0]:
        _from_table(path, text, found, clock)


def _from_json(path: Path, text: str, found: _Found) -> None:
    try:
        page = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not JSON ({error}): print it again") from error
    if path.name == ASKED and isinstance(page.get("at"), int | float):
        found.asked.insert(0, float(page["at"]))
        return
    jobs = page.get("jobs")
    if isinstance(jobs, list) and any(isinstance(job, dict) and "time" in job for job in jobs):
        found.history.append(path)
    elif isinstance(jobs, list):
        found.jobs += [job for job in jobs if isinstance(job, dict)]
        update = page.get("last_update")
        stamp = update.get("number") if isinstance(update, dict) else update
        found.asked += [float(stamp)] if isinstance(stamp, int | float) and stamp else []
    nodes = page.get("nodes")
    if isinstance(nodes, list):
        found.nodes += [node for node in nodes if isinstance(node, dict)]


def _from_table(path: Path, text: str, found: _Found, clock: _Clock) -> None:
    lines = text.splitlines()
    titles = {title.strip() for title in lines[0].split("|")}
    if {"JobID", "State"} <= titles or {"JobIDRaw", "State"} <= titles:
        found.history.append(path)
    elif "JOBID" in titles:
        found.jobs += queue_of(lines, clock)
    elif {"Name", "Priority"} <= titles:
        found.rules["qos"] = text
    elif {"Account", "User"} <= titles:
        found.rules["assoc"] = text


def _history(found: _Found, zone: str | None, folder: Path) -> tuple[Imported | None, float]:
    if not found.history:
        found.notes.append(f"{folder} has no accounting (sacct): nothing is known of the past")
        return None, 0.0
    if len(found.history) > 1:
        names = ", ".join(path.name for path in found.history)
        raise InputError(f"{folder}: several files are of sacct ({names}): keep one of them")
    path = found.history[0]
    imported = read_trace(path, f"sacct:tz={zone or _local()},partitions=label")
    return imported, _origin(imported)


def _local() -> str:
    """The name of this machine's zone."""
    try:
        target = Path("/etc/localtime").resolve()
        name = str(target).partition("zoneinfo/")[2]
        return str(ZoneInfo(name)) if name else "UTC"
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return "UTC"


def _origin(imported: Imported) -> float:
    """Second 0 of the history, as Unix seconds."""
    text = imported.origin
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return imported.origin_s
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def rules_of(
    rules: Mapping[str, str], readers: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Values of parameters from texts, and what could not be read."""
    values: dict[str, Any] = {}
    notes: Sequence[str] = []
    for name, text in rules.items():
        try:
            values |= dict(readers[name](text))
        except InputError as error:
            notes = [*notes, f"{name}: {error}"]
    return values, list(notes)
