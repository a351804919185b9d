"""Snapshot files, and what a resumed run must remember."""

import zlib

import msgspec
import pytest

from decisions import engine, job
from rota.core.errors import InputError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec
from rota.engine import snapshot
from rota.policies.fifo import Fifo
from rota.policies.las import Las


def packed(**fields):
    parts = {
        "format": "rota-snapshot",
        "version": snapshot.VERSION,
        "config": {},
        "state": {},
    } | fields
    return zlib.compress(msgspec.msgpack.encode(parts))


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "s"
    made = engine(Fifo(), [job("a", 1, 10)], (1, 2))
    made.run(until_s=5.0)
    snapshot.save(made, path, {"seed": 3})
    loaded = snapshot.load(path)
    assert (loaded.format, loaded.version, loaded.config) == (
        "rota-snapshot",
        snapshot.VERSION,
        {"seed": 3},
    )
    assert loaded.state["active"] == [0]
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a snapshot of Rota: make one with --snapshot-at"),
        (b"garbage", "not a snapshot of Rota"),
        (zlib.compress(b"garbage"), "not a snapshot of Rota"),
        (zlib.compress(msgspec.msgpack.encode([1, 2])), "not a snapshot of Rota"),
        (packed(state=7), "not a snapshot of Rota"),
        (packed()[:-9], "not a snapshot of Rota"),
        (packed(version=99), "snapshot version 99, this Rota reads 8: make it again"),
        (packed(format="other", version=3), "not a snapshot of Rota: make one with"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "s"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        snapshot.load(path)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the snapshot: No such file"):
        snapshot.load(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot read the snapshot: Is a directory"):
        snapshot.load(tmp_path)


def after(name, work, *, at=0.0, needs=(), gpus=1, gang=True):
    return JobSpec(name, at, Request.of(gpus, gang=gang), depends_on=needs), Behaviour(work)


PLAIN = [job("a", 2, 30), job("b", 2, 10, at=5), job("c", 1, 10, at=8), job("d", 2, 4, at=50)]
LINKED = [after("a", 10), after("j", 8, gpus=3, gang=False), after("b", 5, needs=("a", "j")),
          after("c", 5, at=30.0, needs=("b", "a"))]  # fmt: skip


@pytest.mark.parametrize("at_s", [0.0, 7.0, 9.0, 12.0, 25.0, 40.0])
@pytest.mark.parametrize("jobs", [PLAIN, LINKED], ids=["plain", "linked"])
@pytest.mark.parametrize("policy", [Fifo, Las])
def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(tmp_path, policy, jobs, at_s):
    whole, first, second = (engine(policy(), jobs, [NodeSpec("n", 2)]) for _ in range(3))
    first.run(until_s=at_s)
    snapshot.save(first, tmp_path / "s", {})
    snapshot.restore(second, snapshot.load(tmp_path / "s").state)
    for made in (whole, second):
        made.run()
        made.finish()
    assert second.log.frame().equals(whole.log.frame())
    assert not second.view.active
