"""Jobs for a local cluster, driven by hand as the engine would."""

import itertools
import sys

import pytest

from rota.backends.local import LocalCluster
from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import UNKNOWN, Job, JobSpec, Request, Shape
from rota.core.topology import Topology


class Driver:
    """A cluster of one node with two GPUs, and what the engine does with it."""

    def __init__(self, **options):
        self.topology = Topology.uniform(1, 2)
        self.node = self.topology.nodes[0].id
        self.commands = {}
        self.cluster = LocalCluster(self.topology, self.commands, **options)
        self._numbers = itertools.count()

    def job(self, *command, gpus=1, name=None):
        """Make a job that has not been started."""
        number = next(self._numbers)
        spec = JobSpec(name or f"job{number}", 0.0, Request.of(gpus))
        if command:
            self.commands[spec.id] = command
        return Job(spec, UNKNOWN, number, Shape(0, spec.request))

    def python(self, script, **options):
        """Make a job that runs a Python script."""
        return self.job(sys.executable, "-I", "-S", "-c", script, **options)

    def start(self, job, slices=None):
        """Start it and return when progress begins."""
        allocation = Allocation(slices or [(self.node, job.gpus)])
        machine.start(job, allocation, self.cluster.now_s)
        since_s = self.cluster.start(job)
        if since_s < INF:
            machine.run(job, since_s, self.cluster.rate(job))
        return since_s

    def stop(self, job):
        """Stop it and return whether it is gone already."""
        lost, gone = self.cluster.stop(job)
        assert lost == 0.0
        machine.begin_stop(job, self.cluster.now_s, lost)
        if gone:
            machine.stopped(job)
        return gone

    def poll(self, within_s=20.0):
        """Return (kind, job) of the next events, checked against the port's promises."""
        before_s = self.cluster.now_s
        until_s = before_s + within_s
        events = self.cluster.poll(until_s)
        assert before_s <= self.cluster.now_s <= until_s
        for time_s, _, _, job, epoch in events:
            assert (time_s, epoch) == (self.cluster.now_s, job.epoch)
        return [(kind, job) for _, kind, _, job, _ in events]


@pytest.fixture
def make_driver():
    """Return a function that makes a driver; the clusters are closed at the end."""
    made = []

    def make(**options):
        made.append(Driver(**options))
        return made[-1]

    yield make
    for driver in made:
        driver.cluster.close()


@pytest.fixture
def driver(make_driver):
    """Return a driver with a short grace."""
    return make_driver(grace_s=0.3)
