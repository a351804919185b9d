"""The Standard Workload Format: read, written, and read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import OutputError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec
from rota.core.workload import Workload
from rota.traces.formats.swf import FORMAT, write_swf
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.sniff import first_look
from trace_readers import counted

LOG = """; Version: 2.2
; Computer: a machine

1 0 10 100 4 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1
2 5 -1 -1 -1 -1 -1 2 50 -1 5 3 1 -1 2 -1 -1 -1
  3 7 2 30.5 1 -1 -1 -1 -1 1048576 0 4 1 7 1 -1 1 10
4 8 0 1 -1 -1 -1 -1 -1 -1 1 4 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path):
    """Return `log(text)`: the path of a log."""

    def write(text=LOG):
        path = tmp_path / "log.swf"
        path.write_text(text)
        return path

    return write


def test_what_a_line_means(log):
    imported = FORMAT.load(log(), {})
    first, third = imported.workload.specs
    assert first == JobSpec("1", 0.0, Request.of(8), "2", "3", estimate_s=200.0)
    assert third.request == Request.of(1, mem_gib=1.0)
    assert (third.name, third.depends_on) == ("7", ("1",))
    assert [behaviour.work for behaviour in imported.workload.behaviours] == [100.0, 30.5]
    assert imported.observed.rows() == [
        Seen(0, 10.0, 110.0, state="done"),
        Seen(1, 9.0, 39.5, state="failed"),
    ]
    assert imported.quality.dropped == {
        "never started, or without a run time": 1,
        "asks for nothing": 1,
    }
    assert counted(imported.quality)


def test_processors_can_be_cpus(log):
    imported = FORMAT.load(log(), {"unit": "cpu"})
    assert imported.workload.specs[0].request == Request.of(0, cpus=8.0)


def test_recognised_by_its_eighteen_numbers(log):
    assert FORMAT.recognises(first_look(log())) == 1.0
    assert FORMAT.recognises(first_look(log("1 2 3\n"))) == 0.0


def test_a_job_cannot_wait_for_a_later_one(log):
    line = "{} {} 1 9 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 {} -1\n"
    text = line.format(1, 0, 2) + line.format(2, 0, 1) + line.format(3, 4, 3)
    specs = FORMAT.load(log(text), {}).workload.specs
    assert [spec.depends_on for spec in specs] == [(), ("1",), ()]


@pytest.mark.parametrize("line", ["1 2 3", "x" + " 1" * 17, "1" + " nan" * 17])
def test_a_wrong_line_is_named(log, line):
    text = LOG + line + "\n"
    with pytest.raises(TraceError, match=r"line 8: .* is not 18 numbers"):
        FORMAT.load(log(text), {})
    dropped = FORMAT.load(log(text), {"bad": "drop"})
    assert dropped.quality.dropped["not 18 numbers"] == 1
    assert counted(dropped.quality)


def test_written_and_read_again(log, tmp_path):
    imported = FORMAT.load(log(), {})
    assert write_swf(imported, tmp_path / "again.swf") == []
    again = FORMAT.load(tmp_path / "again.swf", {})
    assert again.jobs.equals(imported.jobs)
    assert again.observed.frame.equals(imported.observed.frame)
    with pytest.raises(OutputError, match="is there already"):
        write_swf(imported, tmp_path / "again.swf")


NAMES = st.one_of(st.sampled_from(["", "7", "alice", "a b", '"', "é", "007"]), st.text(max_size=4))
TIMES = st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6))


@given(
    rows=st.lists(
        st.tuples(NAMES, NAMES, NAMES, TIMES, st.integers(1, 64), st.floats(1, 1e6), TIMES),
        min_size=1,
        max_size=6,
    ),
    ids=st.sampled_from([str, "job-{}".format]),
)
def test_any_jobs_survive_the_round_trip(tmp_path_factory, rows, ids):
    rows = sorted(rows, key=lambda row: row[3])
    origin = rows[0][3]
    specs = [
        JobSpec(ids(n), at - origin, Request.of(gpus), vc, user, name)
        for n, (vc, user, name, at, gpus, _, _) in enumerate(rows)
    ]
    behaviours = [Behaviour(work) for *_, work, _ in rows]
    seen = [Seen(n, specs[n].submit_s + row[6], specs[n].submit_s + row[6] + row[5], state="done")
            for n, row in enumerate(rows)]  # fmt: skip
    imported = Imported(Workload(specs, behaviours), observed=Observed.of(seen))
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    write_swf(imported, path)
    again = FORMAT.load(path, {})
    assert again.workload.specs == specs
    assert again.workload.behaviours == behaviours
    starts = [row.start_s for row in again.observed.rows()]
    assert starts == pytest.approx([row.start_s for row in seen])


