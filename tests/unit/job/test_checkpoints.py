import errno
import os
import sys

import pytest

from rota import job
from rota.job import checkpoints as module


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded(checkpoints):
    assert job.latest() is None
    assert job.load() is None
    path = job.save(b"state", step=7)
    assert path == checkpoints / "checkpoint-000000000007"
    assert job.latest() == job.Saved(7, path)
    assert job.load() == job.load(step=7) == b"state"
    assert job.load(step=6) is None


def test_the_highest_step_is_the_latest(checkpoints):
    job.save(b"ten", step=10)
    job.save(b"nine", step=9)
    assert job.latest().step == 10
    assert job.load() == b"ten"
    assert job.load(step=9) == b"nine"


def test_a_function_may_write(checkpoints):
    job.save(lambda file: file.write(b"written"), step=1)
    assert job.load() == b"written"


def test_the_newest_few_are_kept(checkpoints):
    for step in range(1, 6):
        job.save(b"x", step=step)
    assert names(checkpoints) == ["checkpoint-000000000004", "checkpoint-000000000005"]
    for step in range(6, 9):
        job.save(b"x", step=step, keep=4)
    assert [job.load(step=step) for step in range(4, 9)] == [None, b"x", b"x", b"x", b"x"]
    job.save(b"x", step=9, keep=9)
    assert len(names(checkpoints)) == 5
    job.save(b"x", step=10, keep=1)
    assert names(checkpoints) == ["checkpoint-000000000010"]


def test_what_was_just_saved_stays_even_with_a_lower_step(checkpoints):
    job.save(b"old", step=100)
    job.save(b"new", step=5, keep=1)
    assert job.load(step=5) == b"new"


def test_names_do_not_get_in_each_others_way(checkpoints):
    job.save(b"model", name="model", step=1)
    job.save(b"other", name="model-000000000002", step=1, keep=1)
    job.save(b"again", name="model", step=2, keep=1)
    assert job.load("model") == b"again"
    assert job.load("model-000000000002") == b"other"
    assert job.load("model", step=1) is None


def test_the_same_step_can_be_saved_again(checkpoints):
    job.save(b"a", step=1)
    job.save(b"b", step=1)
    assert job.load() == b"b"
    assert len(names(checkpoints)) == 1


def test_a_writer_that_fails_leaves_the_older_one(checkpoints):
    job.save(b"good", step=1)

    def fails(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.save(fails, step=2, keep=1)
    assert names(checkpoints) == ["checkpoint-000000000001"]
    assert job.load() == b"good"


def test_a_full_disk_leaves_the_older_one(checkpoints, monkeypatch):
    job.save(b"good", step=1)

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        job.save(b"better", step=2, keep=1)
    assert names(checkpoints) == ["checkpoint-000000000001"]


def test_it_is_on_the_disk_before_it_has_its_name(checkpoints, monkeypatch):
    synced = []

    def fsync(file):
        synced.append((os.fstat(file).st_mode & 0o170000 == 0o040000, names(checkpoints)))

    monkeypatch.setattr(module.os, "fsync", fsync)
    job.save(b"x", step=1)
    assert synced == [
        (False, [".checkpoint-000000000001.part"]),
        (True, ["checkpoint-000000000001"]),
    ]


def test_what_a_killed_process_left_is_no_checkpoint_and_goes(checkpoints, spawn):
    process = spawn(
        """
        import time
        from rota import job
        def slow(file):
            file.write(b"half")
            file.flush()
            print("ready")
            time.sleep(60)
        job.save(b"whole", step=1)
        job.save(slow, step=2)
        """
    )
    process.kill()
    process.wait()
    assert names(checkpoints) == [".checkpoint-000000000002.part", "checkpoint-000000000001"]
    assert job.load() == b"whole"
    job.save(b"next", step=3)
    assert names(checkpoints) == ["checkpoint-000000000001", "checkpoint-000000000003"]


@pytest.mark.parametrize("name", ["", "../other", "a/b", ".hidden", "a\n", "-x", "a b", "\0"])
def test_a_name_cannot_leave_the_folder(checkpoints, name):
    for call in (job.latest, job.load, lambda name: job.save(b"", name=name, step=1)):
        with pytest.raises(ValueError, match="it names a file"):
            call(name)


@pytest.mark.parametrize("step", [-1, 10**12])
def test_a_bad_step_is_refused(checkpoints, step):
    with pytest.raises(ValueError, match="step="):
        job.save(b"", step=step)


def test_at_least_one_is_kept(checkpoints):
    with pytest.raises(ValueError, match="keep=0"):
        job.save(b"", step=1, keep=0)


def test_outside_rota_they_are_in_the_working_directory(tmp_path):
    job.save(b"x", step=1)
    assert names(tmp_path / "checkpoint") == ["checkpoint-000000000001"]


class FakeTorch:
    """Records how PyTorch is called; the real one is tested with the example of training."""

    @staticmethod
    def save(state, file):
        file.write(repr(state).encode())

    @staticmethod
    def load(path, *, map_location, weights_only):
        return path.read_bytes().decode(), map_location, weights_only


def test_objects_of_pytorch(checkpoints, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch)
    assert job.load_torch() is None
    job.save_torch({"a": 1}, step=3)
    assert job.load_torch() == ("{'a': 1}", "cpu", True)
    assert job.load_torch(step=3, map_location="cuda:0") == ("{'a': 1}", "cuda:0", True)
