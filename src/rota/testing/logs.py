"""Comparing logs: the rows about jobs and nodes in one plain form, and what differs between two."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rota.core.events import INF
from rota.core.log import WIDTH, Record
from rota.core.topology import Topology
from rota.engine.log import Log
from rota.engine.replica import rows_from
from rota.testing.naive import POOL, Entry

KINDS = {
    int(kind): kind.name.lower()
    for kind in (
        Record.START, Record.RUN, Record.STOP, Record.STOPPED, Record.DONE, Record.FAILED,
        Record.REJECTED, Record.CANCELLED, Record.EVICTED, Record.MOVE, Record.NODE_DOWN,
        Record.NODE_UP, Record.TIMEOUT,
    )
}  # fmt: skip

DIGITS = 6
SHOWN = 8


def entries(log: Log, topology: Topology) -> list[Entry]:
    """What happened to jobs and nodes, in the form of the naive engine."""
    position = {node.id: i for i, node in enumerate(topology.nodes)}
    rows = rows_from(log, 0)
    slices: dict[int, list[tuple[int, float]]] = {}
    late: dict[
        int, int
    ] = {}  # jobs whose slices are not left yet: a second start tells when they are
    found: list[Entry] = []
    for i in range(0, len(rows), WIDTH):
        time_s, kind, job, ref, other, value = rows[i : i + WIDTH]
        if kind == Record.ALLOCATION:
            slices.setdefault(int(ref), []).append((position.get(int(other), POOL), value))
        elif kind in KINDS:
            what = KINDS[int(kind)]
            number = position[int(ref)] if what.startswith("node") else int(job)
            repeated = what == "start" and late.pop(number, -1) == ref
            if what in ("start", "move") and value == INF:
                late[number] = int(ref)
            elif not what.startswith("node"):
                late.pop(number, None)
            if repeated:
                continue
            where = tuple(slices[int(ref)]) if what in ("start", "move") else ()
            found.append((time_s, what, number, where))
    return found


def comparable(rows: Iterable[Entry]) -> list[Entry]:
    """Sorted, times rounded, without `run` at the instant of a start (a matter of order only)."""
    rounded = [(round(time_s, DIGITS), what, job, slices) for time_s, what, job, slices in rows]
    begun = {(time_s, job) for time_s, what, job, _ in rounded if what in ("start", "move")}
    return sorted(
        (time_s, what, job, slices)
        for time_s, what, job, slices in rounded
        if what != "run" or (time_s, job) not in begun
    )


def difference(real: Sequence[Entry], expected: Sequence[Entry]) -> str:
    """Empty if the logs agree; else their first differences in words."""
    mine, other = Counter(comparable(real)), Counter(comparable(expected))
    if mine == other:
        return ""
    lines = [(*entry, "only here") for entry in (mine - other).elements()]
    lines += [(*entry, "only expected") for entry in (other - mine).elements()]
    lines.sort(key=lambda line: line[:3])
    return "\n".join(
        f"  {time_s:g} s {what} {job} {slices or ''}: {where}"
        for time_s, what, job, slices, where in lines[:SHOWN]
    )
