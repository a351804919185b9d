"""What Slurm's commands print for people, as the objects that they print with `--json`.

`scontrol show job`, `scontrol show node`, and a table of `squeue` with `|` between its columns (as
`squeue --all --states=all --format %all` prints it). Times are texts here: `clock` reads them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Clock = Callable[[str], float]
"""Seconds since 1970; 0: no time."""

_KEY = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*)=")
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_MINUTE_S = 60.0
SHORT = {"PD": "PENDING", "R": "RUNNING", "CG": "COMPLETING", "S": "SUSPENDED", "CF": "CONFIGURING"}


def minutes(text: str) -> float | None:
    """Of `1-02:03:04` or `03:04`; None: there is no limit."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, mins, secs = (int(part or 0) for part in found.groups())
    return (days * 86_400 + hours * 3_600 + mins * 60 + secs) / _MINUTE_S


def blocks(text: str, first: str) -> Iterator[dict[str, str]]:
    """The pairs KEY=VALUE of each record that begins with a key; the first of a key counts."""
    for part in re.split(rf"(?:^|\s)(?={first}=)", text):
        found = list(_KEY.finditer(part))
        if not found or found[0][1] != first:
            continue
        pairs: dict[str, str] = {}
        for this, following in zip(found, [*found[1:], None], strict=True):
            end = following.start() if following else len(part)
            pairs.setdefault(this[1], part[this.end() : end].strip())
        yield pairs


def jobs_of(text: str, clock: Clock) -> list[dict[str, Any]]:
    """What `scontrol show job` prints."""
    return [_job(pairs, clock) for pairs in blocks(text, "JobId")]


def _job(pairs: Mapping[str, str], clock: Clock) -> dict[str, Any]:
    asked = pairs.get("ReqTRES") or pairs.get("TRES", "")
    nodes = pairs.get("NumNodes", "1").partition("-")[0]
    return {
        "job_id": _whole(pairs.get("JobId")),
        "het_job_id": _whole(pairs.get("HetJobId")),
        "job_state": pairs.get("JobState", ""),
        "state_reason": pairs.get("Reason", "").removesuffix("Dependency:(null)"),
        "name": pairs.get("JobName", ""),
        "user_name": pairs.get("UserId", "").partition("(")[0],
        "account": _there(pairs.get("Account")),
        "partition": _there(pairs.get("Partition")),
        "qos": _there(pairs.get("QOS")),
        "comment": _there(pairs.get("Comment")),
        "priority": _whole(pairs.get("Priority"), 1),
        "restart_cnt": _whole(pairs.get("Restarts")),
        "nodes": _there(pairs.get("NodeList")),
        "node_count": _whole(nodes, 1),
        "cpus": _whole(pairs.get("NumCPUs")),
        "memory_per_node": 0,
        "tres_per_node": _there(pairs.get("TresPerNode")),
        "tres_per_job": _there(pairs.get("TresPerJob")),
        "tres_req_str": asked,
        "gres_detail": re.findall(r"GRES=(gpu\S+)", pairs.get("Nodes", "")),
        "submit_time": clock(pairs.get("SubmitTime", "")),
        "eligible_time": clock(pairs.get("EligibleTime", "")),
        "start_time": clock(pairs.get("StartTime", "")),
        "end_time": clock(pairs.get("EndTime", "")),
        "time_limit": minutes(pairs.get("TimeLimit", "")),
        "dependency": _there(pairs.get("Dependency")),
        "features": _there(pairs.get("Features")),
    }


def asked_at(text: str, clock: Clock) -> float:
    """When `scontrol show job` was called: a job that runs tells since when and for how long."""
    for pairs in blocks(text, "JobId"):
        ran = minutes(pairs.get("RunTime", ""))
        start_s = clock(pairs.get("StartTime", ""))
        if pairs.get("JobState") == "RUNNING" and ran is not None and start_s:
            return start_s + ran * _MINUTE_S
    return 0.0


def nodes_of(text: str) -> list[dict[str, Any]]:
    """What `scontrol show node` prints."""
    return [
        {
            "name": pairs.get("NodeName", ""),
            "address": pairs.get("NodeAddr", ""),
            "state": re.split(r"[+*~#!%$@^-]+", pairs.get("State", "").lower())[0],
            "state_flags": [
                *pairs.get("State", "").upper().split("+")[1:],
                *(["NOT_RESPONDING"] if "*" in pairs.get("State", "") else []),
            ],
            "reason": pairs.get("Reason", ""),
            "gres": _there(pairs.get("Gres")),
            "gres_used": _there(pairs.get("GresUsed")),
            "cpus": _whole(pairs.get("CPUTot")),
            "real_memory": _whole(pairs.get("RealMemory")),
            "partitions": [p for p in _there(pairs.get("Partitions")).split(",") if p],
            "active_features": _there(pairs.get("ActiveFeatures")),
        }
        for pairs in blocks(text, "NodeName")
    ]


def queue_of(lines: Sequence[str], clock: Clock) -> list[dict[str, Any]]:
    """A table of `squeue` with `|` between the columns, and their titles in the first line."""
    titles = [title.strip().upper() for title in lines[0].split("|")]
    found = []
    for line in lines[1:]:
        cells: dict[str, str] = {}
        for title, cell in zip(titles, line.split("|"), strict=False):
            if not cells.get(title):
                cells[title] = cell.strip()
        number = cells.get("JOBID", "").partition("_")[0]
        if not number.isdecimal():
            continue
        state = cells.get("STATE") or SHORT.get(cells.get("ST", ""), cells.get("ST", ""))
        reason = cells.get("REASON") or cells.get("NODELIST(REASON)", "").strip("()")
        found.append(
            {
                "job_id": int(number),
                "job_state": state,
                "state_reason": reason,
                "name": cells.get("NAME", ""),
                "user_name": cells.get("USER", ""),
                "account": cells.get("ACCOUNT", ""),
                "partition": cells.get("PARTITION", ""),
                "qos": cells.get("QOS", ""),
                "priority": _priority(cells.get("PRIORITY", "")),
                "nodes": cells.get("NODELIST", ""),
                "node_count": _whole(cells.get("NODES", "").partition("-")[0], 1),
                "cpus": _whole(cells.get("CPUS") or cells.get("MIN_CPUS")),
                "tres_per_node": _there(cells.get("TRES_PER_NODE") or cells.get("GRES")),
                "submit_time": clock(cells.get("SUBMIT_TIME", "")),
                "start_time": clock(cells.get("START_TIME", "")),
                "end_time": clock(cells.get("END_TIME", "")),
                "time_limit": minutes(cells.get("TIME_LIMIT", "")),
                "dependency": _there(cells.get("DEPENDENCY")),
                "features": _there(cells.get("FEATURES")),
            }
        )
    return found


def _priority(text: str) -> int:
    """`squeue` prints a share of 2^32, or the number itself."""
    try:
        value = float(text)
    except ValueError:
        return 1
    return int(value if value >= 1 else value * 2**32)


def _there(text: str | None) -> str:
    return "" if text in (None, "(null)", "N/A", "n/a", "None") else str(text)


def _whole(text: str | None, default: int = 0) -> int:
    digits = re.match(r"\d+", text or "")
    return int(digits[0]) if digits else default
