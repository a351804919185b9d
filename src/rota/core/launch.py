"""What a job executes. Policies never see it; clusters that really run jobs do."""

from collections.abc import Mapping

import msgspec

PER_NODE, PER_GPU = "node", "gpu"


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The command of a job and how it wants to be treated.

    `run` is a shell script. It is started once on every node of its allocation (`per` is `node`) or
    once for every GPU (`gpu`); RANK and WORLD_SIZE count these processes. `setup` runs once on each
    node before it; progress begins when it is over. To stop a job is SIGTERM, `grace_s` seconds,
    SIGKILL. A run that fails is repeated up to `retries` times.
    """

    run: str
    setup: str = ""
    workdir: str = ""  # empty: a folder of the job's own
    envs: Mapping[str, str] = msgspec.field(default_factory=dict)
    per: str = PER_NODE
    grace_s: float = 30.0
    checkpoint_dir: str = ""  # empty: a folder of the job's own, kept between its runs
    retries: int = 0
    upload: str = ""  # files that its working folder begins with
    terminal: bool = False  # its process has a terminal, to which people attach
