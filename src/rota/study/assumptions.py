"""What the policies of a comparison assume, one row per assumption."""

from collections.abc import Mapping
from typing import Any

from rota.study.compare_file import Assumption

KEYS = (
    "knowledge", "preemptive", "parameters", "placement", "admission", "costs", "rates", "dialect",
    "switches", "rounds", "estimate error", "failures", "ignored",
)  # fmt: skip
_QUIET = ("name", "notes", "source", "given")
_LONG = 80  # characters of one value


def tabulate(
    assumptions: Mapping[str, Mapping[str, Any]], preempted: Mapping[str, bool]
) -> list[Assumption]:
    """The table of assumptions.

    Args:
        assumptions: What the summary of a run of each policy says.
        preempted: Whether any job was stopped under a policy: for those that do not say.
    """
    texts = {
        policy: _texts(facts, preempted=preempted[policy]) for policy, facts in assumptions.items()
    }
    return [
        Assumption(key, {policy: found[key] for policy, found in texts.items()}) for key in KEYS
    ]


def _texts(facts: Mapping[str, Any], *, preempted: bool) -> dict[str, str]:
    dialect = facts.get("dialect")
    return {
        "knowledge": str(facts["knowledge"]),
        "preemptive": _preemptive(facts.get("preemptive"), preempted=preempted),
        "parameters": _parameters(facts["policy"]),
        **{key: _named(facts[key]) for key in ("placement", "admission", "rates")},
        "costs": _named(_charged(facts["costs"])),
        "dialect": _named(dialect) if dialect else "none",
        "switches": _switches(dialect),
        "rounds": _rounds(facts.get("rounds")),
        "estimate error": _pairs(facts.get("estimate_error")) or "none",
        **({"speed error": _pairs(facts["speed_error"])} if facts.get("speed_error") else {}),
        "failures": _failures(facts.get("failures"), facts["costs"]),
        "ignored": ", ".join(facts.get("ignored") or ()) or "nothing",
    }


def _preemptive(said: bool | None, *, preempted: bool) -> str:  # noqa: FBT001 - three answers
    if said is None:
        return "does (not declared)" if preempted else "did not (not declared)"
    return "yes" if said else "no"


def _parameters(policy: Mapping[str, Any]) -> str:
    return _pairs(policy) or "none"


def _named(part: Mapping[str, Any]) -> str:
    rest = _pairs(part)
    return f"{part['name']} ({rest})" if rest else str(part["name"])


def _charged(costs: Mapping[str, Any]) -> dict[str, Any]:
    """What is not free."""
    charged = {key: value for key, value in costs.items() if value not in (0, None)}
    if "slow_s" not in charged:
        charged.pop("slow_factor", None)
    return charged


def _failures(failures: Mapping[str, Any] | None, costs: Mapping[str, Any]) -> str:
    """How often, and what one costs a job."""
    if not failures:
        return "none"
    every_s = costs.get("checkpoint_s")
    if every_s == "inf":
        loses = "a job loses all work since it was started"
    elif every_s:
        loses = f"a job loses the work since its last checkpoint, one every {every_s} s"
    else:
        loses = "a job loses no work: set checkpoint_s of the costs to charge it"
    return f"{_pairs(failures)} ({loses})"


def _switches(dialect: Mapping[str, Any] | None) -> str:
    """The quirks of a dialect, by name; what each means is in the summaries."""
    notes = dialect.get("notes") if dialect else None
    return ", ".join(notes) if notes else "none"


def _rounds(rounds: Mapping[str, Any] | None) -> str:
    if not rounds:
        return "none: at every event"
    rest = {key: value for key, value in rounds.items() if key != "every_s"}
    more = _pairs(rest)
    return f"every {rounds['every_s']:g} s" + (f" ({more})" if more else "")


def _pairs(part: Mapping[str, Any] | None) -> str:
    """`key=value, ...` of what is set."""
    pairs = [f"{key}={_value(value)}" for key, value in (part or {}).items() if key not in _QUIET]
    return ", ".join(pairs)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = "/".join(map(str, value))
    text = str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
