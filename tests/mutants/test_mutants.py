"""Planted bugs: each must be caught by the invariants, the naive engine or the kit."""

import pytest

from mutants.planting import plant
from regressions import REGRESSIONS, made
from rota.core.errors import RotaError
from rota.testing.scenario import random_scenario

SEEDS = range(160)

PACKER = "rota.engine.packer:Packer"
PRIORITY = "rota.engine.priority:PriorityScheduler"
SIM = "rota.sim.cluster:SimCluster"

MUTANTS = {
    "a victim's slices are not given back": (
        f"{PACKER}._displace",
        "placement.give(job, job.allocation)",
        "pass",
    ),
    "events of an earlier run are accepted": (
        f"{SIM}.poll",
        "if event[3].epoch == event[4]:",
        "if True:",
    ),
    "a job ends as if its start took no time": (
        f"{SIM}.start",
        "self._push(since_s, JOB_RUNNING, job, job.epoch)",
        "self._push(since_s, JOB_RUNNING, job, job.epoch); self._begin(job)",
    ),
    "known failures are remembered for ever": (
        f"{PACKER}.forget_failures",
        "self._failed.clear()",
        "pass",
    ),
    "newcomers pass a blocked strict queue": (
        f"{PRIORITY}.step",
        "behind = packer.strict and index.waiting_count > 0",
        "behind = False",
    ),
    "newcomers never pass a blocked strict queue": (
        f"{PRIORITY}.step",
        "freed |= packer.passes(entry)",
        "pass",
    ),
    "shapes of the displaced are not looked at again": (
        f"{PACKER}._displace",
        "return shapes",
        "return set()",
    ),
    "room that the displaced leave over is not offered": (
        f"{PACKER}._scan_preempting",
        "again = waiting.keys() - dead",
        "pass",
    ),
    "heads that were passed over are forgotten": (
        f"{PACKER}._nominate",
        "self._passed_at = free",
        "pass",
    ),
    "a move is nothing": (
        f"{PACKER}._net",
        "elif entry.mark == STARTED or entry.place != entry.job.allocation:",
        "elif entry.mark == STARTED:",
    ),
    "a repaired node adds nothing": (
        f"{PRIORITY}._other",
        "up=kind == ev.NODE_UP",
        "up=False",
    ),
    "lost work is not done again": (
        "rota.core.machine:begin_stop",
        "job.true_left += lost",
        "pass",
    ),
    "ties are broken by chance, not by index": (
        "rota.engine.packer:Index.push_waiting",
        "(entry.key, entry.index, stamp, entry)",
        "(entry.key, -entry.index, stamp, entry)",
    ),
    "a start does not wait for those who leave": (
        "rota.engine.executor:Executor._launch",
        "if late or not self.physical.fits(job.allocation):",
        "if late:",
    ),
    "a dead node's pool loses its first starters": (
        "rota.engine.lifecycle:_over_the_pool",
        "reverse=True",
        "reverse=False",
    ),
    "levels are not watched": (
        f"{PRIORITY}._arm",
        "if at_s < INF:",
        "if False:",
    ),
    "a stopped job keeps the key that it had while running": (
        f"{PRIORITY}._requeue_stopped",
        "if key != entry.key:",
        "if False:",
    ),
    "a job that begins late is not keyed again": (
        f"{PRIORITY}._reanchor",
        "self._rekey_running(entry, now_s)",
        "index.push_running(entry, now_s)",
    ),
    "a job that finished stays in the books": (
        f"{PRIORITY}._gone",
        "self.placement.give(job, allocation)",
        "pass",
    ),
    "the emptiest node is taken for the fullest": (
        "rota.placement.consolidate:SearchingConsolidate._fullest_with",
        "need <= gpus[position] < lowest",
        "need <= gpus[position] and (best < 0 or gpus[position] > lowest)",
    ),
    "service does not count GPUs": (
        "rota.core.machine:settle",
        "job.service += ran * job.held_gpus",
        "job.service += ran",
    ),
}


POLICY = [
    made("fifo"),
    made("sjf", strict=True),
    made("srtf"),
    made("tiresias", limits=(12.0, 36.0)),
    made("srsf"),
]


def runs():
    """What was found once, and random scenarios."""
    yield from REGRESSIONS.values()
    for seed in SEEDS:
        scenario = random_scenario(seed)
        for make in POLICY:
            yield make, scenario


def caught():
    """What is found in the first run in which anything is found."""
    for make, scenario in runs():
        try:
            found = scenario.mismatch(make)
        except (AssertionError, LookupError, RotaError, RuntimeError, TypeError) as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            return found
    return ""


def test_the_engine_itself_passes():
    assert caught() == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name, monkeypatch):
    plant(monkeypatch, *MUTANTS[name])
    assert caught()
