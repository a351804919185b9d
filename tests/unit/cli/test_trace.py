"""`rota trace inspect`, `formats` and `convert` to every form."""

import json

import polars as pl
import pytest

from rota.traces.schema import VERSION

PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    "2017-10-09 07:01:45,0.9,2,1.8,6214e9\n"
    "2017-10-09 19:01:55,4000,8,45.6,6c71a0\n"
)


@pytest.fixture
def philly(here):
    (here / "philly.csv").write_text(PHILLY)
    return "philly.csv"


def test_inspect_says_what_is_there_and_what_was_done(rota, philly):
    code, out, _ = rota("trace", "inspect", philly)

    assert code == 0
    assert "philly: 3 rows read, 3 kept" in out
    assert "repaired: 1 duration below 1 s raised to 1 s" in out
    assert "second 0: 2017-10-09 07:01:45" in out
    assert "3 jobs, 3 virtual clusters, 33 % of those with GPUs ask for one at most" in out
    assert "median 1m 06s" in out
    assert "GPUs per job" in out
    assert "submissions by hour of the day" in out


def test_inspect_as_data(rota, philly):
    code, out, _ = rota("trace", "inspect", philly, "-o", "json")
    found = json.loads(out)

    assert code == 0
    assert (found["rows"], found["kept"]) == (3, 3)
    assert found["sizes"] == {"1": 1, "2-4": 1, "5-8": 1}
    assert found["submissions_by_hour"][7] == 2
    assert found["submissions_by_hour"][19] == 1


def test_inspect_counts_what_options_drop(rota, philly):
    _, out, _ = rota("trace", "inspect", philly, "--format", "philly:min_duration=60", "--limit", 1)

    assert "3 rows read, 1 kept" in out
    assert "dropped: 1 shorter than 60 s" in out
    assert "dropped: 1 beyond the limit" in out


FORMS = {
    "alibaba-2020": False, "batsim": False, "chronus": True, "csv": True, "deepboot": True,
    "elasticflow": True, "gavel 10 fields": True,
    "gavel 12 fields (Shockwave)": False, "helios": False, "kubernetes": False, "openb": True,
    "philly csv": True, "philly JSON log with machine list": False, "pollux": True,
    "pollux-results": False, "rota": True, "rota-log": True, "sacct --parsable2": True,
    "sacct --json": True, "sia": True, "spot": False, "swf": False, "synergy": True,
    "tiresias": True,
}  # fmt: skip


def test_formats_say_what_was_checked(rota):
    _, out, _ = rota("trace", "formats", "-o", "json")
    told = {f"{row['format']} {row['form']}".strip(): row["verified"] for row in json.loads(out)}

    words = {True: "verified on a real file", False: "schema only"}
    assert FORMS.keys() <= told.keys()
    assert {form: told[form] for form in FORMS} == {
        form: words[real] for form, real in FORMS.items()
    }
    assert set(told.values()) == set(words.values())


def test_convert_to_a_folder_and_to_swf(rota, here, philly):
    assert rota("trace", "convert", philly, "-o", "folder")[0] == 0
    jobs = pl.read_parquet(here / "folder" / "jobs.parquet")
    assert jobs["vc"].to_list() == ["6214e9", "11cb48", "6c71a0"]
    about = json.loads((here / "folder" / "trace.json").read_text())
    assert (about["rota_trace"], about["source"]) == (VERSION, "philly.csv")

    assert rota("trace", "convert", philly, "-o", "log.swf")[0] == 0
    assert (here / "log.swf").read_text().startswith("; Version: 2.2\n")

    code, _, err = rota("trace", "convert", philly, "-o", "log.xlsx")
    assert code != 0
    assert "end it with .csv, .swf or .sacct" in err


def test_what_a_form_cannot_hold_is_told(rota, here):
    (here / "t.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s,priority\na,0,1,10,3\nb,1,1,10,\n"
    )
    _, _, err = rota("trace", "convert", "t.csv", "-o", "t.swf")

    assert "this form has no room for priority: it is lost" in err
