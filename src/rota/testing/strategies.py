"""Hypothesis strategies for small runs. Needs hypothesis, which the rest of the kit does not."""

import msgspec
from hypothesis import strategies as st

from rota.core.events import INF
from rota.testing.scenario import Fixed, Item, Outage, Scenario, Span

SIZES = (1, 2, 3, 4, 6, 8)


def times(longest_s: int, *, ties: bool) -> st.SearchStrategy[float]:
    """Few distinct integers, or numbers with a fraction that sums represent exactly."""
    if ties:
        return st.integers(0, longest_s)
    return st.integers(0, longest_s * 1024).map(lambda ticks: ticks / 1024)


@st.composite
def topologies(draw: st.DrawFn, *, equal: bool = False) -> tuple[int, ...]:
    """GPUs of one to four nodes."""
    if equal or draw(st.booleans()):
        return (draw(st.integers(1, 4)),) * draw(st.integers(1, 4))
    return tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))


def costs(*, lossy: bool = True) -> st.SearchStrategy[Fixed]:
    """Start, stop and slow phases and, if `lossy`, work lost at stops and failures."""
    loss = st.integers(0, 3) if lossy else st.just(0)
    crash = st.sampled_from((0, 2, 100)) if lossy else st.just(0)
    slow = st.sampled_from((0, 0, 3))
    return st.builds(
        Fixed, st.integers(0, 4), st.integers(0, 4), loss, crash, slow, st.just("fixed")
    )


@st.composite
def outages(draw: st.DrawFn, nodes: int, longest_s: int = 40) -> tuple[Outage, ...]:
    """Failures and repairs, which may overlap; in the end every node is up."""
    found: list[Outage] = []
    for _ in range(draw(st.integers(0, 3))):
        node, at_s = draw(st.integers(0, nodes - 1)), draw(st.integers(0, longest_s))
        repaired_s = at_s + draw(st.integers(1, 10))
        found += [Outage(at_s, node, up=False), Outage(repaired_s, node, up=True)]
    last_s = max((outage.at_s for outage in found), default=0.0) + 1
    if found:
        found += [Outage(last_s, node, up=True) for node in range(nodes)]
    return tuple(found)


@st.composite
def workloads(
    draw: st.DrawFn,
    *,
    gpus: int,
    ties: bool = True,
    sizes: tuple[int, ...] = SIZES,
    on: tuple[tuple[int, ...], ...] = ((),),
    limited: bool = False,
) -> tuple[Item, ...]:
    """Up to twelve jobs, few of which can never fit; some fail by themselves.

    `on`: the sets of nodes that jobs accept, none for all. `limited`: they are of two users, and
    most of them say how long they run, more or less truly.
    """
    said = st.one_of(times(24, ties=ties), st.just(INF)) if limited else st.just(INF)
    asked = st.sampled_from([size for size in sizes if size <= gpus] or [1])
    one = st.builds(
        Item,
        times(20, ties=ties),
        asked if draw(st.integers(0, 9)) else st.one_of(asked, st.just(gpus + 1)),
        times(20, ties=ties).map(lambda work: work or 1),
        st.one_of(st.just(INF), st.just(INF), st.just(INF), times(20, ties=ties)),
        st.sampled_from(on),
        said,
        st.just(()),
        st.sampled_from(("ann", "bob") if limited else ("",)),
    )
    return tuple(draw(st.lists(one, max_size=12)))


@st.composite
def windows(draw: st.DrawFn, nodes: int, *, ties: bool = True) -> tuple[Span, ...]:
    """Maintenance, and reservations for ann or bob; they may overlap."""
    found = []
    for _ in range(draw(st.integers(0, 3))):
        start_s = draw(times(30, ties=ties))
        some = draw(st.sets(st.integers(0, nodes - 1), min_size=1))
        users = draw(st.sampled_from(((), ("ann",), ("bob",))))
        lasts_s = 1 + draw(times(20, ties=ties))
        found.append(Span(start_s, start_s + lasts_s, (*sorted(some),), users, draw(st.booleans())))
    return tuple(found)


@st.composite
def scenarios(  # noqa: PLR0913 - what tests choose
    draw: st.DrawFn,
    *,
    ties: bool = True,
    with_costs: bool = True,
    with_outages: bool = True,
    lossy: bool = True,
    placement: str = "",
    rounds: bool = False,
    sizes: tuple[int, ...] = SIZES,
    choosy: bool = False,
    with_windows: bool = False,
) -> Scenario:
    """Everything together; `choosy`: jobs accept different, overlapping sets of nodes."""
    nodes = draw(topologies())
    subsets = st.sets(st.integers(0, len(nodes) - 1), max_size=3).map(lambda s: (*sorted(s),))
    on = (*draw(st.lists(subsets, min_size=1, max_size=4)),) if choosy else ((),)
    return Scenario(
        draw(workloads(gpus=sum(nodes), ties=ties, sizes=sizes, on=on, limited=with_windows)),
        nodes,
        placement or draw(st.sampled_from(("count", "consolidate"))),
        draw(costs(lossy=lossy)) if with_costs and draw(st.booleans()) else Fixed(),
        draw(outages(len(nodes))) if with_outages and draw(st.booleans()) else (),
        draw(st.integers(1, 8)) if rounds else 0.0,
        draw(windows(len(nodes), ties=ties)) if with_windows else (),
    )


@st.composite
def owned(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """The same with time limits, retries, an array and dependencies.

    Those of the array depend on nobody: whose turn it is when a place and a dependency are free at
    the same instant is not laid down.
    """
    jobs = list(scenario.jobs)
    for i, job in enumerate(jobs):
        change: dict[str, object] = {}
        if draw(st.booleans()):
            change["limit_s"] = draw(st.integers(1, 25))
        if draw(st.booleans()):
            change |= {"retries": draw(st.integers(0, 2)), "backoff_s": draw(st.integers(0, 5))}
        if i and not draw(st.integers(0, 2)):
            key = draw(st.sampled_from(("after", "after_any", "after_fail")))
            change[key] = (draw(st.integers(0, i - 1)),)
        jobs[i] = msgspec.structs.replace(job, **change)
    first = draw(st.integers(0, max(0, len(jobs) - 1)))
    limit = draw(st.integers(1, 3))
    for i in range(first, min(len(jobs), first + draw(st.integers(0, 6)))):
        same = {"submit_s": jobs[first].submit_s, "array": "a", "array_limit": limit}
        free: dict[str, object] = dict.fromkeys(("after", "after_any", "after_fail"), ())
        jobs[i] = msgspec.structs.replace(jobs[i], **same, **free)
    return msgspec.structs.replace(scenario, jobs=tuple(jobs))


@st.composite
def licensed(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """The same with licences of the whole cluster, of which there are few."""
    seats = draw(st.integers(1, 4))
    asked = st.sampled_from((0, 0, 1, 1, 2, seats, seats + 1))
    jobs = tuple(msgspec.structs.replace(job, seats=draw(asked)) for job in scenario.jobs)
    return msgspec.structs.replace(scenario, jobs=jobs, seats=seats)
