"""Rota's own job file: YAML with SkyPilot-like keys.

SkyPilot's spellings are accepted where they mean the same: `num_nodes`, `resources.accelerators`,
`resources.memory`, a `+` behind CPUs and memory, `image_id: docker:...`.
What belongs to clouds is named and left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.jobfile.documents import Translated, check_keys, convert, entry_of, load_value, text_of
from rota.jobfile.model import Checkpoint, GpuRange, JobFile, Resources
from rota.jobfile.quantities import shown

KEYS = tuple(key for key in JobFile.__struct_fields__ if key not in ("task", "external"))
NESTED: Mapping[str, type[msgspec.Struct]] = {"resources": Resources, "checkpoint": Checkpoint}
# values that are not one text
DEPENDENCIES = ("depends_on", "after_any", "after_fail")
LISTS = (*DEPENDENCIES, "notify", "notify_on", "secrets")
_KINDS = "resources.kinds."
_STRUCTURED = (
    "resources", "resources.gpus", "resources.kinds", "checkpoint", "envs", "speeds", *LISTS,
)  # fmt: skip
_CLOUD_KEYS = ("config", "api_server", "event_callback", "experimental", "service", "volumes")
_CLOUD_RESOURCES = (
    "any_of", "autostop", "cloud", "disk_size", "disk_tier", "image_id", "infra", "instance_type",
    "job_recovery", "labels", "network_tier", "ordered", "ports", "priority", "region", "use_spot",
    "zone",
)  # fmt: skip
_REFUSED = {
    "file_mounts": "files are not copied: put them where the nodes can read them (see workdir)",
}
_SKY_IMAGE = "docker:"
_ACCELERATOR = re.compile(r"(?P<type>[^:{}\s]+)(?::(?P<count>[0-9.]+))?")


def read_plain(content: Any, where: str) -> Translated:
    """One document."""
    check_keys(where, content, (*KEYS, "num_nodes", *_CLOUD_KEYS, *_REFUSED))
    for key, remedy in _REFUSED.items():
        if content.get(key):
            raise InputError(f"{where}: {key}: {remedy}")
    warnings = [
        f"{where}: {key} belongs to clouds: it is left out" for key in _CLOUD_KEYS if key in content
    ]
    entries = {key: content[key] for key in content if key in KEYS and content[key] is not None}
    if "num_nodes" in content:
        if "nodes" in content:
            raise InputError(f"{where}: has nodes and num_nodes: give only one of them")
        entries["nodes"] = content["num_nodes"]
    if "run" not in entries:
        raise InputError(f"{where}: there is no key 'run': write under it what the job executes")
    if "resources" in entries:
        given = dict(entry_of(where, entries, "resources"))
        named = given.get("image_id")
        if isinstance(named, str) and named.startswith(_SKY_IMAGE) and "image" not in entries:
            entries["image"] = given.pop("image_id").removeprefix(_SKY_IMAGE)
        entries["resources"], more = _sky_resources(given, f"{where}: resources")
        warnings += more
    return Translated(job_from(entries, where), tuple(warnings))


def job_from(entries: Mapping[str, Any], where: str) -> JobFile:
    """A job from keys and texts; errors name the key."""
    types = {field.name: field.type for field in msgspec.structs.fields(JobFile)}
    values = {}
    for key, value in entries.items():
        if key in NESTED:
            values[key] = _nested(value, NESTED[key], f"{where}: {key}")
        elif key == "envs":
            values[key] = _envs(entry_of(where, entries, key), f"{where}: envs")
        elif key == "secrets" and isinstance(value, dict):
            raise InputError(
                f"{where}: secrets has values, which others could read: keep them with `rota "
                "secret set NAME`, and list the names only"
            )
        elif key in LISTS:
            several = value if isinstance(value, list | tuple) else [value]
            values[key] = tuple(text_of(f"{where}: {key}", item) for item in several)
        else:
            values[key] = convert(value, types[key], f"{where}: {key}")
    return JobFile(**values)


def with_values(job: JobFile, settings: Sequence[str]) -> JobFile:
    """A job with some keys set anew: `queue=research`, `resources.gpus=4`, `envs.LR=0.1`."""
    content: dict[str, Any] = msgspec.to_builtins(job)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {shown(setting)}: write key=value, such as queue=research")
        where = f"--set {path}"
        key, dot, inner = path.strip().partition(".")
        check_keys("--set", {key: None}, KEYS)
        value = load_value(text, where) if path.strip() in _STRUCTURED else text
        if path.strip().startswith(_KINDS):
            value = {**_kinds_in(content), inner.partition(".")[2]: text}
            inner = "kinds"
        if not dot:
            content[key] = value
            continue
        if key not in (*NESTED, "envs", "speeds"):
            raise InputError(f"{where}: {key} has no keys of its own: write {key}=value")
        content[key] = entry_of("--set", content, key) | {inner: value}
    return job_from({k: v for k, v in content.items() if v is not None}, "--set")


def _kinds_in(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was set of `resources.kinds` before."""
    resources = content.get("resources")
    kinds = resources.get("kinds") if isinstance(resources, dict) else None
    return kinds if isinstance(kinds, dict) else {}


