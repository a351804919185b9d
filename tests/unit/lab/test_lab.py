"""The grader passes what is right, and says of what is wrong why."""

import json
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from rota.cli.app import run
from rota.lab import check, play
from rota.lab.exercises import EXERCISES
from rota.lab.page import notebook_of
from shared_data import CHECKOUT
from thinning import first

SOLUTIONS = CHECKOUT / "examples" / "labs" / "solutions"
NOTEBOOKS = CHECKOUT / "examples" / "notebooks"


def solution(name):
    return (SOLUTIONS / f"{name}.py").read_text()


def changed(name, old, new):
    """Return a solution with a mistake in it."""
    text = solution(name)
    assert text.count(old) == 1, f"{old!r} is in the solution once"
    return text.replace(old, new)


@cache
def graded(name, text):
    """Grade a text, once: some of what is wrong is what an exercise starts from."""
    with NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        return check(name, Path(file.name))


WRONG = {
    "the longest first": (
        "srtf", changed("srtf", "return job.remaining_s(now_s)", "return -job.remaining_s(now_s)"),
        "contract of policies", "breaks the promise of its keys",
    ),
    "a key without its slope": (
        "srtf", changed("srtf", "return -job.rate if job.phase == RUNNING else -1.0", "return 0.0"),
        "contract of policies", "breaks the promise of its keys",
    ),
    "by the whole length": (
        "srtf",
        changed("srtf", "return job.remaining_s(now_s)", "return job.duration_s()").replace(
            "return -job.rate if job.phase == RUNNING else -1.0", "return 0.0"
        ),
        "who is nearly done is not displaced", "what counts is what remains",
    ),
    "whatever fits starts": (
        "backfill", changed("backfill", "plan.withdraw(job)", "pass"),
        "a long job does not", "the head needs all four at 10 s",
    ),
    "only what ends before the head starts": (
        "backfill",
        changed("backfill", "            if not plan.place(job):\n",
                "            if end_s > promised_s or not plan.place(job):\n"),
        "a long job beside the head", "the fourth may be used for any length of time",
    ),
    "the emptiest node": (
        "packing", EXERCISES["packing"].starter,
        "two small jobs share a node", "no node is",
    ),
    "in the order of submission": (
        "heterogeneity", EXERCISES["heterogeneity"].starter,
        "two jobs, two GPUs", "who came first does not matter",
    ),
    "the oldest takes all": (
        "elasticity", EXERCISES["elasticity"].starter,
        "a newcomer is served at once", "shrinks when somebody comes",
    ),
    "nobody grows": (
        "elasticity", changed("elasticity", "while left and growing:", "while False:"),
        "who is left grows", "may use all eight GPUs",
    ),
    "an oracle": (
        "own", solution("srtf"),
        "a policy that knows nothing", "here it may know nothing",
    ),
    "first come, first served": (
        "own", EXERCISES["own"].starter,
        "mean JCT on 200 jobs", "who has used little so far will probably end soon",
    ),
    "it crashes": (
        "own",
        changed("own", "= view.plan()\n", "= view.plan()\n        1 / 0\n"),
        "mean JCT on 200 jobs", "line 24 (`1 / 0`): ZeroDivisionError",
    ),
    "it leaves": (
        "own",
        changed("own", "= view.plan()\n", "= view.plan()\n        raise SystemExit(0)\n"),
        "mean JCT on 200 jobs", "line 24 (`raise SystemExit(0)`): SystemExit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXERCISES)
def test_our_solution_passes(name):
    result = graded(name, solution(name))
    assert [
        (verdict.check, verdict.told) for verdict in result.verdicts if not verdict.passed
    ] == []
    assert result.passed
    assert result.points == result.of == len(EXERCISES[name].checks)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_file_to_start_from_runs_and_is_no_solution(name):
    result = graded(name, EXERCISES[name].starter)
    assert [verdict.passed for verdict in result.verdicts[:2]] == [True, True]
    assert not result.passed


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told(what):
    exercise, text, where, why = WRONG[what]
    result = graded(exercise, text)
    assert not result.passed
    missed = {verdict.check: verdict.told for verdict in result.verdicts if not verdict.passed}
    (told,) = [told for name, told in missed.items() if where in name]
    assert why in told
    assert f"{result.points} of {result.of} checks passed" in str(result)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nothing_of_this_name\n", "nothing_of_this_name"),
        ("raise SystemExit(0)\n", "importing it fails with SystemExit: 0"),
    ],
)
def test_a_file_that_cannot_be_used_is_not_tried_further(text, told, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text)
    result = check("own", file)
    assert len(result.verdicts) == 1
    assert told in result.verdicts[0].told
    assert not result.passed
    assert "the other 3 checks were not tried" in str(result)


# --- the command ----------------------------------------------------------------------------------


def test_from_the_first_file_to_the_grade(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["lab", "ls", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == list(EXERCISES)
    assert run(["lab", "show", "backfill"]) == 0
    assert EXERCISES["backfill"].task in capsys.readouterr().out
    assert run(["lab", "start", "backfill", "-o", "mine.py"]) == 0
    assert run(["lab", "start", "backfill", "-o", "mine.py"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert run(["lab", "check", "backfill", "mine.py", "-o", "json"]) == 1
    grade = json.loads(capsys.readouterr().out)
    assert (grade["passed"], grade["of"]) == (False, 6)
    (tmp_path / "mine.py").write_text(solution("backfill"))
    assert run(["lab", "check", "backfill", "mine.py"]) == 0
    assert "6 of 6 checks passed" in capsys.readouterr().out


def test_a_solution_that_never_ends_has_failed(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("while True:\n    try:\n        pass\n    except Exception:\n        pass\n")
    assert run(["lab", "check", "own", str(file), "--timeout", "1"]) == 2
    assert "does it loop for ever?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["check", "srft", "x.py"], "did you mean 'srtf'?"),
        (["check", "own", "x.py"], "there is no such file"),
        (["start", "own", "-o", "no/such/folder.py"], "No such file or directory"),
        (["notebook", "none", "-o", "x.ipynb"], "exercise 'none' is unknown"),
    ],
)
def test_mistakes_are_named(options, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["lab", *options]) != 0
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- notebooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXERCISES)
def test_the_notebooks_are_those_that_the_command_writes(name):
    assert (NOTEBOOKS / f"lab-{name}.ipynb").read_text() == notebook_of(EXERCISES[name])


@pytest.mark.parametrize("name", first(2, EXERCISES))  # all are written by the same function
def test_the_cells_of_a_notebook_run(name, tmp_path, monkeypatch, capsys):
    """As in a notebook; whether Jupyter runs cells is Jupyter's matter."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((NOTEBOOKS / f"lab-{name}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names = {}
    for text in code:
        first, _, rest = text.partition("\n")
        if first.startswith("%%writefile "):
            (tmp_path / first.removeprefix("%%writefile ")).write_text(rest + "\n")
        else:
            exec(compile(text, "cell", "exec"), names)  # noqa: S102 - our own notebook
    told = capsys.readouterr().out
    assert f"of {len(EXERCISES[name].checks)} checks passed" in told
    assert "MISSED" in told


def test_a_scene_can_be_looked_at():
    seen = play("srtf", "three jobs, one GPU", SOLUTIONS / "srtf.py")
    assert seen.jobs["end_s"].to_list() == [14.0, 5.0, 3.0]
    assert seen.plot_gantt()._repr_png_().startswith(b"\x89PNG")
