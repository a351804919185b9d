"""What a job may say: limits that keep a hostile or mistaken submission from doing harm."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import PurePosixPath

from rota.core.errors import InputError
from rota.core.launch import PER_GPU, PER_NODE
from rota.core.manifest import UPLOAD
from rota.jobfile.arrays import array_plan
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.jobfile.quantities import duration_s, memory_gib, shown

LONGEST_NAME = 200
LONGEST_SCRIPT = 256 << 10
LONGEST_PATH = 4000
LONGEST_IMAGE = 500
LONGEST_ENV = 100_000  # the kernel takes 128 KiB for one
LONGEST_ENVS = 1 << 20
MOST_ENVS = 1000
MOST_GPUS = 100_000
MOST_NODES = 10_000
MOST_CPUS = 1_000_000
MOST_MEM_GIB = 10_000_000
MOST_KIND = 1_000_000_000
MOST_DEPENDENCIES = 1000
MOST_RETRIES = 1000
LONGEST_GRACE_S = 86400
LARGEST_PRIORITY = 10**9
MOST_SPEEDS = 100
MOST_SECRETS = 100
LARGEST_SPEED = 1000
DIGITS = 6  # behind the point of a part of a GPU
NOTIFY_EVENTS = ("start", "end", "fail", "preempt", "soon")
MOST_TARGETS, LONGEST_TARGET = 10, 500
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM")  # by which a job can be warned

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def check(job: JobFile, where: str = "job") -> None:
    """Raise an `InputError` that names the key, the value and the remedy."""
    if not job.run.strip():
        raise InputError(f"{where}: run is empty: write what the job executes")
    for key in ("run", "setup"):
        _check_text(f"{where}: {key}", getattr(job, key), LONGEST_SCRIPT)
    _check_text(f"{where}: checkpoint: pre_stop", job.checkpoint.pre_stop, LONGEST_SCRIPT)
    _check_notify(where, job)
    _check_signal(f"{where}: checkpoint: warn_signal", job.checkpoint.warn_signal)
    if job.array:
        array_plan(job.array, f"{where}: array")
    for key in ("name", "queue", "group", "model"):
        check_name(f"{where}: {key}", getattr(job, key))
    _check_image(f"{where}: image", job.image)
    _check_folder(f"{where}: workdir", job.workdir)
    _check_folder(f"{where}: checkpoint: dir", job.checkpoint.dir)
    _check_envs(f"{where}: envs", job.envs)
    _check_resources(f"{where}: resources", job.resources)
    _check_shape(where, job)
    _check_limits(where, job)
    _check_speeds(where, job.speeds)


def check_name(where: str, name: str) -> None:
    """Short, printable, on one line."""
    _check_unicode(where, name)
    if len(name) > LONGEST_NAME:
        raise InputError(
            f"{where} has {len(name):,} characters: shorten it to {LONGEST_NAME} or fewer"
        )
    if _CONTROL.search(name):
        raise InputError(
            f"{where} is {shown(name)}: control characters are not allowed: remove them"
        )
    if name != name.strip():
        raise InputError(f"{where} is {shown(name)}: remove the blanks around it")


def _check_text(where: str, text: str, longest: int) -> None:
    size = _check_unicode(where, text)
    if size > longest:
        raise InputError(f"{where} has {size:,} bytes: put it into a file of its own and call that")
    if "\0" in text:
        raise InputError(f"{where} has a zero character: remove it")


def _check_unicode(where: str, text: str) -> int:
    """The number of bytes."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"{where} is {shown(text)}: is not Unicode text: correct it") from error


def _check_folder(where: str, path: str) -> None:
    _check_unicode(where, path)
    if len(path) > LONGEST_PATH or _CONTROL.search(path):
        raise InputError(f"{where} is {shown(path)}: give a plain path, without control characters")
    if ".." in PurePosixPath(path).parts:
        raise InputError(f"{where} is {shown(path)}: write it without '..'")


def _check_image(where: str, image: str) -> None:
    if image.startswith("/"):
        _check_folder(where, image)
    elif image and (not _IMAGE.fullmatch(image) or len(image) > LONGEST_IMAGE):
        raise InputError(
            f"{where} is {shown(image)}: name one as podman does, such as "
            "docker.io/library/python:3.12, or give the path of a folder or of a .sif file"
        )


