"""Plain, packed and archived files are the same to a reader."""

import gzip
import io
import os
import tarfile
import zipfile

import pytest

from rota.core.errors import TraceError
from rota.traces import sources
from rota.traces.read import read_workload
from rota.traces.sniff import first_look
from rota.traces.sources import blocks, exists, read_bytes, siblings

PLAIN = b"job_id,submit_s,num_gpus,duration_s\na,0,1,10\nb,5,2,20\n"


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(params=["plain", "gzip", "zip", "tar"])
def packed(request, tmp_path):
    """Return the path of the same file, packed in one way."""
    path = tmp_path / "jobs"
    if request.param == "zip":
        return zipped(path, {"inner/jobs.csv": PLAIN})
    if request.param == "tar":
        return tarred(path, {"inner/jobs.csv": PLAIN})
    path.write_bytes(gzip.compress(PLAIN) if request.param == "gzip" else PLAIN)
    return path


def test_a_packed_file_is_recognised_and_read(packed):
    assert [spec.id for spec in read_workload(packed).specs] == ["a", "b"]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_member_is_named_like_a_file_in_a_folder(tmp_path, pack):
    path = pack(tmp_path / "data.pack", {"x/jobs.csv": PLAIN, "x/more.csv": PLAIN, "top": b"t"})
    assert len(read_workload(path / "x" / "jobs.csv")) == 2
    assert exists(path / "x" / "jobs.csv")
    assert not exists(path / "x" / "nothing.csv")
    assert [file.name for file in siblings(path / "x" / "jobs.csv", TraceError)] == [
        "jobs.csv",
        "more.csv",
    ]
    with pytest.raises(TraceError, match=r"holds 3 files: name one of them"):
        read_workload(path)
    with pytest.raises(TraceError, match=r"has no file 'x/nothing.csv': it has x/jobs.csv"):
        read_workload(path / "x" / "nothing.csv")


def test_a_cut_archive_is_told(tmp_path):
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(PLAIN * 50)[:40])
    with pytest.raises(TraceError, match="cannot be unpacked"):
        read_workload(path)


@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_blocks_end_outside_quotes_and_lose_nothing(tmp_path, size):
    data = b'a,b\n1,"x\ny"\n2,"p""q\n\n"\n3,z\n'
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    found = list(blocks(path, TraceError, size=size))
    assert b"".join(found) == data
    assert all(block.count(b'"') % 2 == 0 for block in found)


def test_a_small_file_that_unpacks_to_an_enormous_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_MOST_UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(PLAIN + b"\n" * (1 << 22)))
    for read in (lambda: list(blocks(path, TraceError)), lambda: read_bytes(path, TraceError)):
        with pytest.raises(TraceError, match=r"unpacks to more than 1,048,576 bytes.*yourself"):
            read()
    packed = zipped(tmp_path / "a.zip", {"jobs.csv": PLAIN + b"\n" * (1 << 22)})
    assert len(read_bytes(packed, TraceError)) > 1 << 22  # not packed: no surprise


def test_a_pipe_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(TraceError, match="is a pipe or a device"):
        first_look(path)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_are_inside_the_archive_whatever_they_are_called(tmp_path, pack):
    path = pack(tmp_path / "data.pack", {"/abs.csv": PLAIN, "./b/x.csv": PLAIN})
    assert len(read_workload(path / "abs.csv")) == len(read_workload(path / "b" / "x.csv")) == 2
    assert siblings(path / "abs.csv", TraceError) == [path / "abs.csv"]
    assert exists(path / "b" / "x.csv")
    with pytest.raises(TraceError, match=r"name one of them as .*\(abs.csv, b/x.csv\)"):
        read_workload(path)


def test_what_is_wrong_with_an_archive_is_told_in_short(tmp_path):
    with pytest.raises(TraceError, match="is an archive without a file"):
        read_workload(zipped(tmp_path / "empty.zip", {}))
    with zipfile.ZipFile(tmp_path / "l.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.csv", PLAIN * 99)
    data = bytearray((tmp_path / "l.zip").read_bytes())
    data[60:90] = b"\xff" * 30
    (tmp_path / "l.zip").write_bytes(data)
    with pytest.raises(TraceError, match="cannot be unpacked"):
        read_workload(tmp_path / "l.zip")


def test_paths_that_cannot_be_looked_at_are_told(tmp_path, monkeypatch):
    with pytest.raises(TraceError, match="File name too long"):
        read_workload(tmp_path / ("a" * 300 + ".csv"))

    def forbidden(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", forbidden)
    with pytest.raises(TraceError, match=r"cannot be listed \(Permission denied\)"):
        first_look(tmp_path)
    with pytest.raises(TraceError, match=r"cannot be listed \(Permission denied\)"):
        siblings(tmp_path, TraceError)