def _nested(value: Any, kind: type[msgspec.Struct], where: str) -> Any:
    check_keys(where, value, kind.__struct_fields__)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return kind(
        **{
            key: _gpus(value[key], f"{where}: gpus")
            if key == "gpus"
            else convert(value[key], types[key], f"{where}: {key}")
            for key in value
            if value[key] is not None
        }
    )


def _gpus(value: Any, where: str) -> float | GpuRange:
    if isinstance(value, dict):
        check_keys(where, value, GpuRange.__struct_fields__)
        found: GpuRange = convert(value, GpuRange, where)
        return found
    amount: float = convert(value, float, where)
    return int(amount) if amount.is_integer() else amount


def _envs(entries: Mapping[Any, Any], where: str) -> dict[str, str]:
    for name, value in entries.items():
        if value is None:
            raise InputError(
                f"{where}: {shown(name)} has no value: write one, '' for an empty one, or give it "
                f"with --set envs.NAME=VALUE"
            )
    return {
        text_of(where, name): text_of(f"{where}: {shown(name)}", value)
        for name, value in entries.items()
    }


# --- SkyPilot's spellings ------------------------------------------------------------------------


def _sky_resources(given: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    own = Resources.__struct_fields__
    check_keys(where, given, (*own, "accelerators", "memory", *_CLOUD_RESOURCES))
    made = {key: given[key] for key in given if key in own}
    for theirs, ours in (("accelerators", "gpus"), ("memory", "mem")):
        if given.get(theirs) is not None and ours in made:
            raise InputError(f"{where}: has {ours} and {theirs}: give only one of them")
    if given.get("memory") is not None:
        made["mem"] = given["memory"]
    for key in ("cpus", "mem"):
        if isinstance(made.get(key), str):
            made[key] = made[key].removesuffix("+")
    if given.get("accelerators") is not None:
        made |= _accelerators(given["accelerators"], f"{where}: accelerators")
    warnings = [
        f"{where}: {key} belongs to clouds: it is left out"
        for key in _CLOUD_RESOURCES
        if given.get(key) is not None
    ]
    return made, warnings


def _accelerators(value: Any, where: str) -> dict[str, Any]:
    """`A100:8`, `A100`, `{A100: 8}`, or several types of which any will do."""
    if isinstance(value, dict):
        pairs = [(text_of(where, kind), text_of(where, count)) for kind, count in value.items()]
    else:
        pairs = []
        for item in value if isinstance(value, list) else [value]:
            match = _ACCELERATOR.fullmatch(text_of(where, item).strip())
            if match is None:
                raise InputError(f"{where} is {shown(item)}: write TYPE:COUNT, such as A100:8")
            pairs.append((match["type"], match["count"] or "1"))
    counts = {count for _, count in pairs}
    if len(counts) != 1:
        raise InputError(
            f"{where} is {shown(value)}: every type needs the same number: give gpus and gpu_type"
        )
    return {"gpus": counts.pop(), "gpu_type": "|".join(kind for kind, _ in pairs)}