def _check_envs(where: str, envs: Mapping[str, str]) -> None:
    if len(envs) > MOST_ENVS:
        raise InputError(f"{where} has {len(envs):,} variables: give {MOST_ENVS} or fewer")
    total = 0
    for name, value in envs.items():
        if not _ENV_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise InputError(
                f"{where}: {shown(name)} is not a name: use letters, digits and _, no digit first"
            )
        _check_text(f"{where}: {name}", value, LONGEST_ENV)
        total += len(name) + len(value)
    if total > LONGEST_ENVS:
        raise InputError(f"{where} has {total:,} characters in all: put large values into a file")


def _check_resources(where: str, asked: Resources) -> None:
    if isinstance(asked.gpus, GpuRange):
        if not 1 <= asked.gpus.min <= asked.gpus.max <= MOST_GPUS:
            raise InputError(
                f"{where}: gpus is {asked.gpus.min} to {asked.gpus.max}: min must be 1 or more and "
                f"max not below it, at most {MOST_GPUS:,}"
            )
    else:
        _check_gpus(f"{where}: gpus", asked.gpus)
    _check_amount(f"{where}: cpus", asked.cpus, MOST_CPUS)
    _check_amount(f"{where}: mem", memory_gib(asked.mem, f"{where}: mem"), MOST_MEM_GIB)
    _check_amount(f"{where}: gpu_mem_gib", asked.gpu_mem_gib, MOST_MEM_GIB)
    for kind, amount in asked.kinds.items():
        if not kind.isidentifier() or len(kind) > LONGEST_NAME:
            raise InputError(f"{where}: kinds: {shown(kind)} is no name of a resource")
        _check_amount(f"{where}: kinds: {kind}", amount, MOST_KIND)
    if asked.gpu_mem_gib and asked.gpus == 0:
        raise InputError(
            f"{where}: gpu_mem_gib is {asked.gpu_mem_gib:g} and gpus 0: ask for GPUs, or a part of "
            "one, or leave gpu_mem_gib out"
        )
    gpu_types(asked.gpu_type, f"{where}: gpu_type")


def _check_gpus(where: str, gpus: float) -> None:
    _check_amount(where, gpus, MOST_GPUS)
    if gpus > 1 and gpus % 1:
        raise InputError(f"{where} is {gpus:g}: give a whole number, or less than 1 to share a GPU")
    if round(gpus, DIGITS) != gpus:
        raise InputError(f"{where} is {gpus!r}: give at most {DIGITS} digits behind the point")


def _check_amount(where: str, value: float, most: float) -> None:
    if not isfinite(value) or not 0 <= value <= most:
        raise InputError(f"{where} is {value:g}: give 0 or more, at most {most:,}")


def gpu_types(text: str, where: str = "gpu_type") -> tuple[str, ...]:
    """`a100|h100` as names."""
    check_name(where, text)
    names = tuple(dict.fromkeys(part.strip() for part in text.split("|"))) if text else ()
    if not all(names):
        raise InputError(f"{where} is {shown(text)}: write names with | between them: a100|h100")
    return names


def _check_shape(where: str, job: JobFile) -> None:
    if not 1 <= job.nodes <= MOST_NODES:
        raise InputError(f"{where}: nodes is {job.nodes}: give 1 to {MOST_NODES:,}")
    if job.per not in (PER_NODE, PER_GPU):
        raise InputError(f"{where}: per is {shown(job.per)}: give {PER_NODE} or {PER_GPU}")
    gpus = job.resources.gpus
    if job.nodes > 1:
        if isinstance(gpus, GpuRange):
            raise InputError(
                f"{where}: nodes is {job.nodes} and gpus a range: leave nodes out, the range "
                f"is for the whole job"
            )
        if gpus < 1:
            raise InputError(
                f"{where}: nodes is {job.nodes} and gpus {gpus:g}: several nodes need 1 GPU or "
                f"more each: raise gpus or leave nodes out"
            )
        if gpus * job.nodes > MOST_GPUS:
            raise InputError(
                f"{where}: {job.nodes} nodes with {gpus:g} GPUs each: at most {MOST_GPUS:,} in all"
            )
    _check_secrets(where, job)
    if job.upload and (
        not UPLOAD.fullmatch(job.upload) or PurePosixPath(job.workdir).is_absolute()
    ):
        raise InputError(
            f"{where}: upload {shown(job.upload)} with workdir {shown(job.workdir)}: let `rota "
            "submit --upload DIR` set it; workdir is a folder inside of it, or left out"
        )
    if job.interactive and (job.nodes > 1 or job.per == PER_GPU):
        raise InputError(
            f"{where}: interactive with {job.nodes} nodes, one process per {job.per}: there is one "
            "terminal: leave nodes and per out"
        )
    if job.per == PER_GPU and not isinstance(gpus, GpuRange) and not gpus:
        raise InputError(f"{where}: per is gpu and gpus is 0: ask for GPUs or leave per out")


