"""The labs: what is expected comes out, in the scenario, in the run and in the picture."""

import json
import re
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from rota.core.registry import RECIPES, names
from rota.reproduce.hived import recipe as hived_queueing
from rota.reproduce.labs import recipe as labs
from rota.reproduce.labs.timeline import LabHistory, NodeStay, QueueStay, draw, tell
from rota.reproduce.recipe import CheckVerdict, Scale
from rota.reproduce.run import own_files, reproduce
from rota.reproduce.yarn import delay as yarn_delay
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.study.scenario.play import run_scenario
from shared_data import CHECKOUT, shared

LABS = {lab.name: lab for lab in labs.LABS}
SVG = "{http://www.w3.org/2000/svg}"
SEEN = {
    "lab6-vc-safety": (
        ["0 s: ann on dan", "60 s: ben on dan", "120 s: eva on dan", "180 s: tom on dan"],
        {"ben": (0, 60), "eva": (0, 120), "tom": (0, 180)},
    ),
    "lab6-priority": (
        ["0 s: job-1 on dan until job-2", "120 s: job-2 on dan", "480 s: job-1 on dan"],
        {"job-1": (120, 480)},
    ),
    "lab6-opportunistic": (
        [
            "0 s: job-3 on dan",
            "60 s: job-4 on carol until owner",
            "120 s: owner on carol",
            "360 s: job-4 on dan",
        ],
        {"job-4": (120, 360)},
    ),
    "lab6-gang": (
        ["0 s: job-5 on carol", "360 s: job-6 on carol", "360 s: job-6 on dan"],
        {"job-6": (60, 360)},
    ),
    "lab6-incremental": (
        [
            "0 s: job-5 on carol",
            "60 s: job-7#0 on dan",
            "360 s: job-7#1 on carol",
            "780 s: job-8#0 on carol",
            "780 s: job-8#1 on dan",
            "1140 s: job-8#2 on carol",
            "1140 s: job-8#3 on dan",
        ],
        {"job-7#1": (60, 360), "job-8#2": (780, 1140), "job-8#3": (780, 1140)},
    ),
}
"""Who begins to run when and where (and who makes it leave), and who waits from when to when."""


def odd(report):
    return [check for check in report.checks if check.verdict != CheckVerdict.AGREES]


def told(bar):
    return f"{bar.from_s:g} s: {bar.who} on {bar.node}" + (
        f" until {bar.gone_for}" if bar.gone_for else ""
    )


def test_every_lab_is_registered_and_seen():
    registered = {name for name in names(RECIPES) if name.startswith("lab6-")}
    assert registered == set(LABS) == set(SEEN)


@pytest.mark.parametrize("name", LABS)
def test_a_lab_shows_what_the_published_scheduler_does(name, tmp_path):
    report = reproduce(LABS[name], output=tmp_path)

    assert odd(report) == []
    starts, waits = SEEN[name]
    story = tell(pl.read_parquet(tmp_path / "lab" / "events.parquet"))
    assert [told(bar) for bar in story.bars] == starts
    assert {wait.who: (wait.from_s, wait.until_s) for wait in story.waits} == waits

    picture = ET.fromstring((tmp_path / "lanes.svg").read_text())  # noqa: S314 - our own
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {*story.nodes, *waits} <= set(texts)
    leaving = [f"{bar.who} leaves for {bar.gone_for}" for bar in story.bars if bar.gone_for]
    assert [text for text in texts if " leaves for " in text] == leaving
    assert "lanes.svg" in own_files(tmp_path)


def test_the_pictures_of_the_pages_are_those_of_the_labs(tmp_path):
    for name, lab in LABS.items():
        output = tmp_path / name
        output.mkdir()
        reproduce(lab, output=output)
        shown = CHECKOUT / "docs" / "labs" / "images" / f"{name}.svg"
        assert shown.read_text() == (output / "lanes.svg").read_text(), f"make {shown} again"


def test_a_wrong_expectation_of_a_lab_fails(tmp_path, monkeypatch):
    for path in labs.FOLDER.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_text(path.read_text())
    planted = json.loads((tmp_path / "gang.json").read_text())
    planted["events"][1]["expect"]["running"] = {"job-5": {"carol": 1}, "job-6": {"dan": 1}}
    (tmp_path / "gang.json").write_text(json.dumps(planted))
    monkeypatch.setattr(labs, "FOLDER", tmp_path)

    report = reproduce(labs.GANG)

    assert report.verdict == CheckVerdict.FAILS
    [wrong] = odd(report)
    assert wrong.quantity == "60 s, job-6 comes"
    assert wrong.ours == "job-5 on carol; job-6 waits although dan idles"


