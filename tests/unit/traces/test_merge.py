"""Several workloads as one."""

import polars as pl
import pytest

from rota.core.errors import OptionError
from rota.core.topology import NodeSpec
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.schema import CAPACITY, NODE_DOWN, events_frame
from rota.traces.tools.merge import TWICE, NamedTrace, merge


def trace(ids, times, name="a", **options):
    frame = pl.DataFrame(
        {"job_id": ids, "submit_s": times, "num_gpus": [1.0] * len(ids),
         "duration_s": [60.0] * len(ids), "vc": [name] * len(ids)},
    )  # fmt: skip
    return Imported(frame, name=name, **options)


def test_jobs_come_in_the_order_of_their_submission_and_keep_their_tenants():
    first, second = trace(["1", "2"], [0.0, 100.0]), trace(["x", "y"], [0.0, 50.0], "new")
    merged = merge([NamedTrace("log", first), NamedTrace("new", second)])
    jobs = merged.imported.jobs
    assert jobs.select("job_id", "submit_s", "vc").rows() == [
        ("1", 0.0, "a"), ("x", 0.0, "new"), ("y", 50.0, "new"), ("2", 100.0, "a"),
    ]  # fmt: skip
    assert merged.positions == [[0, 3], [1, 2]]
    assert merged.imported.quality.kept == 4
    assert [spec.id for spec in merged.imported.workload.specs] == ["1", "x", "y", "2"]


def test_ids_that_are_taken_get_the_name_of_their_trace_and_so_do_dependencies():
    second = trace(["1", "2"], [0.0, 1.0])
    chained = Imported(second.jobs.with_columns(depends_on=pl.Series([[], ["1"]])), name="b")
    parts = [NamedTrace("a", trace(["1"], [0.0])), NamedTrace("b", chained)]
    merged = merge([*parts, NamedTrace("b", trace(["1"], [9.0]))]).imported
    assert merged.jobs["job_id"].to_list() == ["1", "b-1", "b-2", "b2-1"]
    assert merged.jobs["depends_on"].to_list() == [[], [], ["b-1"], []]
    assert any(note.startswith("ids of b begin with b-") for note in merged.notes)


def test_offsets_move_everything_that_is_a_time():
    seen = Observed.of([Seen(0, 10.0, 70.0, ("n1",), (1.0,))])
    events = events_frame([(5.0, NODE_DOWN, "n1", 0.0, "")])
    late = trace(["x"], [0.0], observed=seen, events=events)
    late = Imported(late.jobs.with_columns(deadline_s=pl.lit(90.0)), observed=seen, events=events)
    parts = [NamedTrace("a", trace(["1"], [30.0])), NamedTrace("b", late, 1000.0)]
    merged = merge(parts).imported
    assert merged.jobs.select("submit_s", "deadline_s").rows() == [(30.0, None), (1000.0, 1090.0)]
    assert merged.observed.frame.select("job", "start_s", "end_s").rows() == [(1, 1010.0, 1070.0)]
    assert merged.events["time_s"].to_list() == [1005.0]


def test_an_earlier_start_moves_the_others():
    parts = [
        NamedTrace("a", trace(["1"], [0.0], origin="2026-03-02 08:00:00")),
        NamedTrace("b", trace(["2"], [0.0]), -3600.0),
    ]
    merged = merge(parts).imported
    assert merged.jobs.select("job_id", "submit_s").rows() == [("2", 0.0), ("1", 3600.0)]
    assert merged.origin == "2026-03-02 07:00:00"


def test_dates_align_traces():
    def dated(origin):
        return NamedTrace("t", trace(["1"], [0.0], origin=origin))

    week, later = dated("2026-03-02 00:00:00"), dated("2026-03-09 00:00:00")
    assert merge([week, later], by_clock=True).imported.jobs["submit_s"].to_list() == [0, 604_800]
    swapped = merge([later, week], by_clock=True).imported
    assert swapped.jobs["submit_s"].to_list() == [0, 604_800]
    assert swapped.origin == "2026-03-02 00:00:00"
    with pytest.raises(OptionError, match="does not tell the date"):
        merge([week, dated("")], by_clock=True)
    with pytest.raises(OptionError, match="dates and seconds"):
        merge([week, dated("50 s")], by_clock=True)
    with pytest.raises(OptionError, match="tells the zone"):
        merge([week, dated("2026-03-02 00:00:00+00:00")], by_clock=True)


def test_machines_are_those_of_all_traces():
    def with_nodes(job, *nodes):
        return NamedTrace(job, trace([job], [0.0], cluster=nodes))

    small, large = NodeSpec("n1", 4), NodeSpec("n1", 8)
    other = NodeSpec("n2", 4)
    merged = merge([with_nodes("1", small), with_nodes("2", small, other)]).imported
    assert merged.cluster == (small, other)
    with pytest.raises(OptionError, match="another trace has another node 'n1'"):
        merge([with_nodes("1", small), with_nodes("2", large)])


def test_two_capacities_of_the_whole_are_none():
    def sized(job):
        events = events_frame([(0.0, CAPACITY, "", 8.0, ""), (1.0, CAPACITY, job, 4.0, "")])
        return NamedTrace(job, trace([job], [0.0], events=events))

    merged = merge([sized("1"), sized("2")]).imported
    assert merged.events["subject"].to_list() == ["1", "2"]
    assert any("capacities of whole clusters were left out" in note for note in merged.notes)


def test_exports_that_overlap_have_a_job_once_if_their_clock_is_one():
    def part(ids, submits, end_s, origin, name):
        seen = [Seen(n, at, end_s if n == len(ids) - 1 else at + 5) for n, at in enumerate(submits)]
        return NamedTrace(name, trace(ids, submits, observed=Observed.of(seen), origin=origin))

    first = part(["1", "2"], [0.0, 50.0], None, "2026-03-02 00:00:00", "a")
    second = part(["2", "3"], [0.0, 40.0], 60.0, "2026-03-02 00:00:50", "b")
    both = merge([first, second], by_clock=True).imported
    assert both.jobs.select("job_id", "submit_s").rows() == [("1", 0), ("2", 50), ("3", 90)]
    assert both.observed.frame["end_s"].to_list() == [5, 55, 110]  # of job 2 the end is known now
    assert both.quality.dropped == {TWICE: 1}
    assert both.quality.kept == 3
    apart = merge([first, second]).imported.jobs["job_id"].to_list()
    assert sorted(apart) == ["1", "2", "b-2", "b-3"]
