"""Files of jobs on a machine: whole folders only, plain files only, the job's own only."""

import contextlib
import os
from hashlib import sha256

import msgspec
import pytest

from agents_net import eventually
from rota.core.errors import ClusterError, InputError, NotFoundError
from rota.core.manifest import FileEntry, FileManifest
from rota.daemon.secrets import SecretStore
from rota.daemon.uploads import KEPT_S, UploadStore
from rota.live.agent import files
from rota.live.agent.files import SentFiles, list_files, read_file
from rota.live.agent.folders import AgentFolder
from rota.live.calls import ListFiles, ReadFile
from rota.wire import Actor

ANN, BOB = Actor("ann", "user"), Actor("bob", "user")
HELLO = sha256(b"hello").hexdigest()
SENT = FileManifest((FileEntry("sub/x", 5, (HELLO,), executable=True), FileEntry("empty", 0)))


@pytest.fixture
def root(tmp_path):
    made = AgentFolder(tmp_path / "agent")
    yield made
    with contextlib.suppress(OSError):
        made.close()


@pytest.fixture
def work(root):
    return root.job_folders("1")["work"]


@pytest.fixture
def uploads(tmp_path):
    return UploadStore(tmp_path / "uploads")


def sent(uploads, owner=ANN):
    uploads.take(HELLO, b"hello", owner)
    upload, missing = uploads.plan(SENT, owner)
    assert missing == []
    return upload


def test_an_upload_is_complete_when_all_pieces_are_there(uploads):
    upload, missing = uploads.plan(SENT, ANN)
    assert missing == [HELLO]
    with pytest.raises(InputError, match="some of it is gone"):
        uploads.check(upload, ANN)
    with pytest.raises(InputError, match="these 4 bytes are others"):
        uploads.take(HELLO, b"help", ANN)
    assert sent(uploads) == upload
    uploads.check(upload, ANN)
    assert uploads.read(upload, HELLO) == b"hello"


def test_nobody_gets_the_files_of_others_by_their_digest(uploads):
    upload = sent(uploads)
    assert uploads.plan(SENT, BOB)[1] == [HELLO]
    later = msgspec.structs.replace(ANN, after_job=7)  # another holder of the name
    for other in (BOB, later):
        with pytest.raises(InputError, match="there is no such upload of yours"):
            uploads.check(upload, other)
    for digest in ("../../secret", "0" * 64):
        with pytest.raises(NotFoundError):
            uploads.read(upload, digest)


def test_what_a_user_keeps_is_limited(tmp_path):
    uploads = UploadStore(tmp_path / "uploads", 8)
    upload = sent(uploads)  # five bytes, and the list of its files
    other = sha256(b"world").hexdigest()
    more = FileManifest((FileEntry("b", 5, (other,)),))
    for _ in range(2):  # the second time the folder is counted anew
        with pytest.raises(InputError, match=r"upload: ann keeps .* \(permissions.upload_gib\)"):
            uploads.plan(more, ANN)
        with pytest.raises(InputError, match="would exceed"):
            uploads.take(other, b"world", ANN)
        uploads = UploadStore(tmp_path / "uploads", 8)
    assert uploads.plan(SENT, ANN) == (upload, [])  # what is there costs nothing
    uploads.take(HELLO, b"hello", ANN)
    uploads.take(other, b"world", msgspec.structs.replace(ANN, role="operator"))
    assert uploads.plan(more, BOB)[1] == [other]  # each has a limit of their own


def test_pieces_that_nobody_needs_go_after_a_while(uploads, tmp_path):
    upload = sent(uploads)
    for path in (tmp_path / "uploads").rglob("*"):
        os.utime(path, (0, os.path.getmtime(path) - KEPT_S - 1))  # noqa: PTH204 - as it is
    assert uploads.prune([upload]) == 0
    assert uploads.prune([]) == 2
    with pytest.raises(NotFoundError, match="are gone"):
        uploads.read(upload, HELLO)


def test_what_was_half_written_goes_with_the_next_start(tmp_path, root, uploads):
    upload = sent(uploads)
    home = tmp_path / "uploads" / upload[:32]
    before = sorted(home.iterdir())
    (home / ".0123456789abcdef").write_text("half")
    UploadStore(tmp_path / "uploads")
    assert sorted(home.iterdir()) == before

    vault = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    vault.set("KEY", "value", ANN)
    kept = sorted((tmp_path / "secrets").rglob("*"))
    (kept[0] / ".0123456789abcdef").write_text("half")
    (tmp_path / "secrets" / ".0123456789abcdef").mkdir()
    vault = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    assert sorted((tmp_path / "secrets").rglob("*")) == kept
    assert [secret.name for secret in vault.all(ANN)] == ["KEY"]

    half, gone, others = root.unfinished(), root.jobs / ".gone-1", root.jobs / ".new-other-1"
    for folder in (half, gone, others):
        folder.mkdir()
        (folder / "file").write_text("half")
    root.close()
    again = AgentFolder(root.path)
    eventually(lambda: not half.exists() and not gone.exists())
    assert others.is_dir()  # agents may share the folder of jobs
    again.close()


