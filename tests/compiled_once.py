"""One worker compiles the tests, the others read what it wrote.

Pytest rewrites the assertions of every module when it is imported first, which takes longer than
all the rest of the collection. Workers that begin together would all do it.
"""

import fcntl
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def is_compiled(folder):
    """Is there bytecode with rewritten assertions of all tests below a folder?"""
    newest = {}  # module -> when it was compiled
    for file in folder.rglob("__pycache__/*-pytest-*.pyc"):
        module = file.parent.parent / f"{file.name.partition('.')[0]}.py"
        newest[module] = max(newest.get(module, 0.0), file.stat().st_mtime)
    return all(newest.get(each, 0.0) > each.stat().st_mtime for each in folder.rglob("test_*.py"))


class CompiledOnce:
    """Lets workers collect tests that are not compiled after the first of them has."""

    def __init__(self, lock, folder=TESTS):
        self.lock = lock
        self.folder = folder

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self):
        """Wait, if there is anything to wait for."""
        if sys.dont_write_bytecode or is_compiled(self.folder):
            return (yield)
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the first one
            except BlockingIOError:
                fcntl.flock(file, fcntl.LOCK_SH)  # the others, all at the same time
            return (yield)
