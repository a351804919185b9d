"""The model of today: which policy comes closest to what happened, and what the log lacks.

Every policy that is tried runs the jobs of the log on the machines as they are, without any change;
`fidelity` says how close it comes. What would happen otherwise is then compared with what the model
does with the same jobs, never with what was observed: the difference between the model and what was
observed is an error of the model, not a gain.
"""

from collections.abc import Sequence

import polars as pl

from rota.core.registry import POLICIES, names
from rota.study.fidelity import PARTITION, SIZE, Fidelity, compare_waits, overtaken
from rota.study.replay.recorded import Replayed
from rota.study.replay.tables import attributes
from rota.study.run import RunResult
from rota.traces.imported import Imported

SLURM = "slurm"
TRIED = ("fifo", "fifo-skip", "easy", "conservative", SLURM)
"""Policies that clusters run, from simple to elaborate: tried unless one is named."""
_MUCH = 0.1  # more jobs passed by others than under the model
_MOST = 0.5


def candidates(model: str | None, policies: Sequence[str], *, ruled: bool = False) -> list[str]:
    """Policies to try: the named model, or all that are usual; then those that were asked for.

    Args:
        model: None: not named.
        policies: What was asked for.
        ruled: The configuration of a Slurm was given, so its policy is wanted.
    """
    registered = {*names(POLICIES), *([SLURM] if ruled else [])}
    first = [model] if model is not None else [name for name in TRIED if name in registered]
    return list(dict.fromkeys([*first, *policies]))


def judge(policy: str, result: RunResult, recorded: Replayed, imported: Imported) -> Fidelity:
    """How close a run of the jobs comes to what happened."""
    observed = pl.DataFrame(
        {"job": recorded.jobs, "observed_s": recorded.result.jobs["wait_s"]},
        schema_overrides={"job": pl.Int64},
    )
    simulated = result.jobs.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("job"), pl.col("wait_s").alias("simulated_s")
    )
    groups = attributes(imported).select("job", PARTITION, SIZE)
    waits = observed.join(simulated, on="job").join(groups, on="job")
    seen = imported.observed.per_job().filter(pl.col("end_s").is_null())["job"]
    compared = waits.drop_nulls(["observed_s", "simulated_s"])["job"]
    still = int(compared.is_in(seen.implode()).sum())
    return compare_waits(policy, waits, refusal=result.refusal, open_ended=still)


def lacking(imported: Imported, *, seen: bool, slurm: bool, ruled: bool) -> list[str]:
    """What the log does not tell and a policy would need, each with the remedy.

    Args:
        imported: The history.
        seen: Nodes are only as large as jobs were seen on them.
        slurm: The log is of Slurm.
        ruled: The configuration of that Slurm was given.
    """
    jobs = imported.jobs
    found = []
    if slurm and not ruled and SLURM in names(POLICIES):
        found.append(
            "the rules of this Slurm: its slurm.conf (--slurm-conf), and what `sacctmgr show qos "
            "--parsable2` and `sacctmgr show assoc --parsable2` print (--slurm-qos, --slurm-assoc)"
        )
    if seen:
        where = "what `scontrol show node` prints" if slurm else "or --cluster"
        found.append(
            f"the list of nodes (--nodes, {where}): now a node is as large as jobs were seen on it"
        )
    if jobs["estimate_s"].null_count() > _MOST * jobs.height:
        where = "ask sacct for TimelimitRaw" if slurm else "column estimate_s"
        found.append(f"time limits ({where}): without them policies that backfill hardly can")
    found += [*_priorities(jobs, slurm=slurm), *_submitters(jobs, slurm=slurm)]
    if not imported.observed.frame["nodes"].list.len().sum():
        found.append("the nodes of jobs: only counts of GPUs are compared")
    where = " (`scontrol show reservation`, `sacctmgr show qos`)" if slurm else ""
    found.append(
        f"reservations, holds and limits of users or groups{where}: no such log has them; if they "
        f"explain it, replay a time without them (`rota trace change --window`)"
    )
    return found


def _priorities(jobs: pl.DataFrame, *, slurm: bool) -> list[str]:
    if jobs["priority"].n_unique() > 1:
        return []
    classes = _values(jobs, "qos")
    if jobs.height and jobs["priority"][0]:
        where = "they are there, but all equal"
    elif len(classes) > 1:  # in which order, the log does not tell
        where = (
            f"rank the QOS {', '.join(classes)} from low to high: "
            f"--format sacct:classes=LOWEST/.../HIGHEST"
        )
    elif classes:
        where = f"all jobs have the QOS {classes[0]}"
        where += "; ask sacct for Priority" if slurm else ", and there is no column priority"
    else:
        where = "ask sacct for QOS and Priority" if slurm else "column priority"
    return [f"priorities ({where}): all jobs count as equally important"]


def _submitters(jobs: pl.DataFrame, *, slurm: bool) -> list[str]:
    if jobs["vc"].n_unique() > 1 or jobs["user"].n_unique() > 1:
        return []
    names = {"User": _values(jobs, "user"), "Account": _values(jobs, "account")}
    if not slurm:
        names = {"vc": _values(jobs, "vc"), "user": names["User"]}
    lost = [name for name, values in names.items() if not values]
    if not lost:
        where = f"{' and '.join(names)} are there, but all equal"
    elif slurm:
        where = f"ask sacct for {' and '.join(lost)}"
    else:
        where = f"column{'s' * (len(lost) > 1)} {' and '.join(lost)}"
    return [f"who submitted ({where}): fair shares need it"]


def _values(jobs: pl.DataFrame, column: str) -> list[str]:
    """What is in a column, but for cells that say nothing."""
    return sorted(filter(None, jobs[column].unique().to_list()))


def passed(imported: Imported, recorded: Replayed, policy: str, model: RunResult) -> str:
    """How often a job was passed by an equal one that came later, if the model does not know it."""
    kinds = ("labels", "gpu_type", "num_gpus")
    jobs = imported.jobs.select("submit_s", *kinds).with_row_index("job")
    jobs = jobs.with_columns(
        pl.col("job").cast(pl.Int64), pl.col("labels", "gpu_type").list.join("|")
    )
    seen = pl.DataFrame(
        {"job": recorded.jobs, "observed_s": recorded.result.jobs["first_start_s"]},
        schema_overrides={"job": pl.Int64},
    )
    both = jobs.with_columns(model.jobs["first_start_s"].alias("model_s")).join(seen, on="job")
    log, other = (overtaken(both, start, "submit_s", kinds) for start in ("observed_s", "model_s"))
    if log is None or log < (other or 0.0) + _MUCH:
        return ""
    return (
        f"{log:.0%} of the jobs that waited were passed by an equal job that came later "
        f"({other or 0.0:.0%} under {policy}): priorities, fair shares or limits "
        f"decided, not the order of submission"
    )
