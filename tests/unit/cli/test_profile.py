"""`rota profile`: a real command at several sizes becomes a profile."""

import sys

import pytest
from click.testing import CliRunner

from rota.cli.profile import profile
from rota.core.errors import InputError, OutputError
from rota.models.profiles import ApplicationProfile
from rota.study.measure import measure

TRAIN = """
import sys
from rota import job
gpus = int(sys.argv[1])
for _ in range(3):
    job.report(batch=16, step_s=0.1 + 0.02 * gpus, sync_s=0.02 * (gpus > 1), force=True)
"""
STUCK = TRAIN + "\nimport time\nwhile True: time.sleep(0.01)\n"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_the_profile_has_what_was_reported(script, tmp_path):
    out = tmp_path / "profiles"
    args = ["--sizes", "1,2", "--name", "mine", "-o", str(out), "--", sys.executable, str(script)]
    result = CliRunner().invoke(profile, [*args, "{n}"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "2 GPUs, batch 16: 0.14 s a step" in result.output
    made = ApplicationProfile(out / "mine")
    assert made.times((1,), 16) == pytest.approx((0.12, 0.0))
    assert made.times((2,), 16) == pytest.approx((0.14, 0.02))
    with pytest.raises(OutputError, match="exists: name another folder, or give --force"):
        CliRunner().invoke(profile, [*args, "{n}"], catch_exceptions=False)


@pytest.mark.soak  # it takes all its seconds, which must be enough for a slow machine
def test_a_job_that_goes_on_is_ended(tmp_path):
    path = tmp_path / "stuck.py"
    path.write_text(STUCK)
    (found,) = measure([sys.executable, str(path), "{n}"], [1], seconds=30.0)
    assert (found.gpus, found.batch) == (1, 16)


@pytest.mark.parametrize(
    ("command", "sizes", "message"),
    [
        (["true"], [1], "has no {n} for the number of GPUs"),
        (["true", "{n}"], [0], "give numbers of GPUs from 1 to 9"),
        (["true", "{n}"], [1], "with 1 GPUs the command reported no times"),
        (["false", "{n}"], [1], "ended with code 1"),
        (["no-such-command", "{n}"], [1], "cannot be started"),
    ],
)
def test_what_cannot_be_measured_is_said(command, sizes, message):
    with pytest.raises(InputError, match=message):
        measure(command, sizes, seconds=60.0)
