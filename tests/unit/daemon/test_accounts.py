"""Whom the jobs of each user run as."""

import pytest

from rota.core.errors import ConflictError, InputError
from rota.core.launch import Launch
from rota.daemon.accounts import Accounts, find_owner
from rota.daemon.folder import StateFolder
from rota.daemon.secrets import SecretStore
from rota.daemon.settings import IsolationSettings, read_settings
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.live.driver import RunOrder
from rota.server import Assembly
from rota.wire import Actor, NewPerson


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


LOCAL_OWNER = Actor("local", "admin")


def run_of(user, job=1):
    return RunOrder(f"{job}.0", str(job), Launch(run="true"), (), 1, 29500, user=user)


def make(store, owner=LOCAL_OWNER, **settings):
    said = {"uids": "5000-5003", **settings}
    return Accounts(store, IsolationSettings(**said), {"carl": "user"}, owner)


def test_each_user_has_a_number_that_stays(store):
    accounts = make(store)
    accounts.ensure(Actor("ann", "user"))
    accounts.ensure(Actor("bob", "user"))
    assert accounts.of(run_of("ann")) == ("5000", False)
    assert accounts.of(run_of("bob")) == ("5001", False)
    later = make(store)
    later.ensure(Actor("ann", "user"))
    assert later.of(run_of("ann")) == ("5000", False)
    assert later.of(run_of("local")) == ("5002", True)


def test_accounts_that_are_named_are_used(store):
    accounts = make(store, users={"ann": "anna", "bob": 1003})
    for user, account in (("ann", "anna"), ("bob", "1003"), ("carl", "carl")):
        accounts.ensure(Actor(user, "user"))
        assert accounts.of(run_of(user)) == (account, False)


def test_a_later_holder_of_a_name_has_another_number(store):
    accounts = make(store)
    accounts.ensure(Actor("ann", "user"))
    accounts.ensure(Actor("ann", "user", 7))
    assert accounts.of(run_of("ann", 7)) == ("5000", False)
    assert accounts.of(run_of("ann", 8)) == ("5001", False)


def test_jobs_from_before_get_a_number_when_they_run(store):
    assert make(store).of(run_of("ann")) == ("5000", False)
    assert make(store).of(run_of("bob")) == ("5001", False)


def test_numbers_run_out_with_a_remedy(store):
    accounts = make(store)
    for number in range(4):
        accounts.ensure(Actor(f"u{number}", "user"))
    with pytest.raises(ConflictError, match=r"isolation.uids 5000-5003: all numbers are given"):
        accounts.ensure(Actor("late", "user"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{uids: 5-9}", "isolation.uids is '5-9': write two numbers from 1000 on"),
        ("{uids: many}", "isolation.uids is 'many'"),
        ("{users: {ann: root}}", "isolation.users.ann is 'root': jobs of others are never run as"),
        ("{users: {ann: 0}}", "isolation.users.ann is 0"),
        ("{visible: [here]}", "isolation.visible 'here': write an absolute path"),
        ("{processes: 0}", "isolation.processes is 0: give 1 or more"),
        ("{mode: on}", "isolation.mode is True: write one of auto, required, off"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    path = tmp_path / "rota.yaml"
    path.write_text(f"isolation: {text}\n")
    with pytest.raises(InputError) as caught:
        read_settings(path, {})
    assert message in str(caught.value)


def test_the_command_line_adds_to_the_section(tmp_path):
    path = tmp_path / "rota.yaml"
    path.write_text("isolation: {uids: 5000-5003, mode: auto}\n")
    settings = read_settings(path, {"isolation": {"mode": "required"}}).isolation
    assert (settings.mode, settings.range) == ("required", (5000, 5003))


def test_the_owner_has_the_name_of_their_account_from_then_on(store):
    tokens = Tokens(store)
    store.skip_to(7)
    owner = find_owner(store, tokens, "olga")
    assert owner == Actor("olga", "admin", 7)
    store.skip_to(9)
    assert find_owner(store, Tokens(store), "olga") == owner  # after a restart
    accounts = make(store, owner)
    assert accounts.of(run_of("olga", 8))[1]
    assert not accounts.of(run_of("olga", 7))[1]  # of somebody who had the name before
    assert accounts.of(run_of("local", 3))[1]  # from before there were names
    assert find_owner(store, Tokens(store), "root") == Actor("root", "admin", 9)


def test_nobody_else_can_have_the_name_of_the_owner(store):
    tokens = Tokens(store)
    find_owner(store, tokens, "olga")
    for name in ("olga", "local"):
        with pytest.raises(InputError, match="whoever runs the daemon"):
            tokens.create(name, "user")
        with pytest.raises(InputError, match="daemon's own"):
            tokens.add_person(NewPerson(name=name, role="user"), after_job=0)


def test_a_name_that_is_somebodys_stays_theirs(store):
    tokens = Tokens(store)
    tokens.create("ann", "user")
    tokens.add_person(NewPerson(name="bob", role="user"), after_job=0)
    for name in ("ann", "bob", "a name with blanks", ""):
        assert find_owner(store, tokens, name) == Actor("local", "admin")


def test_the_token_of_the_owner_keeps_its_worth_under_their_name(store, tmp_path):
    path, tokens = tmp_path / "token", Tokens(store)
    tokens.local_file(path, LOCAL_OWNER)
    token = path.read_text().strip()
    owner = find_owner(store, tokens, "olga")
    tokens.local_file(path, owner)
    assert path.read_text().strip() == token
    assert tokens.authenticate(token) == owner
    assert [each.name for each in Tokens(store).all()] == ["olga"]


def test_secrets_of_the_owner_follow_them(tmp_path):
    vault = SecretStore(tmp_path / "secrets", tmp_path / "key")
    vault.set("KEY", "sesame", LOCAL_OWNER)
    owner = Actor("olga", "admin", 7)
    for _ in range(2):
        vault.copy_of(LOCAL_OWNER, owner)
        assert vault.values(("KEY",), "olga", 8) == {"KEY": "sesame"}
        assert vault.values(("KEY",), "local", 3) == {"KEY": "sesame"}
    vault.copy_of(Actor("nobody", "admin"), owner)


def test_an_owner_that_cannot_be_a_name_is_refused(tmp_path):
    settings = read_settings(None, {"owner": "a b/c", "listen": "127.0.0.1:0"})
    with pytest.raises(InputError, match=r"owner is 'a b/c': use up to 64 letters, digits"):
        Assembly(StateFolder(tmp_path / "state"), settings)
