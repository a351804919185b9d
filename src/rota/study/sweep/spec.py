"""What a sweep is: the keys of its description, checked.

| key | meaning |
| --- | --- |
| `workloads` | files, or generators with `jobs` (drawn anew for every seed) |
| `clusters` | as of `--cluster` |
| `policies` | as of `--policy`; a mapping may add options of a run |
| `parameters` | more axes: options of a run, or named bundles of options |
| `loads` | generators: the offered load; files: how many times as fast jobs arrive |
| `seeds` | how many (0, 1, ...), or a list |
| `options` | options that hold for every run |
| `exclude`, `include` | cells to leave out, cells to add |
| `baseline` | the policy that others are compared with; the first by default |
| `keep` | `all`, `jobs` (no event logs) or `summary` |
| `name` | a title |

Paths start at the folder of the description.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

import msgspec

from rota.core.errors import InputError, OptionError
from rota.study.config import RunConfig
from rota.study.sweep.source import Place, SweepSource, name
from rota.study.workloads import GENERATE, generators
from rota.traces.sources import exists
from rota.traces.synth.sampling import split_kind

Label: TypeAlias = str | int | float | bool | None

KEYS = [
    "name", "workloads", "clusters", "policies", "parameters", "loads", "seeds", "options",
    "exclude", "include", "baseline", "keep",
]  # fmt: skip
KEEP = ("all", "jobs", "summary")
_NOT_OPTIONS = ("trace", "cluster", "policy", "format", "limit", "seed")
OPTIONS = [key for key in RunConfig.__struct_fields__ if key not in _NOT_OPTIONS]
"""What may stand in `parameters` and `options`."""
MAIN = ["workload", "cluster", "policy", "load", "seed"]
"""Axes that every sweep may have."""
MOST_SEEDS = 100_000
GENERATED_LOAD = 0.9
_HINTS = get_type_hints(RunConfig)


class WorkloadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs from a file, or from a generator (`generate` is then its kind with options)."""

    name: str
    file: str | None = None
    format: str | None = None
    limit: int | None = None
    generate: str | None = None
    jobs: int | None = None
    load: float | None = None


