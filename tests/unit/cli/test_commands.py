"""The other commands, and what all of them have in common."""

import json
import subprocess
import sys

import click
import pytest
import yaml

from rota import __version__
from rota.cli.app import LazyGroup
from rota.cli.app import rota as root
from rota.cli.options import Finite
from rota.core.registry import POLICIES, names


def commands(command=root, path=("rota",)):
    """Return all commands with their paths."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found += commands(command.get_command(ctx, name), (*path, name))
    return found


LEAVES = {path: command for path, command in commands() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_teaches_by_example(rota, path):
    code, out, _ = rota(*path[1:], "--help")

    assert code == 0
    assert "Example" in out
    assert f"rota {' '.join(path[1:])} " in out


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_environment_variables_are_called_like_the_options(path):
    for param in LEAVES[path].params:
        if isinstance(param, click.Option):
            longest = max(param.opts, key=len)
            assert param.name == longest.removeprefix("--").replace("-", "_")
            assert param.hidden or param.help


def test_no_option_takes_nan_for_a_number():
    loose = [
        (*path, param.name)
        for path, command in LEAVES.items()
        for param in command.params
        if isinstance(param.type, click.types.FloatParamType) and not isinstance(param.type, Finite)
    ]
    assert not loose


def test_the_listed_help_is_that_of_the_command():
    assert isinstance(root, LazyGroup)
    for name in root.list_commands(click.Context(root)):
        assert root.get_command(click.Context(root), name).name == name


def test_version(rota):
    assert rota("--version") == (0, f"rota {__version__}\n", "")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["simulate", "--help"]])
def test_help_imports_nothing_heavy(args):
    script = (
        "import sys\n"
        "from rota.cli.app import run\n"
        f"assert run({args!r}) == 0\n"
        "heavy = {'polars', 'numpy', 'matplotlib', 'rich', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr


def test_a_command_that_does_not_exist(rota):
    code, out, err = rota("nonsense")

    assert (code, out) == (2, "")
    assert "No such command 'nonsense'" in err


# --- listings ------------------------------------------------------------------------------------


def test_policies_as_a_table(rota):
    code, out, _ = rota("policy", "ls")

    assert code == 0
    assert all(name in out for name in names(POLICIES))
    assert "remaining work" in out


@pytest.mark.parametrize(("style", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_policies_as_data(rota, style, read):
    _, out, _ = rota("policy", "ls", "-o", style)

    rows = read(out)
    assert [row["name"] for row in rows] == names(POLICIES)
    assert {"name", "knows", "parameters", "what"} == set(rows[0])


def test_a_policy_explained(rota):
    code, out, _ = rota("policy", "show", "tiresias")

    assert code == 0
    assert "NSDI 2019" in out
    assert "limits = 3250/7200  (numbers, a/b/c)" in out
    assert "knowledge:  nothing" in out
    assert "Departs from the paper" in out


def test_every_parameter_is_told_in_its_own_place(rota):
    _, out, _ = rota("costs", "show", "custom")
    lines = out.splitlines()
    at = lines.index("    first_s = None  (number, at least 0)")
    assert lines[at + 1] == "        Instead of `start_s` at a job's first start."
    assert "Attributes:" not in out
    _, out, _ = rota("costs", "show", "custom", "-o", "json")
    told = {one["name"]: one["about"] for one in json.loads(out)["parameters"]}
    assert told["slow_factor"] == "See `slow_s`."
    assert told["checkpoint_s"] == ""


def test_a_policy_as_data(rota):
    _, out, _ = rota("policy", "show", "tiresias", "-o", "json")

    about = json.loads(out)
    assert [param["name"] for param in about["parameters"]] == ["limits", "promote"]
    assert about["departures"]


def test_a_policy_of_ones_own_explained(rota, here):
    (here / "mine.py").write_text(
        "'''Most GPUs first.'''\n"
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Mine(PriorityPolicy[Params]):\n"
        "    '''Serve the largest.'''\n"
        "    def key(self, job, now_s): return -job.gpus\n"
    )
    _, out, _ = rota("policy", "show", "mine.py")

    assert out.startswith("mine.py: Serve the largest.")
    assert "parameters: none" in out


def test_an_unknown_policy_explained(rota):
    code, _, err = rota("policy", "show", "fifi")

    assert code == 2
    assert "did you mean 'fifo'" in err


@pytest.mark.parametrize("kind", ["placement", "admission", "costs", "rates", "dialect"])
def test_other_parts_are_listed_and_explained(rota, kind):
    _, out, err = rota(kind, "ls", "-o", "json")
    rows = json.loads(out)

    assert rows, err
    assert not err
    for row in rows:
        assert row["what"]
        assert rota(kind, "show", row["name"])[0] == 0


def test_a_part_that_cannot_be_loaded_does_not_hide_the_others(rota, monkeypatch):
    monkeypatch.setattr("rota.core.registry.names", lambda group: ["fifo", "broken"])
    code, out, err = rota("policy", "ls")

    assert code == 0
    assert "fifo" in out
    assert "warning: broken" in err


# --- traces --------------------------------------------------------------------------------------


def test_a_generated_trace_can_be_simulated(rota, here):
    code, out, err = rota(
        "trace", "generate", "philly-like", "--jobs", "50", "--cluster", "2x8", "--load", "0.95",
        "--seed", "1", "-o", "made.csv",
    )  # fmt: skip

    assert (code, out) == (0, "")
    assert "made.csv: 50 jobs, load 0.95" in err
    done = rota("simulate", "made.csv", "--cluster", "2x8", "--policy", "las", "-o", "out")
    assert done[0] == 0


def test_a_generated_trace_is_not_overwritten(rota, here):
    args = ("trace", "generate", "poisson", "--jobs", "50", "--cluster", "1x8", "-o", "jobs.csv")
    before = (here / "jobs.csv").read_bytes()
    code, _, err = rota(*args)

    assert code == 1
    assert "--force" in err
    assert (here / "jobs.csv").read_bytes() == before
    assert rota(*args, "--force")[0] == 0
    assert (here / "jobs.csv").read_bytes() != before


def test_options_of_a_generator(rota, here):
    rota("trace", "generate", "poisson:vcs=3", "--jobs", "30", "--cluster", "1x8", "-o", "a.csv")

    assert (here / "a.csv").read_text().splitlines()[0].endswith(",vc")


@pytest.mark.parametrize(("kind", "named"), [("nope", "nope"), ("poisson:a=1", "'a'")])
def test_unknown_generators_and_options(rota, here, kind, named):
    code, _, err = rota("trace", "generate", kind, "--jobs", "9", "--cluster", "1x8", "-o", "a.csv")

    assert code == 2
    assert named in err
    assert not (here / "a.csv").exists()


def test_formats(rota):
    _, out, _ = rota("trace", "formats", "-o", "json")

    assert {row["format"] for row in json.loads(out)} >= {"csv", "philly", "tiresias"}


def test_convert(rota, here):
    (here / "t.csv").write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,2,5,10,vgg16,60,1\n"
    )
    code, _, err = rota("trace", "convert", "t.csv", "--format", "tiresias", "-o", "plain.csv")

    assert code == 0, err
    assert (here / "plain.csv").read_text().startswith("job_id,submit_s,num_gpus,duration_s")


# --- comparing -----------------------------------------------------------------------------------


def test_compare(rota, here):
    code, out, err = rota(
        "compare", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--policy", "srtf",
        "-o", "report",
    )  # fmt: skip

    assert code == 0
    assert "remaining work" in out
    assert "1.000" in out
    assert "report.html" in err
    page = (here / "report" / "report.html").read_text()
    assert '"folder":"report"' in page  # not the hidden one in which it was written
    assert rota("report", "report", "--figures", "none")[0] == 0
    assert (here / "report" / "report.html").read_text() == page
    assert rota("rerun", "report/srtf")[0] == 0


def test_compare_leaves_nothing_when_one_policy_is_wrong(rota, here):
    code, out, err = rota(
        "compare", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--policy", "nope",
        "-o", "report",
    )  # fmt: skip

    assert (code, out) == (2, "")
    assert "nope" in err
    assert not (here / "report").exists()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--policy", "fifo", "-o", "report"], "'--cluster'"),
        (["--cluster", "1x8", "-o", "report"], "'--policy'"),
        (["--cluster", "1x8", "--policy", "fifo"], "'--output'"),
    ],
)
def test_compare_needs(rota, args, named):
    code, _, err = rota("compare", "jobs.csv", *args)

    assert code == 2
    assert named in err


# --- shells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(rota, shell):
    code, out, _ = rota("completion", shell)

    assert code == 0
    assert "_ROTA_COMPLETE" in out


def test_names_are_completed():
    script = "from rota.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={
            "_ROTA_COMPLETE": "bash_complete", "COMP_WORDS": "rota simulate --policy tir",
            "COMP_CWORD": "3",
        },
    )  # fmt: skip

    assert result.stdout.strip() == "plain,tiresias"