def test_a_folder_appears_whole_and_is_made_once(root, uploads):
    upload, asked, woken = sent(uploads), [], []
    files = SentFiles(root, lambda: woken.append(1))

    def fetch(_, digest):
        asked.append(digest)
        assert not (root.jobs / "1" / "work").exists()
        if len(asked) == 2:
            raise ClusterError("the server is away", retryable=True)
        return uploads.read(upload, digest)

    files.fetch = fetch
    assert not files.ready("1", upload)
    eventually(lambda: files.ready("1", upload))
    work = root.jobs / "1" / "work"
    assert (work / "sub/x").read_bytes() == b"hello"
    assert (work / "sub/x").stat().st_mode & 0o777 == 0o700
    assert (work / "empty").stat().st_size == 0
    assert sorted(path.name for path in work.parent.iterdir()) == ["work"]  # no halves are left
    eventually(lambda: woken)
    (work / "sub/x").write_text("the job's own")
    assert files.ready("1", upload)
    assert (work / "sub/x").read_text() == "the job's own"


@pytest.mark.parametrize("path", ["../escaped", "/tmp/escaped"])  # noqa: S108 - it must not be
def test_a_manifest_of_a_lying_server_makes_nothing(root, path):
    manifest = msgspec.json.encode(FileManifest((FileEntry(path, 5, (HELLO,)),)))
    digest = sha256(manifest).hexdigest()
    files = SentFiles(root, lambda: None)
    files.fetch = lambda _, wanted: manifest if wanted == digest else b"hello"

    def refused():
        try:
            return files.ready("1", "0" * 32 + digest)
        except InputError as error:
            return str(error)

    assert "a path is relative" in eventually(refused)
    assert not (root.jobs / "1" / "work").exists()
    assert not (root.jobs / "1" / "escaped").exists()


def test_only_plain_files_of_the_job_are_listed_and_read(root, work, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (work / "sub").mkdir()
    (work / "sub" / "a").write_text("result")
    (work / "b").write_text("x")
    (work / "link").symlink_to(secret)
    (work / "linked").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    found = list_files(root, "1", ListFiles())
    assert [(each.path, each.size) for each in found.files] == [("b", 1), ("sub/a", 6)]
    assert found.skipped == ("link", "linked", "pipe")
    assert read_file(root, "1", ReadFile("sub/a", offset=3)).data == b"ult"
    for path in ("link", "linked/secret", "pipe", "../../../secret", str(secret), "sub"):
        answer = read_file(root, "1", ReadFile(path))
        assert (answer.data, bool(answer.error)) == (b"", True), path
        assert not list_files(root, "1", ListFiles(path=path)).files or path == "sub"


def test_files_of_other_accounts_in_the_folder_are_not_the_jobs(root, work):
    if os.geteuid() != 0:
        pytest.skip("root, to give files away")
    (work / "mine").write_text("1")
    (work / "theirs").write_text("2")
    os.chown(work / "mine", 1900000101, 1900000101)
    os.chown(work, 1900000101, 1900000101)
    found = list_files(root, "1", ListFiles())
    assert ([each.path for each in found.files], found.skipped) == (["mine"], ("theirs",))
    assert read_file(root, "1", ReadFile("theirs")).wrong == "conflict"


def test_pages(root, work):
    for number in range(5):
        (work / f"f{number}").touch()
    first = list_files(root, "1", ListFiles(limit=3))
    rest = list_files(root, "1", ListFiles(limit=3, after=first.files[-1].path))
    assert [each.path for each in first.files + rest.files] == [f"f{n}" for n in range(5)]
    assert (bool(first.taken), bool(rest.taken)) == (True, False)
    assert list_files(root, "2", ListFiles()).wrong == "missing"


@pytest.mark.parametrize("name", ["TOKEN\n", "../TOKEN", ".owner", ""])
def test_a_secret_has_a_name_by_which_it_can_be_removed(tmp_path, name):
    vault = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    with pytest.raises(InputError, match="use letters, digits and _"):
        vault.set(name, "value", Actor("ann", "user"))
    assert vault.all(Actor("ann", "user")) == []


def test_of_a_large_folder_only_what_is_asked_for_is_looked_at(root, work, monkeypatch):
    monkeypatch.setattr(files, "NAMES", 3)
    for path in ("a", "a-b", "b/c/d", "b/c/e", "b/x", "b-/y", "c", *(f"z{n}" for n in range(9))):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).touch()
    (work / "b" / "link").symlink_to("x")
    looked_at = []
    status = os.stat
    monkeypatch.setattr(os, "stat", lambda *a, **kw: looked_at.append(a[0]) or status(*a, **kw))

    def pages(path, limit):
        after, found = "", []
        while True:
            answer = list_files(root, "1", ListFiles(path=path, after=after, limit=limit))
            found += [each.path for each in answer.files]
            if not answer.taken:
                return found
            after = found[-1]

    whole = pages("", 1000)
    plain = [path for path in work.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sorted(whole) == sorted(str(path.relative_to(work)) for path in plain)
    for limit in (1, 2, 3, 5):
        assert pages("", limit) == whole
        assert pages("b", limit) == ["b/c/d", "b/c/e", "b/x"]
    assert list_files(root, "1", ListFiles(path="b", after="a")).files
    assert not list_files(root, "1", ListFiles(path="b", after="c")).files
    looked_at.clear()
    list_files(root, "1", ListFiles(limit=2))
    assert looked_at == ["a", "a-b", "b", "c", "d"]
