"""What a trace format is, and the base class of Rota's own readers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.imported import Imported
from rota.traces.sniff import PATTERNS, Head
from rota.traces.tidy import Common


class Format(Protocol):
    """One trace format; an instance is registered in the entry-point group `rota.formats`."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""

    @property
    def description(self) -> str:
        """One line for listings."""

    @property
    def verified(self) -> bool:
        """A test reads a real file of this format; otherwise only its description is known.

        A format with several forms may have an attribute `forms`, which tells it of each by name.
        """

    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly).

        A format of another package is asked only if none of Rota's own is certain.
        """

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All jobs of the file.

        A format that also knows what happened has a method `load` with the same parameters, which
        returns an `Imported` (see `read.read_trace`). One that finds other files by itself has a
        method `companions`, again with these parameters, which lists them (see `read.files_of`).
        """


def checked(format_: Format) -> dict[str, bool]:
    """By form (one without a name if there are not several): is it verified on a real file?"""
    return dict(getattr(format_, "forms", None) or {"": bool(getattr(format_, "verified", False))})


class Reader:
    """One of Rota's own formats; a subclass names it and imports it, `sniff` recognises it."""

    name: ClassVar[str]
    description: ClassVar[str]
    verified: ClassVar[bool] = False
    params: ClassVar[type[msgspec.Struct]] = Common

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
