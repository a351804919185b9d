"""Checkpoints of PyTorch objects; PyTorch is imported when one of these is called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.job.checkpoints import DEFAULT_NAME, find, save

if TYPE_CHECKING:
    from pathlib import Path


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
