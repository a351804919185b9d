"""How a Slurm cluster is set up, as data: what its configuration and its database say."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rota.core.events import INF
from rota.core.policy import Params
from rota.policies.slurm.conf import read_assoc, read_conf, read_qos, read_settings

Weight = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Period = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
PreemptMode = Literal["cluster", "off", "requeue", "cancel"]


class Tres(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An amount, weight or limit of each resource that can be tracked; inf in a limit: none."""

    cpu: float = 0.0
    mem_gib: float = 0.0
    node: float = 0.0
    gpu: float = 0.0


NO_LIMIT = Tres(INF, INF, INF, INF)
NOTHING = Tres()


class Partition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition: who may use it, for how long, and how it ranks.

    Attributes:
        name: Also the label of its nodes.
        default: For jobs that name no partition.
        priority_tier: Jobs of a higher tier are looked at first.
        priority_job_factor: For the partition factor, relative to the largest of all.
        max_time_s: Jobs with a longer limit are refused.
        default_time_s: The limit of jobs without one.
        max_nodes: Jobs on more nodes are refused.
        allow_qos: Who may use it; empty: everybody.
        allow_accounts: The same for accounts.
        deny_qos: Who may not.
        deny_accounts: The same for accounts.
        qos: A QOS whose limits hold for all jobs in here together.
        preempt_mode: What happens to preempted jobs (`partition_prio` only).
        billing: What resources cost in usage; None: CPUs count, or GPUs where no job asks for CPUs.
    """

    name: str
    default: bool = False
    priority_tier: Count = 1
    priority_job_factor: Count = 1
    max_time_s: Seconds = INF
    default_time_s: Seconds | None = None
    max_nodes: float = INF
    allow_qos: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    qos: str = ""
    preempt_mode: PreemptMode = "cluster"
    billing: Tres | None = None


class Qos(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quality of service.

    Attributes:
        name: As in the jobs.
        priority: For the QOS factor, relative to the largest of all.
        preempt: QOS whose running jobs make room for jobs of this one.
        preempt_mode: What happens to jobs of this QOS when they make room.
        preempt_exempt_s: They do so only after a run of so long; None: as in the configuration.
        usage_factor: What usage of its jobs counts for fair share.
        max_wall_s: Jobs with a longer limit are refused.
        max_tres: Of one job; larger ones are refused.
        max_jobs_per_user: Running at once.
        max_tres_per_user: Held at once.
        max_jobs_per_account: Running at once.
        max_tres_per_account: Held at once.
        grp_jobs: Running at once, of all.
        grp_tres: Held at once, by all.
    """

    name: str
    priority: Count = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: PreemptMode = "cluster"
    preempt_exempt_s: Seconds | None = None
    usage_factor: Weight = 1.0
    max_wall_s: Seconds = INF
    max_tres: Tres = NO_LIMIT
    max_jobs_per_user: float = INF
    max_tres_per_user: Tres = NO_LIMIT
    max_jobs_per_account: float = INF
    max_tres_per_account: Tres = NO_LIMIT
    grp_jobs: float = INF
    grp_tres: Tres = NO_LIMIT


class Association(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An account (without `user`), or a user in one.

    Attributes:
        account: Name of the account.
        user: The user; empty: the account itself.
        parent: Of an account; empty: the root.
        shares: Relative to those beside it; None: as its parent (`fairshare=parent`).
        default_qos: For jobs that name none.
        max_jobs: Running at once, of each user.
        max_tres: Of one job.
        grp_jobs: Running at once, of all below.
        grp_tres: Held at once, by all below.
    """

    account: str
    user: str = ""
    parent: str = ""
    shares: Weight | None = 1.0
    default_qos: str = ""
    max_jobs: float = INF
    max_tres: Tres = NO_LIMIT
    grp_jobs: float = INF
    grp_tres: Tres = NO_LIMIT


class SlurmPolicyParams(Params, frozen=True):
    """Slurm's own names in lower case, times in seconds; `conf`, `qos`, `assoc` may name files.

    Attributes:
        weight_age: PriorityWeightAge.
        weight_fairshare: PriorityWeightFairshare.
        weight_job_size: PriorityWeightJobSize.
        weight_partition: PriorityWeightPartition.
        weight_qos: PriorityWeightQOS.
        weight_tres: PriorityWeightTRES.
        max_age_s: PriorityMaxAge.
        half_life_s: PriorityDecayHalfLife; 0: usage never decays.
        calc_period_s: PriorityCalcPeriod.
        favor_small: PriorityFavorSmall.
        fair_tree: False: the classic algorithm (PriorityFlags=NO_FAIR_TREE).
        dampening: FairShareDampeningFactor, classic only.
        backfill: SchedulerType is sched/backfill, not sched/builtin.
        queue_depth: default_queue_depth: jobs that the main loop looks at.
        bf_interval_s: Between two runs of backfill.
        bf_window_s: How far ahead backfill plans.
        bf_resolution_s: To which it rounds.
        bf_max_job_test: Jobs that it looks at.
        bf_max_job_part: ... of one partition; 0: no limit.
        bf_max_job_user: ... of one user; 0: no limit.
        bf_max_job_start: How many it starts in one run; 0: no limit.
        preempt: PreemptType.
        preempt_mode: PreemptMode.
        preempt_exempt_s: PreemptExemptTime.
        youngest_first: PreemptParameters=youngest_first.
        enforce_limits: AccountingStorageEnforce names limits: those of QOS and associations hold.
        given_priorities: Jobs come with the priority that Slurm computed: no factor counts.
        partitions: See `Partition`.
        qos: See `Qos`.
        associations: See `Association`.
        not_modelled: Settings that were given and have no effect here.
    """

    weight_age: Weight = 0.0
    weight_fairshare: Weight = 0.0
    weight_job_size: Weight = 0.0
    weight_partition: Weight = 0.0
    weight_qos: Weight = 0.0
    weight_tres: Tres = NOTHING
    max_age_s: Period = 604_800.0
    half_life_s: Seconds = 604_800.0
    calc_period_s: Period = 300.0
    favor_small: bool = False
    fair_tree: bool = True
    dampening: Period = 1.0
    backfill: bool = True
    queue_depth: Count = 100
    bf_interval_s: Period = 30.0
    bf_window_s: Seconds = 86_400.0
    bf_resolution_s: Period = 60.0
    bf_max_job_test: Count = 500
    bf_max_job_part: Count = 0
    bf_max_job_user: Count = 0
    bf_max_job_start: Count = 0
    preempt: Literal["none", "qos", "partition_prio"] = "none"
    preempt_mode: Literal["off", "requeue", "cancel"] = "off"
    preempt_exempt_s: Seconds = 0.0
    youngest_first: bool = False
    enforce_limits: bool = True
    given_priorities: bool = False
    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] = ()
    not_modelled: tuple[str, ...] = ()

    files: ClassVar[Mapping[str, Callable[[str], Mapping[str, Any]]]] = {
        "conf": read_conf,
        "qos": read_qos,
        "assoc": read_assoc,
        "settings": read_settings,
    }
