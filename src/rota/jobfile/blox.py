"""Blox's job descriptions: what its `AcceptJob` takes, as JSON or YAML.

Blox starts `launch_command` with `launch_params` behind it once for every GPU, through a shell;
so does Rota (`per: gpu`), with Blox's environment variables beside its own.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from rota.core.errors import InputError
from rota.jobfile.documents import Translated, convert, text_of
from rota.jobfile.model import JobFile, Resources
from rota.jobfile.quantities import duration_s, shown

MARK = "launch_command"
_GPUS = ("num_GPUs", "num_gpus", "job_gpu_demand")
_ITERATIONS = ("num_total_iterations", "job_total_iteration")
_NAMES = ("job_name", "name")
_READ = {
    MARK, "launch_params", "job_duration", "job_iteration_time", "job_priority",
    *_GPUS, *_ITERATIONS, *_NAMES,
}  # fmt: skip
_REMEDIES = {
    "params_to_track": "report values with rota.job.report()",
    "default_values": "report values with rota.job.report()",
    "simulation": "the job is run for real; `rota simulate` simulates",
    "job_id": "the daemon numbers jobs itself",
    "submit_time": "the job is submitted now",
    "job_arrival_time": "the job is submitted now",
}


def read_blox(content: Mapping[str, Any], where: str) -> Translated:
    """One description."""
    command = text_of(f"{where}: {MARK}", content[MARK]).strip()
    if not command:
        raise InputError(f"{where}: {MARK} is empty: write what the job executes")
    warnings = []
    for key in content:
        if key not in _READ:
            remedy = _REMEDIES.get(str(key), "Rota has nothing like it")
            warnings.append(f"{where}: {str(key)[:60]} is left out: {remedy}")
    params = _params(content.get("launch_params"), f"{where}: launch_params")
    job = JobFile(
        run=f"{command} {params}".rstrip(),
        name=_first_text(content, _NAMES, where),
        resources=Resources(gpus=_gpus(content, where)),
        per="gpu",
        priority=_number(content, "job_priority", int, where) or 0,
        estimate=_estimate(content, where),
    )
    return Translated(job, tuple(warnings))


def _params(value: Any, where: str) -> str:
    """Blox leaves the words to the shell, so a text or the texts of a list stay as they are."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(text_of(where, item) for item in value)
    if isinstance(value, dict):
        words = []
        for key, item in value.items():
            name = text_of(where, key)
            words.append(shlex.quote(name if name.startswith("-") else f"--{name}"))
            if item is not None:
                words.append(shlex.quote(text_of(f"{where}: {shown(name)}", item)))
        return " ".join(words)
    return text_of(where, value)


def _gpus(content: Mapping[str, Any], where: str) -> int:
    given = [key for key in _GPUS if content.get(key) is not None]
    if not given:
        return 1
    count: int = convert(content[given[0]], int, f"{where}: {given[0]}")
    if count < 1:
        raise InputError(
            f"{where}: {given[0]} is {count}: Blox starts one process per GPU: give 1 or more"
        )
    return count


def _estimate(content: Mapping[str, Any], where: str) -> float | None:
    """The duration, or iterations times the time of one."""
    if content.get("job_duration") is not None:
        return duration_s(
            text_of(f"{where}: job_duration", content["job_duration"]), f"{where}: job_duration"
        )
    each = _number(content, "job_iteration_time", float, where)
    count = next((_number(content, key, float, where) for key in _ITERATIONS if key in content), 0)
    if not each or not count:
        return None
    return duration_s(each * count, f"{where}: job_iteration_time times the iterations")


def _number(content: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    value = content.get(key)
    return None if value is None else convert(value, kind, f"{where}: {key}")


def _first_text(content: Mapping[str, Any], keys: tuple[str, ...], where: str) -> str:
    found = (text_of(f"{where}: {key}", content[key]) for key in keys if content.get(key))
    return next(found, "")
