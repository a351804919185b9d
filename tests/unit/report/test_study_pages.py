"""Pages of studies: they say what the studies found, and colour only what is proven."""

import re

import msgspec
import pytest
from click.testing import CliRunner

from rota.cli.explain import explain
from rota.metrics.story import Stories
from rota.report.explain_page import story_page
from rota.report.study_pages import reproduction_page, robust_page, sweep_page, write_study_page
from rota.reproduce.recipe import Check, CheckVerdict, Scale
from rota.reproduce.run import Reproduction
from rota.study.output import write_run
from rota.study.robustness import Axis, CurvePoint, Curves, RobustLine
from rota.study.sweep.local import Local
from rota.study.sweep.run import SweepOutcome, load_sweep, sweep
from rota.study.sweep.source import read_source
from rota.study.sweep.spec import parse_spec

HOSTILE = "<img src=x onerror=alert(1)>"


def curves(*ratios, seeds=3):
    """Return curves over two levels; of each policy (ratio, low, high) at the second."""
    levels = ("cv=0", "cv=1")
    lines = [
        RobustLine(
            f"p{number}{HOSTILE if not number else ''}",
            "nothing",
            [
                CurvePoint("cv=0", 0.0, 100.0, 90.0, 110.0, 1.0),
                CurvePoint("cv=1", 1.0, 100.0 * ratio, 1.0, 2.0, ratio, low, high),
            ],
        )
        for number, (ratio, low, high) in enumerate(ratios)
    ]
    axis = Axis("estimate-error", levels, ({}, {}))
    return Curves("avg_jct_s", axis, list(range(seeds)), lines, ["a warning"], notes=["a note"])


def test_only_what_the_intervals_tell_is_said():
    page = robust_page(curves((1.9, 1.5, 2.4), (1.02, 0.98, 1.06)), "estimate error")
    text = page.html()
    assert page.verdict == (
        f"From cv=0 to cv=1 the mean JCT of p0{HOSTILE} becomes 1.900 [1.500, 2.400] times as "
        f"high; no change can be told for p1."
    )
    assert [tile.kind for tile in page.tiles] == ["", ""], "more errors are nobody's gain"
    assert "<img" not in text
    assert "a warning" in text
    assert "a note" in text
    assert text.count("<polyline") == 2
    unclear = robust_page(curves((1.02, 0.98, 1.06)), "estimate error")
    assert unclear.verdict == (
        "From cv=0 to cv=1 no change of the mean JCT can be told for any policy."
    )


def test_one_seed_proves_nothing():
    page = robust_page(curves((1.9, None, None), seeds=1), "estimate error")
    assert page.verdict.startswith("In one run per level the mean JCT of p0")
    assert page.verdict.endswith("it becomes 1.900 times as high.")
    assert page.more == ["One seed: nothing is proven; add --repeat N."]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a sweep of two policies and four seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "spec.yaml").write_text(
        "name: two\nworkloads: [{name: gavel, generate: gavel-like, jobs: 40}]\nclusters: [2x4]\n"
        "policies: [fifo, srtf]\nbaseline: fifo\nloads: [1.5]\nseeds: 4\nkeep: jobs\n"
    )
    sweep(parse_spec(read_source(folder / "spec.yaml")), folder / "out", Local(1))
    return load_sweep(folder / "out")


def test_a_sweep_tells_where_a_policy_is_better(swept):
    page = sweep_page(swept)
    better = int(next(tile.value for tile in page.tiles if tile.label == "groups better"))
    text = page.html()
    assert page.tiles[0].value == "8"
    assert better == len(re.findall(r'class="wide better"', text)) == 1
    assert page.verdict.startswith("srtf is better than the baseline in 1 of ")


def test_what_failed_and_what_is_missing_is_loud(swept):
    less = msgspec.structs.replace(swept, rows=swept.rows[:-1])
    assert "1 run not done yet" in sweep_page(less).html()
    none = SweepOutcome(swept.folder, swept.record, [], [])
    assert sweep_page(none).verdict == "No run is done yet."


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (CheckVerdict.AGREES, "agrees with what was published: of 2 checks"),
        (CheckVerdict.FAILS, "does not agree with what was published: of 2 checks"),
    ],
)
def test_a_reproduction_is_judged(tmp_path, verdict, told):
    checks = [
        Check(quantity="jct", theirs=1.5, ours=1.5, expected="equal", verdict=CheckVerdict.AGREES),
        Check(quantity=HOSTILE, theirs=None, ours="x", expected="near", verdict=verdict,
              reason="a reason"),
    ]  # fmt: skip
    found = Reproduction(
        "recipe", "what it is", "a paper", "an artifact", Scale.SMALL, "half of it", verdict, 3.0,
        ["known"], checks,
    )  # fmt: skip
    page = reproduction_page(found, ["rota", "reproduce", "recipe"])
    text = write_study_page(page, tmp_path).read_text()
    assert told in page.verdict
    assert "Small leaves out: half of it." in text
    assert "<img" not in text
    assert "rota reproduce recipe</pre>" in text


def test_the_story_of_a_job_is_a_page(run_of, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(run_of(), folder)
    stories = Stories(run_of().log)
    waits = [stories.tell(number).wait_s for number in range(120)]
    job = str(max(range(120), key=waits.__getitem__))
    page = tmp_path / "job.html"
    done = CliRunner().invoke(explain, [str(folder), job, "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    story = stories.tell(int(job))
    assert f"<h1>Job {job}</h1>" in text
    assert text.count('class="number">') >= 2 * len(story.parts)
    assert len(story_page(story).tiles) == 5
    assert all(part.reason in text for part in story.parts)
    wrong = CliRunner().invoke(explain, [str(folder), job, "--html", str(tmp_path / "job.csv")])
    assert "ends in .html" in str(wrong.exception)
    assert not (tmp_path / "job.csv").exists()
