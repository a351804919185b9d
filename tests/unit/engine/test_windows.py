"""Maintenance and reservations, worked out by hand: who starts where, and why not."""

import pytest

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import DONE
from rota.core.registry import POLICIES, load
from rota.core.spec import JobSpec, Request
from rota.core.topology import Topology
from rota.core.windows import NodeWindow, WindowText, choose_nodes
from rota.engine.calendar import Calendar
from rota.engine.parts import make_policy
from rota.engine.snapshot import freeze, migrate
from rota.metrics.story import Stories
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.testing.scenario import Item, Scenario, Span

DAY_S = 86_400.0


def ran(jobs, windows, policy="fifo-skip", nodes=(4, 4)):
    made = Scenario(tuple(jobs), nodes, "consolidate", windows=tuple(windows))
    return made.run(load(POLICIES, policy)())


def starts(engine):
    return [(job.first_start_s, job.end_s) for job in engine.jobs.values()]


def reasons(engine):
    log = engine.log.frame()
    told = log.filter((log["event"] == "reason") & (log["job"] >= 0))
    return list(zip(told["time_s"], told["job"], told["value"], strict=True))


def test_a_job_that_ends_in_time_starts_and_another_waits_for_the_end():
    """Ten seconds fit before the maintenance at 10 s to the second, eleven do not."""
    jobs = [Item(0, 4, 10, estimate_s=10), Item(0, 4, 11, estimate_s=11)]
    assert starts(ran(jobs, [Span(10, 15, (0,))], nodes=(4,))) == [(0, 10), (15, 26)]


def test_a_job_that_says_nothing_may_run_for_ever():
    jobs = [Item(0, 4, 1)]
    assert starts(ran(jobs, [Span(1000, 1010, (0,))], nodes=(4,))) == [(1010, 1011)]
    assert starts(ran(jobs, [Span(1000, 1010, (0,))])) == [(0, 1)]  # on the other node


def test_a_reservation_is_for_its_user():
    jobs = [Item(5, 4, 3, estimate_s=3, user=user) for user in ("bob", "ann", "bob")]
    engine = ran(jobs, [Span(6, 20, (0,), ("ann",))])
    places = [(*job.allocation.vertices,) for job in engine.jobs.values()]
    node0, node1 = (node.id for node in engine.cluster.topology.nodes)
    assert starts(engine) == [(5, 8), (5, 8), (8, 11)]
    assert places == [(node1,), (node0,), (node1,)]


def test_at_the_start_the_others_go_on_or_are_stopped():
    late = [Item(0, 4, 10, estimate_s=4)]  # it takes longer than it said
    assert starts(ran(late, [Span(5, 20, (0,))], nodes=(4,))) == [(0, 10)]
    engine = ran(late, [Span(5, 20, (0,), preempt=True)], nodes=(4,))
    assert starts(engine) == [(0, 25)]  # five seconds before, five after
    log = engine.log.frame()
    assert "maintenance w0 of n0 begins" in log.filter(log["event"] == "stop")["text"].to_list()


def test_why_it_waits():
    """From the moment on at which it is too late, everybody whom it concerns is told so."""
    jobs = [Item(0, 4, 3, estimate_s=3), *(Item(1, 4, 5, estimate_s=9) for _ in range(2))]
    engine = ran(jobs, [Span(10, 12, (0,))], nodes=(4,))
    found = reasons(engine)
    assert [entry for entry in found if entry[2] == 14][:2] == [
        (pytest.approx(1), 1, 14), (pytest.approx(1), 2, 14),
    ]  # fmt: skip
    assert starts(engine) == [(0, 3), (12, 17), (17, 22)]
    engine = ran(jobs, [Span(10, 12, (0,), ("ann",))], nodes=(4,))
    assert {value for _, _, value in reasons(engine)} >= {15}


