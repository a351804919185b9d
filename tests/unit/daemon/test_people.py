"""People: their tokens and sessions, what each may submit, and what is written down about it."""

import pytest

from rota.core.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from rota.core.proof import token_digest, token_label
from rota.daemon.people import MOST_SESSIONS, People
from rota.daemon.settings import Queue
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.jobfile.model import JobFile, Resources
from rota.wire import Actor, NewPerson, PersonChange, TokenInfo


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


def ann(**limits):
    return NewPerson(name="ann", **limits)


def test_a_token_is_worth_what_its_person_is_and_nothing_while_they_are_disabled(store):
    tokens = Tokens(store)
    tokens.add_person(ann(role="operator"), after_job=7)
    own = tokens.create("ann", "operator")
    weak = tokens.create("ann-ci", "viewer", person="ann")
    assert tokens.authenticate(own) == Actor("ann", "operator", 7)
    assert tokens.authenticate(weak) == Actor("ann", "viewer", 7)
    tokens.people.change("ann", PersonChange(role="user"))
    assert tokens.authenticate(own) == Actor("ann", "user", 7)
    tokens.people.allow("ann", allowed=False)
    for known in (tokens, Tokens(store)):
        assert known.authenticate(own) is None
        assert known.authenticate(weak) is None
    tokens.people.allow("ann", allowed=True)
    assert Tokens(store).authenticate(weak) == Actor("ann", "viewer", 7)
    assert tokens.all() == [
        TokenInfo("ann", "operator", "ann"), TokenInfo("ann-ci", "viewer", "ann"),
    ]  # fmt: skip


def test_a_token_of_the_name_becomes_the_persons(store):
    tokens = Tokens(store)
    token = tokens.create("ann", "user", after_job=3)
    tokens.add_person(ann(), after_job=9)
    assert tokens.authenticate(token) == Actor("ann", "user", 3), "they keep their jobs"
    tokens.people.allow("ann", allowed=False)
    assert tokens.authenticate(token) is None


def test_a_token_ends_when_its_time_is_over(store):
    now = [1000.0]
    tokens = Tokens(store, lambda: now[0])
    token = tokens.create("ann", "user", valid_s=60)
    assert tokens.authenticate(token) is not None
    assert tokens.all() == [TokenInfo("ann", "user", until=1060.0)]
    now[0] = 1060.0
    assert tokens.authenticate(token) is None
    assert Tokens(store, lambda: now[0]).authenticate(token) is None


def test_what_a_token_of_a_person_cannot_be(store):
    tokens = Tokens(store)
    tokens.add_person(ann(), after_job=0)
    tokens.add_person(NewPerson(name="bob"), after_job=0)
    for role, name, person, why in (
        ("operator", "x", "ann", "cannot be more"),
        ("agent", "x", "ann", "agents are no people"),
        ("user", "bob", "ann", "is that of a person"),
    ):
        with pytest.raises(InputError, match=why):
            tokens.create(name, role, person=person)
    with pytest.raises(NotFoundError, match="no person 'eve'"):
        tokens.create("x", "user", person="eve")
    with pytest.raises(InputError, match="name of a person"):
        tokens.invite("ann", 60)


@pytest.mark.parametrize("name", ["local", "local-0af3", "gpu1", "gpu2", "bobs", "a b", ""])
def test_names_that_a_person_cannot_have(store, name):
    tokens = Tokens(store)
    tokens.create("gpu1", "agent")
    tokens.join(tokens.invite("gpu2", 60).secret, "gpu2")
    tokens.add_person(NewPerson(name="bob"), after_job=0)
    tokens.create("bobs", "user", person="bob")
    with pytest.raises(InputError, match="name"):
        tokens.add_person(NewPerson(name=name), after_job=0)
    assert [person.name for person in tokens.people.all()] == ["bob"]


def test_a_person_is_added_once_and_a_subject_is_one_person(store):
    people = People(store)
    people.add(ann(subject="s1"), after_job=0)
    with pytest.raises(ConflictError, match="is there already"):
        people.add(ann(), after_job=0)
    with pytest.raises(ConflictError, match="subject 's1' is 'ann'"):
        people.add(NewPerson(name="eve", subject="s1"), after_job=0)
    people.add(NewPerson(name="bob"), after_job=0)
    with pytest.raises(ConflictError, match="subject 's1' is 'ann'"):
        people.change("bob", PersonChange(subject="s1"))
    with pytest.raises(InputError, match="role 'agent'"):
        people.change("bob", PersonChange(role="agent"))
    with pytest.raises(NotFoundError, match="no person 'eve'"):
        people.allow("eve", allowed=True)
    assert People(store).all() == people.all()
    assert people.of_subject("") is None, "nobody is meant by an empty one"


def test_a_session_is_good_until_it_ends(store):
    now = [1000.0]
    tokens = Tokens(store, lambda: now[0])
    people = tokens.people
    people.add(ann(), after_job=0)
    first, second = people.begin("ann", 100), people.begin("ann", 200)
    assert tokens.authenticate(first.token) == Actor("ann", "user")
    assert Tokens(store, lambda: now[0]).authenticate(first.token) == Actor("ann", "user")
    assert tokens.prove(token_label(token_digest(first.token)), "0" * 32, 7842)
    assert people.end(first.id)
    assert not people.end(first.id)
    assert tokens.authenticate(first.token) is None
    assert [each.id for each in people.sessions()] == [second.id]
    now[0] = 1200.0
    assert tokens.authenticate(second.token) is None
    assert people.sessions() == []


