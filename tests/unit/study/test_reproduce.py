"""Recipes: what a check says, what a verdict is, and what is written; with a small one of ours."""

import csv
import json
import re

import polars as pl
import pytest

from rota.cli.reproduce import reproduce as command
from rota.core import registry
from rota.core.errors import InputError, OptionError
from rota.core.registry import RECIPES
from rota.reproduce import recipe as checks
from rota.reproduce.recipe import CheckVerdict, Recipe, RecipeSetting, Scale, by_job
from rota.reproduce.run import (
    find_recipe,
    lacking,
    overall,
    own_files,
    reproduce,
    settle,
)
from rota.study.config import RunConfig
from rota.study.rerun import rerun
from rota.traces.synth.generate import generate
from shared_data import CHECKOUT

AGREES, DEVIATES, FAILS = CheckVerdict


class Tiny(Recipe):
    """Ten jobs on an empty cluster: nobody waits."""

    name = "tiny"
    summary = "nobody waits"
    paper = "nobody's"
    source = "arithmetic"
    takes = {Scale.SMALL: "no time", Scale.PAPER: "no time"}
    leaves_out = "half of the jobs"
    known = ("there is nothing to know",)
    theirs = 0.0

    def runs(self, setting):
        jobs = 5 if setting.small else 10
        workload = generate("poisson", jobs=jobs, gpus=8, load=0.1, seed=1, options={})
        trace = setting.keep(workload, "ten")
        return {"fifo": RunConfig(trace=trace, cluster="4x8", policy="fifo")}

    def checks(self, setting, runs):
        wait_s = runs["fifo"].summary["avg_wait_s"]
        return [
            checks.within("mean wait (s)", wait_s, self.theirs),
            checks.holds("jobs", "5 or 10", runs["fifo"].extra, ok=runs["fifo"].extra in (5, 10)),
        ]

    def digest(self, result):
        return result.jobs.height

    def series(self, runs):
        return runs["fifo"].jobs.select("job_id", "wait_s")


class Wrong(Tiny):
    """It expects what cannot be."""

    name = "wrong"
    theirs = 7.0


class Hungry(Tiny):
    """It wants data."""

    name = "hungry"
    needs = ("somebody/results.csv",)


TINY, WRONG, HUNGRY = Tiny(), Wrong(), Hungry()


@pytest.fixture
def recipes(monkeypatch):
    """Register the recipes of this module, and no others."""
    entries = {
        recipe.name: f"{__name__}:{variable}"
        for variable, recipe in (("TINY", TINY), ("WRONG", WRONG), ("HUNGRY", HUNGRY))
    }
    before = registry._entries

    def found(group):
        return entries if group == RECIPES else before(group)

    monkeypatch.setattr(registry, "_entries", found)


@pytest.fixture
def rota(recipes, capsys, monkeypatch, tmp_path):
    """Return `rota(*args)`: (exit code, stdout, stderr) of `rota reproduce`."""
    monkeypatch.delenv("ROTA_DATA", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = command.main(list(args), "rota reproduce", standalone_mode=False)
        captured = capsys.readouterr()
        return code or 0, captured.out, captured.err

    return call


# --- checks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (checks.within("x", 10.0, 10.0), AGREES),
        (checks.within("x", 10.1, 10.0), FAILS),
        (checks.within("x", 10.1, 10.0, known="rounded"), DEVIATES),
        (checks.within("x", 10.1, 10.0, relative=0.01), AGREES),
        (checks.within("x", 10.11, 10.0, relative=0.01), FAILS),
        (checks.within("x", 10.5, 10.0, absolute=0.5), AGREES),
        (checks.within("x", -10.1, -10.0, relative=0.01), AGREES),
        (checks.within("x", float("nan"), 10.0, relative=0.5), FAILS),
        (checks.between("x", 1.0, 1.0, 2.0), AGREES),
        (checks.between("x", 2.1, 1.0, 2.0), FAILS),
        (checks.ordered("x", {"a": 1.0, "b": 1.0, "c": 2.0}), AGREES),
        (checks.ordered("x", {"a": 1.0, "b": 0.99}), FAILS),
        (checks.ordered("x", {"a": 1.0, "b": 0.995}, slack=0.01), AGREES),
        (checks.ordered("x", {"a": 2.0, "b": 1.0}, known="small sample"), DEVIATES),
        (checks.same_rows("x", {"0": 1.0}, {"0": 1}), AGREES),
        (checks.same_rows("x", {}, {}), FAILS),
        (checks.same_rows("x", {"0": 1, "1": 2}, {"0": 1, "1": 3}), FAILS),
        (checks.same_rows("x", {"0": 1}, {"0": 1, "1": 3}), FAILS),
        (checks.same_rows("x", {"0": 1, "1": 3}, {"0": 1}), FAILS),
        (checks.same_rows("x", {"0": 1}, {"0": 2}, known={"0": "a tie"}), DEVIATES),
        (checks.same_rows("x", {"0": 1, "1": 1}, {"0": 2, "1": 2}, known={"0": "a tie"}), FAILS),
    ],
)
def test_a_check_comes_to_a_verdict(check, verdict):
    assert check.verdict == verdict


