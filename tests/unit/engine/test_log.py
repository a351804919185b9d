"""The event log as a table."""

import polars as pl
import pytest

from rota.core.allocation import Allocation
from rota.core.jobs import Request, Shape
from rota.core.log import Record
from rota.core.topology import Topology
from rota.engine.log import Log


def rows(log, kind):
    frame = log.frame().filter(pl.col("event") == kind)
    return frame.select("time_s", "job", "ref", "other", "value", "text").rows()


def test_rows_keep_their_order_across_chunks():
    log = Log()
    for i in range(7):
        log.row(i / 2, Record.START, i, 10 + i, 20 + i, 0.25 * i)
        if i in (1, 4):
            log.pack()
            assert log.rows == []
    assert len(log) == 7
    frame = log.frame()
    assert frame["time_s"].to_list() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert frame.row(5) == (2.5, "start", 5, 15, 25, 1.25, None)
    log.row(9.0, Record.DONE, 3)
    assert log.frame().row(7) == (9.0, "done", 3, -1, -1, 0.0, None)
    assert frame.height == 7


def test_columns_have_their_types_even_without_rows():
    labels = [record.name.lower() for record in Record]
    types = {
        "time_s": pl.Float64, "event": pl.Enum(labels), "job": pl.Int32, "ref": pl.Int32,
        "other": pl.Int32, "value": pl.Float64, "text": pl.String,
    }  # fmt: skip
    assert dict(Log().frame().schema) == types
    log = Log()
    log.row(0.0, Record.END)
    assert dict(log.frame().schema) == types


@pytest.mark.parametrize("record", [r for r in Record if r != Record.SUBMIT])
def test_every_kind_of_row_has_its_name(record):
    log = Log()
    log.row(1.0, record)
    assert log.frame()["event"].to_list() == [record.name.lower()]


def test_texts_belong_to_their_rows():
    log = Log()
    log.row(0.0, Record.SUBMIT, 4)
    log.names.append("first")
    log.row(1.0, Record.FAILED, 4)
    log.text("why")
    log.pack()
    log.row(2.0, Record.SUBMIT, 5)
    log.names.append("second")
    log.row(3.0, Record.DONE, 5)
    log.row(4.0, Record.REJECTED, 6)
    log.text("no")
    assert log.frame()["text"].to_list() == ["first", "why", "second", None, "no"]


def test_allocations_are_numbered_by_value_and_defined_once():
    log = Log()
    one, twin = Allocation(((1, 2), (4, 1))), Allocation(((1, 2), (4, 1)))
    other = Allocation(((1, 2), (4, 1)), config={"batch": 8})
    numbers = [log.allocation(t, a) for t, a in enumerate((one, twin, other, one, twin, other))]
    assert numbers == [0, 0, 1, 0, 0, 1]
    assert rows(log, "allocation") == [
        (0.0, -1, 0, 1, 2.0, None),
        (0.0, -1, 0, 4, 1.0, None),
        (2.0, -1, 1, 1, 2.0, None),
        (2.0, -1, 1, 4, 1.0, None),
    ]
    assert log.known_allocations() == [one, other]


def test_definitions_of_tenants_shapes_and_places():
    log = Log()
    log.topology(Topology.uniform(2, 3))
    log.shape(1.0, Shape(7, Request.of(2, cpus=4)))
    assert [log.tenant(2.0, name) for name in ("x", "y", "x", "")] == [0, 1, 0, 2]
    assert rows(log, "vertex") == [
        (0.0, -1, 0, -1, 6.0, "cluster:cluster"),
        (0.0, -1, 1, 0, 3.0, "node:n0"),
        (0.0, -1, 5, 0, 3.0, "node:n1"),
    ]
    assert rows(log, "shape") == [(1.0, -1, 7, -1, 2.0, "2 GPUs, 4 CPUs")]
    assert [(row[2], row[5]) for row in rows(log, "tenant")] == [(0, "x"), (1, "y"), (2, "")]


def filled():
    log = Log()
    log.row(0.0, Record.SUBMIT, 0, 0, log.tenant(0.0, "x"), 1.0)
    log.names.append("job")
    here = Allocation(((1, 1),), ((1, "cpu", 2.0),))
    log.row(1.0, Record.START, 0, log.allocation(1.0, here), 0, 1.0)
    return log


def test_a_snapshot_goes_on_as_if_nothing_had_happened():
    log, again = filled(), Log()
    again.row(5.0, Record.END)
    again.restore(filled().snapshot())
    assert again.frame().equals(log.frame())
    for each in (log, again):
        assert each.tenant(2.0, "x") == 0
        assert each.allocation(2.0, Allocation(((1, 1),), ((1, "cpu", 2.0),))) == 0
        assert each.allocation(2.0, Allocation(((1, 1),))) == 1
        each.row(3.0, Record.SUBMIT, 1)
        each.names.append("next")
    assert again.frame().equals(log.frame())
    assert again.frame()["text"].to_list()[-1] == "next"


def test_writing_leaves_one_file_and_no_part(tmp_path):
    path = tmp_path / "log.parquet"
    frame = filled().write(path)
    assert pl.read_parquet(path).equals(frame)
    assert pl.read_parquet_metadata(path)["rota_schema"] == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["log.parquet"]
