"""Readers of plain tables and of Philly's log: every row is counted, only our errors come out."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.traces.read import read_trace
from trace_readers import counted

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PROFILE = {"cpus": 6, "mem": 40, "iter_time": 0.5, "cpu_points": [3, 6], "mem_points": [40],
           "tput": [[1.0], [2.0]]}  # fmt: skip
CELLS = st.sampled_from([
    "", "None", "NaN", "inf", "-1", "0", "1", "2.5", "7", "1e999", "1_0", " 3", "a", "net", "é",
    "2017-10-09 07:01:55", "2017-11-05 01:30:00", "2017-02-30 00:00:00", "2017-10-09T07:01:55",
])  # fmt: skip
TABLES = {
    "csv": ["job_id", "submit_s", "num_gpus", "duration_s", "vc", "deadline_s", "gang"],
    "tiresias": ["job_id", "num_gpu", "submit_time", "duration", "model_name"],
    "philly": ["timestamp", "duration", "num_gpus", "gpu_time", "cluster"],
    "synergy": [],
}
LIKELY = {
    "job_id": "abc", "submit_s": "0123", "submit_time": "0123", "num_gpus": "1248",
    "num_gpu": "1248", "duration_s": "159", "duration": "159", "gpu_time": "12",
    "deadline_s": ["", "9"], "gang": [""],
    "timestamp": ["2017-10-09 07:01:55", "2017-11-05 01:30:00"],
}  # fmt: skip


def load(folder, name):
    """Load a trace: None when it was refused with one of our errors."""
    try:
        return read_trace(Path(folder) / "trace.csv", name)
    except InputError:
        return None


def rows_of(columns):
    cells = [st.one_of(st.sampled_from(LIKELY.get(name, ["", "a"])), CELLS) for name in columns]
    return st.lists(st.tuples(*cells), min_size=1, max_size=6)


@pytest.mark.parametrize("name", sorted(TABLES))
@QUICK
@given(data=st.data())
def test_any_rows_are_counted(name, data):
    columns = TABLES[name]
    rows = data.draw(rows_of(columns or ["job_id", "model", "submit_s", "num_gpus", "num_gpus"]))
    lines = [",".join(columns)] * bool(columns) + [",".join(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.csv").write_text("\n".join(lines) + "\n")
        (Path(folder) / "synergy_profiles.json").write_text(json.dumps({"net": PROFILE}))
        imported = load(folder, name)
    if imported is not None:
        assert counted(imported.quality)
        assert imported.quality.rows == len(rows)
        assert len(imported.workload) == imported.quality.kept


@QUICK
@given(data=st.binary(max_size=300), profiles=st.binary(max_size=60))
def test_any_bytes_and_any_profiles_of_synergy(data, profiles):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.csv").write_bytes(data)
        (Path(folder) / "synergy_profiles.json").write_bytes(profiles)
        imported = load(folder, "synergy")
    assert imported is None or counted(imported.quality)


TIMES = st.sampled_from([
    None, "None", "", "2017-10-09 07:00:00", "2017-10-09 07:05:00", "2017-11-05 01:30:00", "soon",
])  # fmt: skip
DETAILS = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries({
            "ip": st.sampled_from([None, "m1", "m2"]),
            "gpus": st.lists(st.sampled_from(["gpu0", "gpu7", "gpu99999", "x"]), max_size=3),
        }),
        max_size=2,
    ),
)  # fmt: skip
ENTRIES = st.fixed_dictionaries(
    {
        "jobid": st.sampled_from(["a", "b", "c", ""]),
        "status": st.sampled_from(["Pass", "Killed", "Failed", "odd"]),
        "vc": st.sampled_from([None, "v"]),
        "submitted_time": TIMES,
        "attempts": st.lists(
            st.fixed_dictionaries({"start_time": TIMES, "end_time": TIMES, "detail": DETAILS}),
            max_size=3,
        ),
    }
)


@QUICK
@given(
    entries=st.lists(ENTRIES, max_size=5),
    machines=st.text("m12,G \n", max_size=20),
    uses=st.one_of(st.none(), st.text("m1,2NA.\n", max_size=30)),
)
def test_any_log_of_philly_with_anything_beside_it(entries, machines, uses):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.csv").write_text(json.dumps(entries))
        (Path(folder) / "cluster_machine_list").write_text(machines, newline="")
        if uses is None:
            imported = load(folder, "philly")
        else:
            (Path(folder) / "uses").write_text(uses, newline="")
            imported = load(folder, f"philly:utilisation={folder}/uses")
    if imported is not None:
        assert counted(imported.quality)
        assert imported.quality.rows == len(entries)