@pytest.mark.parametrize(
    ("users", "told"),
    [
        ((), "because it would not have ended before the maintenance of nodes"),
        (("ann",), "because it would not have ended before nodes were reserved for others"),
    ],
)
def test_the_story_of_a_job_names_the_window(users, told):
    engine = ran([Item(1, 4, 5, estimate_s=9)], [Span(5, 12, (0,), users)], nodes=(4,))
    (waited,) = Stories(engine.log.frame()).tell(0).parts
    assert (waited.seconds, waited.text) == (11, told)


def test_one_that_may_not_run_yet_holds_back_nobody_in_a_strict_queue():
    jobs = [Item(0, 4, 9, estimate_s=9), Item(1, 4, 2, estimate_s=2)]
    assert starts(ran(jobs, [Span(5, 8, (0,))], policy="fifo", nodes=(4,))) == [(8, 17), (1, 3)]


def test_a_window_comes_and_goes_while_jobs_wait():
    scenario = Scenario((Item(0, 4, 5), Item(1, 4, 5)), (4,), "consolidate")
    engine = scenario.engine(load(POLICIES, "fifo-skip")())
    engine.advance()
    engine.advance()
    window = NodeWindow(name="pdu", kind="maintenance", nodes=("n0",), start_s=50.0, by="olga")
    engine.add_window(window)
    with pytest.raises(OptionError, match="there is a window 'pdu' already"):
        engine.add_window(window)
    engine.run(20.0)
    waiting = engine.jobs[1]
    assert (engine.jobs[0].phase, waiting.started) == (DONE, False)
    assert "begins in 45 s; it may run for ever" in engine.calendar.why(waiting)
    engine.remove_window("pdu", "olga")
    engine.run()
    assert waiting.end_s == 25.0  # removed at 20 s
    notes = engine.log.frame()
    assert notes.filter(notes["event"] == "note")["text"].to_list() == [
        "maintenance pdu of n0, in 49 s, until it is removed (olga)",
        "maintenance pdu of n0 is removed (olga)",
    ]


def test_without_windows_no_line_of_the_calendar_runs(monkeypatch):
    def refuse(self, *_):
        raise AssertionError("a calendar was made")

    monkeypatch.setattr(Calendar, "__init__", refuse)
    engine = ran([Item(0, 4, 5), Item(1, 8, 5)], [])
    assert engine.calendar is None
    assert freeze(engine)["calendar"] is None
    assert migrate({}, 7) == {"calendar": None}


def test_a_policy_that_names_gpus_is_refused(tmp_path):
    class Untrusted(load(POLICIES, "fifo-skip")):
        """Stands for one that chooses GPUs itself."""

    engine = Scenario((Item(0, 1, 1),), (4,), "consolidate").engine(Untrusted())
    engine.scheduler.trusted = False
    window = NodeWindow(name="a", kind="maintenance", nodes=("n0",), start_s=1.0)
    with pytest.raises(OptionError, match="chooses GPUs itself"):
        engine.add_window(window)
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,5\n")
    for options, message in (
        ({"like": "tiresias"}, "'tiresias' is a published simulator, which knows no times"),
        ({"maintenance": ("start=1h",)}, "no nodes are named"),
    ):
        given = {"maintenance": ("nodes=n0,start=1h",), **options}
        with pytest.raises(OptionError, match=message):
            simulate(RunConfig(trace=str(trace), cluster="1x4", policy="fifo", **given))


def test_a_pool_shrinks(tmp_path):
    """4 of 8 GPUs are out of use from 100 s on: `a` has to end before, `b` has not."""
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s,estimate_s\n"
        "a,0,6,80,90\nb,80,2,50,50\nc,90,4,50,50\nd,90,3,5,10\n"
    )
    found = simulate(
        RunConfig(
            trace=str(trace), cluster="2x4", policy="fifo-skip", placement="count",
            maintenance=("nodes=n0,start=100,for=100",), check=True,
        ),
    )  # fmt: skip
    assert found.jobs["wait_s"].to_list() == [0, 0, 40, 0]