def test_different_rows_are_counted_and_the_first_are_named():
    theirs = {str(job): job for job in range(10)}
    ours = {job: value + (value > 4) for job, value in theirs.items()}

    check = checks.same_rows("ends", ours, theirs)

    assert check.ours == "5 of 10 equal"
    assert check.reason == (
        "different: job 5: ours 6, theirs 5; job 6: ours 7, theirs 6; job 7: ours 8, theirs 7; "
        "and 2 more"
    )


def test_the_reason_is_told_only_where_something_differs():
    assert checks.within("x", 1.0, 1.0, known="rounded").reason == ""
    assert checks.within("x", 2.0, 1.0, known="rounded").reason == "rounded"


def test_the_verdict_is_the_worst_of_the_checks():
    good = checks.within("x", 1.0, 1.0)
    odd = checks.within("x", 2.0, 1.0, known="rounded")
    bad = checks.within("x", 2.0, 1.0)

    assert overall([good, good]) == AGREES
    assert overall([good, odd]) == DEVIATES
    assert overall([bad, odd, good]) == FAILS
    assert overall([]) == FAILS


# --- carrying out ---------------------------------------------------------------------------------


def test_a_recipe_is_carried_out_at_its_scale():
    small, paper = reproduce(TINY), reproduce(TINY, Scale.PAPER)

    assert (small.verdict, small.checks[1].ours) == (AGREES, 5)
    assert (paper.verdict, paper.checks[1].ours) == (AGREES, 10)
    assert small.leaves_out == "half of the jobs"
    assert paper.leaves_out == ""


def test_a_wrong_expectation_fails():
    report = reproduce(WRONG)

    assert report.verdict == FAILS
    assert [check.verdict for check in report.checks] == [FAILS, AGREES]


def test_missing_data_are_named_with_the_remedy(tmp_path):
    with pytest.raises(InputError, match=r"^somebody/results.csv: .* --data or ROTA_DATA$"):
        reproduce(HUNGRY)
    with pytest.raises(InputError, match=f"{tmp_path} has none"):
        reproduce(HUNGRY, data=tmp_path)
    assert lacking(HUNGRY, tmp_path) == ["somebody/results.csv"]


def test_data_are_found_below_their_folder(tmp_path):
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "results.csv").touch()

    assert RecipeSetting(Scale.SMALL, tmp_path).find("somebody") is None
    assert RecipeSetting(Scale.SMALL, tmp_path, tmp_path).find("somebody/others.csv") is None
    assert lacking(HUNGRY, tmp_path) == []
    assert reproduce(HUNGRY, data=tmp_path).verdict == AGREES


def test_a_run_that_breaks_is_named(monkeypatch):
    monkeypatch.setattr(Tiny, "digest", lambda self, result: 1 / 0)

    with pytest.raises(ZeroDivisionError) as caught:
        reproduce(TINY)

    assert caught.value.__notes__ == ["in the run fifo of tiny"]


def test_progress_is_told():
    told = []

    reproduce(TINY, told=lambda *args: told.append(args))

    assert told == [("fifo", 1, 1)]


def test_files_of_an_earlier_reproduction_are_known(tmp_path):
    reproduce(TINY, output=tmp_path)
    (tmp_path / "mine.txt").touch()

    own = own_files(tmp_path)

    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written - set(own) == {"mine.txt"}


def test_a_folder_without_a_verdict_owns_nothing_below(tmp_path):
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "mine.csv").touch()

    assert own_files(tmp_path) == ["verdict.json", "checks.csv", "series.csv", "report.html"]


def test_runs_can_be_made_again_where_the_folder_ends_up(tmp_path):
    first, target = tmp_path / "part", tmp_path / "kept"
    first.mkdir()
    reproduce(TINY, output=first)
    settle(first, target)
    first.rename(target)

    assert rerun(target / "fifo").same


