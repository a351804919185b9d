"""Stopping a run at a time and going on with it later, in another process."""

from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.engine import snapshot
from rota.engine.loop import Engine
from rota.experiments.config import RunConfig
from rota.experiments.inputs import InputFile, changed, find_inputs


class Freeze(msgspec.Struct, frozen=True):
    """Write a snapshot at this time to this file."""

    at_s: float
    path: Path

    def about(self, config: RunConfig) -> dict[str, Any]:
        """What the snapshot says of the run that it belongs to."""
        inputs = [msgspec.structs.asdict(file) for file in find_inputs(config)]
        return {"config": config.as_dict(), "inputs": inputs}


def frozen_config(path: Path) -> RunConfig:
    """The run that a snapshot belongs to."""
    return _about(path)[0]


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
    problems = changed(inputs)
    if problems:
        raise InputError(f"{path}: cannot be resumed: {'; '.join(problems)}")
    snapshot.restore(engine, state)