class Choice(msgspec.Struct, frozen=True):
    """One value of an axis: how it is called, and what it sets in the configuration of a run."""

    label: Label
    options: dict[str, Any]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep. `data` is the description as it was given, for the records."""

    source: SweepSource
    name: str
    workloads: list[WorkloadEntry]
    clusters: list[Choice]
    policies: list[Choice]
    parameters: dict[str, list[Choice]]
    loads: list[float]
    seeds: list[int]
    options: dict[str, Any]
    exclude: list[dict[str, Any]]
    include: list[dict[str, Any]]
    baseline: Label
    keep: str

    @property
    def axes(self) -> list[str]:
        """Names of the columns that say which cell it is, in the order of the matrix."""
        extra = dict.fromkeys(key for entry in self.include for key in entry)
        named = ["workload", "cluster", "policy", *self.parameters]
        named += [key for key in extra if key not in (*named, "load", "seed")]
        if self.loads or "load" in extra:
            named.append("load")
        return [*named, "seed"]


def parse_spec(source: SweepSource) -> Spec:
    """Check a description and put it into its form.

    Raises:
        InputError: A key or value is wrong; the message names the line, the key and the remedy.
    """
    data = source.data
    if not isinstance(data, dict):
        source.fail((), f"holds no keys: it needs {', '.join(KEYS[1:4])}")
    if "tune" in data:
        source.fail(("tune",), "tune is for `rota tune`: run that, or leave it out")
    source.check_keys((), data, KEYS)
    policies = _named(source, "policies", lambda place, item: choice(source, place, item, "policy"))
    labels = [entry.label for entry in policies]
    baseline = data.get("baseline", labels[0])
    if baseline not in labels:
        known = ", ".join(map(str, labels))
        source.fail(("baseline",), f"baseline {baseline!r} is no policy of the sweep: {known}")
    spec = Spec(
        source=source,
        name=str(data.get("name") or Path(source.where).stem),
        workloads=_named(
            source, "workloads", lambda place, item: workload_entry(source, place, item)
        ),
        clusters=_named(
            source, "clusters", lambda place, item: choice(source, place, item, "cluster")
        ),
        policies=policies,
        parameters=_parameters(source),
        loads=_loads(source),
        seeds=_seeds(source),
        options=_options(source, ("options",), data.get("options") or {}),
        exclude=_partial(source, "exclude"),
        include=_partial(source, "include"),
        baseline=baseline,
        keep=_keep(source),
    )
    _refuse_clashes(spec)
    return spec


def _items(source: SweepSource, key: str) -> list[Any]:
    found = source.data.get(key)
    if isinstance(found, (str, dict)):
        found = [found]
    if not isinstance(found, list) or not found:
        source.fail((key,), f"{key} is {found!r}: list at least one")
    return found


def _named(source: SweepSource, key: str, make: Callable[[Place, Any], Any]) -> list[Any]:
    """The entries of a list; no two have the same name."""
    made: dict[Label, Any] = {}
    for number, item in enumerate(_items(source, key)):
        entry = make((key, number), item)
        label = entry.name if isinstance(entry, WorkloadEntry) else entry.label
        if label in made:
            source.fail(
                (key, number), f"{key}: {label!r} is there twice: give one of them another name"
            )
        made[label] = entry
    return list(made.values())


# --- workloads -----------------------------------------------------------------------------------


def workload_entry(source: SweepSource, place: Place, item: Any) -> WorkloadEntry:
    """From a text (a file, or `KIND:jobs=N,...`), or from a mapping."""
    if isinstance(item, str):
        is_there = _is_there(source.base / item)
        text = item.removeprefix(GENERATE)
        key = "generate" if text.partition(":")[0] in generators() and not is_there else "file"
        item = {key: text, "name": item}
    source.check_keys(place, item, list(WorkloadEntry.__struct_fields__))
    if ("file" in item) == ("generate" in item):
        source.fail(
            place,
            f"{name(place)}: give either 'file' or 'generate', one of {', '.join(generators())}",
        )
    try:
        entry = msgspec.convert(
            {"name": item.get("file") or item["generate"]} | item, WorkloadEntry
        )
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        source.fail(place, f"{name(place)}: {error}: correct it")
    return _file(source, place, entry) if entry.file else _generator(source, place, entry)


def _file(source: SweepSource, place: Place, entry: WorkloadEntry) -> WorkloadEntry:
    if entry.jobs is not None or entry.load is not None:
        source.fail(place, f"{name(place)}: 'jobs' and 'load' are for generators: use 'limit'")
    if not _is_there(source.base / str(entry.file)):
        source.fail(place, f"{name(place)}: there is no file {source.base / str(entry.file)}")
    return entry


def _is_there(path: Path) -> bool:
    """A file, a member of an archive, or a folder with a trace."""
    return exists(path) or path.is_dir()


def _generator(source: SweepSource, place: Place, entry: WorkloadEntry) -> WorkloadEntry:
    if entry.format is not None or entry.limit is not None:
        source.fail(place, f"{name(place)}: 'format' and 'limit' are for files: use 'jobs'")
    try:
        kind, options = split_kind(str(entry.generate))
        jobs = int(options.pop("jobs")) if "jobs" in options else entry.jobs
        load = float(options.pop("load")) if "load" in options else entry.load
    except (OptionError, ValueError) as error:
        source.fail(place, f"{name(place)}: {error}: correct it")
    if jobs is None:
        source.fail(place, f"{name(place)}: says not how many jobs: add jobs: 500")
    text = kind + (":" if options else "") + ",".join(f"{k}={v}" for k, v in options.items())
    return msgspec.structs.replace(entry, generate=text, jobs=jobs, load=load)


# --- options -------------------------------------------------------------------------------------


def choice(source: SweepSource, place: Place, item: Any, main: str) -> Choice:
    """A cluster or a policy: a text, or a mapping with a `name` and options of a run."""
    if not isinstance(item, dict):
        item = {main: item}
    source.check_keys(place, item, ["name", main, *OPTIONS])
    text = item.get(main)
    if not isinstance(text, str) or not text.strip():
        source.fail(place, f"{name(place)}: {main} is {text!r}: give a text")
    rest = {key: value for key, value in item.items() if key not in ("name", main)}
    return Choice(str(item.get("name", text)), {main: text, **_options(source, place, rest)})


def _options(source: SweepSource, place: Place, data: Any) -> dict[str, Any]:
    source.check_keys(place, data, OPTIONS, "option")
    return {key: option(source, (*place, key), key, value) for key, value in data.items()}


def option(source: SweepSource, place: Place, key: str, value: Any) -> Any:
    """A value as the configuration of a run wants it: many options are texts."""
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and _HINTS[key] == str | None
    ):
        value = f"cv={value}" if key.endswith("_error") else str(value)
    try:
        return msgspec.convert(value, _HINTS[key], strict=False)
    except msgspec.ValidationError as error:
        source.fail(place, f"{name(place)}: {value!r} cannot be used ({error})")


def _parameters(source: SweepSource) -> dict[str, list[Choice]]:
    data = source.data.get("parameters") or {}
    if not isinstance(data, dict):
        source.fail(("parameters",), f"parameters is {data!r}: give options with their values")
    return {str(key): list(_axis(source, str(key), values)) for key, values in data.items()}


def _axis(source: SweepSource, key: str, values: Any) -> Iterator[Choice]:
    place = ("parameters", key)
    if key in MAIN or (key not in OPTIONS and not _is_bundle(values)):
        source.check_keys(("parameters",), {key: values}, OPTIONS, "option")
    pairs: list[tuple[Label, Any, Place]]
    if isinstance(values, dict):
        pairs = [(str(label), value, (*place, str(label))) for label, value in values.items()]
    else:
        items = values if isinstance(values, list) else [values]
        pairs = [(value, value, (*place, i)) for i, value in enumerate(items)]
    if not pairs:
        source.fail(place, f"parameters.{key} has no values: give at least one")
    seen: list[Label] = []
    for label, value, below in pairs:
        if label in seen:
            source.fail(below, f"parameters.{key}: {label!r} is there twice: keep one")
        if key in OPTIONS and isinstance(value, (dict, list)):
            source.fail(below, f"{name(below)} is {value!r}: give one value")
        seen.append(label)
        if key in OPTIONS:
            yield Choice(label, {key: option(source, below, key, value)})
        else:
            yield Choice(label, _options(source, below, value or {}))


def _is_bundle(values: Any) -> bool:
    """Names with options: several options that change together."""
    return isinstance(values, dict) and all(
        value is None or isinstance(value, dict) for value in values.values()
    )


# --- the rest ------------------------------------------------------------------------------------


def _loads(source: SweepSource) -> list[float]:
    values = source.data.get("loads", [])
    items = values if isinstance(values, list) else [values]
    loads = [load(source, ("loads", number), item) for number, item in enumerate(items)]
    if len(set(loads)) != len(loads):
        source.fail(("loads",), f"loads {values!r}: one is there twice: keep one")
    return loads


def load(source: SweepSource, place: Place, value: Any) -> float:
    """A factor above 0."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        source.fail(place, f"{name(place)}: {value!r} is not a number above 0, such as 0.9")
    return found


