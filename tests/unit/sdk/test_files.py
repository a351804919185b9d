"""Which files of a folder are sent, and where results are written."""

import os

import pytest

from rota.core.errors import InputError, OutputError
from rota.core.manifest import CHUNK, FileEntry, FileManifest, bad_path
from rota.sdk.files import Ignored, ResultFolder, ScannedFolder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "mine"
    (made / "sub" / "__pycache__").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / "train.py").write_text("print(1)")
    (made / "run.sh").write_text("true")
    (made / "run.sh").chmod(0o755)
    (made / "sub" / "x").write_text("x")
    (made / "sub" / "__pycache__" / "y.pyc").write_text("y")
    (made / ".git" / "config").write_text("z")
    return made


def paths(scanned):
    return [file.path for file in scanned.manifest.files]


def test_what_is_sent_and_what_is_ignored(folder):
    (folder / "data").mkdir()
    (folder / "data" / "big").write_text("1")
    (folder / "a.pt").write_text("1")
    (folder / "keep.pt").write_text("1")
    (folder / ".rotaignore").write_text("# notes\n*.pt\n!keep.pt\n/data/\n")
    scanned = ScannedFolder(folder)
    assert paths(scanned) == ["keep.pt", "run.sh", "sub/x", "train.py"]
    assert [f.path for f in scanned.manifest.files if f.executable] == ["run.sh"]
    assert scanned.manifest.id == ScannedFolder(folder).manifest.id


def test_patterns_with_and_without_a_slash():
    ignored = Ignored(["/build", "logs/*.txt", "*.o"])
    assert [ignored.has(path, folder=False) for path in ("build", "logs/a.txt", "x/y.o")] == [
        True, True, True,
    ]  # fmt: skip
    assert not ignored.has("src/logs/a.txt", folder=False)


def test_large_files_are_pieces_and_the_same_piece_is_sent_once(folder):
    (folder / "one").write_bytes(b"a" * (CHUNK + 5))
    (folder / "two").write_bytes(b"a" * CHUNK)
    scanned = ScannedFolder(folder)
    one, two = (next(f for f in scanned.manifest.files if f.path == p) for p in ("one", "two"))
    assert len(one.chunks) == 2
    assert one.chunks[0] == two.chunks[0]
    assert scanned.piece(one.chunks[1]) == b"a" * 5
    (folder / "one").write_bytes(b"b" * (CHUNK + 5))
    with pytest.raises(InputError, match="one has changed meanwhile: submit again"):
        scanned.piece(one.chunks[1])


def test_too_much_names_the_largest(folder):
    (folder / "huge").write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match=r"5.01 kB in all, and 1 kB is the limit.*huge \(5 kB\)"):
        ScannedFolder(folder, limit=1000)


def test_links_out_of_the_folder_and_special_files_are_refused(folder):
    (folder / "inner").symlink_to("train.py")
    assert "inner" in paths(ScannedFolder(folder))
    for target in ("/etc/passwd", "../outside", "/etc", "nowhere"):
        link = folder / "link"
        link.symlink_to(target)
        with pytest.raises(InputError, match=r"link is a link to .*: only links to files inside"):
            ScannedFolder(folder)
        link.unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(
        InputError, match=r"pipe is neither file nor folder: name it in .rotaignore"
    ):
        ScannedFolder(folder)
    (folder / ".rotaignore").write_text("pipe")
    ScannedFolder(folder)
    with pytest.raises(InputError, match="is no folder"):
        ScannedFolder(folder / "train.py")


BAD = ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a\nb", "a\0b", "x" * 256,
       "a/" * 600 + "b"]  # fmt: skip


@pytest.mark.parametrize("path", BAD, ids=range(len(BAD)))
def test_a_path_that_leads_elsewhere_is_refused_on_both_sides(path, tmp_path):
    assert bad_path(path)
    with pytest.raises(InputError, match="file "):
        FileManifest((FileEntry(path, 0),)).check()
    results = ResultFolder(tmp_path / "out")
    with pytest.raises(OutputError, match="it is not written"):
        results.write(path, iter([b"x"]), 0, executable=False)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([("a", 0), ("a", 0)], "it is there twice"),
        ([("a", 0), ("a/b", 0)], "it is a file and a folder"),
        ([("a/b", 0), ("a", 0)], "it is there twice"),
        ([("a", 5)], "5 bytes are 1 pieces, not 0"),
    ],
)
def test_a_manifest_that_is_no_folder_is_refused(files, why):
    with pytest.raises(InputError, match=why):
        FileManifest(tuple(FileEntry(path, size) for path, size in files)).check()


def test_a_manifest_of_a_bomb_is_refused():
    digest = "0" * 64
    bomb = tuple(FileEntry(f"f{n}", 9 << 30, (digest,) * (9 << 8)) for n in range(2))
    with pytest.raises(InputError, match="is the most"):
        FileManifest(bomb).check()


def test_results_never_go_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    results = ResultFolder(tmp_path / "out")
    (tmp_path / "out" / "sub").symlink_to(outside)
    with pytest.raises(OutputError, match="is a link here"):
        results.write("sub/x", iter([b"x"]), 0, executable=False)
    (tmp_path / "out" / "y").symlink_to(outside / "y")
    results.write("y", iter([b"new"]), 1_000_000_000, executable=True)  # it takes the link's place
    assert not (tmp_path / "out" / "y").is_symlink()
    assert list(outside.iterdir()) == []
    assert results.has("y", 3, 1_000_000_000)
    assert not results.has("y", 4, 1_000_000_000)


def test_a_result_that_breaks_off_is_not_there(tmp_path):
    def broken():
        yield b"half"
        raise InputError("gone")

    results = ResultFolder(tmp_path)
    with pytest.raises(InputError, match="gone"):
        results.write("x", broken(), 0, executable=False)
    assert not (tmp_path / "x").exists()
