"""Making a failing scenario smaller, until nothing can be left out or lowered."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rota.testing.scenario import Scenario

COSTS = ("start_s", "stop_s", "lost", "crash", "slow_s")
FIELDS = (("gpus", 1), ("submit_s", 0), ("work", 1))


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], *, tries: int = 1000) -> Scenario:
    """A small scenario that still fails, as far as single steps and so many tries lead."""
    candidates = variants(scenario)
    for _ in range(tries):
        candidate = next(candidates, None)
        if candidate is None:
            break
        if fails(candidate):
            scenario, candidates = candidate, variants(candidate)
    return scenario


def variants(scenario: Scenario) -> Iterator[Scenario]:
    """Simpler ones, simplest first."""
    yield from _shorter(scenario)
    yield from _cheaper(scenario)
    for i, job in enumerate(scenario.jobs):
        for name, least in FIELDS:
            for value in _lower(getattr(job, name), least):
                yield _with(scenario, "jobs", i, msgspec.structs.replace(job, **{name: value}))
    for i, outage in enumerate(scenario.outages):
        for value in _lower(outage.at_s, 0):
            yield _with(scenario, "outages", i, msgspec.structs.replace(outage, at_s=value))
    for i, size in enumerate(scenario.nodes):
        for value in _lower(size, 1):
            yield _with(scenario, "nodes", i, value)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    change = msgspec.structs.replace
    for i in range(len(scenario.outages)):
        yield change(scenario, outages=scenario.outages[:i] + scenario.outages[i + 1 :])
    for i in range(len(scenario.jobs)):
        yield change(scenario, jobs=scenario.jobs[:i] + scenario.jobs[i + 1 :])
    if len(scenario.nodes) > 1:
        nodes = scenario.nodes[:-1]
        kept = tuple(outage for outage in scenario.outages if outage.node < len(nodes))
        yield change(scenario, nodes=nodes, outages=kept)


def _cheaper(scenario: Scenario) -> Iterator[Scenario]:
    change = msgspec.structs.replace
    for name in COSTS:
        for value in _lower(getattr(scenario.costs, name), 0):
            yield change(scenario, costs=change(scenario.costs, **{name: value}))


def _with(scenario: Scenario, field: str, i: int, value: Any) -> Scenario:
    old = getattr(scenario, field)
    return msgspec.structs.replace(scenario, **{field: (*old[:i], value, *old[i + 1 :])})


def _lower(value: float, least: float) -> list[Any]:
    steps = (least, value // 2, value - value // 8, value - 1)
    return sorted({type(value)(step) for step in steps if least <= step < value})