def test_disabling_ends_sessions_for_good(store):
    people = People(store)
    people.add(ann(), after_job=0)
    made = people.begin("ann", 100)
    people.allow("ann", allowed=False)
    with pytest.raises(NotFoundError, match="cannot log in"):
        people.begin("ann", 100)
    people.allow("ann", allowed=True)
    assert people.sessions() == []
    assert Tokens(store).authenticate(made.token) is None


def test_of_too_many_sessions_the_oldest_go(store):
    now = [0.0]
    people = People(store, lambda: now[0])
    people.add(ann(), after_job=0)
    people.add(NewPerson(name="bob"), after_job=0)
    other = people.begin("bob", 1e6)
    made = []
    for _ in range(MOST_SESSIONS + 1):
        now[0] += 1
        made.append(people.begin("ann", 1e6))
    found = [each.id for each in People(store, lambda: now[0]).sessions()]
    assert found == [other.id, *(each.id for each in made[1:])]


# --- in a daemon ----------------------------------------------------------------------------------

QUEUES = (Queue("research"), Queue("vision", parent="research"), Queue("prod"))


@pytest.fixture
def shared(running):
    with running(queues=QUEUES) as daemon:
        yield daemon


def submits(daemon, actor, **job):
    return daemon.submit([JobFile(run="true", resources=Resources(gpus=1), **job)], actor)


def test_where_a_person_may_submit(shared, admin):
    shared.identities.add_person(ann(queues=("research",)), admin)
    actor = shared.identities.person_actor("ann")
    submits(shared, actor, queue="research")
    submits(shared, actor, queue="vision")
    for queue, why in (("prod", "these only: research"), ("", "these only"), ("x", "not declared")):
        with pytest.raises(ForbiddenError, match=why):
            submits(shared, actor, queue=queue)
    shared.identities.change_person("ann", PersonChange(queues=None), admin)
    submits(shared, actor, queue="prod")
    shared.identities.change_person("ann", PersonChange(queues=(), own_queues=True), admin)
    submits(shared, actor, queue="mine")
    with pytest.raises(ForbiddenError, match="these only: none"):
        submits(shared, actor, queue="prod")
    submits(shared, Actor("ann", "operator"), queue="prod")


def test_how_much_a_person_may_submit(shared, admin):
    shared.identities.add_person(ann(max_jobs=1, max_priority=3), admin)
    actor = shared.identities.person_actor("ann")
    with pytest.raises(ForbiddenError, match="3 is the highest"):
        submits(shared, actor, priority=4)
    submits(shared, actor, priority=3)
    with pytest.raises(ForbiddenError, match="1 are allowed"):
        submits(shared, actor)
    shared.identities.change_person("ann", PersonChange(max_jobs=2), admin)
    submits(shared, actor)


def test_limits_name_what_is_declared(shared, admin):
    with pytest.raises(InputError, match="queues: 'reserch' is not declared"):
        shared.identities.add_person(ann(queues=("reserch",)), admin)
    with pytest.raises(InputError, match="priority_classes: 'high' is not declared"):
        shared.identities.add_person(ann(priority_classes=("high",)), admin)
    assert shared.identities.people() == []


def test_nobody_changes_or_disables_themselves(shared, admin):
    shared.identities.add_person(ann(role="admin"), admin)
    actor = shared.identities.person_actor("ann")
    with pytest.raises(ConflictError, match="another administrator"):
        shared.identities.allow_person("ann", actor, allowed=False)
    with pytest.raises(ConflictError, match="another administrator"):
        shared.identities.change_person("ann", PersonChange(role="user"), actor)


def test_what_is_done_to_people_is_in_the_audit_log(shared, admin):
    shared.identities.add_person(ann(), admin)
    shared.identities.change_person("ann", PersonChange(max_jobs=5), admin)
    shared.identities.create_token("ann-ci", "user", admin, user="ann", valid_s=60)
    made = shared.identities.begin_session("ann", 60)
    shared.identities.end_session(made.id, admin)
    shared.identities.allow_person("ann", admin, allowed=False)
    shared.identities.allow_person("ann", admin, allowed=True)
    acts = [line.act for line in shared.store.audit(0, 100)]
    assert acts == [
        "person 'ann' added by root: role user",
        "person 'ann' changed by root: role user; max_jobs 5",
        "token 'ann-ci' with the role user for ann, for 1m 00s created by root",
        f"ann logged in: session {made.id}",
        f"session {made.id} ended by root",
        "person 'ann' disabled by root",
        "person 'ann' enabled by root",
    ]
    assert not any(made.token in act for act in acts)


def test_a_name_is_not_given_again_while_jobs_of_its_former_holder_go_on(shared, admin):
    former = shared.identities.authenticate(shared.identities.create_token("carol", "user", admin))
    (theirs,) = submits(shared, former)
    shared.identities.revoke_token("carol", admin)
    with pytest.raises(ConflictError, match="1 jobs of a former 'carol' are not finished"):
        shared.identities.create_token("carol", "user", admin)
    with pytest.raises(ConflictError, match="not finished"):
        shared.identities.add_person(NewPerson(name="carol"), admin)
    shared.cancel(theirs.id, admin)
    shared.identities.add_person(NewPerson(name="carol"), admin)
    assert shared.jobs(shared.identities.person_actor("carol")) == []


def test_an_account_of_the_machine_is_the_person_of_that_name(shared, admin):
    shared.identities.add_person(ann(), admin)
    assert shared.identities.account(Actor("ann", "operator")) == Actor("ann", "user")
    assert shared.identities.account(Actor("olga", "operator")) == Actor("olga", "operator")
    shared.identities.allow_person("ann", admin, allowed=False)
    assert shared.identities.account(Actor("ann", "operator")) is None
