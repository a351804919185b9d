"""A job as its owner writes it: the keys of a job file, and the body of a submission."""

from collections.abc import Mapping

import msgspec


class GpuRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An elastic job: it can run on any number of GPUs between these."""

    min: int
    max: int


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the whole job asks for (per node if `nodes` is above 1)."""

    gpus: float | GpuRange = 1
    gpu_type: str = ""  # or several: `a100|h100`
    cpus: float = 0.0
    mem: str | float = 0.0  # GiB, or `64GB`, `512M`
    gpu_mem_gib: float = 0.0  # of each GPU, or of its part of one
    kinds: Mapping[str, float] = msgspec.field(default_factory=dict)  # licences, ...: `matlab: 2`


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the job wants to be stopped, and where it keeps its state."""

    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    dir: str = ""
    pre_stop: str = ""  # a script that runs before SIGTERM, in the same time
    warn_s: float = 60.0  # so long before its time limit it is warned in its error output
    warn_signal: str = ""  # and by this signal: `USR1`


class JobFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of a job file."""

    run: str
    name: str = ""
    setup: str = ""
    workdir: str = ""
    envs: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: Resources = Resources()
    nodes: int = 1
    per: str = "node"  # one process per `node` or per `gpu`
    queue: str = ""
    priority: int = 0
    deadline: str | float | None = None  # `2h` or seconds from submission
    estimate: str | float | None = None  # how long it will run: `90m` or seconds
    group: str = ""
    model: str = ""
    checkpoint: Checkpoint = Checkpoint()
    retries: int = 0
    depends_on: tuple[str, ...] = ()  # jobs that must succeed: ids, or names of your own
    hold: bool = False
    priority_class: str = ""  # one that the daemon declares, instead of `priority`
    speeds: Mapping[str, float] = msgspec.field(default_factory=dict)  # by GPU type; 1 if not named
    secrets: tuple[str, ...] = ()  # names of secrets of its owner: variables, or `file:NAME`
    upload: str = ""  # files that were sent for it: `rota submit --upload DIR` sets it
    interactive: bool = False  # it runs on a terminal, to which its owner attaches
    time_limit: str | float | None = None  # of running, in all its runs: `2h` or seconds
    backoff: str | float | None = None  # before the first retry; each further one waits twice
    after_any: tuple[str, ...] = ()  # jobs that must be over, however they end
    after_fail: tuple[str, ...] = ()  # jobs that must end without success
    array: str = ""  # one job for each of these numbers: `0-9`, at most four at once: `0-9%4`
    task: int | None = None  # its number in the array; not for job files
    notify: tuple[str, ...] = ()  # who is told: webhooks of the daemon, mailto:NAME@HOST, URLs
    notify_on: tuple[str, ...] = ()  # of what: start, end, fail, preempt, soon; none: all of it
    image: str = ""  # it runs in a container: `docker.io/pytorch/pytorch:latest`, a folder, a .sif
    external: str = ""  # what of the platform it is; not for job files
