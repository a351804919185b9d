"""The files that a run depends on, with their hashes."""

from hashlib import file_digest
from pathlib import Path

import msgspec

from rota.core.errors import OptionError
from rota.core.registry import split
from rota.experiments.config import RunConfig

OPTIONS = (
    "trace",
    "cluster",
    "policy",
    "placement",
    "admission",
    "costs",
    "rates",
    "like",
    "format",
)


class InputFile(msgspec.Struct, frozen=True):
    """One file: which option named it and how, where it is, and what it held."""

    option: str
    given: str
    path: str
    sha256: str
    bytes: int


def find_inputs(config: RunConfig) -> list[InputFile]:
    """All files that the options name, themselves or as values of their parameters."""
    found = []
    for option in OPTIONS:
        text = getattr(config, option)
        for given in _names(option, text) if text else ():
            path = Path(given)
            if path.is_file():
                found.append(
                    InputFile(
                        option, given, str(path.resolve()), hash_file(path), path.stat().st_size
                    )
                )
    return found


def _names(option: str, text: str) -> list[str]:
    if option == "trace":
        return [text]
    try:
        name, options = split(text)
    except OptionError:
        return [text]
    return [name, *options.values()]


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def located(config: RunConfig, inputs: list[InputFile]) -> RunConfig:
    """The same run with every file named by its full path, so that it can be done from anywhere."""
    texts = {option: getattr(config, option) for option in OPTIONS}
    for file in inputs:
        if file.given != file.path:
            texts[file.option] = texts[file.option].replace(file.given, file.path)
    return msgspec.structs.replace(config, **texts)


def changed(inputs: list[InputFile]) -> list[str]:
    """What is wrong with files that a run was made from, one sentence per file."""
    problems = []
    for file in inputs:
        path = Path(file.path)
        if not path.is_file():
            problems.append(f"{file.option} {file.path}: is not there any more")
        elif hash_file(path) != file.sha256:
            problems.append(f"{file.option} {file.path}: has changed since")
    return problems
