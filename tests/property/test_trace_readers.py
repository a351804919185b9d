"""Readers: whatever the input is, every row is counted, and only our own errors come out."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.traces.formats.chronus import LAYOUT as CHRONUS
from rota.traces.formats.gavel import LAYOUT as GAVEL
from rota.traces.formats.helios import LAYOUT as HELIOS
from rota.traces.formats.openb import LAYOUT as OPENB
from rota.traces.formats.pai import JOB, TASK
from rota.traces.formats.pollux import LAYOUT as POLLUX
from rota.traces.formats.spot import LAYOUT as SPOT
from trace_readers import RICH, counted, reader

THROUGHPUTS = {"v100": {"('a', 1)": {"null": 2.0}, "('a', 4)": {"null": 5.0}}}
LAYOUTS = {
    "helios": HELIOS,
    "openb": OPENB,
    "spot": SPOT,
    "pollux": POLLUX,
    "chronus": CHRONUS,
    "gavel": GAVEL,
}
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.one_of(
    st.sampled_from(
        ["0", "1", "4", "0.5", "1000", "-1", "1e3", "1e999", "nan", "inf", "1_0", " 7"]
    ),
    st.integers(-5, 10**12).map(str),
)
TIMES = st.sampled_from([
    "2020-04-01 00:00:05", "2020-11-01 01:30:00", "2020-02-30 00:00:00", "2020-04-01", "None",
])  # fmt: skip
CELLS = st.one_of(
    st.sampled_from(["", "None", "NaN", "a", "COMPLETED", "Running", "x\ty", "é", '"q"']),
    NUMBERS,
    TIMES,
)


def options_of(name, folder):
    if name != "gavel":
        return {}
    file = folder / "throughputs.json"
    file.write_text(json.dumps(THROUGHPUTS))
    return {"throughputs": str(file)}


def load(name, path, options):
    """Load a file: None when it was refused with one of our errors."""
    try:
        return reader(name).load(path, options)
    except InputError:
        return None


@pytest.mark.parametrize("name", sorted(RICH))
@QUICK
@given(data=st.binary(max_size=300))
@example(data=b"\n")
@example(data=b"\xef\xbb\xbf{")
@example(data=b"[" * 5000)
@example(data=b"\x1f\x8b\x08\x00garbage")
@example(data=b"PK\x03\x04garbage")
def test_any_bytes(name, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(data)
        imported = load(name, path, options_of(name, Path(folder)))
        assert imported is None or counted(imported.quality)


def cell(column):
    likely = {"number": NUMBERS, "time": TIMES, "text": st.sampled_from(["a", "b", "c", ""])}
    return st.one_of(likely[column.kind], CELLS)


def rows_of(layout, columns):
    return st.lists(st.tuples(*(cell(column) for column in columns)), min_size=1, max_size=8)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
@pytest.mark.parametrize("bad", ["drop", "refuse"])
@QUICK
@given(data=st.data())
def test_any_rows_are_counted(name, bad, data):
    layout = LAYOUTS[name]
    rows = data.draw(rows_of(layout, layout.columns))
    lines = [layout.separator.join(_quoted(text, layout) for text in row) for row in rows]
    header = layout.separator.join(layout.names)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_text("\n".join([header, *lines]) + "\n")
        options = {"bad": bad, **options_of(name, Path(folder))}
        imported = load(name, path, options)
        if imported is not None:
            assert counted(imported.quality)
            assert imported.quality.rows >= len(rows)  # clones of openb count too
            assert len(imported.workload) == imported.quality.kept


def _quoted(text, layout):
    return '"' + text.replace('"', '""') + '"' if '"' in text or layout.separator in text else text


@QUICK
@given(
    jobs=rows_of(JOB, JOB.columns),
    tasks=rows_of(TASK, TASK.columns),
    junk=st.text(max_size=40),
)
def test_any_tables_of_alibaba(jobs, tasks, junk):
    with tempfile.TemporaryDirectory() as folder:
        for file, rows in (("pai_job_table.csv", jobs), ("pai_task_table.csv", tasks)):
            text = "\n".join(",".join(_quoted(cell, JOB) for cell in row) for row in rows)
            (Path(folder) / file).write_text(text)
        (Path(folder) / "pai_machine_spec.csv").write_text(junk, newline="")
        imported = load("alibaba-2020", Path(folder), {"bad": "drop"})
        assert imported is None or counted(imported.quality)


@QUICK
@given(rows=st.lists(st.lists(NUMBERS, min_size=17, max_size=19), max_size=6), junk=st.text())
def test_any_lines_of_swf(rows, junk):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        lines = [f"; {line}" for line in junk.splitlines()] + [" ".join(row) for row in rows]
        path.write_text("\n".join(lines), newline="")
        imported = load("swf", path, {"bad": "drop"})
        assert imported is None or counted(imported.quality)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)
PROFILES = st.dictionaries(
    st.sampled_from("pqr"),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["delay", "composed", "parallel", "parallel_homogeneous", "x"]),
            "delay": JSON,
            "cpu": JSON,
            "seq": st.one_of(JSON, st.lists(st.sampled_from("pqr"), max_size=3)),
            "repeat": JSON,
        }
    ),
    max_size=3,
)


@QUICK
@given(
    jobs=st.lists(
        st.fixed_dictionaries({
            "id": JSON, "subtime": JSON, "res": st.integers(-1, 8),
            "profile": st.sampled_from("pqr"),
        }),
        max_size=4,
    ),
    profiles=PROFILES,
)  # fmt: skip
def test_any_workload_of_batsim(jobs, profiles):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.json"
        path.write_text(json.dumps({"jobs": jobs, "profiles": profiles}))
        imported = load("batsim", path, {"bad": "drop"})
        assert imported is None or counted(imported.quality)


@QUICK
@given(
    lines=st.lists(
        st.fixed_dictionaries(
            {
                "timestamp": st.one_of(st.integers(0, 10**9), JSON),
                "submitted_jobs": st.lists(
                    st.fixed_dictionaries(
                        {
                            "name": st.sampled_from(["bert-1", "ncf-2"]),
                            "creationTimestamp": st.one_of(st.none(), TIMES, JSON),
                            "completionTimestamp": st.one_of(st.none(), TIMES),
                            "allocation": st.lists(st.sampled_from(["n1", "n2"]), max_size=3),
                        }
                    ),
                    max_size=2,
                ),
            }
        ),
        max_size=5,
    )
)
def test_any_log_of_pollux(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pollux.log"
        path.write_text("\n".join(json.dumps(line) for line in lines))
        imported = load("pollux-results", path, {"bad": "drop"})
        assert imported is None or counted(imported.quality)
