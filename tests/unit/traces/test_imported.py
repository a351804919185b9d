"""Jobs as frames and as objects, the observed schedule, and the folder on disk."""

import polars as pl
import pytest

from rota.core.errors import OutputError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.sensitivity import Sensitivity
from rota.core.topology import NodeSpec
from rota.core.workload import Workload
from rota.traces.formats.store import restore, save
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.read import read_trace
from rota.traces.schema import ADDED, JOBS, VERSION, events_frame, from_workload
from rota.traces.synth.generate import KINDS, generate

ROLES = Request((TaskGroup("ps", 1, 0, 4.0), TaskGroup("worker", 2, 4, 8.0, 1.5)), ("a", "b"))
SPECS = [
    JobSpec("x", 0.0, ROLES, "t", "u", "n", "g", "m", 3, 100.0, 50.0),
    JobSpec("y", 1.0, Request.of(0.5), depends_on=("x",)),
    JobSpec("z", 2.0, Request((TaskGroup("worker", 1, 8),), apart=True, gang=False)),
]
BEHAVIOURS = [
    Behaviour(5.0, {"v100": 1.0, "k80": 0.25}),
    Behaviour(6.0, None, ((1.0, 1.0), (2.0, 1.8)), 3.0),
    Behaviour(float("inf"), sensitivity=Sensitivity((1.0, 2.0), (9.5,), ((1.0,), (1.5,)), 0.25)),
]
SEEN = [
    Seen(2, 4.0, 9.0, ("n1", "n2"), (4.0, 4.0), "failed"),
    Seen(2, 12.0, None, ("n1",), (8.0,), "running"),
    Seen(0, 1.0, 6.0, state="done"),
]


@pytest.fixture
def imported():
    return Imported(
        Workload(SPECS, BEHAVIOURS, name="w"),
        observed=Observed.of(SEEN),
        events=events_frame([(9.0, "node_down", "n1", 0.0, ""), (0.0, "capacity", "t", 8.0, "")]),
        cluster=[NodeSpec("n1", 8, "v100", 64.0, 512.0)],
        origin="2020-01-01 00:00:00",
        notes=["a note"],
    )


def same(left, right):
    return (
        list(left.workload.specs) == list(right.workload.specs)
        and list(left.workload.behaviours) == list(right.workload.behaviours)
        and left.jobs.equals(right.jobs)
        and left.observed.frame.equals(right.observed.frame)
        and left.events.equals(right.events)
        and left.cluster == right.cluster
        and left.quality == right.quality
        and (left.name, left.origin, left.notes) == (right.name, right.origin, right.notes)
    )


def test_objects_and_frames_are_the_same(imported):
    again = Imported(imported.jobs, quality=imported.quality)
    assert again.workload.specs == SPECS
    assert again.workload.behaviours == BEHAVIOURS
    assert list(imported.jobs.columns) == list(JOBS)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_workloads_survive(kind):
    workload = generate(kind, jobs=40, gpus=32, load=0.8, seed=1, options={})
    again = Imported(from_workload(workload)).workload
    assert again.specs == list(workload.specs)
    assert again.behaviours == list(workload.behaviours)


def test_attempts_are_numbered_and_summed_up(imported):
    rows = imported.observed.rows()
    assert [(row.job, row.attempt, row.start_s) for row in rows] == [
        (0, 0, 1.0),
        (2, 0, 4.0),
        (2, 1, 12.0),
    ]
    one, two = imported.observed.per_job().iter_rows(named=True)
    assert (one["attempts"], one["start_s"], one["end_s"], one["run_s"]) == (1, 1.0, 6.0, 5.0)
    assert (two["attempts"], two["end_s"], two["run_s"]) == (2, None, 5.0)
    assert (two["nodes"], two["gpus"], two["state"]) == (["n1"], [8.0], "running")


def test_a_frame_may_lack_what_is_not_known():
    observed = Observed(pl.DataFrame({"job": [1, 0], "start_s": [5, 2]}))
    assert observed.rows() == [Seen(0, 2.0), Seen(1, 5.0)]
    assert len(Observed()) == 0


def test_the_first_jobs_only(imported):
    first = imported.first(2)
    assert [spec.id for spec in first.workload.specs] == ["x", "y"]
    assert [row.job for row in first.observed.rows()] == [0]
    assert first.quality.dropped == {"beyond the limit": 1}
    assert imported.first(3) is imported
    chosen = imported.observed.only([2])
    assert [(row.job, row.attempt) for row in chosen.rows()] == [(0, 0), (0, 1)]


def test_nobody_waits_for_a_job_that_was_cut_off():
    specs = [JobSpec("a", 0.0, Request.of(1), depends_on=("b",)), JobSpec("b", 0.0, Request.of(1))]
    first = Imported(Workload(specs, [Behaviour(1.0)] * 2)).first(1)
    assert first.workload.specs[0].depends_on == ()
    assert first.quality.repaired == {"dependency on a job beyond the limit removed": 1}


def test_what_is_saved_is_restored(imported, tmp_path):
    folder = save(imported, tmp_path / "trace", source="x.csv helios")
    assert same(restore(folder), imported)
    assert sorted(file.name for file in folder.iterdir()) == [
        "events.parquet", "jobs.parquet", "observed.parquet", "trace.json",
    ]  # fmt: skip
    with pytest.raises(OutputError, match="is there already"):
        save(imported, folder)
    save(imported, folder, force=True)
    assert same(restore(folder), imported)
    assert [file.name for file in tmp_path.iterdir()] == ["trace"]


def test_traces_of_the_first_version_are_read(imported, tmp_path):
    folder = save(imported, tmp_path / "trace")
    jobs = pl.read_parquet(folder / "jobs.parquet")
    jobs.drop(ADDED).write_parquet(folder / "jobs.parquet")
    with pytest.raises(TraceError, match=r"jobs\.parquet: cannot be read"):
        restore(folder)
    about = folder / "trace.json"
    about.write_text(about.read_text().replace(f'"rota_trace": {VERSION}', '"rota_trace": 1'))
    old = restore(folder)
    assert old.workload.specs == SPECS
    assert old.workload.behaviours[:2] == BEHAVIOURS[:2]
    assert old.workload.behaviours[2].sensitivity is None


def test_a_folder_with_other_things_is_never_replaced(imported, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(OutputError, match="holds no trace"):
        save(imported, tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "letter").read_text() == "dear"


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("trace.json", b"{}", "is not the description of a trace"),
        ("trace.json", b'{"rota_trace": 99}', "has schema version 99"),
        ("jobs.parquet", b"PAR1", "cannot be read as a table of a trace"),
    ],
)
def test_a_damaged_folder(imported, tmp_path, file, content, problem):
    folder = save(imported, tmp_path / "trace")
    (folder / file).write_bytes(content)
    with pytest.raises(TraceError, match=problem):
        restore(folder)


def test_formats_that_know_only_jobs(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\nb,5,2,20\n")
    imported = read_trace(path, "csv", limit=1)
    assert [spec.id for spec in imported.workload.specs] == ["a"]
    assert len(imported.observed) == imported.events.height == 0
