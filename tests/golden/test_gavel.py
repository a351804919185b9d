"""Dialect `gavel` against runs of the simulator itself: the end of every job.

The files were written by the unmodified simulator (see the README of the folder).
"""

import json
from dataclasses import replace

import pytest

from rota.core import registry
from rota.core.topology import NodeSpec, Topology
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.gavel import recipe
from rota.reproduce.gavel.dialect import GavelDialect, GavelDialectParams
from rota.reproduce.gavel.load import draw_trace
from rota.reproduce.gavel.loop import LeaseRates
from rota.reproduce.recipe import CheckVerdict
from rota.reproduce.run import reproduce
from rota.sim.cluster import SimCluster
from rota.traces.formats import gavel
from shared_data import shared

FOLDER = shared("reference/gavel")
TABLE = FOLDER / "simulation_throughputs.json"
TRACE = FOLDER / "traces/gen120_single.trace"
KINDS = ("v100", "p100", "k80")


@pytest.fixture
def registered(monkeypatch):
    """Let the registry know the names, whether or not this installation has them yet."""
    before = registry._entries
    added = {
        registry.DIALECTS: ("gavel", "rota.reproduce.gavel.dialect:GavelDialect"),
        registry.FORMATS: ("gavel", "rota.traces.formats.gavel:FORMAT"),
        registry.RATES: ("leases", "rota.reproduce.gavel.loop:LeaseRates"),
    }

    def entries(group):
        name, where = added.get(group, ("", ""))
        mine = {name: where} if name else {}
        return {**mine, **before(group)}

    monkeypatch.setattr(registry, "_entries", entries)


SOLVED = (
    "A_max_min_fairness_water_filling",
    "A_max_sum_throughput_perf",
    "A_allox",
    "B_max_min_fairness_perf",
    "B_max_min_fairness",
    "B_finish_time_fairness_perf",
)
"""Each programme on the shortest trace that has it."""

LOOSE = (
    "A_min_total_duration_perf",
    "A_min_total_duration",
    "B_min_total_duration_perf",
    "C_min_total_duration",
)
"""A makespan only promises the makespan: their mean completion times differ."""


def check_recipe():
    """Exactly without a solver, to 1 % with one."""
    checks = reproduce(recipe.RECIPE, data=shared("reference")).checks
    odd = [check for check in checks if check.verdict != CheckVerdict.AGREES]
    assert {check.verdict for check in odd} == {CheckVerdict.DEVIATES}, odd
    shares = {f"{name}: mean JCT (s)" for name in recipe.SHARES}
    for check in odd:  # which optimum is found depends on the processor, but not by much
        if check.quantity in shares:
            assert check.ours == pytest.approx(check.theirs, rel=0.025), check
    assert [check.quantity for check in odd if check.quantity not in shares] == [
        f"{name}: mean JCT (s)" for name in LOOSE if name in recipe.MAKESPANS
    ]
    assert sum(check.expected == "equal job by job" for check in checks) == 5 + 4
    near = len(recipe.SHARES) + len(recipe.MAKESPANS)
    assert sum(check.expected == "± 1 %" for check in checks) == near
    assert not any(check.quantity.startswith("A_fifo:") for check in checks)


def test_the_recipe_agrees_on_one_run_of_each_kind(registered, monkeypatch):
    """All runs that must be equal, one of each programme, and two seeds of what is drawn."""
    makespans = {n: policy for n, policy in recipe.MAKESPANS.items() if not n.startswith("A")}
    monkeypatch.setattr(recipe, "SHARES", {name: recipe.SHARES[name] for name in SOLVED})
    monkeypatch.setattr(recipe, "MAKESPANS", makespans)
    monkeypatch.setattr(recipe, "SEEDS", range(2))
    check_recipe()


@pytest.mark.soak
def test_the_whole_recipe_agrees(registered):
    assert (len(recipe.SHARES), len(recipe.MAKESPANS), len(recipe.SEEDS)) == (12, 5, 20)
    check_recipe()


@pytest.mark.parametrize(
    ("policy", "name"), [("gavel-fifo", "fifo_perf"), ("gavel-isolated", "isolated")]
)
def test_as_many_rounds_and_renewals_as_the_simulator(policy, name):
    """What a run costs is counted: it decides once a round, and asks the policy no more often."""
    topology = Topology([NodeSpec(f"{kind}-{i}", 1, kind) for kind in KINDS for i in range(12)])
    workload = gavel.FORMAT.read(TRACE, {"throughputs": str(TABLE)})
    dialect = GavelDialect(GavelDialectParams(throughputs=str(TABLE)))
    scheduler = dialect.build(policy, None, topology, seed=0)
    dialect.meet(scheduler, workload, topology)
    counts = {"renewals": 0, "rounds": 0}
    allocate, choose = scheduler._rules.allocate, scheduler.dispatcher.choose

    def counted(what, function):
        def call(*args):
            counts[what] += 1
            return function(*args)

        return call

    scheduler._rules = replace(scheduler._rules, allocate=counted("renewals", allocate))
    scheduler.dispatcher.choose = counted("rounds", choose)
    cluster = SimCluster(topology, Zero(), LeaseRates(topology))
    engine = Engine(cluster, scheduler, WorkloadSource(workload), wake=dialect.wake)
    engine.run()
    theirs = json.loads((FOLDER / f"runs/A_{name}.json").read_text())
    assert len(engine.view.finished) == len(workload)
    assert counts["renewals"] <= theirs["n_alloc"]
    assert counts["rounds"] <= theirs["rounds"] + 1  # we look once more when all is over


def test_the_generator_draws_the_simulators_jobs():
    """Kind, steps, GPUs and arrival of all 120 jobs of trace A."""
    drawn = draw_trace(TABLE, jobs=120, gap_s=400, seed=0)
    ours, theirs = (
        [line.split("\t") for line in text.splitlines()] for text in (drawn, TRACE.read_text())
    )
    facts = [[(row[0], row[5], row[6], float(row[9])) for row in rows] for rows in (ours, theirs)]
    assert facts[0] == facts[1]
