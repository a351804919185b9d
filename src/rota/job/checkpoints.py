"""The state of a job on disk: whole or not there, the newest few.

A checkpoint is a file `NAME-STEP` in the folder that Rota keeps between the runs of a job. It is
written beside its place, flushed to the disk and then renamed: a process killed while saving
leaves the older one untouched. One process writes a name; others may read it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from rota.job.environment import checkpoint_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Content: TypeAlias = bytes | bytearray | memoryview | Callable[[BinaryIO], object]

DEFAULT_NAME = "checkpoint"
DIGITS = 12
PART = ".part"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Saved(NamedTuple):
    """A checkpoint that is on disk."""

    step: int
    path: Path


def save(content: Content, *, step: int, name: str = DEFAULT_NAME, keep: int = 2) -> Path:
    """Save the state after `step` steps; older checkpoints of this name are removed.

    Args:
        content: The bytes, or a function that writes them to the file that it is given.
        step: A later checkpoint has a higher one.
        name: Of this part of the state, if there are several (`model`, `rank3`, ...).
        keep: How many checkpoints of this name stay, this one included.

    Raises:
        OSError: It could not be written; the older checkpoints are all still there.
        ValueError: A bad name, step or number to keep.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: keep at least the checkpoint that is being saved")
    path = checkpoint_dir() / _file_name(name, step)
    part = path.with_name(f".{path.name}{PART}")
    try:
        with part.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _sync_folder(path.parent)
    _tidy(path, name, keep)
    return path


def latest(name: str = DEFAULT_NAME) -> Saved | None:
    """The checkpoint with the highest step; None if there is none."""
    return max(_all(checkpoint_dir(), name), default=None)


def load(name: str = DEFAULT_NAME, *, step: int | None = None) -> bytes | None:
    """The content of the latest checkpoint, or of that of a step; None if there is none."""
    path = find(name, step)
    return None if path is None else path.read_bytes()


def find(name: str, step: int | None) -> Path | None:
    """The file of the latest checkpoint, or of that of a step."""
    if step is None:
        saved = latest(name)
        return None if saved is None else saved.path
    path = checkpoint_dir() / _file_name(name, step)
    return path if path.exists() else None


def _file_name(name: str, step: int) -> str:
    _check_name(name)
    if step < 0 or len(str(step)) > DIGITS:
        raise ValueError(f"step={step}: give a whole number from 0 with at most {DIGITS} digits")
    return f"{name}-{step:0{DIGITS}d}"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"checkpoint name {name!r}: use letters, digits and _.- (not first): it names a file"
        )


def _all(folder: Path, name: str) -> list[Saved]:
    _check_name(name)
    pattern = re.compile(rf"{re.escape(name)}-(\d{{{DIGITS}}})")
    found = []
    for path in folder.iterdir():
        match = pattern.fullmatch(path.name)
        if match:
            found.append(Saved(int(match[1]), path))
    return found


def _tidy(newest: Path, name: str, keep: int) -> None:
    """Remove what is not needed any more; never what was just written, whatever its step."""
    others = sorted(saved for saved in _all(newest.parent, name) if saved.path != newest)
    killed = re.compile(rf"\.{re.escape(name)}-\d{{{DIGITS}}}{re.escape(PART)}")
    parts = [path for path in newest.parent.iterdir() if killed.fullmatch(path.name)]
    spare = max(0, len(others) - (keep - 1))
    for path in [*parts, *(saved.path for saved in others[:spare])]:
        with suppress(OSError):
            path.unlink()


def _sync_folder(folder: Path) -> None:
    """The new name shall outlive a power cut; some network file systems cannot do it."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


# --- PyTorch --------------------------------------------------------------------------------------


def save_torch(state: Any, *, step: int, name: str = DEFAULT_NAME, keep: int = 2) -> Path:
    """As `save`, of whatever `torch.save` can save: dictionaries of tensors and numbers, say."""
    torch = import_module("torch")
    return save(lambda file: torch.save(state, file), step=step, name=name, keep=keep)


def load_torch(
    name: str = DEFAULT_NAME, *, step: int | None = None, map_location: Any = "cpu"
) -> Any | None:
    """As `load`. Only tensors and plain data are read: a checkpoint cannot run code."""
    path = find(name, step)
    if path is None:
        return None
    torch = import_module("torch")
    return torch.load(path, map_location=map_location, weights_only=True)
