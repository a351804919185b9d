"""The files that a run depends on, with their hashes.

These are the files that options name (themselves, or as values of their parameters), and those that
are read along with them: the tables beside a trace or in its folder, and what a Python file imports
from the folder in which it is. A member of an archive (`data.zip/log.csv`) counts as a file.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path

import msgspec

from rota.core.errors import InputError, OptionError
from rota.core.registry import split
from rota.study.config import RunConfig
from rota.study.workloads import GENERATE, is_generated, kind_and_options
from rota.traces.read import files_of
from rota.traces.sources import exists, open_source

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
_BLOCK_BYTES = 1 << 20


class InputFile(msgspec.Struct, frozen=True):
    """One file: which option named it and how, where it is, and what it held.

    `given` is empty for a file that no option names, but that is read along with one. A folder has
    the hash of all hashes of its files, which are also listed one by one.
    """

    option: str
    given: str
    path: str
    sha256: str
    bytes: int


def find_inputs(config: RunConfig) -> list[InputFile]:
    """All files of a run."""
    texts = ((option, getattr(config, option)) for option in OPTIONS)
    return [file for option, text in texts for file in named_inputs(option, text, config.format)]


def named_inputs(option: str, text: str | None, format_text: str | None) -> list[InputFile]:
    """The files that one option names, and those that are read along with them."""
    if not text:
        return []
    if option == "trace" and not is_generated(text):
        return _trace(text, format_text)
    found = []
    for given in _names(option, text):
        path = Path(given)
        if exists(path):
            found.append(_input(option, given, path))
            found += [_input(option, "", other) for other in imported_beside(path)]
    return found


def _trace(given: str, format_text: str | None) -> list[InputFile]:
    path = Path(given)
    files = files_of(path, format_text)
    if not path.is_dir():
        return [_input("trace", "" if number else given, file) for number, file in enumerate(files)]
    inside = [_input("trace", "", file) for file in files]
    size = sum(file.bytes for file in inside)
    whole = sha256("\n".join(f"{Path(f.path).name} {f.sha256}" for f in inside).encode())
    return [InputFile("trace", given, str(path.resolve()), whole.hexdigest(), size), *inside]


def _names(option: str, text: str) -> list[str]:
    try:
        if option == "trace":
            return list(kind_and_options(text)[1].values())
        name, options = split(text)
    except OptionError:
        return [text]
    return [name, *options.values()]


def _input(option: str, given: str, path: Path) -> InputFile:
    digest, size = _hashed(path)
    return InputFile(option, given, str(path.resolve()), digest, size)


def _hashed(path: Path) -> tuple[str, int]:
    """The hash and the size of a file, or of a member of an archive."""
    if path.is_file():
        return hash_file(path), path.stat().st_size
    digest, size = sha256(), 0
    with open_source(path, InputError) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def content(file: InputFile) -> bytes | None:
    """What the file holds; of a folder, nothing."""
    path = Path(file.path)
    if path.is_dir():
        return None
    if path.is_file():
        return path.read_bytes()
    with open_source(path, InputError) as member:
        return member.read()


# --- names in options ----------------------------------------------------------------------------


def renamed(text: str, names: Mapping[str, str]) -> str:
    """An option with other names for its files: each name where it stands as a whole."""
    known = sorted(filter(None, names), key=len, reverse=True)
    if not known:
        return text
    anyone = "|".join(map(re.escape, known))
    whole = rf"(?<![^:,=\s])(?<!{GENERATE})(?:{anyone})(?![^:,\s])"  # the kind is no file
    return re.sub(whole, lambda found: names[found[0]], text)


def with_names(config: RunConfig, names: Sequence[tuple[InputFile, str]]) -> RunConfig:
    """The same run with other names for its files."""
    texts = {}
    for option in dict.fromkeys(file.option for file, _ in names):
        own = {file.given: name for file, name in names if file.option == option}
        texts[option] = renamed(getattr(config, option), own)
    return msgspec.structs.replace(config, **texts)


def located(config: RunConfig, inputs: list[InputFile]) -> RunConfig:
    """The same run with every file named by its full path, so that it can be done from anywhere."""
    return with_names(config, [(file, file.path) for file in inputs])


def changed(inputs: list[InputFile]) -> list[str]:
    """What is wrong with files that a run was made from, one sentence per file."""
    problems = []
    for file in inputs:
        path = Path(file.path)
        if path.is_dir():
            continue  # its files follow
        if not exists(path):
            problems.append(f"{file.option} {file.path}: is not there any more")
        elif _hashed(path)[0] != file.sha256:
            problems.append(f"{file.option} {file.path}: has changed since")
    return problems


# --- Python files --------------------------------------------------------------------------------


def imported_beside(path: Path) -> list[Path]:
    """Python files in the same folder that a Python file imports, directly or through others."""
    found: list[Path] = []
    ahead = [path] if path.suffix == ".py" else []
    while ahead:
        for name in _imports(ahead.pop()):
            other = path.parent / f"{name}.py"
            if other != path and other not in found and other.is_file():
                found.append(other)
                ahead.append(other)
    return sorted(found)


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # running it will say what is wrong
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
