"""Who may come in."""

import sqlite3
from contextlib import closing

import pytest

from rota.core.errors import InputError, NotFoundError
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.wire import ADMIN, Actor, TokenInfo


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


def test_a_token_is_worth_its_role_until_it_is_revoked(store):
    tokens = Tokens(store)
    token = tokens.create("alice", "user")
    assert Tokens(store).authenticate(token) == Actor("alice", "user")
    assert tokens.authenticate(token + "x") is None
    assert tokens.authenticate("") is None
    tokens.revoke("alice")
    assert tokens.authenticate(token) is None
    with pytest.raises(NotFoundError, match="no token 'alice'"):
        tokens.revoke("alice")


def test_only_a_digest_is_kept(store):
    token = Tokens(store).create("alice", "user")
    store.close()
    with closing(sqlite3.connect(store.where)) as file:
        dump = "\n".join(file.iterdump())
    assert "alice" in dump
    assert token not in dump
    assert token.removeprefix("rota_") not in dump


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x", "x" * 65, "a\n", "é"])
def test_names_are_plain(store, name):
    with pytest.raises(InputError, match="token name"):
        Tokens(store).create(name, "user")


def test_a_name_has_one_token(store):
    tokens = Tokens(store)
    tokens.create("alice", "user")
    with pytest.raises(InputError, match="is taken"):
        tokens.create("alice", "admin")
    assert tokens.all() == [TokenInfo("alice", "user")]


def test_roles_are_known(store):
    with pytest.raises(InputError, match="role 'king'"):
        Tokens(store).create("alice", "king")


def test_the_local_token_is_in_a_private_file(store, tmp_path):
    tokens = Tokens(store)
    path = tmp_path / "token"
    tokens.local_file(path, Actor("local", ADMIN))
    token = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens.authenticate(token) == Actor("local", "admin")
    tokens.local_file(path, Actor("local", ADMIN))
    assert path.read_text().strip() == token
    path.write_text("rubbish")
    tokens.local_file(path, Actor("local", ADMIN))
    assert tokens.authenticate(path.read_text().strip()) == Actor("local", "admin")
    assert tokens.authenticate(token) is None


def test_a_node_belongs_to_the_first_token_that_speaks_for_it(store):
    tokens = Tokens(store)
    for name in ("gpu1", "gpu2"):
        tokens.create(name, "agent")
    assert tokens.claim(["n1"], "gpu1") == ""
    assert tokens.claim(["n1"], "gpu1") == ""
    refusal = tokens.claim(["n2", "n1"], "gpu2")
    assert "node 'n1' belongs to the token 'gpu1'" in refusal
    assert tokens.claim(["n2"], "gpu1") == ""  # nothing of the refused claim was kept
    assert "belongs to the token 'gpu1'" in Tokens(store).claim(["n1"], "gpu2")
    tokens.release("n1")
    assert tokens.claim(["n1"], "gpu2") == ""
    assert Tokens(store).claim(["n1"], "gpu1")
    tokens.revoke("gpu2")  # nobody can use it any more
    assert tokens.claim(["n1"], "gpu1") == ""
