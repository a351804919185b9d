"""Records taken column by column give what the same records give one by one."""

import random

import polars as pl
import pytest

from own_formats import HEADER, line
from rota.core.errors import InputError, TraceError
from rota.traces.formats.slurm import sacct
from trace_readers import counted

TIMES = (
    "2026-03-02T08:00:00", "2026-03-02T08:00:10", "2026-03-02T09:00:00.5", "2026-10-25T02:30:00",
    "Unknown", "", "0", "1772438400", "2026-03-02T08:00:60", "2026-03-01T01:00:00+01:00",
    "2026-10-25T02:40:00", "2026-10-25T05:30:00", "2026-10-25T01:30:00", "2026-03-29T02:30:00",
)  # fmt: skip
TRES = (
    "", "cpu=4,gres/gpu=2,mem=8G,node=1", "cpu=8,node=2,mem=3G", "gres/gpu:a100=4,cpu=4,node=2",
    "cpu=2,gres/shard=3", "gres/gpu:a100_3g.20gb=1,gres/gpu=1,cpu=1", "gres/mps=50,cpu=1",
    "gres/gpu=1,cpu=1,node=1",
)  # fmt: skip
CELLS = {
    "Submit": TIMES,
    "Eligible": TIMES,
    "Start": TIMES,
    "End": TIMES,
    "State": ("COMPLETED", "RUNNING", "CANCELLED by 5", "PENDING", "NODE_FAIL", "REQUEUED", ""),
    "ElapsedRaw": ("0", "3600", "", "x", "10800", "14400", "18000", "600"),
    "TimelimitRaw": ("60", "UNLIMITED", ""),
    "ReqTRES": TRES,
    "AllocTRES": TRES,
    "NNodes": ("", "1", "2", "0"),
    "NodeList": ("n1", "n[1-2]", "None assigned", "", "n[1-"),
    "Partition": ("a", "b", ""),
    "Account": ("x", ""),
    "JobIDRaw": ("1", "77", ""),
    "QOS": ("low", "high", ""),
    "JobName": ("a|b", "|", "x|COMPLETED|y", "train"),
    "SubmitLine": ("sbatch --wrap 'a | b'", "sbatch --gres=gpu:2"),
    "Priority": ("5", "4294901759", "0", "x", ""),
}
NAMES = ("1", "2", "6_1", "7+0", "7+1", "1.batch", "2.batch", "1.0")
OPTIONS = {
    "bad": ("refuse", "drop"),
    "tz": ("", "Europe/Berlin"),
    "since": ("eligible", "submit"),
    "runtime": ("sum", "last", "span", "longest"),
    "tenant": ("account", "partition", "user"),
    "partitions": ("auto", "label"),
    "priority": ("recorded", "none"),
    "classes": ("", "", "low/normal/high", "low/high"),
    "shards": ("0", "4"),
    "mig": ("share", "whole"),
    "failures": ("recorded", "none"),
}


def lines_of(draw):
    """Return lines of a made-up log, most of them usual."""
    rows = []
    for number in range(draw.randint(1, 12)):
        chosen = draw.sample(sorted(CELLS), draw.choice((0, 1, 1, 4)))
        cells = {title: draw.choice(CELLS[title]) for title in chosen}
        name = draw.choice(NAMES) if draw.random() < 0.4 else str(100 + number)
        rows.append(line(name, **cells) + draw.choice(("", "", "", "", "", "|", "\r")))
    return rows


def told(path, options):
    """Return everything that an import gives, or that it was refused."""
    try:
        imported = sacct.FORMAT.load(path, options)
    except InputError as error:
        return "no job is left" if "no job is left" in str(error) else str(error)
    assert counted(imported.quality)
    tables = (imported.jobs.rows(), imported.observed.frame.rows(), imported.events.rows())
    return (*tables, imported.quality, imported.origin, imported.notes)


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_give_the_same(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)  # noqa: S311 - no secret
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([HEADER, *lines_of(draw)]) + "\n", newline="")
    options = {key: draw.choice(values) for key, values in OPTIONS.items()}
    quick = told(path, options)
    none = pl.Series([False], dtype=pl.Boolean)
    monkeypatch.setattr(sacct, "plain_ones", lambda typed: none.new_from_index(0, typed.height))
    assert told(path, options) == quick


def test_usual_records_go_the_quick_way(tmp_path, monkeypatch):
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([HEADER, *(line(str(n)) for n in range(50)), line("7.batch")]))
    monkeypatch.setattr(sacct._Lines, "_record", None)  # nothing is left for it
    assert len(sacct.FORMAT.load(path, {})) == 50


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"AllocTRES": "cpu=4,gres/gpu=999999999999999"}, "asks for 999999999999999 GPUs"),
        ({"AllocTRES": "cpu=4,node=1", "NNodes": "999999999999"}, "asks for 999999999999 nodes"),
    ],
)
def test_amounts_that_nobody_has_are_refused(tmp_path, cells, says):
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([HEADER, line("1"), line("2", ReqTRES="", **cells)]))
    with pytest.raises(TraceError, match=f"line 3: {says}, more than 1,000,000"):
        sacct.FORMAT.load(path, {})
    dropped = sacct.FORMAT.load(path, {"bad": "drop"}).quality.dropped
    assert dropped == {"line that cannot be read": 1}


def test_a_job_of_no_time_ran_if_it_is_completed(tmp_path):
    path = tmp_path / "jobs.txt"
    at = {"Start": TIMES[1], "End": TIMES[1], "ElapsedRaw": "0", "NodeList": ""}
    gone = line("2", State="CANCELLED by 7", **at)
    path.write_text("\n".join([HEADER, line("1", State="COMPLETED", **at), gone]))
    imported = sacct.FORMAT.load(path, {})
    assert imported.jobs.select("job_id", "duration_s").rows() == [("1", 1.0)]
    assert imported.quality.dropped == {"cancelled before it started": 1}


def test_empty_lines_count_as_lines_only(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(HEADER + "\n" * 1_000_000 + line("1") + "\nx")
    with pytest.raises(TraceError, match="line 1000002: has another number of fields"):
        sacct.FORMAT.load(path, {})


@pytest.mark.parametrize(
    "text", ["0000-01-01T00:00:00", "+026-10-25T02:30:00", "2026-10- 5T02:32:02"]
)
def test_what_only_looks_like_a_time_is_refused(tmp_path, text):
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([HEADER, line("1", Submit=text)]))
    with pytest.raises(TraceError, match="is not a time"):
        sacct.FORMAT.load(path, {})
