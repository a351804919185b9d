"""What a machine can and cannot do."""

import pytest
from click.testing import CliRunner

from rota.cli import doctor as doctor_module
from rota.cli.doctor import MachineFact, doctor
from rota.core.errors import RotaError
from sandboxes import need_sandboxes


def test_everything_is_looked_at_and_nothing_is_made(tmp_path):
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path / "state")])
    assert done.exit_code == 0, done.output
    for what in ("package sqlalchemy", "state folder", "certificates", "port 7842", "cgroups",
                 "isolation of jobs", "tool nvidia-smi", "clock", "package jwt", "room at",
                 "open files", "package ray"):  # fmt: skip
        assert what in done.output
    assert not (tmp_path / "state").exists()


def test_whether_jobs_are_kept_apart_is_tried(tmp_path, monkeypatch):
    need_sandboxes()
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path / "state")])
    assert "ok   isolation of jobs: a job runs as its user, in a sandbox" in done.output
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path / "state")])
    assert "no   isolation of jobs: none: a job can read all that the user" in done.output
    assert "bubblewrap is not installed: install it" in done.output


def test_a_folder_that_others_can_read_has_a_remedy(tmp_path):
    tmp_path.chmod(0o755)
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path)])
    assert f"no   state folder {tmp_path}: others can look into it: chmod 700" in done.output


def test_gpus_that_are_not_well_are_told(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\ncase "$1" in *name*) echo "0, GPU-a, A100, 1";; *) echo "0, 9, No";; esac'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path / "state")])
    assert "no   health of the GPUs: GPU 0 has 9 uncorrected memory errors" in done.output


def test_what_must_be_there_and_is_not_is_a_failure(tmp_path, monkeypatch):
    look = [
        lambda _: iter([MachineFact("legs", fine=False, told="none", remedy="grow", must=True)])
    ]
    monkeypatch.setattr(doctor_module, "LOOKS", look)
    done = CliRunner().invoke(doctor, ["--state", str(tmp_path)])
    assert "MISS legs: none: grow" in done.output
    with pytest.raises(RotaError, match="needed and not there: legs"):
        raise done.exception
