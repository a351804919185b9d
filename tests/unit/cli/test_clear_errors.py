"""Huge numbers, full disks, other separators, names in the wrong case: clear, with the remedy."""

import os
import subprocess
import sys

import pytest

from rota.cli.app import run
from rota.core.registry import (
    ADMISSIONS,
    COSTS,
    DIALECTS,
    FORMATS,
    PLACEMENTS,
    POLICIES,
    RATES,
    names,
    unknown,
)

HEAD = "job_id,submit_s,num_gpus,duration_s"
LONG = "9" * 400


@pytest.fixture
def fails(tmp_path, capsys):
    """Return `fails(jobs, cluster, *options)`: what a simulation that must fail says."""

    def start(jobs=f"{HEAD}\na,0,1,10\n", cluster="1x4", *options, code=2):
        (tmp_path / "jobs.csv").write_text(jobs)
        if "nodes:" in cluster:
            (tmp_path / "cluster.yaml").write_text(cluster)
            cluster = str(tmp_path / "cluster.yaml")
        base = ["simulate", str(tmp_path / "jobs.csv"), "--cluster", cluster]
        policy = [] if "--policy" in options else ["--policy", "fifo"]
        assert run([*base, *policy, *options, "-o", str(tmp_path / "out")]) == code
        assert not (tmp_path / "out").exists()
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "--debug" not in said  # not the last resort
        assert len(said) < 1200
        return said

    return start


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,1e400,10", "column 'num_gpus': '1e400' is not a finite number"),
        (f"a,0,{LONG},10", "'99999999999999999999... (400 characters)' is not a finite number"),
        (f"a,0,1,{10**30}", "job 'a': duration_s is 1e+30, more than 1,000,000,000,000: are these"),
        ("a,1e30,1,10", "job 'a': submit_s is 1e+30, more than 1,000,000,000,000: are these"),
        ("a,0,100000000000000000000,10", "job 'a': num_gpus is 1e+20, more than 1,000,000"),
    ],
)
def test_huge_numbers_in_a_trace_are_refused(row, message, fails):
    assert message in fails(f"{HEAD}\n{row}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{count: 1, gpus: 1e400}]", "gpus is '1e400'"),
        (f"nodes: [{{count: 1, gpus: {LONG}}}]", "(400 characters): give 1,000,000 at most"),
        (f"nodes: [{{count: 1, gpus: {10**20}}}]", "give 1,000,000 at most"),
        (f"nodes: [{{count: {LONG}, gpus: 1}}]", "nodes[0]"),
        (f"nodes: [{{gpus: 1}}]\ntenants: [{{name: a, quota: {LONG}}}]", "tenants[0]: quota is 9"),
    ],
)  # fmt: skip
def test_huge_numbers_in_a_cluster_are_refused(text, message, fails):
    assert message in fails(cluster=text)


@pytest.mark.parametrize(
    "options",
    [
        ("--policy", f"las:limits={LONG}"),
        ("--costs", f"custom:start_s={LONG}"),
        ("--costs", "custom:start_s=1e400"),
        ("--mtbf", LONG, "--mttr", "1"),
        ("--limit", "1e400"),
    ],
)
def test_huge_numbers_in_options_are_refused(options, fails):
    assert fails(f"{HEAD}\na,0,1,10\n", "1x4", *options)


@pytest.mark.parametrize("format_", [(), ("--format", "csv")])
@pytest.mark.parametrize(("mark", "called"), [(";", "';'"), ("\t", "tabs")])
def test_other_separators_are_named(mark, called, format_, fails):
    said = fails(f"{HEAD}\na,0,1,10\n".replace(",", mark), "1x4", *format_)
    assert f"columns seem to be separated by {called}" in said
    assert "separate them by commas" in said


@pytest.mark.parametrize(
    "group", [POLICIES, PLACEMENTS, ADMISSIONS, COSTS, RATES, DIALECTS, FORMATS]
)
def test_every_name_is_suggested_in_whatever_case(group):
    known = names(group)
    for name in known:
        for wrong in (name.upper(), name.title(), name.replace("-", "_").capitalize()):
            assert wrong in known or f"did you mean {name!r}?" in unknown("part", wrong, known)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("--policy", "FIFO"),
        ("--placement", "First-Fit"),
        ("--admission", "QUOTA"),
        ("--costs", "Zero"),
        ("--like", "Tiresias"),
        ("--format", "CSV"),
    ],
)
def test_the_command_line_suggests_it(option, wrong, fails):
    said = fails(f"{HEAD}\na,0,1,10\n", "1x4", option, wrong)
    assert f"did you mean {wrong.lower()!r}?" in said


FULL = """
import resource, sys
from rota.cli.app import run
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # what a full disk does, without a disk
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["simulate", "compare", "generate"])
def test_a_full_disk_is_named_with_the_remedy_and_leaves_nothing(command, tmp_path):
    out = tmp_path / "results" / "out"
    out.parent.mkdir()
    rows = "".join(f"j{i},{i},1,{i % 7 + 1}\n" for i in range(400))
    (tmp_path / "jobs.csv").write_text(f"{HEAD}\n{rows}")
    args = [command, str(tmp_path / "jobs.csv"), "--cluster", "1x4", "--policy", "fifo"]
    if command == "compare":
        args += ["--policy", "sjf"]
    if command == "generate":
        args = ["trace", "generate", "gavel-like", "--jobs", "400", "--cluster", "1x4"]
        args += ["--load", "0.9", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *args, "-o", str(out)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert str(out) in done.stderr
    assert "free some space or choose a place on another disk; nothing was written" in done.stderr
    assert list(out.parent.iterdir()) == []


def test_too_little_memory_is_told_with_a_remedy(tmp_path, capsys):
    args = ["trace", "generate", "poisson", "--jobs", str(10**14), "--cluster", "1x4"]
    assert run([*args, "--load", "1", "-o", str(tmp_path / "jobs.csv")]) == 1

    said = capsys.readouterr().err
    assert said.startswith("error: this machine has too little memory for it (Unable to allocate ")
    assert "ask for less (fewer jobs," in said
    assert not list(tmp_path.iterdir())


def test_a_command_whose_output_nobody_reads_ends_with_a_code(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", buffering=1) as output:
        os.dup2(writer, output.fileno())
        monkeypatch.setattr(sys, "stdout", output)

        code = run(["policy", "ls"])

        with os.fdopen(
            os.open(os.devnull, os.O_WRONLY)
        ) as nothing:  # what is left to write goes here
            os.dup2(nothing.fileno(), output.fileno())
    os.close(writer)
    assert code == 1
