"""Files that are written whole or not at all."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write all of a file, lasting, or nothing; `private`: only its owner can read it.

    Several may write the same file at the same time: each of them writes a whole one.
    """
    part = path.with_name(f".{secrets.token_hex(8)}")
    mode = 0o600 if private else 0o644
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
