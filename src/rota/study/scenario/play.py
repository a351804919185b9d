"""Scripted events in, decisions out: regression tests of schedulers as files.

A scenario is a JSON object: what is scheduled (a HiveD configuration under `config`, or a `policy`
and a `cluster`) and a list of `events`. An event may say what is expected of it. A file holds one
scenario or a list of them; `.gz` is understood.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rota.core.errors import ClusterSpecError, InputError
from rota.policies.hived.config import HivedConfig, load_config
from rota.study.scenario.hived import HivedPlay, RecordedDecision
from rota.study.scenario.queue import QueuePlay
from rota.traces.hived_yaml import read_hived
from rota.traces.sources import read_bytes


class Play(Protocol):
    """A scenario that is being played."""

    def play(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Let an event happen; the decisions and changes that follow."""
        ...

    def unmet(
        self, event: Mapping[str, Any], outcome: Mapping[str, Any], *, strict: bool
    ) -> list[str]:
        """What the event expects and the outcome is not."""
        ...


class ScenarioLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is printed for one event."""

    event: int
    op: str
    outcome: dict[str, Any]
    scenario: str = ""
    unmet: tuple[str, ...] = ()


def read_scenarios(path: Path) -> list[dict[str, Any]]:
    """The scenarios of a file.

    Raises:
        InputError: It is not JSON, or not made of scenarios.
    """
    try:
        content = msgspec.json.decode(read_bytes(path, InputError))
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not JSON ({error}): correct it") from error
    scenarios = content if isinstance(content, list) else [content]
    for number, scenario in enumerate(scenarios):
        if not isinstance(scenario, dict) or not isinstance(scenario.get("events"), list):
            raise InputError(f"{path}: scenario {number} has no list of 'events': see the manual")
    return scenarios


def run_scenario(
    scenario: Mapping[str, Any],
    folder: Path,
    *,
    recorded: RecordedDecision | None = None,
    strict: bool = False,
) -> Iterator[ScenarioLine]:
    """Play a scenario, event by event.

    Args:
        scenario: What `read_scenarios` gave.
        folder: Where files that it names are looked for, and in the folder above.
        recorded: Pods that earlier HiveD scenarios have placed; those of this one are added.
        strict: Changes of state that an event does not list count as unmet too.

    Raises:
        InputError: Something in the scenario makes no sense.
    """
    name = str(scenario.get("name", ""))
    refused = scenario.get("expect_config_error")
    try:
        play = _open(scenario, folder, recorded if recorded is not None else RecordedDecision())
    except ClusterSpecError as error:
        if refused is None:
            raise
        yield ScenarioLine(-1, "config", {"refused": str(error)}, name)
        return
    if refused is not None:
        accepted = "the configuration was to be refused, and it was accepted"
        yield ScenarioLine(-1, "config", {"refused": None}, name, (accepted,))
    for number, event in enumerate(scenario["events"]):
        where = f"scenario {name!r}: event {number}"
        if not isinstance(event, Mapping) or not isinstance(event.get("op"), str):
            raise InputError(f"{where} has no 'op': say what happens")
        try:
            outcome = play.play(event)
            unmet = tuple(play.unmet(event, outcome, strict=strict))
        except (InputError, msgspec.ValidationError) as error:
            raise InputError(f"{where} ({event['op']}): {error}") from error
        yield ScenarioLine(number, event["op"], outcome, name, unmet)


def _open(scenario: Mapping[str, Any], folder: Path, recorded: RecordedDecision) -> Play:
    if "config" in scenario:
        return HivedPlay(_config(scenario["config"], folder), scenario, recorded)
    if "policy" in scenario:
        return QueuePlay(scenario, folder)
    raise InputError(
        "a scenario needs 'config' (a HiveD configuration) or 'policy' and 'cluster': give one"
    )


def _config(given: Any, folder: Path) -> HivedConfig:
    if isinstance(given, Mapping):
        return load_config(given)
    path = find(str(given), (folder, folder.parent))
    return read_hived(path)


def find(name: str, folders: Sequence[Path]) -> Path:
    """A file by its name, in the first of these folders that has it."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    places = " or ".join(str(folder) for folder in folders)
    raise InputError(f"there is no file {name!r} in {places}: correct the name")
