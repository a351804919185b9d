"""Agents, and folders for shims, that leave nothing behind."""

import pytest

from agents_net import Bench
from local_shims import ShimFolder


@pytest.fixture
def make_bench(tmp_path):
    """Return a function that makes a driver without agents."""
    made = []

    def make(**options):
        made.append(Bench(tmp_path, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench):
    """Return a driver without agents."""
    return make_bench()


@pytest.fixture
def make_shim(tmp_path):
    """Return a function that makes a folder with an order for a shim."""
    made = []

    def make(script="true", **options):
        made.append(ShimFolder(tmp_path / f"run{len(made)}", script, **options))
        return made[-1]

    yield make
    for folder in made:
        folder.close()