def _check_secrets(where: str, job: JobFile) -> None:
    if len(job.secrets) > MOST_SECRETS:
        raise InputError(f"{where}: secrets names {len(job.secrets)}: at most {MOST_SECRETS}")
    for item in job.secrets:
        name = item.removeprefix("file:")
        if not _ENV_NAME.fullmatch(name) or len(name) > LONGEST_NAME or name.startswith("ROTA_"):
            raise InputError(
                f"{where}: secrets: {shown(item)} is not a name: write NAME or file:NAME"
            )
        if item in job.envs:
            raise InputError(f"{where}: {item} is in envs and in secrets: give one of them")


def _check_speeds(where: str, speeds: Mapping[str, float]) -> None:
    if len(speeds) > MOST_SPEEDS:
        raise InputError(f"{where}: speeds names {len(speeds):,} GPU types: at most {MOST_SPEEDS}")
    for gpu_type, speed in speeds.items():
        check_name(f"{where}: speeds", gpu_type)
        if not 0 <= speed <= LARGEST_SPEED:  # false for NaN, too
            raise InputError(
                f"{where}: speeds: {shown(gpu_type)} is {speed:g}: give 0 to {LARGEST_SPEED:,}, "
                "1 for the usual speed"
            )
    if speeds and not any(speeds.values()):
        raise InputError(f"{where}: speeds are all 0: say where the job makes progress")


def _check_limits(where: str, job: JobFile) -> None:
    for key, value, least, most in (
        ("checkpoint: grace_s", job.checkpoint.grace_s, 0, LONGEST_GRACE_S),
        ("checkpoint: warn_s", job.checkpoint.warn_s, 0, LONGEST_GRACE_S),
        ("retries", job.retries, 0, MOST_RETRIES),
        ("priority", job.priority, -LARGEST_PRIORITY, LARGEST_PRIORITY),
    ):
        if not least <= value <= most:
            raise InputError(f"{where}: {key} is {value:g}: give {least:,} to {most:,}")
    if job.backoff is not None:
        duration_s(job.backoff, f"{where}: backoff")
    for key, time in (
        ("deadline", job.deadline), ("estimate", job.estimate), ("time_limit", job.time_limit),
    ):  # fmt: skip
        if time is not None and not duration_s(time, f"{where}: {key}"):
            raise InputError(f"{where}: {key} is {shown(time)}: give more than 0, or leave it out")
    for key, others in (
        ("depends_on", job.depends_on), ("after_any", job.after_any),
        ("after_fail", job.after_fail),
    ):  # fmt: skip
        _check_dependencies(f"{where}: {key}", others)
    both = set(job.after_fail).intersection(job.depends_on)
    if both:
        raise InputError(
            f"{where}: after_fail and depends_on both name {shown(min(both))}: it cannot both fail "
            "and succeed: give it once"
        )


def _check_dependencies(where: str, others: Sequence[str]) -> None:
    if len(others) > MOST_DEPENDENCIES:
        raise InputError(f"{where} names {len(others):,} jobs: at most {MOST_DEPENDENCIES:,}")
    for other in others:
        check_name(where, other)
        if not other:
            raise InputError(f"{where} has an empty name: give ids or names of jobs")


def _check_notify(where: str, job: JobFile) -> None:
    if len(job.notify) > MOST_TARGETS:
        raise InputError(f"{where}: notify names {len(job.notify)} targets: at most {MOST_TARGETS}")
    for target in job.notify:
        _check_unicode(f"{where}: notify", target)
        if not target or len(target) > LONGEST_TARGET or _CONTROL.search(target) or " " in target:
            raise InputError(
                f"{where}: notify is {shown(target)}: give a webhook's name, mailto:NAME@HOST or "
                "a URL"
            )
    for event in job.notify_on:
        if event not in NOTIFY_EVENTS:
            raise InputError(
                f"{where}: notify_on is {shown(event)}: give one of {', '.join(NOTIFY_EVENTS)}"
            )


def _check_signal(where: str, name: str) -> None:
    if name and name not in SIGNALS:
        raise InputError(f"{where} is {shown(name)}: give one of {', '.join(SIGNALS)}")
