"""Where clients find the daemon and its token."""

import json

import pytest

from rota.core.errors import InputError
from rota.sdk.place import DEFAULT_SERVER, connection, find_place, is_loopback, state_folder


@pytest.fixture
def env(tmp_path):
    return {"ROTA_STATE": str(tmp_path)}


def secret(path, text="secret\n", mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_usual_address(env):
    place = find_place(env=env)
    assert (place.server, place.token) == (DEFAULT_SERVER, "")


def test_the_files_of_the_state_folder(env, tmp_path):
    (tmp_path / "server.json").write_text(json.dumps({"pid": 1, "url": "http://127.0.0.1:99"}))
    secret(tmp_path / "token")
    place = find_place(env=env)
    assert (place.server, place.token) == ("http://127.0.0.1:99", "secret")


def test_the_environment_comes_before_the_files(env, tmp_path):
    (tmp_path / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:99"}))
    secret(tmp_path / "token")
    more = env | {"ROTA_SERVER": "http://127.0.0.1:5/", "ROTA_TOKEN": "mine"}
    place = find_place(env=more)
    assert (place.server, place.token) == ("http://127.0.0.1:5", "mine")
    place = find_place("http://localhost:6", "given", env=more)
    assert (place.server, place.token) == ("http://localhost:6", "given")


def test_tokens_in_files(env, tmp_path):
    text = "from-file"
    path = secret(tmp_path / "t", text)
    assert find_place(env=env | {"ROTA_TOKEN_FILE": str(path)}).token == text
    assert find_place(token_file=path, env=env | {"ROTA_TOKEN": "x"}).token == text


def test_the_local_token_is_for_this_machine_only(env, tmp_path):
    secret(tmp_path / "token")
    assert find_place("https://cluster.example", env=env).token == ""
    assert find_place("http://127.0.0.1.example", env=env).token == ""
    assert find_place("http://[::1]:5", env=env).token


@pytest.mark.parametrize("server", ["ftp://x", "host:7842", "http://", "http://x:99999", "", "\n"])
def test_addresses_that_are_none(env, server):
    if not server:
        assert find_place(server, env=env).server == DEFAULT_SERVER
        return
    with pytest.raises(InputError, match="give a URL such as"):
        find_place(server, env=env)


@pytest.mark.parametrize("text", ["", "two words", "ä", "a\x00b"])
def test_tokens_that_are_none(env, tmp_path, text):
    path = secret(tmp_path / "t", text)
    with pytest.raises(InputError, match="holds no token"):
        find_place(token_file=path, env=env)


def test_a_token_that_others_can_read_is_refused(env, tmp_path):
    path = secret(tmp_path / "t", mode=0o644)
    with pytest.raises(InputError, match="chmod 600"):
        find_place(token_file=path, env=env)


def test_a_token_that_is_not_there(env, tmp_path):
    with pytest.raises(InputError, match="check the path"):
        find_place(token_file=tmp_path / "none", env=env)


def test_a_broken_note_of_the_server_is_passed_over(env, tmp_path):
    (tmp_path / "server.json").write_text("{")
    assert find_place(env=env).server == DEFAULT_SERVER


def test_the_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder({}) == tmp_path / ".local" / "state" / "rota"
    assert state_folder({"XDG_STATE_HOME": "/x"}).as_posix() == "/x/rota"
    assert state_folder({"ROTA_STATE": "~/s"}) == tmp_path / "s"


@pytest.mark.parametrize(
    ("url", "local"),
    [("http://127.0.0.1:1", True), ("http://localhost", True), ("http://[::1]", True),
     ("http://10.0.0.1", False), ("https://localhost.example", False)],
)  # fmt: skip
def test_loopback(url, local):
    assert is_loopback(url) == local


def test_whom_to_trust(env, tmp_path):
    assert find_place(env=env).ca == ""
    assert find_place(env=env | {"ROTA_CA": "a.crt"}).ca == "a.crt"
    assert find_place(ca="b.crt", env=env | {"ROTA_CA": "a.crt"}).ca == "b.crt"
    assert connection("http://10.0.0.1:1", str(tmp_path / "none")) == {"trust_env": True}
    assert connection("http://127.0.0.1:1") == {"trust_env": False}
    assert set(connection("https://10.0.0.1:1")) == {"trust_env"}
    assert set(connection("https://127.0.0.1:1")) == {"trust_env", "verify"}
    (tmp_path / "empty").touch()
    for name in ("none", "empty"):
        with pytest.raises(InputError, match="no certificates there"):
            connection("https://10.0.0.1:1", str(tmp_path / name))
