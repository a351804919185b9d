"""Dialect `gavel` against runs of the simulator itself: the end of every job.

The files were written by the unmodified simulator (see the README of the folder).
"""

import csv
import gzip
import json
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from rota.core import registry
from rota.core.topology import NodeSpec, Topology
from rota.dialects.gavel import Gavel, GavelDialectParams
from rota.dialects.gavel_rates import LeaseRates
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.experiments.reproduce import gavel as recipe
from rota.experiments.reproduce.base import Verdict
from rota.experiments.reproduce.carry import reproduce
from rota.rates.costs import Zero
from rota.sim.cluster import SimCluster
from rota.traces import gavel
from shared_data import shared

FOLDER = shared("reference/gavel")
KINDS = ("v100", "p100", "k80")
TRACES = {
    "A": ("gen120_single", "simulation", (12, 12, 12)),
    "B": ("phys_max_min_fairness", "physical_cluster", (8, 16, 24)),
    "C": ("phys_minimize_makespan", "physical_cluster", (8, 16, 24)),
}


def ends(letter, policy, recorded=None):
    """Return the completion time of every job; `recorded` allocations replace the policy's."""
    trace, table, counts = TRACES[letter]
    throughputs = str(FOLDER / f"{table}_throughputs.json")
    topology = Topology(
        [
            NodeSpec(f"{kind}-{number}", 1, kind)
            for kind, count in zip(KINDS, counts, strict=True)
            for number in range(count)
        ]
    )
    workload = gavel.FORMAT.read(FOLDER / f"traces/{trace}.trace", {"throughputs": throughputs})
    dialect = Gavel(GavelDialectParams(throughputs=throughputs))
    scheduler = dialect.build(policy, None, topology, seed=0)
    if recorded is not None:
        scheduler._rules = replace(scheduler._rules, allocate=replayed(recorded))
    dialect.meet(scheduler, workload, topology)
    cluster = SimCluster(topology, Zero(), LeaseRates(topology))
    engine = Engine(cluster, scheduler, WorkloadSource(workload), wake=dialect.wake)
    engine.run()
    assert len(engine.view.finished) == len(workload)
    return {int(job.id): job.end_s - job.submit_s for job in engine.view.finished}


def replayed(name):
    with gzip.open(FOLDER / f"replay/{name}.alloc.json.gz", "rt") as file:
        entries = iter(json.load(file))

    def allocate(question):
        at_s, shares = next(entries)
        assert at_s == pytest.approx(question.now_s, abs=1e-6)
        rows = (shares[str(job)] for job in question.jobs)
        return np.array([[row[kind] for kind in sorted(KINDS)] for row in rows])

    return allocate


def theirs(name):
    with (FOLDER / f"runs/{name}.csv").open() as file:
        return {int(row["job_id"]): float(row["jct"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("gavel-max-min", "A_max_min_fairness_perf"),
        ("gavel-max-min:aware=false", "A_max_min_fairness"),
        ("gavel-ftf", "A_finish_time_fairness_perf"),
        ("gavel-makespan", "A_min_total_duration_perf"),
    ],
)
def test_recorded_allocations_give_the_recorded_ends(policy, name):
    assert ends("A", policy, recorded=name) == pytest.approx(theirs(name), abs=1e-3)


@pytest.fixture
def registered(monkeypatch):
    """Let the registry know the names, whether or not this installation has them yet."""
    before = registry._entries
    added = {
        registry.DIALECTS: ("gavel", "rota.dialects.gavel:Gavel"),
        registry.FORMATS: ("gavel", "rota.traces.gavel:FORMAT"),
        registry.RATES: ("leases", "rota.dialects.gavel_rates:LeaseRates"),
    }

    def entries(group):
        name, where = added.get(group, ("", ""))
        mine = {name: EntryPoint(name, where, group)} if name else {}
        return {**mine, **before(group)}

    monkeypatch.setattr(registry, "_entries", entries)


def test_the_recipe_agrees(registered):
    """Exactly without a solver, to 1 % with one; a makespan only promises the makespan."""
    checks = reproduce(recipe.RECIPE, data=shared("reference")).checks
    odd = [check for check in checks if check.verdict != Verdict.AGREES]
    assert [check.quantity for check in odd] == ["A_min_total_duration_perf: mean JCT (s)"]
    assert odd[0].verdict == Verdict.DEVIATES
    assert sum(check.expected == "equal job by job" for check in checks) == 5
    assert sum(check.expected == "± 1 %" for check in checks) == 9


def test_fairness_of_our_own_is_within_one_percent_with_gangs():
    """The mean of trace B as the report of the runs has it; the file itself is not there."""
    assert np.mean(list(ends("B", "gavel-max-min").values())) == pytest.approx(13766.0, rel=0.01)


def test_makespan_is_at_least_as_good():
    """Mean completion times follow from where the simulator stops its search: not compared."""
    arrivals = [job.submit_s for job in gavel_jobs("C")]
    ours = max(
        at_s + jct
        for at_s, jct in zip(arrivals, in_order(ends("C", "gavel-makespan")), strict=True)
    )
    assert ours <= 62657.1 * 1.01


def gavel_jobs(letter):
    trace, table, _ = TRACES[letter]
    options = {"throughputs": str(FOLDER / f"{table}_throughputs.json")}
    return gavel.FORMAT.read(FOLDER / f"traces/{trace}.trace", options).specs


def in_order(by_number):
    return [by_number[number] for number in sorted(by_number)]
