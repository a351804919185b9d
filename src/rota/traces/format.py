"""What a trace format is, and the base class of Rota's own readers."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.imported import Imported
from rota.traces.sniff import PATTERNS, Head
from rota.traces.tidy import Common


class Format(ABC):
    """One trace format; an instance is registered in the entry-point group `rota.formats`.

    Only `name`, `description`, `recognises` and `read` are required.
    """

    name: ClassVar[str]
    """What `--format` calls it."""
    description: ClassVar[str]
    """One line for listings."""
    verified: ClassVar[bool] = False
    """A test reads a real file of this format; otherwise only its description is known."""
    forms: ClassVar[Mapping[str, bool]] = {}
    """Of a format with several forms: whether each is verified, by name."""

    @property
    def options(self) -> Collection[str]:
        """Names of its options, as far as others may set them."""
        return ()

    @property
    def verified_forms(self) -> Mapping[str, bool]:
        """By form (one without a name if there are not several): is it verified on a real file?"""
        return self.forms or {"": self.verified}

    @abstractmethod
    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly).

        A format of another package is asked only if none of Rota's own is certain.
        """

    @abstractmethod
    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All jobs of the file."""

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """Everything that the trace tells: also what happened to jobs, if it knows."""
        return Imported(self.read(path, options))

    def companions(self, path: Path, options: Mapping[str, str]) -> Sequence[Path]:  # noqa: ARG002
        """Other files that it finds by itself: in the folder, or beside the file."""
        return ()


class Reader(Format):
    """One of Rota's own formats; a subclass names it and imports it, `sniff` recognises it."""

    params: ClassVar[type[msgspec.Struct]] = Common

    @property
    def options(self) -> Collection[str]:
        """The fields of its parameters."""
        return self.params.__struct_fields__

    @abstractmethod
    def import_file(self, path: Path, params: Any) -> Imported:
        """Everything in the file and beside it; `params` is of the type of the class."""

    def beside(self, path: Path, params: Any) -> Sequence[Path]:  # noqa: ARG002 - for subclasses
        """Files that `import_file` finds by itself: in the folder, or beside the file."""
        return ()

    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly)."""
        return PATTERNS[self.name](head)

    def companions(self, path: Path, options: Mapping[str, str]) -> Sequence[Path]:
        """The same as `beside`, with options as texts."""
        return self.beside(path, parse_params(f"format {self.name}", self.params, options))

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """Everything that the trace tells."""
        return self.import_file(path, parse_params(f"format {self.name}", self.params, options))

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """Only the jobs."""
        return self.load(path, options).workload
