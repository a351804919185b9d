"""Policies side by side."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from rota.core.errors import OptionError
from rota.experiments.compare import compare, own_files
from rota.experiments.folder import OutputFolder
from rota.experiments.report import Curve, cdf_svg, cells
from rota.experiments.rerun import rerun


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    return folder


def test_every_policy_gets_a_row_and_a_folder(config, out):
    rows = compare(config(), ["fifo", "srtf"], out)

    assert [row.policy for row in rows] == ["fifo", "srtf"]
    assert rows[0].ratio == 1
    assert rows[1].ratio == rows[1].avg_jct_s / rows[0].avg_jct_s < 1
    assert rows[1].knowledge == "remaining work"
    assert rows[0].avg_jct_s == 77
    assert rerun(out / "srtf").same
    data = json.loads((out / "compare.json").read_text())
    assert data["baseline"] == "fifo"
    assert [run["folder"] for run in data["runs"]] == ["fifo", "srtf"]
    assert data["rows"][0]["avg_jct_s"] == 77


def test_the_report_needs_nothing_else(config, out):
    compare(config(), ["fifo", "srtf"], out)
    page = (out / "report.html").read_text()

    assert "<svg" in page
    assert "0.02 h" in page  # 77 s
    assert re.findall(r'(?:src|href)="(?!fifo/|srtf/)[^"]*"', page) == []
    links = re.findall(r'https?://[^"\s<]+', page)
    assert set(links) <= {"http://www.w3.org/2000/svg"}


def test_parameters_make_distinct_folders(config, out):
    compare(config(), ["tiresias:limits=10/20", "tiresias:limits=10//20"], out)

    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        "tiresias_limits=10_20", "tiresias_limits=10_20-2",
    }  # fmt: skip


def test_several_processes_give_the_same(config, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    rows = compare(config(), ["fifo", "srtf"], one)

    assert compare(config(), ["fifo", "srtf"], two, workers=2) == rows


def test_an_error_in_another_process_arrives_here(config, out):
    with pytest.raises(OptionError, match="unknown policy 'nope'"):
        compare(config(), ["fifo", "nope"], out, workers=2)


def test_repeated_runs_give_an_interval(config, trace, out):
    rows = [f"{i},0,8,{100 + i}" for i in range(12)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    fifo, srtf = compare(config(estimate_error="cv=1"), ["fifo", "srtf"], out, repeat=3)

    assert fifo.interval == (1, 1)
    low, high = srtf.interval
    assert low < srtf.ratio < high
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        f"{policy}-seed{seed}" for policy in ("fifo", "srtf") for seed in (0, 1, 2)
    }
    assert "[" in cells(srtf)[-1]


def test_a_policy_named_twice_is_refused(config, out):
    with pytest.raises(OptionError, match="named twice"):
        compare(config(), ["fifo", "fifo"], out)


def test_no_completed_job_gives_no_ratio(config, trace, out):
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n0,0,9,10\n")
    (row,) = compare(config(), ["fifo"], out)

    assert row.ratio is None
    assert cells(row)[1] == "-"


def test_told_before_each_run(config, out):
    seen = []
    compare(config(), ["fifo", "srtf"], out, told=lambda *args: seen.append(args))

    assert seen == [("fifo", 0, 2), ("srtf", 1, 2)]


def test_an_earlier_comparison_is_replaced_and_foreign_files_stay(config, tmp_path):
    target = tmp_path / "report"
    for policies in (["fifo", "srtf"], ["fifo", "las"]):
        with OutputFolder(target, force=True, own=own_files(target)) as output:
            compare(config(), policies, output.path)
        (target / "fifo" / "notes.txt").write_text("mine")

    assert {path.name for path in target.iterdir()} == {
        "compare.json", "report.html", "jct-cdf.svg", "fifo", "las",
    }  # fmt: skip
    assert (target / "fifo" / "notes.txt").exists()


def test_a_broken_compare_json_removes_nothing(tmp_path):
    (tmp_path / "compare.json").write_text('{"runs": [{"folder": "../../etc"}]}')

    assert all(".." not in name for name in own_files(tmp_path))


def test_the_picture_is_well_formed_and_has_a_line_per_policy():
    curves = [Curve(f"<p{i}>", [float(10**j) for j in range(5)]) for i in range(10)]
    root = ET.fromstring(cdf_svg(curves))  # noqa: S314 - we made it

    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 10


def test_the_picture_without_data_is_still_a_picture():
    ET.fromstring(cdf_svg([Curve("fifo", [])]))  # noqa: S314 - we made it