def test_the_recipe_of_the_guide_works():
    page = (CHECKOUT / "docs" / "how-to" / "reproduce.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    made = {}
    exec(code, made)  # noqa: S102 - it is ours

    assert reproduce(made["RECIPE"]).verdict == AGREES


def test_registered_recipes_are_complete_and_described():
    page = (CHECKOUT / "docs" / "reference" / "recipes.md").read_text()
    found = {name: find_recipe(name) for name in registry.names(RECIPES)}

    assert {"tiresias-artifact", "blox-artifact", "blox-fig6", "yarn-cs-locality"} <= set(found)
    for name, recipe in found.items():
        assert recipe.name == name
        assert f"rota reproduce {name}" in page
        assert set(recipe.takes) == set(Scale)
        assert recipe.summary
        assert recipe.paper
        assert recipe.source


# --- the command ----------------------------------------------------------------------------------


def test_recipes_are_listed(rota):
    code, out, _ = rota("ls", "-o", "json")

    rows = {row["recipe"]: row for row in json.loads(out)}
    assert code == 0
    assert list(rows) == ["tiny", "wrong", "hungry"]
    assert rows["hungry"]["needs"] == "somebody/results.csv"
    assert rows["tiny"] == {
        "recipe": "tiny",
        "what": "nobody waits",
        "paper": "nobody's",
        "small takes": "no time",
        "paper takes": "no time",
        "needs": "nothing",
    }


def test_a_table_and_the_verdict_are_printed(rota):
    code, out, _ = rota("tiny")

    assert code == 0
    assert "mean wait (s)" in out
    assert "known: there is nothing to know" in out
    assert "small leaves out: half of the jobs" in out
    assert "verdict: agrees (checks: 2 agree, 0 deviate, 0 fail;" in out


def test_the_exit_code_tells_a_failure(rota):
    code, out, _ = rota("wrong", "--json")

    data = json.loads(out)
    assert code == 1
    assert data["verdict"] == "fails"
    assert data["checks"][0] == {
        "quantity": "mean wait (s)",
        "theirs": 7.0,
        "ours": 0.0,
        "expected": "equal",
        "verdict": "fails",
        "reason": "",
    }


def test_all_leaves_out_what_has_no_data(rota):
    code, out, err = rota("all", "--scale", "paper", "-o", "out")

    assert code == 1
    assert "hungry: left out, it needs somebody/results.csv" in err
    assert out.count("verdict: ") == 2
    assert "tiny" in out.splitlines()[-3]


def test_an_unknown_recipe_is_refused(rota):
    with pytest.raises(OptionError, match=r"unknown recipe 'tinny': did you mean 'tiny'\?"):
        rota("tinny")


def test_results_are_written(rota, tmp_path):
    rota("tiny", "-o", "out")

    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "checks.csv", "fifo", "inputs", "report.html", "series.csv", "verdict.json",
    ]  # fmt: skip
    with (out / "checks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["quantity"], row["ours"], row["verdict"]) for row in rows] == [
        ("mean wait (s)", "0.0", "agrees"),
        ("jobs", "5", "agrees"),
    ]
    assert json.loads((out / "verdict.json").read_text())["runs"] == ["fifo"]
    assert rerun(out / "fifo").same


def test_a_second_time_needs_force(rota, tmp_path):
    rota("tiny", "-o", "out", "--scale", "paper")
    with pytest.raises(Exception, match="is not empty"):
        rota("tiny", "-o", "out")

    code, _, _ = rota("tiny", "-o", "out", "--force")

    assert code == 0
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["scale"] == "small"


def test_data_may_be_named_in_the_environment(rota, tmp_path, monkeypatch):
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "results.csv").touch()
    monkeypatch.setenv("ROTA_DATA", str(tmp_path))

    code, out, _ = rota("hungry")

    assert code == 0
    assert "verdict: agrees" in out


def test_names_are_completed(recipes):
    ctx = command.make_context("reproduce", ["ls"])

    found = [item.value for item in command.shell_complete(ctx, "")]

    assert found == ["all", "ls", "tiny", "wrong", "hungry"]


def test_a_job_with_two_recorded_rows_is_refused():
    table = pl.DataFrame({"job_id": ["a", "a"], "end_s": [1.0, 2.0]})
    with pytest.raises(InputError, match="job a has several rows"):
        by_job(table, ["end_s"])
