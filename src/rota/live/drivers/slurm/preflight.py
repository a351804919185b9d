"""Can this Slurm be used? What it cannot do is said at start-up."""

from rota.core.errors import ClusterError
from rota.live.drivers.slurm.commands import SlurmCommands, SlurmQueries
from rota.live.drivers.slurm.layout import SeenNode
from rota.live.drivers.slurm.options import SlurmOptions
from rota.live.drivers.slurm.request import common_options

OLDEST = (21, 8)  # the first with --json
SHORTEST_AGE_S = 30


def usable_nodes(commands: SlurmQueries, options: SlurmOptions) -> list[SeenNode]:
    """Nodes with GPUs in the partition; raises if there is none."""
    partition = options.partition
    nodes = [n for n in commands.nodes() if not partition or partition in n.partitions]
    if not nodes:
        raise ClusterError(f"Slurm has no node in the partition {partition!r}: see `sinfo`")
    with_gpus = [node for node in nodes if node.gpus]
    if not with_gpus:
        raise ClusterError(
            "no node of this Slurm has GPUs: declare them in slurm.conf (GresTypes=gpu, "
            "Gres=gpu:... for each node) and in gres.conf"
        )
    return with_gpus


def check(commands: SlurmCommands, options: SlurmOptions) -> list[str]:
    """Raise if this Slurm cannot be used; otherwise remarks for the log."""
    year, month = commands.version()
    if (year, month) < OLDEST:
        raise ClusterError(
            f"Slurm {year}.{month:02d} is too old: Rota needs 21.08 or later (squeue --json)"
        )
    config = commands.config()
    partition = _partition(commands, options)
    usable_nodes(commands, options)
    _refuse_unfit(config, partition)
    try:
        commands.would_accept([*common_options(options), "--requeue", "--gres=gpu:1"])
    except ClusterError as error:
        raise ClusterError(
            f"Slurm would not accept a job of Rota: {error}: check partition, account, qos and "
            f"time_limit of the Slurm backend"
        ) from error
    return _remarks(config, partition)


def _partition(commands: SlurmQueries, options: SlurmOptions) -> dict[str, str]:
    partitions = commands.partitions()
    if options.partition:
        found = partitions.get(options.partition)
    else:
        defaults = (p for p in partitions.values() if p.get("Default") == "YES")
        found = next(defaults, None)
    if found is None:
        what = repr(options.partition) if options.partition else "that is the default"
        raise ClusterError(
            f"Slurm has no partition {what}: it has {', '.join(sorted(partitions)) or 'none'}"
        )
    if found.get("State", "UP") != "UP":
        raise ClusterError(
            f"the partition {found['PartitionName']!r} is {found['State']}: set it up with "
            f"`scontrol update PartitionName={found['PartitionName']} State=UP`"
        )
    return found


def _refuse_unfit(config: dict[str, str], partition: dict[str, str]) -> None:
    if "cons_tres" not in config.get("SelectType", ""):
        raise ClusterError(
            f"SelectType={config.get('SelectType')}: Rota places several jobs on a node, which "
            f"needs SelectType=select/cons_tres in slurm.conf"
        )
    if config.get("SchedulerType", "sched/backfill") != "sched/backfill":
        raise ClusterError(
            f"SchedulerType={config['SchedulerType']}: jobs that take unequal numbers of GPUs from "
            f"their nodes need sched/backfill in slurm.conf"
        )
    if partition.get("OverSubscribe") == "EXCLUSIVE" or partition.get("ExclusiveUser") == "YES":
        raise ClusterError(
            f"the partition {partition['PartitionName']!r} gives whole nodes only: Rota needs "
            f"OverSubscribe=NO"
        )
    consumes = f"{config.get('SelectTypeParameters')} {partition.get('SelectTypeParameters')}"
    defaults = ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")
    declared = any(
        place.get(name, "UNLIMITED") not in ("UNLIMITED", "0")
        for place in (config, partition)
        for name in defaults
    )
    declared = declared or "DefMemPerGPU" in partition.get("JobDefaults", "")
    if "MEMORY" in consumes.upper() and not declared:
        raise ClusterError(
            "every job would take the whole memory of its nodes: set DefMemPerCPU in slurm.conf"
        )


def _remarks(config: dict[str, str], partition: dict[str, str]) -> list[str]:
    remarks = []
    limit = partition.get("DefaultTime", "NONE")
    longest = partition.get("MaxTime", "UNLIMITED")
    if limit == "NONE":
        limit = longest
    if limit not in ("NONE", "UNLIMITED"):
        remarks.append(f"Slurm ends jobs after {limit}: set `time_limit` if they need longer")
    age = config.get("MinJobAge", "").split()
    if age and age[0].isdecimal() and int(age[0]) < SHORTEST_AGE_S:
        remarks.append(
            f"MinJobAge={age[0]} s: exit codes of jobs that end while the daemon is away come "
            f"from their own records only; 300 is better"
        )
    if config.get("PreemptType", "preempt/none") != "preempt/none":
        remarks.append(
            "Slurm preempts jobs itself: Rota will see them as lost and start them again"
        )
    return remarks
