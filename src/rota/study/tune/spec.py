"""The description of a tuning: that of a sweep, with a section `tune`.

| key of `tune` | meaning |
| --- | --- |
| `goal` | the measure that shall be best; `avg_jct_s` by default |
| `space` | what is varied: parameters of the policy or options of a run, each with a list of values or a range `{from: 1, to: 8, scale: log}` |
| `trials` | how many; by default every combination of lists |
| `eta` | the best 1 / eta go on, to eta times as many jobs; 3 by default |
| `min_jobs` | jobs of the smallest part; 100 by default |
| `repeats` | of the last comparison, of the winner and the default; 5 by default |
| `seed` | of the draws of trials; 0 by default |

Several `policies` and all `parameters` of the sweep are varied, too. Workloads, clusters and loads
are where trials compete, `seeds` how often. The default is the baseline with the first value of
each parameter and without those of the space.
"""  # noqa: E501 - a table

import math
from typing import Any

import msgspec

from rota.core.errors import RotaError
from rota.core.registry import unknown
from rota.engine.parts import make_policy
from rota.metrics.vocabulary import BY_KEY, Measure
from rota.study.sweep.source import Place, SweepSource, name
from rota.study.sweep.spec import OPTIONS, Choice, Spec, option, parse_spec
from rota.study.sweep.workloads import anchored
from rota.study.tune.space import TuneAxis, TuneRange, TuneTrial, make_trials

TUNE = "tune"
KEYS = ["goal", "space", "trials", "eta", "min_jobs", "repeats", "seed"]
OF_POLICY = "policy."
MOST_TRIALS = 10_000
_RANGE = ["from", "to", "scale"]
_CUT = ("window", "measure")
_REFUSED = {
    "exclude": "trials are drawn from the space",
    "include": "trials are drawn from the space",
}


class TuneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning. `spec` is the sweep: where trials compete."""

    spec: Spec
    goal: Measure
    axes: list[TuneAxis]
    trials: list[TuneTrial]  # the first is the default
    eta: int
    min_jobs: int
    repeats: int
    seed: int


def parse_tune(source: SweepSource) -> TuneSpec:
    """Check a description and put it into its form.

    Raises:
        InputError: A key or value is wrong; the message names the line, the key and the remedy.
    """
    whole = source.data if isinstance(source.data, dict) else {}
    rest = {key: value for key, value in whole.items() if key != TUNE}
    rest.setdefault("keep", "summary")
    spec = parse_spec(msgspec.structs.replace(source, data=rest if whole else source.data))
    for key, why in _REFUSED.items():
        if key in rest:
            source.fail((key,), f"{key} is for `rota sweep`: {why}, leave it out")
    for key in _CUT:
        if key in spec.options or key in spec.parameters:
            source.fail(
                ("options", key), f"{key}: trials run on parts of the workload: leave it out"
            )
    data = whole.get(TUNE) or {}
    source.check_keys((TUNE,), data, KEYS)
    axes = _axes(source, spec, data.get("space") or {})
    if all(not isinstance(axis.values, TuneRange) and len(axis.values) == 1 for axis in axes):
        source.fail(
            (TUNE,), "nothing is varied: give tune.space, for instance {promote: [0, 2, 8]}, or "
            "several policies or values of parameters"
        )  # fmt: skip
    seed = _whole(source, data, "seed", 0, least=0)
    return TuneSpec(
        spec=spec,
        goal=_goal(source, data.get("goal", "avg_jct_s")),
        axes=axes,
        trials=_distinct(
            source, make_trials(_default(spec, axes), axes, _count(source, data, axes), seed)
        ),
        eta=_whole(source, data, "eta", 3, least=2),
        min_jobs=_whole(source, data, "min_jobs", 100, least=1),
        repeats=_whole(source, data, "repeats", 5, least=0),
        seed=seed,
    )


def _goal(source: SweepSource, key: Any) -> Measure:
    known = [measure.key for measure in BY_KEY.values() if measure.better]
    if key not in known:
        source.fail((TUNE, "goal"), f"tune.goal: {unknown('measure', str(key), known)}")
    return BY_KEY[key]


def _whole(source: SweepSource, data: dict[str, Any], key: str, usual: int, *, least: int) -> int:
    value = data.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        source.fail((TUNE, key), f"tune.{key} {value!r}: give a whole number from {least} on")
    return value


def _count(source: SweepSource, data: dict[str, Any], axes: list[TuneAxis]) -> int | None:
    """How many trials; None: every combination."""
    ranges = [axis.name for axis in axes if isinstance(axis.values, TuneRange)]
    if "trials" in data:
        count = _whole(source, data, "trials", 1, least=1)
    elif ranges:
        source.fail(
            (TUNE, "space", ranges[0]),
            f"tune.space.{ranges[0]} is a range: say how many trials, for instance trials: 27",
        )
    else:
        count = math.prod(len(axis.values) for axis in axes if isinstance(axis.values, list))
    if count > MOST_TRIALS:
        source.fail((TUNE,), f"{count:,} trials: give tune.trials, at most {MOST_TRIALS:,}")
    return count


# --- the space ------------------------------------------------------------------------------------


def _axes(source: SweepSource, spec: Spec, space: Any) -> list[TuneAxis]:
    first = [choice for choice in spec.policies if choice.label == spec.baseline]
    others = [choice for choice in spec.policies if choice.label != spec.baseline]
    found = [TuneAxis("policy", first + others)]
    found += [TuneAxis(key, choices) for key, choices in spec.parameters.items()]
    if not isinstance(space, dict):
        source.fail((TUNE, "space"), f"tune.space is {space!r}: give names with lists or ranges")
    known = _parameters(source, spec)
    for key, values in space.items():
        place = (TUNE, "space", str(key))
        plain = str(key).removeprefix(OF_POLICY)
        of_policy = key != plain or plain not in OPTIONS
        if plain in _CUT and not of_policy:
            source.fail(place, f"{key}: trials run on parts of the workload: leave it out")
        if of_policy and plain not in known:
            several = [*known, *(name for name in OPTIONS if name not in _CUT)]
            source.fail(
                place, f"tune.space: {unknown('parameter or option', plain, several, likely=known)}"
            )
        if not of_policy and _is_set(spec, plain):
            source.fail(place, f"tune.space.{key}: set elsewhere in the file, too: leave it to one")
        made = _range(source, place, values) or _listed(
            source, place, plain, values, of_policy=of_policy
        )
        found.append(TuneAxis(plain, made, of_policy))
    return found


def _is_set(spec: Spec, key: str) -> bool:
    chosen = [
        *spec.policies,
        *spec.clusters,
        *(c for each in spec.parameters.values() for c in each),
    ]
    return key in spec.options or any(key in choice.options for choice in chosen)


def _parameters(source: SweepSource, spec: Spec) -> list[str]:
    """Those that every policy has."""
    known: list[str] | None = None
    for number, choice in enumerate(spec.policies):
        try:
            policy = make_policy(anchored(choice.options["policy"], source.base))
        except RotaError as error:
            source.fail(("policies", number), str(error))
        fields = list(policy.Parameters.__struct_fields__)
        known = fields if known is None else [key for key in known if key in fields]
    return known or []


def _range(source: SweepSource, place: Place, values: Any) -> TuneRange | None:
    if not isinstance(values, dict):
        return None
    source.check_keys(place, values, _RANGE)
    ends = [values.get("from"), values.get("to")]
    numbers = [end for end in ends if isinstance(end, (int, float)) and not isinstance(end, bool)]
    if len(numbers) < 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:  # noqa: PLR2004 - ends
        source.fail(
            place,
            f"{name(place)}: from {ends[0]!r} to {ends[1]!r}: give two numbers, the smaller first",
        )
    scale = values.get("scale", "linear")
    if scale not in ("linear", "log"):
        source.fail((*place, "scale"), f"{name(place)}.scale {scale!r}: give linear or log")
    if scale == "log" and numbers[0] <= 0:
        source.fail(
            place, f"{name(place)}: from {numbers[0]!r}: a range with scale log begins above 0"
        )
    whole = all(isinstance(end, int) for end in numbers)
    return TuneRange(low=numbers[0], high=numbers[1], scale=scale, whole=whole)


def _listed(
    source: SweepSource, place: Place, key: str, values: Any, *, of_policy: bool
) -> list[Choice]:
    if not isinstance(values, list) or not values:
        source.fail(
            place, f"{name(place)} is {values!r}: give a list of values, or {{from: 1, to: 8}}"
        )
    made: list[Choice] = []
    for number, value in enumerate(values):
        if isinstance(value, dict):
            source.fail((*place, number), f"{name((*place, number))} is {value!r}: give one value")
        label = "/".join(map(str, value)) if isinstance(value, list) else value
        given = value if of_policy else option(source, (*place, number), key, value)
        if label in [one.label for one in made]:
            source.fail((*place, number), f"{name(place)}: {label!r} is there twice: keep one")
        made.append(Choice(label, {key: given}))
    return made


def _distinct(source: SweepSource, trials: list[TuneTrial]) -> list[TuneTrial]:
    """Without those that say an earlier one in other words: a parameter that is as by default."""
    found: dict[tuple[object, ...], TuneTrial] = {}
    for trial in trials:
        text = anchored(trial.options["policy"], source.base)
        try:
            params = repr(msgspec.structs.asdict(make_policy(text).params))
        except RotaError as error:
            source.fail((TUNE, "space"), f"{trial.label}: {error}")
        others = tuple((key, value) for key, value in trial.options.items() if key != "policy")
        number = len(found)
        key = (text.partition(":")[0], params, others)
        found.setdefault(key, msgspec.structs.replace(trial, number=number))
    return list(found.values())


def _default(spec: Spec, axes: list[TuneAxis]) -> dict[str, Choice]:
    """The baseline, the first value of each parameter, and nothing of the space."""
    kept = {"policy", *spec.parameters}
    return {
        axis.name: axis.values[0]
        if axis.name in kept and not axis.of_policy and isinstance(axis.values, list)
        else Choice(None, {})
        for axis in axes
    }
