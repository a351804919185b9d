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


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the job wants to be stopped, and where it keeps its state."""

    grace_s: float = 30.0
    dir: str = ""


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
    depends_on: tuple[str, ...] = ()  # ids, or names of jobs of the same owner
    hold: bool = False
    priority_class: str = ""  # one that the daemon declares, instead of `priority`
    speeds: Mapping[str, float] = msgspec.field(default_factory=dict)  # by GPU type; 1 if not named
    upload: str = ""  # files that were sent for it: `rota submit --upload DIR` sets it
    interactive: bool = False  # it runs on a terminal, to which its owner attaches
