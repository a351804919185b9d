"""HiveD in a scenario: pods are scheduled, added and deleted, nodes fail and come back."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import msgspec

from rota.core.errors import InputError, RequestError
from rota.policies.hived.algorithm import EVERYWHERE, Decision, Hived, HivedPhase, Preempt
from rota.policies.hived.config import HivedConfig
from rota.policies.hived.pods import BindInfo, PodSpec
from rota.policies.hived.status import all_groups, all_promised, group_status

INFORMATIVE = ("reason", "error")
"""Keys of `expect` that are for people: the words differ from scheduler to scheduler."""
CRASH = "reference_panic"
"""Recorded where another implementation crashed: any answer is right."""

Status = dict[str, dict[str, Any]]


class RecordedDecision:
    """What pods asked for, and where they were bound: a cluster keeps it beside the pods."""

    def __init__(self) -> None:
        self.specs: dict[str, PodSpec] = {}
        self.binds: dict[str, BindInfo] = {}


class HivedPlay:
    """Plays events on one `Hived`."""

    def __init__(
        self, config: HivedConfig, scenario: Mapping[str, Any], recorded: RecordedDecision
    ) -> None:
        order = scenario.get("leaf_cell_type_chain_order", {})
        self._config = config
        self._order = msgspec.convert(order, dict[str, list[str]])
        self._nodes: list[str] | None = scenario.get("all_nodes")
        self._all = EVERYWHERE if self._nodes is None else frozenset(self._nodes)
        self.recorded = recorded
        self.hived = self._fresh()
        self._past: list[Mapping[str, Any]] = []
        self._groups: Status = {}
        self._cells: Status = all_promised(self.hived)
        self._wanted: Status = {}
        """Groups as the events so far said that they are."""

    def _fresh(self) -> Hived:
        hived = Hived(self._config, self._order)
        for node in self._nodes if self._nodes is not None else hived.cells.on_node:
            hived.set_healthy(node)
        return hived

    def play(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Let an event happen."""
        outcome = self._act(event)
        if event["op"] == "add_allocated" and "member_order" not in event:
            event = self._ordered(event)
        self._past.append(event)
        return outcome | self._changes()

    def _act(self, event: Mapping[str, Any]) -> dict[str, Any]:
        op = event["op"]
        if op == "schedule":
            return {"decision": self._schedule(event)}
        if op in ("bad_node", "healthy_node"):
            self._node(event)
        elif op in ("add_allocated", "delete_allocated", "delete_unallocated"):
            self._pod(event)
        elif op != CRASH:
            raise InputError(f"there is no op {op!r} in a HiveD scenario")
        return {}

    def _ordered(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event with an order of the group's members that leads where it is expected to.

        Bind information lists pods by size in no particular order, and recordings do not tell
        which it was. If the first one does not lead there, the others are tried.
        """
        if self._as_expected(event):
            return event
        sizes = [len(places[0].physical_leaf_cell_indices) for places in self._bind(event).group]
        for order in permutations(sizes):
            tried = {**event, "member_order": list(order)}
            self._again(tried)
            if self._as_expected(event):
                return tried
        self._again(event)
        return event

    def _again(self, event: Mapping[str, Any]) -> None:
        """Play everything anew, with this event last."""
        self.hived = self._fresh()
        for past in self._past:
            self._act(past)
        self._act(event)

    def _as_expected(self, event: Mapping[str, Any]) -> bool:
        """Whether the virtual cells of the pod's group are the expected ones."""
        for name, status in event.get("groups_changed", {}).items():
            group = self.hived.groups.get(name)
            if group is not None and _compare(name, status, group_status(group)):
                return len(self._bind(event).group) == 1
        return True

    def _bind(self, event: Mapping[str, Any]) -> BindInfo:
        return self.recorded.binds[_text(event, "pod")]

    def _schedule(self, event: Mapping[str, Any]) -> dict[str, Any]:
        pod = _text(event, "pod")
        spec = msgspec.convert(event.get("spec"), PodSpec)
        self.recorded.specs[pod] = spec
        suggested = event.get("suggested_nodes", "all")
        nodes = self._all if suggested == "all" else frozenset(suggested)
        phase = msgspec.convert(event.get("phase", HivedPhase.PREEMPTING.value), HivedPhase)
        try:
            decision = self.hived.schedule(pod, spec, nodes, phase)
        except RequestError as error:
            return {"result": "user_error", "reason": str(error)}
        if isinstance(decision, BindInfo):
            self.recorded.binds[pod] = decision
        return describe(decision, phase)

    def _node(self, event: Mapping[str, Any]) -> None:
        node = _text(event, "node")
        if node not in self.hived.cells.on_node:
            raise InputError(f"no cell of the configuration is on node {node!r}")
        if event["op"] == "bad_node":
            self.hived.set_bad(node)
        else:
            self.hived.set_healthy(node)

    def _pod(self, event: Mapping[str, Any]) -> None:
        pod, op = _text(event, "pod"), event["op"]
        spec, bind = self.recorded.specs.get(pod), self.recorded.binds.get(pod)
        if spec is None:
            raise InputError(f"pod {pod!r} was never scheduled: schedule it first, or use --after")
        if op == "delete_unallocated":
            self.hived.delete_unallocated(pod, spec)
            return
        if bind is None:
            raise InputError(f"pod {pod!r} was never bound")
        if op == "add_allocated":
            self.hived.add_allocated(pod, spec, _reordered(bind, event.get("member_order")))
        else:
            self.hived.delete_allocated(pod, spec, bind)

    def _changes(self) -> dict[str, Any]:
        """Groups and promised cells that are not as they were before the event."""
        groups, cells = all_groups(self.hived), all_promised(self.hived)
        found = {
            "groups_changed": _changed(self._groups, groups),
            "groups_removed": sorted(self._groups.keys() - groups.keys()),
            "vc_cells_changed": _changed(self._cells, cells),
        }
        self._groups, self._cells = groups, cells
        return {key: value for key, value in found.items() if value}

    def unmet(
        self, event: Mapping[str, Any], outcome: Mapping[str, Any], *, strict: bool
    ) -> list[str]:
        """Compare the decision, and the state of what the event lists (of everything: strict)."""
        wrong: list[str] = []
        expect = event.get("expect", {})
        if expect.get("result") != CRASH:
            wrong += _compare(
                "expect",
                _comparable(expect),
                _comparable(outcome.get("decision", {})),
            )
        for name in event.get("groups_removed", ()):
            self._wanted.pop(name, None)
            if name in self._groups:
                wrong.append(f"group {name}: expected to be gone")
        for name, status in event.get("groups_changed", {}).items():
            self._wanted[name] = status
            wrong += _compare(f"group {name}", status, self._groups.get(name, {}))
        for address, status in event.get("vc_cells_changed", {}).items():
            wrong += _compare(address, *_loosely(status, self._cells.get(address, {})))
        if strict:
            wrong += self._unlisted(event, outcome)
        return wrong

    def _unlisted(self, event: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[str]:
        """Everything that no event has announced."""
        wrong = [
            f"group {name}: {'not ' if name in self._wanted else ''}there"
            for name in sorted(self._groups.keys() ^ self._wanted.keys())
        ]
        for name in self._groups.keys() & self._wanted.keys():
            wrong += _compare(f"group {name}", self._wanted[name], self._groups[name])
        cells = outcome.get("vc_cells_changed", {})
        listed = event.get("vc_cells_changed", {})
        wrong += [
            f"{address}: changed to {cells[address]}"
            for address in sorted(cells.keys() - listed.keys())
            if not _is_unused_bad(cells[address])
        ]
        return wrong


def describe(decision: Decision, phase: HivedPhase) -> dict[str, Any]:
    """A decision as plain data."""
    if isinstance(decision, BindInfo):
        return {
            "result": "bind",
            "node": decision.node,
            "leaf_cells": list(decision.leaf_cells),
            "chain": decision.chain,
        }
    if isinstance(decision, Preempt):
        if phase is HivedPhase.FILTERING:
            return {"result": "preempt"}
        return {"result": "preempt", "victims": sorted(decision.victims)}
    return {"result": "wait", "reason": decision.reason}


def _text(event: Mapping[str, Any], key: str) -> str:
    if not isinstance(event.get(key), str):
        raise InputError(f"the key {key!r} is missing")
    return str(event[key])


def _reordered(bind: BindInfo, sizes: list[int] | None) -> BindInfo:
    """The bind information with its members in this order of pod sizes."""
    if sizes is None:
        return bind
    by_size = {len(places[0].physical_leaf_cell_indices): places for places in bind.group}
    if sorted(sizes) != sorted(by_size):
        raise InputError(f"member_order is {sizes}, but the group has pods of {sorted(by_size)}")
    return msgspec.structs.replace(bind, group=tuple(by_size[size] for size in sizes))


def _changed(before: Status, after: Status) -> Status:
    return {name: status for name, status in after.items() if before.get(name) != status}


def _comparable(result: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in result.items() if key not in INFORMATIVE}
    if "victims" in kept:
        kept["victims"] = sorted(kept["victims"])
    return kept


def _compare(what: str, want: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """Every key that is wanted, but null; the order of leaf cells in a place does not count."""
    return [
        f"{what}: {key} is {got.get(key)!r}, expected {value!r}"
        for key, value in want.items()
        if value is not None and _sorted(value) != _sorted(got.get(key))
    ]


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: sorted(part) for key, part in value.items()}
    return value


def _is_unused_bad(status: Mapping[str, Any]) -> bool:
    return status.get("health") == "Bad" and status.get("priority", 0) < 0


def _loosely(
    want: Mapping[str, Any], got: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Which bad cell an unused promised cell is bound to means nothing."""
    kept = dict(want)
    if _is_unused_bad(want) and _is_unused_bad(got):
        kept.pop("physical", None)
    return kept, got
