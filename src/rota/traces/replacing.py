"""Writing a file as a whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.core.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside the target to write to, then renamed: a reader never sees half a file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}): its folder must exist and be writable"
        ) from error
    finally:
        part.unlink(missing_ok=True)
