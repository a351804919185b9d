"""Stopping a run at a time and going on with it later, in another process."""

from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError, OutputError
from rota.engine import snapshot
from rota.engine.loop import Engine
from rota.study.config import RunConfig
from rota.study.inputs import InputFile, changed, find_inputs, located


class Freeze(msgspec.Struct, frozen=True):
    """Write a snapshot at this time to this file."""

    at_s: float
    path: Path

    def save(self, engine: Engine, config: RunConfig) -> None:
        """Write it, with what it takes to know of which run it is."""
        inputs = [msgspec.structs.asdict(file) for file in find_inputs(config)]
        try:
            snapshot.save(engine, self.path, {"config": config.as_dict(), "inputs": inputs})
        except OSError as error:
            raise OutputError(
                f"{self.path}: the snapshot cannot be written ({error.strerror}): "
                f"choose another place with --snapshot"
            ) from error


def frozen_config(path: Path) -> RunConfig:
    """The run that a snapshot belongs to, its files named so that they are found from anywhere."""
    config, inputs, _ = _about(path)
    return located(config, inputs)


def frozen_state(path: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The run that a snapshot belongs to, and its state; its files must not have changed."""
    config, inputs, state = _about(path)
    _refuse_changes(path, inputs)
    return located(config, inputs), state


def _about(path: Path) -> tuple[RunConfig, list[InputFile], dict[str, Any]]:
    saved = snapshot.load(path)
    try:
        config = RunConfig.from_dict(saved.config["config"])
        inputs = msgspec.convert(saved.config["inputs"], list[InputFile])
    except (KeyError, msgspec.ValidationError) as error:
        raise InputError(
            f"{path}: this snapshot does not say of which run it is: make one with --snapshot-at"
        ) from error
    return config, inputs, saved.state


def thaw(engine: Engine, path: Path, config: RunConfig) -> None:
    """Bring a freshly built engine into the state of a snapshot of the same run."""
    saved, inputs, state = _about(path)
    saved, config = located(saved, inputs), located(config, find_inputs(config))
    differences = [
        f"{key} is {ours!r} and was {theirs!r}"
        for key, ours in msgspec.structs.asdict(config).items()
        if key not in ("measure", "check") and ours != (theirs := getattr(saved, key))
    ]
    if differences:
        raise InputError(
            f"{path}: is a snapshot of another run ({'; '.join(differences)}): "
            f"resume it with the options that it was made with"
        )
    _refuse_changes(path, inputs)
    snapshot.restore(engine, state)


def _refuse_changes(path: Path, inputs: list[InputFile]) -> None:
    problems = changed(inputs)
    if problems:
        raise InputError(f"{path}: cannot be resumed: {'; '.join(problems)}")
