"""Every recipe at its small scale: what was published comes out again."""

import pytest

from rota.reproduce.blox import admission as blox_admission
from rota.reproduce.blox import fig6 as blox_fig6
from rota.reproduce.blox import recipe as blox
from rota.reproduce.helios import recipe as helios
from rota.reproduce.lucid import recipe as lucid
from rota.reproduce.pai import recipe as pai
from rota.reproduce.recipe import CheckVerdict, Scale
from rota.reproduce.run import reproduce
from rota.reproduce.tiresias import recipe as tiresias
from rota.reproduce.yarn import locality as yarn_locality
from shared_data import shared

RECORDED = {module.RECIPE.name: module.RECIPE for module in (blox, helios, lucid, pai, tiresias)}
DRAWN = {module.RECIPE.name: module.RECIPE for module in (blox_admission, blox_fig6, yarn_locality)}
RUNS = {
    "blox-artifact": 11,
    "helios-artifact": 4,
    "lucid-artifact": 12,
    "pai-artifact": 3,
    "tiresias-artifact": 23,
}


def odd(report):
    """Return the checks that do not agree."""
    return [check for check in report.checks if check.verdict != CheckVerdict.AGREES]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_results_come_out_job_by_job(name):
    recipe, told = RECORDED[name], []
    data = shared("reference")

    report = reproduce(recipe, data=data, told=lambda label, *_: told.append(label))

    assert odd(report) == []
    assert len(told) == RUNS[name]
    assert sum("equal job by job" in check.expected for check in report.checks) >= RUNS[name] - 3


def check_shapes(recipe):
    report = reproduce(recipe)

    assert odd(report) == []
    assert len(report.checks) >= 4


def test_the_steady_state_of_blox_comes_out_without_any_data(monkeypatch):
    monkeypatch.setitem(blox_fig6.LOADS, Scale.SMALL, (1.0, 4.0))
    check_shapes(blox_fig6.RECIPE)


def test_what_thresholds_do_to_bursts_comes_out_without_any_data(monkeypatch):
    monkeypatch.setitem(blox_admission.SEEDS, Scale.SMALL, (1,))
    monkeypatch.setitem(blox_admission.JOBS, Scale.SMALL, 1_500)
    monkeypatch.setitem(blox_admission.MEASURED, Scale.SMALL, "ids=500:1000")
    check_shapes(blox_admission.RECIPE)


def test_what_locality_costs_comes_out_without_any_data(monkeypatch):
    monkeypatch.setitem(yarn_locality.WORKLOADS.seeds, Scale.SMALL, (2,))
    monkeypatch.setitem(yarn_locality.WORKLOADS.jobs, Scale.SMALL, 1_000)
    check_shapes(yarn_locality.RECIPE)


@pytest.mark.soak
@pytest.mark.parametrize("name", DRAWN)
def test_shapes_of_figures_come_out_without_any_data(name):
    check_shapes(DRAWN[name])


def test_recorded_jobs_of_philly_are_compared_where_they_are(monkeypatch):
    monkeypatch.setitem(yarn_locality.WORKLOADS.seeds, Scale.SMALL, (1,))
    monkeypatch.setitem(yarn_locality.WORKLOADS.jobs, Scale.SMALL, 300)

    report = reproduce(yarn_locality.RECIPE, data=shared("reference"))

    found = [check for check in report.checks if check.quantity.startswith("philly1000: ")]
    assert [check.verdict for check in found] == [CheckVerdict.AGREES] * 4


def test_a_wrong_recorded_value_fails(tmp_path, monkeypatch):
    data = shared("reference")
    for folder in ("common", "pai/philly300", "pai/philly1000"):
        (tmp_path / folder).mkdir(parents=True)
        for path in (data / folder).glob("*.csv"):
            (tmp_path / folder / path.name).symlink_to(path)
    planted = tmp_path / "pai/philly300/FIFO_1node_jobs.csv"
    lines = planted.read_text().splitlines()
    cells = lines[7].split(",")
    cells[4] = str(int(cells[4]) + 1)
    planted.unlink()
    planted.write_text("\n".join([*lines[:7], ",".join(cells), *lines[8:]]) + "\n")

    report = reproduce(pai.RECIPE, data=tmp_path)

    assert report.verdict == CheckVerdict.FAILS
    assert [check.quantity for check in odd(report)] == ["philly300-fifo: end_s"]
    assert odd(report)[0].ours == "299 of 300 equal"
    assert f"job {cells[0]}: ours" in odd(report)[0].reason


def test_runs_in_processes_give_the_same():
    recipe, data = pai.RECIPE, shared("reference")

    alone, together = reproduce(recipe, data=data), reproduce(recipe, data=data, workers=2)

    assert together.checks == alone.checks
    assert alone.verdict == CheckVerdict.AGREES


@pytest.mark.soak
@pytest.mark.parametrize("name", [*DRAWN, "blox-artifact"])
def test_the_scale_of_the_paper_agrees_too(name):
    report = reproduce({**DRAWN, **RECORDED}[name], Scale.PAPER, data=shared("reference"))

    assert [check for check in odd(report) if check.verdict == CheckVerdict.FAILS] == []
    assert all(check.quantity.startswith("philly5k: ") for check in odd(report))
    assert report.leaves_out == ""
