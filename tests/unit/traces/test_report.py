"""The quality report: contradictions and flags are found."""

from rota.cli.trace import show
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec
from rota.core.workload import Workload
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.tools.report import report


def made(times, *, origin="", seen=(), cluster=()):
    specs = [JobSpec(str(n), at, Request.of(4)) for n, at in enumerate(times)]
    workload = Workload(specs, [Behaviour(3600.0)] * len(specs))
    return Imported(workload, observed=Observed.of(seen), cluster=cluster, origin=origin)


def test_contradictions_are_counted():
    seen = [
        Seen(0, 5.0, 9.0, ("n1",), (4.0,)),
        Seen(1, 12.0, 11.0, ("n1", "n2"), (9.0, 1.0)),
        Seen(1, 30.0, None, ("n9",), (1.0,), "running"),
    ]
    nodes = [NodeSpec("n1", 8), NodeSpec("n2", 8)]
    found = report(made([10.0, 11.0], seen=seen, cluster=nodes))
    assert found.contradictions == {
        "started before it was submitted": 1,
        "ended before it started": 1,
        "a run time that is not the time from start to end": 1,
        "a job on more GPUs than its node has": 1,
        "a job on a node that is not listed": 1,
    }
    assert found.observed["attempts"] == 3
    assert found.observed["censored"] == 1
    assert found.cluster["gpus"] == 16


def test_a_late_crowd_is_flagged_on_the_clock_of_the_trace():
    found = report(made([0.0, *(1000.0 + n for n in range(200))], origin="50 s"))
    (note,) = found.notes
    assert note.startswith("99% of the jobs arrive after 1,00")
    assert "after=105" in note
    assert report(made([float(n) for n in range(200)])).notes == []


def test_hours_follow_the_clock_of_the_trace():
    found = report(made([0.0, 3600.0], origin="2020-01-01 23:30:00"))
    assert [n for n, count in enumerate(found.submissions_by_hour) if count] == [0, 23]
    assert found.gpu_hours_by_hour[23] == 4.0


def test_jobs_that_never_end_do_not_spoil_the_numbers():
    specs = [JobSpec("a", 0.0, Request.of(1)), JobSpec("b", 5.0, Request.of(1))]
    found = report(Imported(Workload(specs, [Behaviour(float("inf")), Behaviour(10.0)])))
    assert found.jobs["endless"] == 1
    assert found.jobs["median_duration_s"] == 10.0
    assert found.durations == {"10-60 s": 1, "above 7 d": 1}


def test_a_run_time_may_differ_from_start_and_end_by_a_second():
    seen = [Seen(0, 0.0, 3601.0), Seen(1, 0.0, 3603.0)]
    found = report(made([0.0, 0.0], seen=seen))
    assert found.contradictions == {"a run time that is not the time from start to end": 1}


def test_enormous_numbers_are_shown(capsys):
    found = report(made([0.0, 4e280]))
    found.gpu_hours_by_hour[3] = found.jobs["gpu_hours"] = float("inf")
    show(found)
    text = capsys.readouterr().out
    assert "submitted over 4e+280 s" in text
    assert "? GPU-hours in all" in text
