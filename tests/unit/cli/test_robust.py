"""`rota robust`."""

import sys

import pytest
from click.testing import CliRunner

from rota.cli.robust import _workers, robust
from rota.core.errors import OptionError


@pytest.fixture
def call(here):
    """Return `call(*args)`: what the command printed."""

    def run(*args, **options):
        made = CliRunner().invoke(
            robust,
            ["jobs.csv", "--cluster", "1x8", "--jobs", "1", "-o", "out", *map(str, args)],
            **{"catch_exceptions": False} | options,
        )
        return made.exit_code, made.output

    return run


def test_a_table_and_a_picture(call, here):
    code, text = call("--policy", "srtf", "--policy", "fifo", "--estimate-error", "cv=0,1",
                      "--repeat", 2)  # fmt: skip
    assert code == 0
    assert "mean JCT, and its ratio to cv=0 (2 seeds)" in text
    assert "x1.000" in text
    assert "[1.000, 1.000]" not in text  # fifo knows no estimates: seeds change nothing
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "curve.csv", "curve.svg", "report.html", "robust.json",
    ]  # fmt: skip
    picture = (here / "out" / "curve.svg").read_text()
    assert "<svg" in picture
    for words in ("srtf", "error of estimates (cv)", "mean JCT"):
        assert f"<!-- {words} -->" in picture


def test_levels_at_which_nobody_waits_are_warned_of(call):
    args = ("--policy", "fifo", "--policy", "srtf", "--costs", "zero,pollux30")
    _, busy = call(*args)
    _, idle = call(*args, "--cluster", "9x8", "--force")
    told = "warning: nobody waited under any policy, so there is nothing to compare at costs zero"
    assert "nobody waited" not in busy
    assert told in " ".join(idle.split())


def test_other_measures(call):
    _, text = call("--policy", "fifo", "--mtbf", "inf,100", "--mttr", 1, "--by", "preemptions")
    assert text.startswith("preemptions, and its ratio to inf\n")
    assert " 0 " in text


def test_without_matplotlib(call, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "rota.report.figures", None)
    code, text = call("--policy", "fifo", "--costs", "zero,pollux30")
    assert code == 0
    assert "pip install -e '.[plot]'" in text
    assert not (here / "out" / "curve.svg").exists()


def test_mistakes(call, here):
    without = CliRunner().invoke(robust, ["jobs.csv", "--policy", "fifo", "-o", "out"])
    assert "Missing option '--cluster'" in without.output
    with pytest.raises(OptionError, match="nothing has several levels"):
        call("--policy", "fifo")
    assert not (here / "out").exists()


def test_small_work_is_done_in_one_process(here):
    assert _workers("jobs.csv", 10) == 1
    assert _workers("jobs.csv", 10_000) is None
    assert _workers("generate:poisson:jobs=5", 1) is None


def test_what_is_assumed_and_what_to_beware_of(call):
    _, text = call("--policy", "srtf", "--policy", "fifo", "--mtbf", "inf,1", "--mttr", 1,
                   "--repeat", 2)  # fmt: skip
    told = " ".join(text.split())

    assert "note: varied: mtbf (inf, 1)" in told
    assert "2 seeds are few" in told
    assert "the jobs are the same in all runs" in told
    assert "knowledge: remaining work: srtf; nothing: fifo" in told
    assert "costs: zero" in told
    assert "failures:" not in told
