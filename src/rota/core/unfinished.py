"""What is being written: hidden, named after its target, and locked as long as its writer lives.

    .out.4711.part  -->  out

So the next writer of the same target can tell what a killed process left from what another one is
writing. Where the file system has no locks, nothing is removed.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from glob import escape
from pathlib import Path


def unfinished(target: Path, folder: Path | None = None) -> Path:
    """Where to write what becomes `target`; in `folder`, or beside it."""
    return (folder or target.parent) / f".{target.name}.{os.getpid()}.part"


def claim(part: Path) -> int:
    """Hold a file or folder that is there; the number for `release`."""
    held = -1
    with suppress(OSError):
        held = os.open(part, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


def release(held: int) -> None:
    """It is done, or given up."""
    if held >= 0:
        os.close(held)


def clear_abandoned(target: Path, folder: Path | None = None) -> None:
    """Remove what processes left that were killed while they wrote `target`."""
    with suppress(OSError):
        for part in (folder or target.parent).glob(f".{escape(target.name)}.*.part"):
            _clear(part)


def write_whole(target: Path, content: str | bytes) -> Path:
    """Write a file in one step: who reads it meanwhile finds what was there before."""
    clear_abandoned(target)
    part = unfinished(target)
    held = -1
    try:
        part.touch()
        held = claim(part)
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        release(held)
    return target


def _clear(part: Path) -> None:
    held = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
    except OSError:  # somebody is at it
        return
    finally:
        os.close(held)
