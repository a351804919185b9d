import errno
import json
import os
import threading

import pytest

from rota import job
from rota.job import reports


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_outside_rota_it_does_nothing(tmp_path):
    assert job.report(step=1, loss=0.5) is False
    assert list(tmp_path.iterdir()) == []


def test_one_line_of_numbers(reported):
    assert job.report(step=1, loss=0.5, throughput=80, accuracy=0.25)
    assert reported.read_text() == '{"step":1.0,"loss":0.5,"throughput":80.0,"accuracy":0.25}\n'
    assert reported.stat().st_mode & 0o077 == 0


def test_the_next_has_to_wait_unless_it_matters(reported, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(reports, "monotonic", lambda: now_s[0])
    assert job.report(step=1)
    now_s[0] += 0.9
    assert not job.report(step=2)
    now_s[0] += 0.1
    assert job.report(step=3)
    assert job.report(step=4, force=True)
    assert [line["step"] for line in lines(reported)] == [1, 3, 4]


def test_what_is_left_out_is_not_even_looked_at(reported):
    class OnAnotherDevice:
        def __float__(self):
            raise AssertionError("waits for the device")

    assert job.report(step=1)
    assert not job.report(loss=OnAnotherDevice())


def test_only_the_first_rank_writes(reported, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert not job.report(step=1)
    assert not reported.exists()


def test_numbers_that_are_not_finite_are_left_out(reported):
    assert job.report(step=1, loss=float("nan"), throughput=float("inf"))
    assert lines(reported) == [{"step": 1}]
    assert not job.report(loss=float("nan"), force=True)
    assert not job.report(force=True)


def test_what_is_no_number_or_too_long_is_refused(reported):
    with pytest.raises(ValueError, match="could not convert"):
        job.report(loss="good")
    with pytest.raises(TypeError):
        job.report(loss=[1.0], force=True)
    many = {f"a_rather_long_name_{i}": i for i in range(300)}
    with pytest.raises(ValueError, match="report fewer numbers"):
        job.report(force=True, **many)
    assert not reported.exists()


def test_a_missing_folder_does_not_disturb_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_REPORT_FILE", str(tmp_path / "gone" / "reports"))
    assert job.report(step=1) is False


def test_a_full_disk_does_not_disturb_the_job(reported, monkeypatch):
    def full(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert job.report(step=1) is False
    assert job.report(step=2, force=True)
    assert lines(reported) == [{"step": 2}]


def test_after_a_torn_line_a_new_one_begins(reported, monkeypatch):
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:5]))
        assert job.report(step=1) is False
    assert job.report(step=2, force=True)
    torn, whole = reported.read_text().splitlines()
    assert torn == '{"ste'
    assert json.loads(whole) == {"step": 2}


def test_many_threads_write_whole_lines(reported):
    def work(number):
        for step in range(50):
            job.report(step=step, thread=number, force=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(reported)
    assert len(found) == 200
    assert {line["thread"] for line in found} == {0, 1, 2, 3}
