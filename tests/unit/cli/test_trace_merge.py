"""`rota trace merge`."""

import pytest

from rota.traces.read import read_trace

CSV = "job_id,submit_s,num_gpus,duration_s,vc,depends_on,deadline_s\n"


def test_the_command_merges_any_formats(tmp_path, rota):
    (tmp_path / "a.csv").write_text(CSV + "1,0,1,60,vision,,\n2,5,1,60,vision,1,\n")
    (tmp_path / "b.csv").write_text(CSV + "1,0,2,60,speech,,100\n")
    a, b, out = (str(tmp_path / name) for name in ("a.csv", "b.csv", "both"))
    code, _, err = rota("trace", "merge", a, b, "--offset", "0", "--offset", "1h", "-o", out)
    assert code == 0, err
    assert "ids of b begin with b-" in err
    jobs = read_trace(out).jobs
    assert jobs.select("job_id", "submit_s", "vc").rows() == [
        ("1", 0.0, "vision"), ("2", 5.0, "vision"), ("b-1", 3600.0, "speech"),
    ]  # fmt: skip
    code, _, err = rota("trace", "merge", out, b, "-o", str(tmp_path / "all.csv"))
    assert code == 0, err
    assert read_trace(tmp_path / "all.csv").jobs.height == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--offset", "1h"], "--offset is given 1 times for 2 traces"),
        (["--offset", "0", "--offset", "soon"], "'soon' is not a time"),
        (["--format", "csv"] * 3, "--format is given 3 times"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, rota, options, message):
    (tmp_path / "a.csv").write_text(CSV + "1,0,1,60,vision,,\n")
    path = str(tmp_path / "a.csv")
    code, _, err = rota("trace", "merge", path, path, *options, "-o", str(tmp_path / "out"))
    assert code == 2, err
    assert message in err
    assert not (tmp_path / "out").exists()
