"""Finds the shared reference folder: traces and published results too large for this repository."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI", "").lower() == "true"


def shared_root() -> Path:
    """Return the folder named by ROTA_SHARED, or else `shared` next to the checkout."""
    named = os.environ.get("ROTA_SHARED")
    return Path(named) if named else CHECKOUT.parent / "shared"


def shared(path: str) -> Path:
    """Return a file or folder of the shared folder; without it skip the test, or fail it in CI."""
    found = shared_root() / path
    if found.exists():
        return found
    reason = f"needs {path} of the shared reference folder, which is not there (set ROTA_SHARED)"
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