def test_who_waits_for_ever_is_told_why(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,8,5\nb,1,4,5\n")
    given = RunConfig(
        trace=str(trace), cluster="2x4", policy="fifo-skip", maintenance=("nodes=n0,start=1h",)
    )
    (warning,) = simulate(given).warnings
    assert warning.startswith("1 job still waits for a maintenance or reservation that has no end")


def test_auto_keeps_to_them():
    jobs = [Item(i, 4, 5, estimate_s=5) for i in range(6)]
    scenario = Scenario(tuple(jobs), (4,), "consolidate", windows=(Span(12, 30, (0,)),))
    engine = scenario.run(make_policy("auto:candidates=fifo-skip+smallest,every_s=4"))
    assert [start for start, _ in starts(engine)] == [0, 5, 30, 35, 40, 45]


# --- as people write them -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("maintenance", "n0", "cannot read 'n0': give key=value with nodes, start"),
        ("maintenance", "nodes=n0,start=1h,user=ann", "cannot read 'user=ann'"),
        ("maintenance", "nodes=n0", "start is missing"),
        ("maintenance", "nodes=n9,start=1h", "there is no node 'n9': known are n0, n1"),
        ("maintenance", "nodes=n0,start=soon", "give seconds, or a number with s, m, h, d or w"),
        ("maintenance", "nodes=n0,start=2h,end=1h", "it would end 1h 00m before it starts"),
        ("maintenance", "nodes=n0,start=2h,for=0", "it would end when it starts: give an end"),
        ("maintenance", "nodes=n0,start=2h,end=3h,for=1h", "for and end exclude each other"),
        ("maintenance", "nodes=n0,start=1h,at-start=kill", "give wait or preempt"),
        ("reservation", "nodes=n0,start=1h", "is for nobody: give user= or queue="),
        ("reservation", "gpus=9,start=1h,user=a", "9 GPUs cannot be reserved: the nodes that are"),
        ("reservation", "gpus=x,start=1h,user=a", "gpus=x: give a whole number"),
        ("reservation", "gpus=4,nodes=n0,start=1h,user=a", "nodes and gpus exclude each other"),
        ("reservation", "gpus=4,start=1h,user=a,user=b", r"give it once, several as user=a\+b"),
        ("maintenance", "nodes=n0,start=1h,start=2h", "start is there twice: give it once$"),
    ],
)
def test_what_cannot_be_read_is_said(kind, text, message):
    with pytest.raises(OptionError, match=message):
        WindowText.read(kind, text).window(Topology.uniform(2, 4), 1, ())


def test_what_is_written_is_what_is_meant():
    nodes = Topology.uniform(4, 4)
    first = WindowText.read("maintenance", "nodes=n[0-1],start=1d,for=2h,note=PDU").window(
        nodes, 1, ()
    )
    assert (first.name, first.nodes, first.start_s, first.end_s, first.note) == (
        "maintenance-1", ("n0", "n1"), DAY_S, DAY_S + 7200, "PDU",
    )  # fmt: skip
    text = "gpus=5,start=1d,for=1h,user=ann+bob,queue=nlp,at-start=preempt"
    second = WindowText.read("reservation", text).window(nodes, 2, [first])
    assert (second.nodes, second.at_start) == (("n2", "n3"), "preempt")

    def admitted(**spec):
        return second.admits(JobSpec("a", 0.0, Request.of(1), **spec))

    assert admitted(user="bob")
    assert admitted(tenant="nlp/speech")
    assert not admitted(user="eve", tenant="nlp2")
    assert choose_nodes(nodes, 8, {"n3"}, {"n2": 4.0}) == ("n0", "n1")


def test_limits_count_before_estimates_and_what_has_run_counts():
    window = NodeWindow(name="a", kind="maintenance", nodes=("n0",), start_s=100.0)
    spec = JobSpec("a", 0.0, Request.of(1), estimate_s=10.0, limit_s=40.0)
    assert window.last_start_s(spec, 0.0) == 60.0
    assert window.last_start_s(spec, 15.0) == 75.0
    assert window.last_start_s(JobSpec("a", 0.0, Request.of(1)), 0.0) == -INF
