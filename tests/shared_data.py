"""Finds the shared reference folder: traces and published results too large for this repository."""

import os
from pathlib import Path

from needs import need

CHECKOUT = Path(__file__).resolve().parents[1]


def shared_root() -> Path:
    """Return the folder named by ROTA_SHARED, or else `shared` next to the checkout."""
    named = os.environ.get("ROTA_SHARED")
    return Path(named) if named else CHECKOUT.parent / "shared"


def shared(path: str) -> Path:
    """Return a file or folder of the shared folder; without it skip the test, or fail it in CI."""
    found = shared_root() / path
    need(found.exists(), "the shared reference folder", "make test ROTA_SHARED=FOLDER")
    return found
