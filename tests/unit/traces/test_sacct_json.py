"""Slurm's accounting as JSON, in the layouts of older and newer versions; all records made up."""

import json

import pytest

from rota.core.errors import TraceError
from rota.traces.formats.slurm.sacct import FORMAT
from rota.traces.sniff import first_look
from trace_readers import counted

BEGIN = 1_772_438_400


def wrapped(number):
    """Return a number as newer versions write it."""
    if number is None:
        return {"set": False, "infinite": False, "number": 0}
    return {
        "set": True,
        "infinite": number == "forever",
        "number": 0 if number == "forever" else number,
    }


def record(job=1, *, new=False, state="COMPLETED", limit=60, gpus=2, **more):
    number = wrapped if new else (lambda value: None if value == "forever" else value)
    tres = [
        {"type": "cpu", "name": "" if new else None, "id": 1, "count": 4},
        {"type": "mem", "name": "" if new else None, "id": 2, "count": 8192},
        {"type": "gres", "name": "gpu", "id": 1001, "count": gpus},
    ]
    entry = {
        "job_id": job,
        "account": "vision",
        "user": "ann",
        "partition": "gpu",
        "name": "train",
        "nodes": "n[1-2]",
        "array": {"job_id": 0, "task_id": number(None), "task": ""},
        "het": {"job_id": 0, "job_offset": number(None)},
        "state": {"current": [state] if new else state, "reason": "None"},
        "time": {
            "submission": BEGIN, "eligible": BEGIN, "start": BEGIN + 10, "end": BEGIN + 100,
            "elapsed": 90, "limit": number(limit),
        },
        "tres": {"allocated": tres, "requested": tres},
        "steps": [{"state": "COMPLETED"}],
    }  # fmt: skip
    for key, value in more.items():
        entry[key] = {**entry.get(key, {}), **value} if isinstance(value, dict) else value
    return entry


@pytest.fixture
def read(tmp_path):
    """Return `read(*records, **options)`: what is imported."""

    def run(*records, **options):
        path = tmp_path / "jobs.json"
        path.write_text(json.dumps({"meta": {}, "jobs": list(records)}))
        imported = FORMAT.load(path, options)
        assert counted(imported.quality)
        return imported

    return run


@pytest.mark.parametrize("new", [False, True])
def test_both_layouts_say_the_same(read, new):
    priority = wrapped(77) if new else 77
    imported = read(record(new=new, qos="high", priority=priority))
    assert imported.jobs.select("partition", "qos", "priority").rows() == [("gpu", "high", 77)]
    columns = ("job_id", "num_gpus", "duration_s", "vc", "user", "cpus", "mem_gib", "estimate_s")
    assert imported.jobs.select(columns).rows() == [
        ("1", 2.0, 90.0, "vision", "ann", 4.0, 8.0, 3600.0)
    ]
    assert imported.observed.frame.select("start_s", "end_s", "nodes", "gpus", "state").rows() == [
        (10.0, 100.0, ["n1", "n2"], [], "done")
    ]


@pytest.mark.parametrize("new", [False, True])
def test_tasks_of_arrays_and_components_have_their_names(read, new):
    number = wrapped if new else (lambda value: value)
    imported = read(
        record(31, new=new, array={"job_id": 30, "task_id": number(4)}),
        record(41, new=new, het={"job_id": 41, "job_offset": number(0)}),
        record(42, new=new, het={"job_id": 41, "job_offset": number(1)}),
    )
    assert imported.jobs.select("job_id", "num_gpus").rows() == [("30_4", 2.0), ("41", 4.0)]


@pytest.mark.parametrize(
    ("limit", "new"), [("forever", True), (None, True), (None, False), (4_294_967_295, False)]
)
def test_no_limit_is_no_estimate(read, limit, new):
    assert read(record(limit=limit, new=new)).jobs["estimate_s"].to_list() == [None]


@pytest.mark.parametrize("new", [False, True])
def test_what_runs_and_what_waits(read, new):
    imported = read(
        record(1, new=new),
        record(2, new=new, state="RUNNING", time={"end": 0, "elapsed": 300}),
        record(3, new=new, state="PENDING", nodes="None assigned", time={"start": 0, "end": 0}),
    )
    assert imported.jobs["duration_s"].to_list() == [90.0, 300.0]
    assert imported.quality.dropped == {"pending at the end of the log": 1}
    assert imported.observed.frame["end_s"].to_list() == [100.0, None]


def test_seconds_since_1970_have_no_hour_twice(read):
    begin = 1_761_438_600  # 2025-10-26T02:30:00 in Berlin, the second time
    times = {"submission": begin, "eligible": begin, "start": begin, "end": begin + 10_800}
    imported = read(record(time={**times, "elapsed": 10_800}), tz="Europe/Berlin")
    assert imported.jobs["duration_s"].to_list() == [10_800.0]


@pytest.mark.parametrize(
    ("name", "options", "gpus", "told"),
    [
        ("gpu:a100_3g.20gb", {}, 3 / 7, "instances of MIG: counted as sevenths of a GPU"),
        ("shard", {"shards": "2"}, 0.5, "shards: counted as parts of a GPU"),
    ],
)
def test_parts_of_gpus_are_counted(read, name, options, gpus, told):
    tres = [{"type": "cpu", "name": "", "id": 1, "count": 4},
            {"type": "gres", "name": name, "id": 1002, "count": 1}]  # fmt: skip
    one = record(nodes="n1", tres={"allocated": tres, "requested": tres})
    imported = read(one, **options)
    assert imported.jobs["num_gpus"].to_list() == pytest.approx([gpus], abs=1e-6)
    assert imported.quality.repaired == {told: 1}


def test_attempts_are_one_job(read):
    again = {
        "submission": BEGIN + 20, "eligible": BEGIN + 20, "start": BEGIN + 30, "end": BEGIN + 40,
    }  # fmt: skip
    first = record(state="REQUEUED", time={"end": BEGIN + 20, "elapsed": 10})
    imported = read(first, record(time=again))
    assert imported.jobs.select("submit_s", "duration_s").rows() == [(0.0, 10.0)]
    assert imported.observed.frame["state"].to_list() == ["preempted", "done"]


def test_the_submit_line_tells_dependencies(read):
    second = record(2, submit_line="sbatch --dependency=afterok:1 x.sh")
    imported = read(record(1), second, since="submit")
    assert imported.jobs["depends_on"].to_list() == [[], ["1"]]


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"account": "x"}, "has no job_id"),
        ("text", "is not an object"),
        ({"job_id": 7, "time": {}}, "has no time of submission"),
        (record(nodes="n[1-"), "brackets"),
    ],
)
def test_records_that_cannot_be_read_are_refused_or_dropped(read, entry, match):
    with pytest.raises(TraceError, match=rf"jobs\[1\]: .*{match}"):
        read(record(9), entry)
    dropped = read(record(9), entry, bad="drop").quality.dropped
    assert dropped == {"record that cannot be read": 1}


def test_other_json_is_refused(tmp_path):
    path = tmp_path / "x.json"
    for text in ('{"jobs": []}', '{"nodes": []}', "{"):
        path.write_text(text)
        with pytest.raises(TraceError, match="jobs"):
            FORMAT.load(path, {})


def test_the_format_is_recognised(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"jobs": [record()]}))
    assert FORMAT.recognises(first_look(path)) == 1.0
    path.write_text('{"nb_res": 4, "jobs": [], "profiles": {}}')
    assert FORMAT.recognises(first_look(path)) < 0.5
