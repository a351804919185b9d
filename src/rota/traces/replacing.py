"""Writing a file as a whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.core.errors import OutputError, why_unwritten


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside the target to write to, then renamed: a reader never sees half a file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        why = why_unwritten(error, "its folder must exist and be writable")
        raise OutputError(f"{path}: {why}") from error
    finally:
        part.unlink(missing_ok=True)
