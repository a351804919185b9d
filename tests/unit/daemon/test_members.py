"""Machines join with a code, once, and then speak for their own node only."""

import sqlite3
from contextlib import closing

import pytest

from rota.core.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from rota.daemon.authority import Authority
from rota.daemon.members import Members
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.live.agent.identity import AgentIdentity, JoinCode, pin_of
from rota.wire import Actor

HOUR_S = 3600.0


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


@pytest.fixture
def tokens(store):
    return Tokens(store)


def csr(tmp_path, node="n1"):
    return AgentIdentity(tmp_path).new_request(node)[1]


def test_a_code_is_exchanged_once_for_a_credential_of_the_node(tokens, store):
    code = tokens.invite("n1", HOUR_S)
    joined = tokens.join(code.secret, "n1")
    assert tokens.authenticate(joined.token) == Actor("n1", "agent")
    assert Tokens(store).authenticate(joined.token) == Actor("n1", "agent")
    assert tokens.authenticate(code.secret) is None
    with pytest.raises(ForbiddenError, match=r"it was used.*rota token join n1"):
        tokens.join(code.secret, "n1")


def test_a_code_is_for_its_node_and_its_time(store):
    now = [1000.0]
    members = Members(store, lambda: now[0])
    code = members.invite("n1", HOUR_S)
    for secret, node in ((code.secret, "n2"), ("guess", "n1"), ("", "n1")):
        with pytest.raises(ForbiddenError):
            members.join(secret, node)
    now[0] += HOUR_S
    with pytest.raises(ForbiddenError, match="too old"):
        members.join(code.secret, "n1")
    again = members.invite("n1", HOUR_S)
    newest = members.invite("n1", HOUR_S)
    with pytest.raises(ForbiddenError):  # there is one code for a node
        members.join(again.secret, "n1")
    assert members.join(newest.secret, "n1").node == "n1"


def test_only_digests_are_kept(tokens, store):
    code = tokens.invite("n1", HOUR_S)
    joined = tokens.join(code.secret, "n1")
    other = tokens.invite("n2", HOUR_S)
    store.close()
    with closing(sqlite3.connect(store.where)) as file:
        dump = "\n".join(file.iterdump())
    assert "n2" in dump
    for secret in (code.secret, other.secret, joined.token, joined.token.removeprefix("rota_")):
        assert secret not in dump


def test_a_member_speaks_for_its_node_and_nobody_else_does(tokens):
    tokens.create("rack", "agent")
    assert tokens.claim(["n0"], "rack") == ""
    tokens.join(tokens.invite("n1", HOUR_S).secret, "n1")
    assert tokens.claim(["n1"], "n1") == ""
    assert "is for node 'n1' only" in tokens.claim(["n1", "n2"], "n1")
    assert "is for node 'n1' only" in tokens.claim(["n0"], "n1")
    assert "belongs to the token 'n1'" in tokens.claim(["n1"], "rack")  # also while it is lost


def test_who_was_not_invited_gets_nothing(tokens):
    tokens.create("rack", "agent")
    tokens.invited_only = True
    assert "was not invited" in tokens.claim(["n0"], "rack")
    tokens.join(tokens.invite("n1", HOUR_S).secret, "n1")
    assert tokens.claim(["n1"], "n1") == ""


def test_names_that_are_taken_are_not_given_to_a_machine(tokens):
    tokens.create("rack", "agent")
    tokens.claim(["n0"], "rack")
    with pytest.raises(InputError, match="'rack' is taken"):
        tokens.invite("rack", HOUR_S)
    with pytest.raises(ConflictError, match="node 'n0' belongs to the token 'rack'"):
        tokens.invite("n0", HOUR_S)
    tokens.join(tokens.invite("n1", HOUR_S).secret, "n1")
    with pytest.raises(InputError, match="'n1' is taken"):
        tokens.create("n1", "admin")
    with pytest.raises(InputError, match="'n1' is taken"):
        tokens.invite("n1", HOUR_S)
    for bad in ("", "../n", "n" * 65, "a b"):
        with pytest.raises(InputError, match="node"):
            tokens.invite(bad, HOUR_S)


def test_a_revoked_member_is_gone_with_its_codes(tokens):
    joined = tokens.join(tokens.invite("n1", HOUR_S).secret, "n1")
    assert [actor.name for actor in tokens.all()] == ["n1"]
    tokens.revoke("n1")
    assert tokens.authenticate(joined.token) is None
    assert tokens.all() == []
    with pytest.raises(NotFoundError):
        tokens.revoke("n1")
    assert tokens.join(tokens.invite("n1", HOUR_S).secret, "n1").token != joined.token


def test_with_an_authority_members_have_certificates(tokens, store, tmp_path):
    authority = tokens.members.authority = Authority.create(tmp_path / "tls")
    code = tokens.invite("n1", HOUR_S)
    assert JoinCode.read(str(code)) == code
    assert code.pin == pin_of(authority.fingerprint)
    with pytest.raises(ForbiddenError, match="with a certificate"):
        tokens.join(code.secret, "n1")
    with pytest.raises(InputError, match="not a certificate request"):
        tokens.join(code.secret, "n1", "rubbish")
    joined = tokens.join(code.secret, "n1", csr(tmp_path))
    assert not joined.token
    assert joined.authority == authority.pem
    first = authority_digest(joined)
    assert tokens.members.recognise(first) == Actor("n1", "agent")
    renewed = tokens.members.renew("n1", csr(tmp_path))
    for known in (first, authority_digest(renewed)):  # the old one until it expires
        assert Tokens(store).members.recognise(known) == Actor("n1", "agent")
    late = Members(store, lambda: 1e12)
    assert late.recognise(first) is None
    with pytest.raises(ForbiddenError, match="let it join"):
        tokens.members.renew("n2", csr(tmp_path))
    tokens.revoke("n1")
    assert tokens.members.recognise(first) is None


def authority_digest(membership):
    import hashlib
    import ssl

    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(membership.certificate)).hexdigest()


def test_codes_that_cannot_be_are_named():
    for text in ("", " ", "a b", "é"):
        with pytest.raises(InputError, match="rota token join"):
            JoinCode.read(text)
