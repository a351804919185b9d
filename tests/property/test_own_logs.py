"""Readers of a cluster's own logs: every row is counted, and only our own errors come out."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from own_formats import HEADER, line
from rota.core.errors import InputError
from rota.traces.formats.kubernetes.pods import FORMAT as KUBERNETES
from rota.traces.formats.rota_log import FORMAT as ROTA_LOG
from rota.traces.formats.slurm.nodes import read_nodes_file
from rota.traces.formats.slurm.sacct import FORMAT as SACCT
from trace_readers import counted

QUICK = settings(suppress_health_check=[HealthCheck.too_slow])
FORMATS = {"sacct": SACCT, "kubernetes": KUBERNETES, "rota-log": ROTA_LOG}
CELLS = st.one_of(
    st.sampled_from([
        "", "Unknown", "None", "1", "1_2", "1_[3-9]", "1+0", "1.batch", "n[1-3]", "n[1-", "n[5-1]",
        "COMPLETED", "CANCELLED by 7", "RUNNING", "PENDING", "REQUEUED", "2026-10-25T02:30:00",
        "2026-13-01T00:00:00", "1772438400", "0", "-5", "9" * 30, "UNLIMITED", "gres/gpu=2,cpu=1",
        "gres/gpu:a=1,gres/gpu:b=2,mem=5X", "gpu:8", "-d afterok:1:1_2", "1-00:00:00", "\u0661",
        "NODE_FAIL", "gres/shard=3,cpu=1", "gres/gpu:a100_1g.5gb=1,gres/gpu=1", "gres/mps=5", "a|b",
        "2026-10-25T05:30:00", "2026-03-29T02:30:00", "high", "4294967295", "10800", "14400",
    ]),
    st.text(st.characters(blacklist_characters="\n\r|", blacklist_categories=["Cs"]), max_size=8),
)  # fmt: skip
OPTIONS = (
    {}, {"since": "submit"}, {"tz": "Europe/Berlin"}, {"runtime": "span"},
    {"runtime": "longest", "shards": "4"}, {"classes": "normal/high", "mig": "whole"},
)  # fmt: skip
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(allow_nan=False),
        st.sampled_from(["", "RUNNING", "n[1-2]", "gpu", "gres", "Pod", "2026-03-02T08:00:00Z"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["number", "set", "kind", "name", "count", "type", "current", "job_id"]),
        inner, max_size=4,
    )),
    max_leaves=8,
)  # fmt: skip


def load(reader, data, **options):
    """Load bytes: None when they were refused with one of our errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        try:
            imported = reader.load(path, options)
        except InputError:
            return None
        assert counted(imported.quality)
        assert len(imported.workload) == imported.quality.kept
        return imported


@pytest.mark.parametrize("name", sorted(FORMATS))
@QUICK
@given(data=st.binary(max_size=300))
@example(data=b"[" * 5000)
@example(data=b'{"items": [[[[]]]]}')
@example(data=b'{"jobs": [{"job_id": 1e400}]}')
@example(data=HEADER.encode() + b"\n|||")
def test_any_bytes(name, data):
    assert load(FORMATS[name], data) is None or data


@QUICK
@given(data=st.binary(max_size=200))
@example(data=b"NodeName=n[1-99999999999]")
@example(data=b"[1]")
@example(data=b'{"nodes": 3}')
@example(data=b"NODELIST|CPUS\n")
def test_any_list_of_nodes(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nodes"
        path.write_bytes(data)
        try:
            assert read_nodes_file(path)
        except InputError as error:
            assert str(error)  # noqa: PT017 - either answer is fine


@pytest.mark.parametrize("bad", ["drop", "refuse"])
@QUICK
@given(data=st.data())
def test_any_lines_of_sacct(bad, data):
    titles = HEADER.split("|")
    changes = st.dictionaries(st.sampled_from(titles), CELLS, max_size=6)
    rows = data.draw(st.lists(changes, min_size=1, max_size=6))
    options = data.draw(st.sampled_from(OPTIONS))
    text = "\n".join([HEADER, *(line(str(n % 3), **row) for n, row in enumerate(rows))])
    imported = load(SACCT, text.encode(), bad=bad, **options)
    assert imported is None or imported.quality.rows == len(rows)


@pytest.mark.parametrize("bad", ["drop", "refuse"])
@QUICK
@given(data=st.data())
def test_any_records_of_sacct_json(bad, data):
    keys = ("job_id", "array", "het", "state", "time", "tres", "nodes", "user", "required")
    entry = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON))
    entries = data.draw(st.lists(st.one_of(entry, JSON), min_size=1, max_size=5))
    good = {"job_id": 1, "time": {"submission": 5, "start": 7, "end": 9}, "nodes": "n1",
            "required": {"CPUs": 1}, "state": {"current": "COMPLETED"}}  # fmt: skip
    mixed = [{**good, **one} if isinstance(one, dict) else one for one in entries]
    imported = load(SACCT, json.dumps({"jobs": mixed}).encode(), bad=bad)
    assert imported is None or imported.quality.rows == len(entries)


@pytest.mark.parametrize("bad", ["drop", "refuse"])
@QUICK
@given(data=st.data())
def test_any_pods(bad, data):
    entry = st.fixed_dictionaries({}, optional=dict.fromkeys(("metadata", "spec", "status"), JSON))
    entries = data.draw(st.lists(entry, min_size=1, max_size=4))
    about = {"name": "a", "namespace": "n", "creationTimestamp": "2026-03-02T08:00:00Z"}
    good = {"kind": "Pod", "metadata": about, "spec": {}, "status": {"phase": "Running"}}
    imported = load(
        KUBERNETES, json.dumps({"items": [{**good, **one} for one in entries]}).encode(), bad=bad
    )
    assert imported is None or imported.quality.rows == len(entries)
