"""A stored trace or an event log that is damaged, or contradicts itself, is refused."""

import json
from contextlib import suppress

import polars as pl
import pytest

from rota.core.errors import TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec
from rota.core.workload import Workload
from rota.traces.formats import rota_log
from rota.traces.formats.store import restore, save
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.schema import CAPACITY, events_frame


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a stored trace."""
    specs = [JobSpec(name, 5.0 * n, Request.of(2)) for n, name in enumerate("abc")]
    seen = [Seen(0, 1.0, 11.0, ("n1",), (2.0,), "done")]
    trace = Imported(
        Workload(specs, [Behaviour(10.0, {"v": 1.0}, [(1.0, 1.0)])] * 3),
        observed=Observed.of(seen),
        events=events_frame([(0.0, CAPACITY, "", 8.0, "")]),
        cluster=[NodeSpec("n1", 8)],
    )
    return save(trace, tmp_path / "trace")


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("job_id", ["a", "a", "b"], "a job_id twice"),
        ("job_id", ["a", None, "b"], "without a job_id"),
        ("submit_s", [0.0, float("nan"), 1.0], "submit_s"),
        ("num_gpus", [2.0, -3.0, 1.0], "an amount"),
        ("num_gpus", [2.0, 0.0, 1.0], "asks for nothing"),
        ("duration_s", [1.0, 0.0, 1.0], "duration_s"),
        ("estimate_s", [1.0, float("nan"), None], "a time that is not a number"),
        ("speeds", ["{}", "no JSON", None], "speeds that cannot be used"),
        ("speeds", [None, '{"v": -1}', None], "below 0"),
        ("scaling", [None, '[["x"]]', None], "scaling that cannot be used"),
        ("sensitivity", [None, "[]", None], "sensitivity that cannot be used"),
        ("depends_on", [[], ["z"], []], "waits for 'z'"),
        ("depends_on", [["b"], ["a"], []], "wait for each other"),
        ("submit_s", ["x", "y", "z"], "cannot be read as a table"),
    ],
)
def test_wrong_jobs_are_refused(folder, column, values, says):
    path = folder / "jobs.parquet"
    pl.read_parquet(path).with_columns(pl.Series(column, values)).write_parquet(path)
    with pytest.raises(TraceError, match=says):
        restore(folder)


@pytest.mark.parametrize(
    ("table", "change", "says"),
    [
        ("jobs", lambda frame: frame.head(0), "holds no jobs"),
        ("jobs", lambda frame: frame.head(2), "has 2 jobs, but trace.json says that 3 were kept"),
        ("observed", lambda frame: frame.drop("start_s"), "cannot be read as a table"),
        ("observed", lambda frame: frame.with_columns(job=pl.lit(7)), "an attempt of no job"),
        ("observed", lambda frame: frame.with_columns(start_s=pl.lit("x")), "cannot be read"),
        ("observed", lambda frame: frame.with_columns(start_s=None), "start_s"),
        ("observed", lambda frame: frame.with_columns(state=pl.lit("so")), "a state that is not"),
        ("observed", lambda frame: frame.with_columns(gpus=[1.0, 2.0]), "as many GPUs as nodes"),
        ("events", lambda frame: frame.with_columns(value=None), "an empty cell"),
        ("events", lambda frame: frame.with_columns(time_s=pl.lit(float("nan"))), "not finite"),
    ],
)
def test_wrong_tables_are_refused(folder, table, change, says):
    path = folder / f"{table}.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    with pytest.raises(TraceError, match=says):
        restore(folder)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("quality", {"rows": 9, "kept": 3}, "counts neither as kept nor as dropped"),
        ("cluster", [{"name": "n1", "gpus": -3}], "an amount below 0"),
        ("cluster", [{"name": "n1", "gpus": 1}] * 2, "there twice"),
    ],
)
def test_a_wrong_description_is_refused(folder, key, value, says):
    path = folder / "trace.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(TraceError, match=says):
        restore(folder)


def test_damaged_bytes_are_an_error_without_a_backtrace(folder, capfd):
    for name in ("trace.json", "jobs.parquet", "observed.parquet", "events.parquet"):
        path = folder / name
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 40)):
            path.write_bytes(whole[:place] + b"\xff\xfe" + whole[place + 2 :])
            with suppress(TraceError):  # no other error
                restore(folder)
        path.write_bytes(whole)
    assert len(restore(folder)) == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("time_s", float("nan"), "no time"),
        ("time_s", None, "no time"),
        ("event", None, "no name"),
        ("value", None, "an amount"),
        ("value", -2.0, "an amount"),
        ("job", None, "names none"),
    ],
)
def test_a_wrong_event_log_is_refused(tmp_path, column, value, says):
    row = {
        "time_s": 0.0, "event": "submit", "job": 0, "ref": 0, "other": 0, "value": 1.0, "text": "a",
    }  # fmt: skip
    start = {**row, "event": "start", "time_s": 1.0}
    path = tmp_path / "events.parquet"
    pl.DataFrame([row, start]).write_parquet(path)
    assert len(rota_log.FORMAT.load(path, {})) == 1
    log = pl.DataFrame([{**row, column: value}, start], schema=pl.DataFrame([row]).schema)
    log.write_parquet(path)
    with pytest.raises(TraceError, match=says):
        rota_log.FORMAT.load(path, {})
