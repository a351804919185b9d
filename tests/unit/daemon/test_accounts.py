"""Whom the jobs of each user run as."""

import pytest

from rota.core.errors import ConflictError, InputError
from rota.core.launch import Launch
from rota.daemon.accounts import Accounts
from rota.daemon.settings import IsolationSettings, read_settings
from rota.daemon.store import Store
from rota.live.driver import RunOrder
from rota.wire import Actor


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


def run_of(user, job=1):
    return RunOrder(f"{job}.0", str(job), Launch(run="true"), (), 1, 29500, user=user)


def make(store, **settings):
    said = {"uids": "5000-5003", **settings}
    return Accounts(store, IsolationSettings(**said), {"carl": "user"}, "local")


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
