"""Who ran where, who waited, and who had to leave for whom: the log of a lab, to be drawn."""

from collections.abc import Mapping
from itertools import pairwise

import msgspec
import polars as pl

from rota.core.log import Record
from rota.metrics.history import WAITS, History, read_history


class Bar(msgspec.Struct, frozen=True):
    """A job, or a task of one, on a node; `gone_for`: who made it leave."""

    who: str
    node: str
    from_s: float
    until_s: float
    gone_for: str = ""


class Wait(msgspec.Struct, frozen=True):
    """A job, or a task of one, in the queue."""

    who: str
    from_s: float
    until_s: float


class Story(msgspec.Struct, frozen=True):
    """What happened on a small cluster; bars and waits are in the order of their beginning."""

    nodes: list[str]
    bars: list[Bar]
    waits: list[Wait]

    @property
    def end_s(self) -> float:
        """When the last job was over."""
        return max((bar.until_s for bar in self.bars), default=0.0)

    def starts(self) -> dict[str, float]:
        """When who began to run where; those who ran twice on a node have it twice."""
        return {f"{bar.who} on {bar.node}, {bar.from_s:g} s": bar.from_s for bar in self.bars}


def tell(log: pl.DataFrame) -> Story:
    """The story of an event log; every slice of an allocation is a bar of its own."""
    history = read_history(log)
    names = _names(history)
    nodes, places = _places(history)
    bars: list[Bar] = []
    waits: list[Wait] = []
    for span, actor in enumerate(history.actor.tolist()):
        from_s, until_s = float(history.from_s[span]), float(history.until_s[span])
        if not history.acting[span] or from_s == until_s:
            continue
        if history.state[span] == WAITS:
            waits.append(Wait(names[actor], from_s, until_s))
        elif history.held[span] > 0:
            gone_for = _gone_for(history, names, int(history.until_row[span]))
            bars += [
                Bar(names[actor], node, from_s, until_s, gone_for)
                for node in places[int(history.allocation[span])]
            ]
    return Story(nodes, sorted(bars, key=_beginning), _joined(waits))


def _beginning(item: Bar | Wait) -> tuple[float, str]:
    return item.from_s, item.who


def _joined(waits: list[Wait]) -> list[Wait]:
    """Reasons may change while a job waits: it is one wait."""
    joined: list[Wait] = waits[:1]
    for before, wait in pairwise(waits):
        if wait.who == before.who and wait.from_s == before.until_s:
            joined[-1] = msgspec.structs.replace(joined[-1], until_s=wait.until_s)
        else:
            joined.append(wait)
    return sorted(joined, key=_beginning)


def _names(history: History) -> list[str]:
    """Of every actor; tasks are numbered within their job."""
    texts = history.log["text"].gather(history.entry_row[history.owner]).to_list()
    counts: dict[int, int] = {}
    names = []
    for actor, owner in enumerate(history.owner.tolist()):
        if history.is_job[actor]:
            names.append(str(texts[actor]))
        else:
            counts[owner] = counts.get(owner, -1) + 1
            names.append(f"{texts[actor]}#{counts[owner]}")
    return names


def _places(history: History) -> tuple[list[str], Mapping[int, list[str]]]:
    """The nodes of the cluster, and those of every allocation."""
    names, slices = history.nodes.names, history.slices
    places: dict[int, list[str]] = {}
    slots = history.nodes.slots_of(slices.vertex).tolist()
    for number, slot in zip(slices.allocation.tolist(), slots, strict=True):
        places.setdefault(number, []).append(names[slot])
    return names, places


def _gone_for(history: History, names: list[str], row: int) -> str:
    """Who is named by the row at which a span ends, if that is a stop."""
    other = int(history.other[row])
    if history.event[row] != Record.STOP or other < 0:
        return ""
    return names[int(history.actor_of(other))]
