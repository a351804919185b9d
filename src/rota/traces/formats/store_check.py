"""What must hold of the tables of a stored trace before anybody uses them."""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from math import inf, isfinite
from typing import TYPE_CHECKING

import msgspec

from rota.core.sensitivity import Sensitivity
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.observed import STATES
from rota.traces.schema import JOBS

if TYPE_CHECKING:
    import polars as pl

_AMOUNTS = ("num_gpus", "cpus", "mem_gib", "min_gpus", "max_gpus")
_MOST_GPUS = 1e9


def job_problem(jobs: "pl.DataFrame", quality: Quality) -> str:
    """What is wrong with the jobs; empty: nothing."""
    if not jobs.height:
        return "holds no jobs"
    if quality.kept != jobs.height:
        return f"has {jobs.height:,} jobs, but trace.json says that {quality.kept:,} were kept"
    if quality.rows != quality.kept + sum(quality.dropped.values()):
        return "has rows that trace.json counts neither as kept nor as dropped"
    return _first_of(jobs, _wrong_cells()) or _wrong_json(jobs) or _wrong_dependency(jobs)


def _wrong_cells() -> "list[tuple[str, pl.Expr]]":
    import polars as pl

    ident, submit, duration = pl.col("job_id"), pl.col("submit_s"), pl.col("duration_s")
    asked = [pl.col(name) for name in _AMOUNTS]
    later = [pl.col(name) for name in ("deadline_s", "estimate_s", "fails_at_s")]
    must = [name for name, (_, default) in JOBS.items() if default is not None]
    role = pl.element().struct
    wrong_role = (role["count"] < 1) | pl.any_horizontal(
        ~role[name].is_between(0, _MOST_GPUS) for name in ("gpus", "cpus", "mem_gib")
    )
    roles = pl.col("roles").list.eval(wrong_role.fill_null(value=True)).list.any()
    roles = roles.fill_null(value=False)
    return [
        ("has a job without a job_id", ident.is_null() | (ident == "")),
        ("has a job_id twice", ident.is_duplicated()),
        ("has an empty cell where none may be", pl.any_horizontal(pl.col(must).is_null())),
        ("has a submit_s that is not a number, at least 0", ~submit.is_between(0, 1e300)),
        ("has a duration_s that is not above 0", duration.is_nan() | (duration <= 0)),
        (
            "has an amount that is not a number, at least 0",
            pl.any_horizontal(~amount.is_between(0, 1e300) for amount in asked),
        ),
        (
            "has a job that asks for nothing",
            pl.all_horizontal(amount == 0 for amount in asked[:3]) & pl.col("roles").is_null(),
        ),
        (
            "has a time that is not a number",
            pl.any_horizontal(time.is_nan().fill_null(value=False) for time in later),
        ),
        ("has a role that asks for less than nothing", roles),
    ]


def _wrong_json(jobs: "pl.DataFrame") -> str:
    """Texts that are not the JSON that they should be."""
    shapes = {
        "speeds": dict[str, float],
        "scaling": list[tuple[float, float]],
        "sensitivity": Sensitivity,
    }
    for name, shape in shapes.items():
        for text in jobs[name].drop_nulls().unique():
            try:
                value: object = msgspec.json.decode(text, type=shape)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                return f"has {name} that cannot be used ({str(error)[:80]})"
            numbers: Iterable[float] = ()
            if isinstance(value, dict):
                numbers = value.values()
            elif isinstance(value, list):
                numbers = (number for pair in value for number in pair)
            if not all(0 <= number < inf for number in numbers):
                return f"has {name} that are below 0 ({text[:40]})"
    return ""


def _wrong_dependency(jobs: "pl.DataFrame") -> str:
    some = jobs.filter(jobs["depends_on"].list.len() > 0).select("job_id", "depends_on")
    if not some.height:
        return ""
    known = set(jobs["job_id"])
    waits: dict[str, list[str]] = dict(some.iter_rows())
    for name, others in waits.items():
        for other in others:
            if other not in known:
                return f"has job {name!r}, which waits for {other!r}, and that is no job"
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return "has jobs that wait for each other"
    return ""


def observed_problem(frame: "pl.DataFrame", jobs: int) -> str:
    """What is wrong with the observed schedule of so many jobs; empty: nothing."""
    import polars as pl

    start, end = pl.col("start_s"), pl.col("end_s")
    open_end = end.is_null()
    held, nodes = pl.col("gpus").list.len(), pl.col("nodes").list.len()
    told = pl.col("gpus").list.eval(~pl.element().is_between(0, 1e300).fill_null(value=False))
    checks = [
        ("has an attempt of no job", ~pl.col("job").is_between(0, jobs - 1)),
        ("has a start_s that is not a number", ~start.is_finite()),
        ("has an end_s that is not a number", ~end.is_finite() & ~open_end),
        ("has a state that is not known", ~pl.col("state").is_in(STATES)),
        ("has not as many GPUs as nodes", (held > 0) & (held != nodes)),
        ("has a number of GPUs below 0", told.list.any()),
    ]
    return _first_of(frame, checks)


def event_problem(events: "pl.DataFrame") -> str:
    """What is wrong with the cluster events; empty: nothing."""
    import polars as pl

    checks = [
        ("has an empty cell", pl.any_horizontal(pl.all().is_null())),
        ("has a number that is not finite", ~pl.col("time_s").is_finite()),
        ("has a value that is not finite", ~pl.col("value").is_finite()),
    ]
    return _first_of(events, checks)


def node_problem(nodes: Iterable[NodeSpec]) -> str:
    """What is wrong with the machines; empty: nothing."""
    seen: set[str] = set()
    for node in nodes:
        amounts = (node.gpus, node.cpus, node.mem_gib)
        if not node.name or node.name in seen:
            return f"a node is called {node.name!r}, which is empty or there twice"
        if not all(isfinite(amount) and 0 <= amount <= _MOST_GPUS for amount in amounts):
            return f"node {node.name!r} has an amount below 0, or far too much"
        seen.add(node.name)
    return ""


def _first_of(frame: "pl.DataFrame", checks: "list[tuple[str, pl.Expr]]") -> str:
    """The first check that a row fails; a row of which it cannot be said fails it, too."""
    for what, wrong in checks:  # one after the other: less memory
        if frame.select(wrong.fill_null(value=True).any()).item():
            return what
    return ""
