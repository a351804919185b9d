"""`rota profile`: a real command at several sizes becomes a profile."""

import sys

import pytest
from click.testing import CliRunner

from rota.cli.profile import profile
from rota.core.errors import InputError, OutputError
from rota.models.profiles import ApplicationProfile
from rota.models.throughputs import load_throughputs
from rota.study.measure import PairMeasures, measure, read_commands, write_pairs

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


MEET = """
import fcntl, os, sys, time
from rota import job
folder, step_s = sys.argv[1], float(sys.argv[2])
with open(os.path.join(folder, "lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    number = len([name for name in os.listdir(folder) if name.startswith("run")])
    open(os.path.join(folder, f"run{number}"), "w").close()
if number >= 2:  # the first two are alone; from then on two come at a time, and wait for each other
    partner = os.path.join(folder, f"run{number ^ 1}")
    while not os.path.exists(partner):
        time.sleep(0.005)
    step_s *= 2
for _ in range(3):
    job.report(batch=8, step_s=step_s, force=True)
"""


def test_pairs_run_at_the_same_time_and_become_a_table(tmp_path):
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    folder = tmp_path / "runs"
    folder.mkdir()
    start = f"{sys.executable} {script} {folder}"
    applications = tmp_path / "applications.txt"
    applications.write_text(f"# two\nfast: {start} 0.1\nslow: {start} 0.4\n")
    args = ["--pairs", str(applications), "--sizes", "1", "--seconds", "600", "--gpu-type", "v100"]
    out = tmp_path / "profiles"
    result = CliRunner().invoke(profile, [*args, "-o", str(out)], catch_exceptions=False)
    assert "fast alone: 80 samples/s" in result.output
    assert "fast beside slow: 0.50 and 0.50 of their speeds alone" in result.output
    table = load_throughputs(str(out / "pairs.json"))
    assert table.alone["slow", 1]["v100"] == pytest.approx(20.0)
    assert table.pairs[("slow", 1), ("fast", 1)]["v100"] == pytest.approx(10.0)
    assert table.pairs[("fast", 1), ("fast", 1)]["v100"] == pytest.approx(40.0)
    with pytest.raises(OutputError, match="exists"):
        write_pairs(PairMeasures({}, {}), out / "pairs.json", gpus=1, gpu_type="v100", force=False)


@pytest.mark.parametrize("text", ["", "just words\n", "a: true\na: true\n", "a:\n"])
def test_a_file_of_pairs_that_makes_no_sense(tmp_path, text):
    file = tmp_path / "applications.txt"
    file.write_text(text)
    with pytest.raises(InputError, match="NAME: COMMAND"):
        read_commands(file)


def test_a_command_or_a_file(tmp_path):
    for args in ([], ["--pairs", str(tmp_path / "x"), "--", "true"]):
        with pytest.raises(InputError, match="and not both"):
            CliRunner().invoke(profile, args, catch_exceptions=False)