def test_what_has_no_room_is_told(tmp_path):
    spec = JobSpec("a", 0.0, Request.of(2, gpu_types=("v",), cpus=4.0), priority=1, model="m")
    lost = write_swf(Imported(Workload([spec], [Behaviour(5.0)])), tmp_path / "x.swf")
    assert lost == ["model", "gpu_type", "priority", "cpus beside GPUs"]


def test_jobs_without_gpus_are_not_turned_into_jobs_with_gpus(tmp_path):
    specs = [
        JobSpec("c", 0.0, Request.of(0, cpus=16.0)),
        JobSpec("g", 1.0, Request.of(2), depends_on=("c",)),
        JobSpec("1", 2.0, Request.of(1), depends_on=("g",)),
    ]
    behaviours = [Behaviour(5.0)] * 3
    mixed = Imported(Workload(specs, behaviours))
    lost = write_swf(mixed, tmp_path / "mixed.swf")
    assert lost == ["jobs that ask for no GPUs (1 are left out)"]
    again = FORMAT.load(tmp_path / "mixed.swf", {}).workload.specs
    assert [(spec.id, spec.request, spec.depends_on) for spec in again] == [
        ("g", Request.of(2), ()),
        ("1", Request.of(1), ("g",)),
    ]
    only = Imported(Workload(specs[:1], behaviours[:1]))
    assert write_swf(only, tmp_path / "cpus.swf") == []
    assert FORMAT.load(tmp_path / "cpus.swf", {}).workload.specs == specs[:1]
    nothing = Imported(Workload([JobSpec("m", 0.0, Request.of(0, mem_gib=1.0))], behaviours[:1]))
    with pytest.raises(OutputError, match="no job asks for GPUs or CPUs"):
        write_swf(nothing, tmp_path / "memory.swf")


def test_large_ids_stay_apart(log, tmp_path):
    ids = [str(2**53), str(2**53 + 1), str(2**70), "12345678901234567890"]
    specs = [JobSpec(name, 0.0, Request.of(1), user=name) for name in ids]
    write_swf(Imported(Workload(specs, [Behaviour(5.0)] * 4)), tmp_path / "ids.swf")
    assert FORMAT.load(tmp_path / "ids.swf", {}).workload.specs == specs
    line = "{0} 0 1 9 1 -1 -1 1 -1 -1 {0} {0} {0} {0} {0} {0} {0} -1\n"
    read = FORMAT.load(log("".join(map(line.format, ids))), {}).workload.specs
    assert [(spec.id, spec.user, spec.tenant, spec.name) for spec in read] == [
        (name,) * 4 for name in ids
    ]


def test_what_a_log_tells_survives_or_is_told(log, tmp_path):
    text = (
        "; Computer: a machine\n; UnixStartTime: 870000000\n; MaxProcs: 64\n"
        "1 100 10 100 4 90 7 8 200 -1 2 3 1 -1 2 5 -1 -1\n"
        "2 105 10 100 4 -1 -1 -1 200 -1 4 3 -1 -1 2 -1 1 10\n"
    )
    imported = FORMAT.load(log(text), {})
    assert imported.origin == "1997-07-27 10:41:40"
    assert [row.state for row in imported.observed.rows()] == ["preempted", "failed"]
    told = [note for note in imported.notes if note.startswith("not imported: ")]
    assert [note.removeprefix("not imported: ") for note in told] == [
        "groups of users (1 rows)",
        "partitions (1 rows)",
        "processors given, where others were asked for (1 rows)",
        "CPU time (1 rows)",
        "memory used (1 rows)",
        "think times (1 rows)",
        "that a row is one of several parts of a job (2 rows)",
    ]
    assert write_swf(imported, tmp_path / "again.swf") == []
    header = (tmp_path / "again.swf").read_text().splitlines()[3:6]
    assert header == ["; UnixStartTime: 870000100", "; Computer: a machine", "; MaxProcs: 64"]
    again = FORMAT.load(tmp_path / "again.swf", {})
    assert again.jobs.equals(imported.jobs)
    assert again.observed.frame.equals(imported.observed.frame)
    assert again.origin == imported.origin


def test_what_happened_and_has_no_room_is_told(tmp_path):
    seen = [
        Seen(0, 0.0, 1.0, ("n1",), (1.0,), "node-fail"),
        Seen(0, 2.0, 3.0, ("n1",), (1.0,), "timeout"),
    ]
    workload = Workload([JobSpec("a", 0.0, Request.of(1))], [Behaviour(2.0)])
    imported = Imported(workload, observed=Observed.of(seen), cluster=[NodeSpec("n1", 8)])
    assert write_swf(imported, tmp_path / "x.swf") == [
        "the machines",
        "the nodes of the observed schedule",
        "attempts of a job after its first start",
        "how attempts ended (node-fail, timeout)",
    ]
