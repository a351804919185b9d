"""What this machine has: GPUs, processors, memory."""

import os
import shutil
import subprocess

import msgspec

from rota.core.errors import OptionError

QUERY = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
TIMEOUT_S = 30.0
FIELDS = 4


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as `nvidia-smi` sees it."""

    index: str
    uuid: str
    name: str
    memory_mib: float


def find_gpus(program: str = "nvidia-smi") -> list[Gpu]:
    """GPUs of this machine; none if there is no driver."""
    path = shutil.which(program)
    if path is None:
        return []
    try:
        result = subprocess.run(  # noqa: S603 - a fixed command
            [path, *QUERY], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OptionError(f"--gpus auto: {program} does not answer: {error}") from error
    if result.returncode:
        reason = (result.stderr or result.stdout).strip().split("\n")[0]
        raise OptionError(
            f"--gpus auto: {program} failed ({reason}): repair the driver or give --gpus N"
        )
    return parse_gpus(result.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    """Read the table of `nvidia-smi`."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == FIELDS and fields[0].isdigit():
            memory = float(fields[3]) if fields[3].replace(".", "", 1).isdigit() else 0.0
            found.append(Gpu(fields[0], fields[1], fields[2], memory))
    return found


def gpu_type(gpus: list[Gpu]) -> str:
    """A short name for the type of these GPUs: `a100-sxm4-40gb` for an `NVIDIA A100-SXM4-40GB`."""
    words = gpus[0].name.lower().split() if gpus else []
    return "-".join(word for word in words if word not in ("nvidia", "tesla", "geforce"))


def cpus() -> float:
    """Processors that this process may use."""
    return float(len(os.sched_getaffinity(0)))


def mem_gib() -> float:
    """Memory of the machine."""
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