def _seeds(source: SweepSource) -> list[int]:
    value = source.data.get("seeds", 1)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return list(range(value))
    try:
        seeds = msgspec.convert(value, list[int])
    except msgspec.ValidationError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) != len(seeds):
        source.fail(
            ("seeds",),
            f"seeds {value!r}: give how many (at most {MOST_SEEDS:,}), or different numbers",
        )
    return seeds


def _partial(source: SweepSource, key: str) -> list[dict[str, Any]]:
    """Entries of `exclude` and `include`: some axes with a value each."""
    entries = source.data.get(key) or []
    parameters = source.data.get("parameters") or {}
    known = [*MAIN, *parameters]
    if key == "include":
        known += [name for name in OPTIONS if name not in known]
    if not isinstance(entries, list):
        source.fail((key,), f"{key} is {entries!r}: give a list of partial cells")
    for number, entry in enumerate(entries):
        source.check_keys((key, number), entry, known, "axis")
        for axis, value in entry.items():
            if isinstance(value, (dict, list)):
                source.fail((key, number, axis), f"{key}: {axis} is {value!r}: give one value")
    return entries


def _keep(source: SweepSource) -> str:
    keep = source.data.get("keep", KEEP[0])
    if keep not in KEEP:
        source.fail(("keep",), f"keep {keep!r}: give {', '.join(KEEP[:-1])} or {KEEP[-1]}")
    return str(keep)


def _refuse_clashes(spec: Spec) -> None:
    """Nothing is set twice by different keys, which would hide one of them."""
    setters: dict[str, str] = {}
    for axis, choices in spec.parameters.items():
        for key in dict.fromkeys(key for entry in choices for key in entry.options):
            if key in setters:
                raise InputError(
                    f"{spec.source.where}: parameters {setters[key]!r} and {axis!r} both set "
                    f"{key!r}: leave it to one of them"
                )
            setters[key] = axis
    for kind, choices in (("cluster", spec.clusters), ("policy", spec.policies)):
        for entry in choices:
            for key in entry.options:
                if key in setters:
                    raise InputError(
                        f"{spec.source.where}: {kind} {entry.label!r} sets {key!r}, which "
                        f"parameters.{setters[key]} sets too: leave it to one of them"
                    )
