"""Budgets that are nearly used up: a line in the event log, once for each level and period.

What was told is kept, so that a daemon that is started again does not tell it again. The line is
written before it is kept that it was: after a kill it may stand there twice, and it is never lost.
Whoever is to be told of it hears from `rota.daemon.notify`, which reads the log.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from rota.core.admission import BudgetUse
from rota.core.findings import WARN_FROM, budget_told
from rota.daemon.periodic import PeriodicThread

FACT = "budgets"
MARK = "budget: "  # how the lines begin
LEVELS = (WARN_FROM, 1.0)
LOOK_S = 10.0


class BudgetFacts(Protocol):
    """Where it is kept what was told."""

    def fact(self, name: str, first: str) -> str:
        """What is kept under a name, or what is kept from now on."""
        ...

    def change_fact(self, name: str, value: str) -> None:
        """Replace it."""
        ...


class BudgetWatch:
    """Looks at the budgets now and then.

    Args:
        budgets: What was used of them.
        facts: Where it is kept what was told.
        note: Writes a line into the event log.
    """

    def __init__(
        self,
        budgets: Callable[[], Sequence[BudgetUse]],
        facts: BudgetFacts,
        note: Callable[[str], None],
    ) -> None:
        self._budgets, self._facts, self._note = budgets, facts, note
        self._told = msgspec.json.decode(facts.fact(FACT, "{}"), type=dict[str, float])
        self.thread = PeriodicThread("budgets", self.step, LOOK_S)

    def step(self) -> None:
        """Tell of those that have reached a level that they had not reached before."""
        told = {}
        for use in self._budgets():
            key = f"{use.of}/{use.name}/{use.budget_gpu_s:g}/{use.until_s:g}"
            before = self._told.get(key, 0.0)
            level = max((level for level in LEVELS if use.share >= level), default=0.0)
            if level > before:
                self._note(f"{MARK}{budget_told(use)}")
            if max(level, before):
                told[key] = max(level, before)
        if told != self._told:
            self._facts.change_fact(FACT, msgspec.json.encode(told).decode())
            self._told = told
