"""A Slurm that never was: a simulated schedule, as the commands of Slurm would print it."""

import json
from random import Random

from rota.core.eventlog import EventLog
from rota.core.log import Record
from rota.study.config import RunConfig
from rota.study.run import simulate

BEGAN = 1_790_000_000  # Unix seconds
GPUS = 4
CONFIG = """\
Configuration data as of {moment}
SchedulerType           = sched/backfill
SchedulerParameters     = bf_interval=30
PriorityType            = priority/basic
ClusterName             = pretended
"""
PARTITION = "PartitionName=main\n   Default=YES MaxTime=UNLIMITED State=UP Nodes=n[0-{last}]\n"
HEAD = (
    "JobIDRaw|User|Account|Partition|Priority|Submit|Eligible|Start|End|State|ElapsedRaw|"
    "TimelimitRaw|ReqTRES|AllocTRES|NNodes|NodeList"
)


def schedule(folder, *, jobs=180, nodes=3, seed=5, load=1.15):
    """Who was submitted, started and ended when and where, by the policy `slurm`."""
    dice = Random(seed)  # noqa: S311 - not a secret
    lines, at_s = ["job_id,submit_s,num_gpus,duration_s,estimate_s,user"], 0.0
    for number in range(1, jobs + 1):
        size = dice.choice([1, 1, 2, 4])
        at_s += dice.expovariate(load * nodes * GPUS / (2 * 1800))
        lasts_s = 60 + dice.expovariate(1 / 1740)
        limit_s = 60 * (1 + int(lasts_s * dice.uniform(1, 3) / 60))
        user = dice.choice(["ann", "bob"])
        lines.append(f"{number},{at_s:.0f},{size},{lasts_s:.0f},{limit_s},{user}")
    trace = folder / "trace.csv"
    trace.write_text("\n".join(lines) + "\n")
    result = simulate(RunConfig(trace=str(trace), cluster=f"{nodes}x{GPUS}", policy="slurm"))
    places, nodes_of, vertices = {}, {}, {}
    for row in EventLog(result.log):
        if row.event == Record.VERTEX:
            vertices[row.ref] = (row.text or "").partition(":")[2]
        elif row.event == Record.ALLOCATION:
            places.setdefault(row.allocation, []).append(row.slice)
        elif row.event == Record.START:
            nodes_of[row.job] = [(vertices[v], int(n)) for v, n in places[row.allocation]]
    asked = [line.split(",") for line in lines[1:]]
    found = []
    for number, row in enumerate(result.jobs.iter_rows(named=True)):
        _, _, size, _, limit_s, user = asked[number]
        found.append(
            {
                "id": number + 1, "gpus": int(size), "limit_min": int(limit_s) // 60, "user": user,
                "submit": BEGAN + round(row["submit_s"]), "nodes": nodes_of[number],
                "start": BEGAN + round(row["first_start_s"]), "end": BEGAN + round(row["end_s"]),
            }
        )  # fmt: skip
    return found


def squeue_entry(job, now):
    runs = job["start"] <= now
    return {
        "job_id": job["id"],
        "job_state": "RUNNING" if runs else "PENDING",
        "state_reason": "None" if runs else job.get("reason", "Priority"),
        "name": f"job-{job['id']}",
        "user_name": job["user"],
        "account": "lab",
        "partition": "main",
        "priority": 1_000_000 - job["id"],
        "nodes": ",".join(name for name, _ in job["nodes"]) if runs else "",
        "node_count": 1,
        "gres_detail": [f"gpu:{count}" for _, count in job["nodes"]] if runs else [],
        "tres_per_node": f"gres:gpu:{job['gpus']}",
        "submit_time": job["submit"],
        "eligible_time": job["submit"],
        "start_time": job["start"] if runs else 0,
        "time_limit": job["limit_min"],
    }


def save(folder, jobs, now, *, nodes=3, more=()):
    """The files of a moment; `more`: entries of squeue beside those of the schedule."""
    folder.mkdir()
    there = [squeue_entry(job, now) for job in jobs if job["submit"] <= now < job["end"]]
    (folder / "squeue.json").write_text(json.dumps({"jobs": [*there, *more]}))
    machines = [
        {
            "name": f"n{number}", "state": "mixed", "gres": f"gpu:{GPUS}", "partitions": ["main"],
            "cpus": 64, "real_memory": 512_000,
        }
        for number in range(nodes)
    ]  # fmt: skip
    (folder / "sinfo.json").write_text(json.dumps({"nodes": machines}))
    (folder / "config.txt").write_text(CONFIG.format(moment=now))
    (folder / "partition.txt").write_text(PARTITION.format(last=nodes - 1))
    rows = [HEAD]
    for job in jobs:
        if job["start"] > now:
            continue
        over = job["end"] <= now
        end = job["end"] if over else "Unknown"
        tres = f"billing=1,cpu=1,gres/gpu={job['gpus']},node=1"
        cells = (
            job["id"], job["user"], "lab", "main", 1_000_000 - job["id"], job["submit"],
            job["submit"], job["start"], end, "COMPLETED" if over else "RUNNING",
            min(job["end"], now) - job["start"], job["limit_min"], tres, tres,
            len(job["nodes"]), ",".join(name for name, _ in job["nodes"]),
        )  # fmt: skip
        rows.append("|".join(map(str, cells)))
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    return folder
