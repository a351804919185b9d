"""The base of readers that import a trace with more than its jobs."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.format import Head
from rota.traces.imported import Imported
from rota.traces.tidy import Common


class Reader:
    """One format; a subclass names it, recognises it and imports it."""

    name: ClassVar[str]
    description: ClassVar[str]
    verified: ClassVar[bool] = False
    params: ClassVar[type[msgspec.Struct]] = Common

    @abstractmethod
    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly)."""

    @abstractmethod
    def import_file(self, path: Path, params: Any) -> Imported:
        """Everything in the file and beside it; `params` is of the type of the class."""

    def beside(self, path: Path, params: Any) -> Sequence[Path]:  # noqa: ARG002 - for subclasses
        """Files that `import_file` finds by itself: in the folder, or beside the file."""
        return ()

    def companions(self, path: Path, options: Mapping[str, str]) -> Sequence[Path]:
        """The same, with options as texts."""
        return self.beside(path, parse_params(f"format {self.name}", self.params, options))

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """Everything that the trace tells."""
        return self.import_file(path, parse_params(f"format {self.name}", self.params, options))

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """Only the jobs."""
        return self.load(path, options).workload
