"""Output folders that appear whole or not at all.

Results are written into a hidden temporary folder first: beside the target if the target is new
(one rename makes it appear), inside it otherwise; what a killed process left there is removed. Only
files that Rota writes are ever replaced or removed; what else lies in the folder stays.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.core.errors import OutputError, is_full, why_unwritten
from rota.core.unfinished import claim, clear_abandoned, release, unfinished

RUN_FILES = ("jobs.csv", "summary.json", "events.parquet", "manifest.json", "allocation.csv")
"""Everything that Rota may write for one run."""


class OutputFolder:
    """A context: write into `.path`; leaving without an error publishes, with one leaves no trace.

    Args:
        target: The folder that the user asked for.
        force: Replace Rota's files in a folder that is not empty.
        own: Names (relative) of files that Rota may have written there before.
    """

    def __init__(
        self, target: Path, *, force: bool = False, own: Iterable[str] = RUN_FILES
    ) -> None:
        self._target = target
        self._own = tuple(own)
        self._made: list[Path] = []
        self._held = -1
        self.path = target
        for folder in (target, target.parent):
            clear_abandoned(target, folder)
        self._check(force=force)

    def _check(self, *, force: bool) -> None:
        target = self._target
        try:
            if not target.exists():
                return
            if not target.is_dir():
                raise OutputError(f"{target}: is a file: name a folder with -o")
            if any(target.iterdir()) and not force:
                raise OutputError(
                    f"{target}: is not empty: choose another folder, "
                    f"or use --force to replace Rota's files in it"
                )
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> OutputError:
        place = self._target
        if self._is_ours(error):  # the name of the file, without the hidden folder
            place /= Path(error.filename).relative_to(self.path)
        remedy = "choose a folder that you may write to with -o"
        return OutputError(f"{place}: {why_unwritten(error, remedy)}")

    def __enter__(self) -> Self:
        target = self._target
        self.path = unfinished(target, target if target.exists() else None)
        try:
            self._make_parents(self.path.parent)
            self.path.mkdir()
            self._held = claim(self.path)
        except OSError as error:
            self._clean()
            raise self._problem(error) from error
        return self

    def _make_parents(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for parent in reversed(missing):
            parent.mkdir()
            self._made.append(parent)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._clean()
            if isinstance(error, OSError) and (self._is_ours(error) or is_full(error)):
                raise self._problem(error) from error
            return
        try:
            self._publish()
        except OSError as problem:
            self._clean()
            raise self._problem(problem) from problem

    def _is_ours(self, error: OSError) -> bool:
        """It is about a file that was to be written here (a full disk, say)."""
        return Path(str(error.filename or "")).is_relative_to(self.path)

    def _clean(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._let_go()
        for folder in reversed(self._made):
            folder.rmdir()
        self._made = []

    def _let_go(self) -> None:
        release(self._held)
        self._held = -1

    def _publish(self) -> None:
        if self.path.parent != self._target:
            self.path.rename(self._target)
            self._let_go()
            return
        fresh = [path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file()]
        for name in self._own:
            if Path(name) not in fresh:
                (self._target / name).unlink(missing_ok=True)
        for relative in fresh:
            place = self._target / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            (self.path / relative).replace(place)
        shutil.rmtree(self.path)
        self._let_go()
        below = {folder for name in self._own for folder in Path(name).parents} - {Path()}
        for relative in sorted(below, key=lambda folder: len(folder.parts), reverse=True):
            folder = self._target / relative
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
