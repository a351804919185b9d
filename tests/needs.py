"""What a test needs of the machine: without it the test is skipped, and the summary names a remedy.

Where everything has to be there (`--require-all`, or CI=true), a missing part is a failure.
"""

import os

import pytest

SYSTEM = "sudo make system-deps"
TORCH = "make torch"
ROOT = "run the tests as root"

everything = os.environ.get("CI", "").lower() == "true"


def require_everything() -> None:
    """From now on a missing part is a failure."""
    global everything  # noqa: PLW0603 - set once, before any test runs
    everything = True


def need(condition: object, what: str, enable: str) -> None:
    """Skip the test, or its module, unless the machine has this.

    Args:
        condition: Whether it is there.
        what: What is needed.
        enable: The command that provides it.
    """
    if condition:
        return
    reason = f"needs {what} | {enable}"
    if everything:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def skipped_groups(reports):
    """What was skipped for want of something: (command, what is missing) -> number of tests."""
    groups: dict[tuple[str, str], int] = {}
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        what, found, enable = reason.removeprefix("Skipped: ").partition(" | ")
        if found:
            groups[enable, what] = groups.get((enable, what), 0) + 1
    return groups
