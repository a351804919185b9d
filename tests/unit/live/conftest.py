"""Agents, and folders for shims, that leave nothing behind."""

import os
import subprocess

import pytest

from agents_net import Bench, eventually
from local_shims import ShimFolder
from needs import ROOT, need
from rota.live.agent.agent import Agent
from rota.live.agent.messages import AgentOrders


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
def make_agent():
    """Return a function that makes an agent without threads."""
    made = []

    def make(*args, **options):
        made.append(Agent(*args, **options))
        return made[-1]

    yield make
    for agent in made:
        if agent._wake < 0:  # closed
            continue
        parts = agent.report().parts
        agent.obey(AgentOrders(kill=tuple(part.key for part in parts)))
        eventually(lambda agent=agent: agent.step() or agent.idle)
        agent.close()


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


@pytest.fixture
def root_only():
    """Skip for other users."""
    need(os.geteuid() == 0, "root, to mount", ROOT)


@pytest.fixture
def small_disk(tmp_path, root_only):
    """Return a folder with room for a quarter of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    mounted = subprocess.run(command, check=False).returncode == 0
    need(mounted, "the right to mount a tmpfs", ROOT)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
