"""The stand-in takes the time it was told, over as many runs as it takes."""

import signal
import subprocess
import time

from rota.live.drivers.local import standin


def run(work_s, checkpoint):
    return subprocess.Popen(standin.command(work_s, checkpoint), stdout=subprocess.PIPE, text=True)


def finish(work_s, checkpoint):
    process = run(work_s, checkpoint)
    process.communicate(timeout=300)
    return process.returncode


def test_it_works_and_ends(tmp_path):
    begun = time.monotonic()
    assert finish(0.3, tmp_path / "c") == 0
    assert time.monotonic() - begun > 0.25
    assert list(tmp_path.iterdir()) == []


def test_it_goes_on_where_it_stopped(tmp_path):
    process = run(60.0, tmp_path / "c")
    assert process.stdout.readline() == "0.00 of 60 s are done\n"  # now it can save
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert said.startswith("asked to stop after ")
    saved_s = float((tmp_path / "c").read_text())
    assert 0 < saved_s < 60
    begun = time.monotonic()
    assert finish(saved_s + 0.3, tmp_path / "c") == 0
    assert time.monotonic() - begun > 0.25
    assert finish(saved_s, tmp_path / "c") == 0  # nothing is left to do
