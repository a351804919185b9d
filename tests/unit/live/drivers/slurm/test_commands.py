"""Calling Slurm's commands: here little scripts on a PATH of their own."""

import os

import pytest

from rota.core.errors import ClusterError
from rota.live.drivers.slurm.commands import SlurmCommands, SlurmQueries


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return `make(name, script)`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name, script):
        path = folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return make


def test_whoever_reads_only_is_refused_everything_else(programs):
    calls = []
    reader = SlurmQueries(recorder=calls.append)
    for argv in (
        ("sbatch", "x"), ("scancel", "1"), ("scontrol", "update", "JobId=1"), ("srun", "x"),
        ("scontrol", "requeuehold", "1"), ("scontrol", "release", "1"), ("bash", "-c", "true"),
        ("scontrol",), ("sacctmgr", "show"),
    ):  # fmt: skip
        with pytest.raises(ClusterError, match="only reading"):
            reader.call(*argv)
    assert calls == []
    programs("scontrol", "echo pong")
    assert reader.call("scontrol", "show", "config") == "pong\n"
    assert calls == [("scontrol", "show", "config")]


def test_orders_are_argument_lists(programs, tmp_path):
    calls = []
    programs("sbatch", "echo '17;emulated'")
    programs("scontrol", "true")
    programs("scancel", "true")
    commands = SlurmCommands(recorder=calls.append)
    assert commands.submit(["--nodes=1", "--comment=$(x)"], tmp_path / "a b.sh") == 17
    commands.update(17, NodeList="n1,n2", StartTime="now")
    commands.signal(17, "TERM", "batch")
    commands.signal(17, "TERM", "steps")
    commands.signal(17, "KILL", "everyone")
    assert calls == [
        ("sbatch", "--parsable", "--hold", "--nodes=1", "--comment=$(x)", str(tmp_path / "a b.sh")),
        ("scontrol", "update", "JobId=17", "NodeList=n1,n2", "StartTime=now"),
        ("scancel", "--signal=TERM", "--batch", "17"),
        ("scancel", "--signal=TERM", "17"),
        ("scancel", "--signal=KILL", "--full", "17"),
    ]


def test_the_environment_has_no_secrets_and_no_hidden_options(programs):
    environ = {
        "PATH": os.environ["PATH"], "ROTA_TOKEN": "t", "SBATCH_QOS": "q", "SLURM_JOB_ID": "3",
        "SQUEUE_STATES": "s", "SLURM_CONF": "/a", "HOME": "/h",
    }  # fmt: skip
    programs("squeue", "env")
    names = {
        line.split("=")[0] for line in SlurmQueries(environ=environ).call("squeue").splitlines()
    }
    assert {"SLURM_CONF", "HOME"} <= names
    assert not names & {"ROTA_TOKEN", "SBATCH_QOS", "SLURM_JOB_ID", "SQUEUE_STATES"}
    text = SlurmQueries("/b", environ=environ).call("squeue")
    assert "SLURM_CONF=/b\n" in text


@pytest.mark.parametrize(
    ("script", "match", "retryable"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
         "Unable to contact", True),
        ("echo 'Invalid job id specified' >&2; exit 1", "Invalid job id", False),
        ("exit 3", "exit code 3", False),
        ("exec sleep 600", "did not answer within 0.2 s", True),
    ],
)  # fmt: skip
def test_failures_say_whether_to_try_again(programs, script, match, retryable):
    programs("squeue", script)
    with pytest.raises(ClusterError, match=match) as error:
        SlurmQueries(timeout_s=0.2 if "sleep" in script else 300.0).call("squeue")
    assert error.value.retryable is retryable


def test_a_missing_command_is_explained(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="are Slurm's commands installed") as error:
        SlurmQueries().jobs()
    assert not error.value.retryable


def test_an_answer_without_a_number_is_refused(programs, tmp_path):
    programs("sbatch", "echo welcome")
    with pytest.raises(ClusterError, match="instead of a number"):
        SlurmCommands().submit([], tmp_path)


@pytest.mark.parametrize(
    ("version", "asked"), [("slurm-wlm 22.05.8", "sinfo"), ("slurm 24.11.1", "scontrol")]
)
def test_nodes_are_asked_of_the_command_that_tells_them(programs, version, asked):
    calls = []
    programs("sinfo", f"""if [ "$1" = --version ]; then echo '{version}'; else echo '{{}}'; fi""")
    programs("scontrol", "echo '{\"nodes\": []}'")
    assert SlurmQueries(recorder=calls.append).nodes() == []
    assert calls[-1][0] == asked


def test_settings_are_read(programs):
    programs(
        "scontrol",
        """if [ "$2" = config ]; then printf 'Configuration\\nMinJobAge   = 300 sec\\n'
        else echo 'PartitionName=main Default=YES State=UP'; fi""",
    )
    assert SlurmQueries().config() == {"MinJobAge": "300 sec"}
    assert SlurmQueries().partitions()["main"]["Default"] == "YES"
