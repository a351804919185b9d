"""Make the history of a cluster that does not exist, as `sacct` and `scontrol` would print it.

    python make_history.py --jobs 400 --nodes 16 --load 1 --seed 1 --folder .

writes `jobs.txt` (as sacct --parsable2) and `nodes.txt` (as scontrol show node). The jobs are drawn
at random. They start strictly in the order of their submission, as under Slurm's sched/builtin, so
waiting times are those of a real queue. Nothing in it comes from any real cluster. The same seed
gives the same files.
"""

import argparse
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import polars as pl

from rota.core.workload import Workload
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.traces.synth.generate import generate

BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
FIELDS = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|"
    "TimelimitRaw|ReqTRES|AllocTRES|NNodes|NodeList"
)
TEAMS = {"vision": ("ann", "ben", "cleo"), "speech": ("dan", "eva"), "robots": ("finn", "gil")}
WEIGHTS = {"vision": 5, "speech": 3, "robots": 2}
GPUS, CPUS, MEMORY_MB = 8, 64, 512_000


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path())
    asked = parser.parse_args()
    jobs = history(asked.jobs, asked.nodes, asked.load, asked.seed)
    (asked.folder / "jobs.txt").write_text("\n".join([FIELDS, *jobs]) + "\n")
    (asked.folder / "nodes.txt").write_text("\n".join(map(node, range(1, asked.nodes + 1))))


def history(count: int, nodes: int, load: float, seed: int) -> list[str]:
    """Lines of sacct, in order of submission."""
    dice = random.Random(seed)  # noqa: S311 - no secrets here
    drawn = generate(
        "philly-like", jobs=count, gpus=nodes * GPUS, load=load, seed=seed,
        options={
            "sizes": "1:55/2:15/4:12/8:14/16:4", "max_s": "86400", "arrivals": "diurnal",
            "even": "no",
        },
    )  # fmt: skip
    specs = [
        msgspec.structs.replace(
            spec, submit_s=float(round(spec.submit_s)), estimate_s=limit_s(truth.work, dice)
        )
        for spec, truth in drawn
    ]
    truths = [
        msgspec.structs.replace(t, work=float(max(round(t.work), 5))) for t in drawn.behaviours
    ]
    config = RunConfig(trace="history", cluster=f"{nodes}x{GPUS}", policy="fifo")
    result = simulate(config, workload=Workload(specs, truths))
    places = allocations(result.log)
    lines = []
    for number, (row, spec) in enumerate(
        zip(result.jobs.iter_rows(named=True), specs, strict=True)
    ):
        if row["state"] == "done":
            lines += record(number, row, spec.estimate_s, places[number], dice)
    return lines


def limit_s(work_s: float, dice: random.Random) -> float:
    """What a user asks for: too much, in whole hours or so."""
    wanted = work_s * dice.choice((1.1, 1.5, 2, 3, 5))
    return next(
        (float(h * 3600) for h in (1, 2, 4, 8, 12, 24, 48, 96) if h * 3600 > wanted), 604_800.0
    )


def allocations(log: pl.DataFrame) -> dict[int, list[tuple[str, float]]]:
    """Nodes of every job, and its GPUs there; nobody is ever moved."""
    names = {row["ref"]: row["text"] for row in log.filter(event="vertex").iter_rows(named=True)}
    slices: dict[int, list[tuple[str, float]]] = {}
    for row in log.filter(event="allocation").iter_rows(named=True):
        node = int(names[row["other"]].removeprefix("node:n")) + 1
        slices.setdefault(row["ref"], []).append((f"gpu{node:02d}", row["value"]))
    starts = log.filter(event="start").select("job", "ref").rows()
    return {job: slices[ref] for job, ref in starts}


def record(
    number: int, row: dict, limit: float, held: list[tuple[str, float]], dice: random.Random
) -> list[str]:
    """A job and its batch step."""
    team = dice.choices(list(TEAMS), list(WEIGHTS.values()))[0]
    user = dice.choice(TEAMS[team])
    gpus, nodes = int(row["gpus"]), sorted(name for name, _ in held)
    tres = f"billing={gpus * 8},{amounts(gpus, len(nodes))}"
    elapsed = int(row["end_s"] - row["first_start_s"])
    state = dice.choices(("COMPLETED", "FAILED", "CANCELLED by 1000"), (85, 10, 5))[0]
    times = [clock(row[key]) for key in ("submit_s", "submit_s", "first_start_s", "end_s")]
    name = str(1000 + number)
    place = [str(len(nodes)), short(nodes)]
    limits = [str(elapsed), f"{limit / 60:.0f}"]
    got = typed(tres, gpus)
    job = [name, name, "train", user, team, "gpu", *times, state, *limits, tres, got, *place]
    state = state.split()[0]
    name += ".batch"
    times = [times[2], times[2], *times[2:]]
    first = int(dict(held)[nodes[0]])
    got, place = typed(amounts(first, 1), first), ["1", nodes[0]]
    batch = [name, name, "batch", "", team, "", *times, state, str(elapsed), "", "", got, *place]
    return ["|".join(job), "|".join(batch)]


def amounts(gpus: int, nodes: int) -> str:
    """What so many GPUs come with."""
    return f"cpu={gpus * 4},gres/gpu={gpus},mem={gpus * 32}G,node={nodes}"


def typed(tres: str, gpus: int) -> str:
    """What was given has a type."""
    return tres.replace("gres/gpu=", f"gres/gpu:a100={gpus},gres/gpu=")


def short(nodes: list[str]) -> str:
    """`gpu[01,03]`."""
    numbers = ",".join(name.removeprefix("gpu") for name in nodes)
    return f"gpu[{numbers}]" if len(nodes) > 1 else nodes[0]


def clock(seconds: float) -> str:
    """As sacct prints a time."""
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def node(number: int) -> str:
    """A block of `scontrol show node`."""
    return (
        f"NodeName=gpu{number:02d} Arch=x86_64 CoresPerSocket=32\n"
        f"   CPUAlloc=0 CPUTot={CPUS} CPULoad=0.00\n"
        f"   Gres=gpu:a100:{GPUS}(S:0-1)\n"
        f"   RealMemory={MEMORY_MB} AllocMem=0 Sockets=2 Boards=1\n"
        f"   State=IDLE ThreadsPerCore=1\n"
        f"   Partitions=gpu\n"
    )


if __name__ == "__main__":
    main()
