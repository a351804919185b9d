"""Scripts for Slurm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.jobfile.arrays import expanded
from rota.jobfile.convert import to_launch
from rota.jobfile.model import Checkpoint, Resources
from rota.jobfile.read import read_jobs, read_translated
from rota.jobfile.sbatch import FLAGS, HONOURED, LEFT_OUT, SHORT


def script(*options, body="python train.py"):
    lines = [f"#SBATCH {option}" for option in options]
    return "\n".join(["#!/bin/bash", *lines, "", body, ""])


def read(*options, body="python train.py"):
    (found,) = read_translated(script(*options, body=body))
    return found


def job(*options):
    return read(*options).job


def test_a_typical_script():
    found = read(
        "--job-name=bert", "-p research", "--gres=gpu:a100:4", "-c 8", "--mem=64G",
        "--time=1-12:00:00", "--signal=B:TERM@120", "--dependency=afterok:12:13", "--hold",
        "--requeue", "--chdir=/data", "--export=NONE,LR=0.1",
    )  # fmt: skip

    job = found.job
    assert (job.name, job.queue, job.workdir, job.hold) == ("bert", "research", "/data", True)
    assert job.resources == Resources(4, "a100", 8.0, 64.0)
    assert (job.time_limit, job.estimate) == (129600, None)
    assert job.checkpoint == Checkpoint(grace_s=120.0)
    assert job.depends_on == ("12", "13")
    assert job.envs == {"LR": "0.1"}
    assert job.run.endswith("python train.py\n")
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("options", "nodes", "gpus", "kind"),
    [
        ([], 1, 0, ""),
        (["--gres=gpu"], 1, 1, ""),
        (["--gres=gpu:2"], 1, 2, ""),
        (["--gres gpu:a100:2"], 1, 2, "a100"),
        (["--gres=gpu:a100"], 1, 1, "a100"),
        (["--gpus=8", "-N2"], 2, 4, ""),
        (["-G h100:8", "--nodes 2"], 2, 4, "h100"),
        (["--gpus-per-node=a100:4", "-N=3"], 3, 4, "a100"),
        (["--gpus-per-task=1", "--ntasks=8", "-N 2"], 2, 4, ""),
        (["--gpus-per-task=1", "--ntasks-per-node=2"], 1, 2, ""),
        (["--gres=gpu:4", "--gpus-per-node=4"], 1, 4, ""),
    ],
)
def test_gpus(options, nodes, gpus, kind):
    found = job(*options)
    assert (found.nodes, found.resources.gpus, found.resources.gpu_type) == (nodes, gpus, kind)


@pytest.mark.parametrize(
    ("options", "cpus", "mem"),
    [
        (["-c 4"], 4, 0),
        (["-n 3", "-c 4"], 12, 0),
        (["--ntasks=4", "-N 2"], 2, 0),
        (["--ntasks-per-node=4", "-N 2", "--gpus-per-node=1"], 4, 0),
        (["--mem=2048"], 0, 2),
        (["--mem-per-cpu=1G", "-c 4"], 4, 4),
        (["--mem-per-gpu=8G", "--gpus=2"], 0, 16),
    ],
)
def test_cpus_and_memory(options, cpus, mem):
    options = options if "-N 2" not in options else [*options, "--gpus-per-node=1"]
    found = job(*options).resources
    assert (found.cpus, found.mem) == (cpus, mem)


def test_an_array_stays_one():
    (found,) = read_translated(script("--array=1-7:3%2", "-J sweep"))

    assert (found.job.name, found.job.array, found.warnings) == ("sweep", "1-7:3%2", ())
    launches = [
        to_launch(job, str(20 + number)) for number, job in enumerate(expanded([found.job]))
    ]
    assert [launch.task.variables()["SLURM_ARRAY_TASK_ID"] for launch in launches] == list("147")
    assert {launch.task.array for launch in launches} == {"20"}


def test_every_kind_of_dependency():
    found = job("--dependency=afterok:1:2,afterany:3,afternotok:4")
    assert (found.depends_on, found.after_any, found.after_fail) == (("1", "2"), ("3",), ("4",))


def test_a_signal_before_the_time_limit():
    found = job("--signal=B:USR1@90").checkpoint
    assert (found.warn_signal, found.warn_s, found.grace_s) == ("USR1", 90.0, 30.0)


def test_a_script_runs_where_it_is_submitted(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / "run.sh"
    path.write_text(script())
    monkeypatch.chdir(tmp_path)
    assert read_jobs(path)[0].workdir == str(tmp_path)
    path.write_text(script("-D sub"))
    assert read_jobs(path)[0].workdir == str(tmp_path / "sub")


# --- what cannot be honoured ---------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(LEFT_OUT))
def test_every_option_without_counterpart_is_told(key):
    found = read(f"--{key}=1")
    assert any(f"--{key} is left out: {LEFT_OUT[key]}" in text for text in found.warnings)


def test_options_are_known_once():
    assert not set(HONOURED) & set(LEFT_OUT)
    assert set(SHORT.values()) <= {*HONOURED, *LEFT_OUT, *FLAGS}


@pytest.mark.parametrize(
    ("options", "body", "told"),
    [
        (["--colour=red"], "x", "--colour is left out: it is not known here"),
        (["-N 1-4"], "x", "of 1-4 nodes the job gets 1"),
        (["-N 2", "-G 2"], "x", "started on each of its 2 nodes"),
        (["-n 4"], "x", "4 tasks per node count its CPUs"),
        ([], "srun python x", "calls srun"),
        ([], "echo $SLURM_PROCID", "uses SLURM_PROCID"),
        (["--signal=KILL@60"], "x", "Rota sends SIGTERM, not KILL"),
        (["--export=ALL"], "x", "your environment is not copied"),
        (["--partition=a,b"], "x", "only the first is used: 'a'"),
        (["--gres=gpu:1,shard:4"], "x", "'shard:4' is left out"),
        (["--mem=0"], "x", "0 means all of a node for Slurm"),
        ([], "x\n#SBATCH --hold", "comes after the first command"),
    ],
)
def test_differences_are_told(options, body, told):
    assert any(told in text for text in read(*options, body=body).warnings)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (["--licenses=matlab:2,ansys"], {"matlab": 2, "ansys": 1}),
        (["-L matlab=3"], {"matlab": 3}),
        (["--licenses=matlab:2", "-N 2", "--gpus-per-node=1"], {"matlab": 1}),  # of each task
        ([], {}),
    ],
)
def test_licences(options, kinds):
    found = read(*options)
    assert dict(found.job.resources.kinds) == kinds
    assert not any("licenses" in told for told in found.warnings)


def test_what_is_commented_out_stays_out():
    assert job("--hold # why", "-J a").hold
    (found,) = read_translated("#!/bin/sh\n##SBATCH --hold\n#SBATCH -J a\nx\n")
    assert (found.job.hold, found.warnings) == (False, ())


def test_flags_of_the_shell_are_kept():
    (found,) = read_jobs("#!/bin/bash -eu\nx\n")
    assert found.run == "set -eu\n#!/bin/bash -eu\nx\n"
    (other,) = read_translated("#!/usr/bin/env bash\nx\n")
    assert (other.job.run, other.warnings) == ("#!/usr/bin/env bash\nx\n", ())
    (login,) = read_translated("#!/bin/bash -l\nx\n")
    assert "line 1: '-l' is left out" in login.warnings[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (script("--nodes=0"), "--nodes is '0': give a number above 0"),
        (script("--gpus=5", "-N 2"), "--gpus is 5 on 2 nodes: give a multiple of 2"),
        (script("--gpus=x"), "write NUMBER or TYPE:NUMBER"),
        (script("--gres=gpu:a:b:1"), "write gpu:TYPE:NUMBER"),
        (script("--gres=gpu:2", "--gpus=4"), "give only one of them"),
        (script("--licenses=matlab:x"), "--licenses is 'matlab:x': write NAME:NUMBER"),
        (script("--licenses=matlab@db:2"), "--licenses is 'matlab@db:2': write NAME:NUMBER"),
        (script("--time=soon"), "--time is 'soon'"),
        (script("--mem=lots"), "--mem is 'lots'"),
        (script("--signal=@"), "write TERM@SECONDS"),
        (script("--dependency=singleton"), "only afterok"),
        (script("--dependency=afterok"), "only afterok"),
        (script("--dependency=afterok:1?afterok:2"), "only afterok"),
        (script("--array=x"), "write 1-10"),
        (script("--array=1-5:0"), "write 1-10"),
        (script("--array=5-1"), "names no number"),
        (script("--array=0-99999"), "at most 10,000 jobs"),
        (script("--priority=high"), "give a whole number"),
        (script("--ntasks=0"), "--ntasks is '0'"),
        (script("-J"), "--job-name has no value"),
        (script("oops"), "'oops' is not an option"),
        (script("-J 'open"), "close the quotes"),
        (script("--export=A-B=1"), "'A-B' is not a name"),
        ("#!/usr/bin/python3\nprint()\n", "only shell scripts can be run"),
        ("#!\nx\n", "only shell scripts can be run"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(InputError) as caught:
        read_jobs(text)
    assert message in str(caught.value)


OPTION = st.one_of(
    st.sampled_from([*HONOURED, *sorted(LEFT_OUT), *FLAGS, *SHORT]).flatmap(
        lambda key: st.one_of(
            st.text(max_size=12), st.sampled_from(["1", "gpu:1", "2-4", "1G", "TERM@5", ":", ","])
        ).map(lambda value: f"--{key}={value}" if len(key) > 1 else f"-{key}{value}")
    ),
    st.text(max_size=12),
)


@given(st.lists(OPTION, max_size=5), st.text(max_size=20))
def test_any_script_is_read_or_refused(options, body):
    try:
        found = read_translated(script(*options, body=body))
    except InputError as error:
        assert str(error)  # noqa: PT017 - anything else would escape
    else:
        assert found
