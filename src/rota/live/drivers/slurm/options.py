"""Settings of the Slurm backend."""

import msgspec


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Rota uses a Slurm.

    `partition` should be Rota's own: jobs that others start on its nodes are in the way.
    A preempted job stays in Slurm's queue, held, for `parked_s`; after that its next run is a new
    Slurm job.
    """

    conf: str = ""  # path of slurm.conf; empty: as Slurm's commands find it
    partition: str = ""  # empty: the default partition
    account: str = ""
    qos: str = ""
    time_limit: str = ""  # as sbatch takes it; empty: the partition's default
    poll_s: float = 1.0
    timeout_s: float = 20.0  # of a single command
    parked_s: float = 6 * 3600.0