def test_a_scenario_says_for_whom_a_job_had_to_leave():
    scenario = json.loads((labs.FOLDER / "priority.json").read_text())
    scenario["events"][1]["expect"] = {"preempt": {"job-1": "somebody"}}
    [line] = [line for line in run_scenario(scenario, labs.FOLDER) if line.unmet]
    assert line.unmet == ("preempt is {'job-1': 'job-2'}, expected {'job-1': 'somebody'}",)


def test_the_same_labs_depend_on_the_policy(tmp_path):
    """With a queue that knows no cells a job takes the idle node: the labs show something."""
    reproduce(labs.VC_SAFETY, output=tmp_path)
    trace = str(tmp_path / "inputs" / "jobs.csv")
    run = simulate(
        RunConfig(trace=trace, cluster=str(tmp_path / "inputs/lab6a.yaml"), policy="fifo")
    )
    assert {bar.node for bar in tell(run.log).bars} == {"carol", "dan"}


def test_a_picture_of_nothing_and_of_odd_names():
    empty = draw(LabHistory(["n0"], [], []), "nothing")
    assert ET.fromstring(empty).find(f"{SVG}title").text == "nothing"  # noqa: S314
    story = LabHistory(["<n>"], [NodeStay("a&b", "<n>", 0, 5, "c<d")], [QueueStay("a&b", 5, 9)])
    texts = [text.text for text in ET.fromstring(draw(story, "odd")).iter(f"{SVG}text")]  # noqa: S314
    assert {"<n>", "a&b", "a&b leaves for c<d"} <= set(texts)
    assert not re.search(r"nan|inf", draw(story, "odd"))


# --- the studies ----------------------------------------------------------------------------------


@pytest.fixture
def few_tenants(monkeypatch):
    """Shrink the study of cells and quotas."""
    kept = {name: hived_queueing.TENANTS[name] for name in ("0e4a51", "2869ce")}
    monkeypatch.setattr(hived_queueing, "TENANTS", kept)
    monkeypatch.setitem(hived_queueing.SEEDS, Scale.SMALL, (1,))
    monkeypatch.setitem(hived_queueing.DAYS, Scale.SMALL, 1.0)
    monkeypatch.setattr(hived_queueing, "GUESTS", 20)


def test_promised_cells_are_as_good_as_nodes_of_ones_own(few_tenants, tmp_path):
    report = reproduce(hived_queueing.RECIPE, output=tmp_path)

    cells = [check for check in report.checks if "quotas" not in check.quantity]
    assert [check.verdict for check in cells] == [CheckVerdict.AGREES] * 4
    table = pl.read_csv(tmp_path / "series.csv")
    assert sorted(table["sharing"].unique()) == ["cells", "quotas"]
    alike = table.filter(pl.col("sharing") == "cells")
    assert alike["private_wait_s"].to_list() == alike["shared_wait_s"].to_list()
    differ = table.filter(pl.col("sharing") == "quotas")
    assert differ["private_wait_s"].to_list() != differ["shared_wait_s"].to_list()


def test_delays_by_size_are_told_apart(monkeypatch):
    monkeypatch.setitem(yarn_delay.WORKLOADS.seeds, Scale.SMALL, (2,))

    report = reproduce(yarn_delay.RECIPE)

    assert len(report.checks) == 5
    assert [check for check in report.checks if check.verdict == CheckVerdict.FAILS] == []
    grows = report.checks[0]
    assert "1 GPU 0, " in grows.ours


@pytest.mark.parametrize(
    ("gpus", "size"),
    [(0.5, "1 GPU"), (1, "1 GPU"), (2, "2 to 4"), (4, "2 to 4"), (8, "5 to 8"), (9, "more")],
)
def test_sizes_are_classed_as_in_the_study(gpus, size):
    assert yarn_delay._size(gpus) == size


@pytest.mark.soak
@pytest.mark.parametrize("recipe", [hived_queueing.RECIPE, yarn_delay.RECIPE], ids=lambda r: r.name)
def test_the_studies_agree_at_their_small_scale(recipe):
    report = reproduce(recipe)

    assert odd(report) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_scale_of_the_paper_fails_nowhere():
    for recipe in (hived_queueing.RECIPE, yarn_delay.RECIPE):
        report = reproduce(recipe, Scale.PAPER, data=shared("reference"))
        assert [check for check in report.checks if check.verdict == CheckVerdict.FAILS] == []
