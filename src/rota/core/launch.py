"""What a job executes. Policies never see it; clusters that really run jobs do."""

from collections.abc import Mapping

import msgspec

PER_NODE, PER_GPU = "node", "gpu"
CONTAINER, SIF = "container", "sif"  # labels of nodes that run images, and files of apptainer


def image_labels(image: str) -> tuple[str, ...]:
    """What a node must be able to do for a job with this image; none: it names none."""
    if not image:
        return ()
    return (CONTAINER, SIF) if image.endswith(".sif") else (CONTAINER,)


class ArrayTask(msgspec.Struct, frozen=True):
    """Which of how many jobs of an array it is, and the smallest and largest of their numbers."""

    array: str
    index: int
    count: int
    first: int
    last: int

    def variables(self) -> dict[str, str]:
        """What the job is told; the names of Slurm, too, for scripts that know those."""
        found = {"ID": self.array, "INDEX": self.index, "COUNT": self.count}
        found |= {"FIRST": self.first, "LAST": self.last}
        slurm = {"JOB_ID": self.array, "TASK_ID": self.index, "TASK_COUNT": self.count}
        slurm |= {"TASK_MIN": self.first, "TASK_MAX": self.last}
        return {f"ROTA_ARRAY_{name}": str(value) for name, value in found.items()} | {
            f"SLURM_ARRAY_{name}": str(value) for name, value in slurm.items()
        }


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The command of a job and how it wants to be treated.

    `run` is a shell script. It is started once on every node of its allocation (`per` is `node`) or
    once for every GPU (`gpu`); RANK and WORLD_SIZE count these processes. `setup` runs once on each
    node before it; progress begins when it is over. To stop a job is SIGTERM, `grace_s` seconds,
    SIGKILL; `pre_stop` runs before that, in the same time. `warn_s` before its time limit it is
    told so in its error output, and by `warn_signal` if one is named. `image`: all of it runs in a
    container.
    """

    run: str
    setup: str = ""
    workdir: str = ""  # empty: a folder of the job's own
    envs: Mapping[str, str] = msgspec.field(default_factory=dict)
    per: str = PER_NODE
    grace_s: float = 30.0
    checkpoint_dir: str = ""  # empty: a folder of the job's own, kept between its runs
    secrets: tuple[str, ...] = ()  # names; values come with the order to start only
    upload: str = ""  # files that its working folder begins with
    terminal: bool = False  # its process has a terminal, to which people attach
    pre_stop: str = ""
    warn_s: float = 60.0
    warn_signal: str = ""
    task: ArrayTask | None = None  # if it is one of an array
    image: str = ""  # empty: with the files of its node
    external: str = ""  # what of the platform it is: Rota starts and ends it, but did not make it
