"""Log-in by an identity provider: a stand-in on this machine, which tells the truth or lies."""

import threading
import time
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest

from oidc_provider import CLIENT, make_key, running_provider
from rota.core.errors import ForbiddenError, InputError, NotFoundError, UnavailableError
from rota.daemon.oidc import AGAIN_S, ATTEMPT_S, MOST_ATTEMPTS, Provider
from rota.daemon.settings import OidcSettings, read_settings
from rota.wire import Actor, LoginAnswer, NewPerson, PersonChange

BACK = "http://127.0.0.1:9/callback"


@pytest.fixture(scope="module")
def keys():
    return make_key(), make_key()


@pytest.fixture
def stand_in(keys):
    with running_provider(keys[0]) as provider:
        yield provider


def settings_for(stand_in, **options):
    return OidcSettings(
        **{
            "issuer": stand_in.issuer,
            "client_id": CLIENT,
            "roles": {"users": "user", "admins": "admin", "ops": "operator"},
            **options,
        }
    )


@pytest.fixture
def make(stand_in):
    """Make the daemon's side of it."""
    made = []

    def provider(clock=time.monotonic, **options):
        made.append(Provider(settings_for(stand_in, **options), clock=clock))
        return made[-1]

    yield provider
    for each in made:
        each.close()


def visit(url):
    """Log in as a browser would; what it is sent back with."""
    answer = httpx2.get(url, trust_env=False)
    assert answer.status_code == 302
    back = answer.headers["Location"]
    assert back.startswith(BACK)
    return {key: values[0] for key, values in parse_qs(urlsplit(back).query).items()}


def log_in(provider):
    start = provider.begin(BACK)
    given = visit(start.url)
    return provider.finish(LoginAnswer(start.secret, given["state"], given["code"]))


def test_whom_the_provider_recognises(make, stand_in):
    found = log_in(make())
    assert (found.subject, found.name, found.role, found.queues) == ("s-1", "ann", "user", None)
    assert stand_in.asked == [
        "/.well-known/openid-configuration", "/authorize", "/token", "/keys",
    ]  # fmt: skip


def test_what_is_known_of_the_provider_is_not_asked_again(make, stand_in):
    provider = make()
    for _ in range(3):
        log_in(provider)
    assert stand_in.asked.count("/.well-known/openid-configuration") == 1
    assert stand_in.asked.count("/keys") == 1


@pytest.mark.parametrize(
    ("groups", "role", "queues"),
    [
        (["users"], "user", ()),
        (["users", "ops"], "operator", ()),
        (["ops", "admins", "vision"], "admin", ("cv",)),
        ("users", "user", ()),
        (["users", "vision", "nlp", 7], "user", ("cv", "text", "misc")),
    ],
)
def test_groups_give_roles_and_queues(make, stand_in, groups, role, queues):
    stand_in.claims["groups"] = groups
    mapped = {"vision": ("cv",), "nlp": ("text", "misc")}
    found = log_in(make(queues=mapped))
    assert (found.role, found.queues) == (role, queues)


@pytest.mark.parametrize("groups", [["strangers"], [], None, {"users": 1}, 7])
def test_who_is_in_no_group_may_not_come_in_unless_there_is_a_role_for_all(make, stand_in, groups):
    stand_in.claims["groups"] = groups
    with pytest.raises(ForbiddenError, match="gives no role"):
        log_in(make())
    assert log_in(make(default_role="viewer")).role == "viewer"


@pytest.mark.parametrize("name", [None, "", "a b", "../x", "x" * 65, ["ann"], 7, "a\n"])
def test_a_claim_that_is_no_name(make, stand_in, name):
    stand_in.claims["preferred_username"] = name
    with pytest.raises(ForbiddenError, match="cannot be a name"):
        log_in(make())


@pytest.mark.parametrize("subject", ["", "x" * 256, "a\0b", "a\nb"])
def test_a_subject_by_which_nobody_can_be_known(make, stand_in, subject):
    stand_in.claims["sub"] = subject
    with pytest.raises(ForbiddenError, match="by which nobody can be known"):
        log_in(make())


@pytest.mark.parametrize(
    "lie",
    [
        {"aud": "another"},
        {"aud": ["another", "others"]},
        {"aud": [CLIENT, "another"]},  # for several, and it does not say which program asked
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"aud": None},
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 99_999_999_999},
        {"nbf": 99_999_999_999},
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 7},
        {"sub": None},
        {"sub": 7},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_log_in_is_refused(make, stand_in, lie):
    stand_in.claims |= lie
    with pytest.raises(ForbiddenError, match="provider's token"):
        log_in(make())
    assert "/token" in stand_in.asked


def test_several_audiences_and_it_says_that_we_asked(make, stand_in):
    stand_in.claims |= {"aud": [CLIENT, "another"], "azp": CLIENT}
    assert log_in(make()).name == "ann"


def test_signatures_that_prove_nothing(make, stand_in, keys):
    public = str(keys[0].public_key().public_numbers().n)
    forged = {
        "another key under the same name": lambda c: jwt.encode(
            c, keys[1], "RS256", {"kid": "first"}
        ),
        "none": lambda c: jwt.encode(c, None, "none", {"kid": "first"}),
        "the public key as a shared secret": lambda c: jwt.encode(
            c, public, "HS256", {"kid": "first"}
        ),
        "an unknown key": lambda c: jwt.encode(c, keys[1], "RS256", {"kid": "second"}),
        "no token": lambda c: "x.y.z",
        "nothing": lambda c: "",
    }
    for what, sign in forged.items():
        stand_in.sign = sign
        with pytest.raises(ForbiddenError, match="cannot be trusted"):
            log_in(make())
        assert what


def test_a_new_key_of_the_provider_is_found_but_not_asked_for_all_the_time(make, stand_in, keys):
    now = [0.0]
    provider = make(clock=lambda: now[0])
    log_in(provider)
    stand_in.key, stand_in.kid = keys[1], "second"
    stand_in.published["second"] = keys[1]
    with pytest.raises(ForbiddenError, match="does not name"):
        log_in(provider)
    assert stand_in.asked.count("/keys") == 1, "somebody could make us ask it for ever"
    now[0] = AGAIN_S + 1
    assert log_in(provider).name == "ann"
    assert stand_in.asked.count("/keys") == 2


def test_an_attempt_belongs_to_who_began_it_and_ends_once(make):
    now = [0.0]
    provider = make(clock=lambda: now[0])
    mine, theirs = provider.begin(BACK), provider.begin(BACK)
    given = visit(mine.url)
    with pytest.raises(ForbiddenError, match="another log-in"):
        provider.finish(LoginAnswer(theirs.secret, given["state"], given["code"]))
    with pytest.raises(ForbiddenError, match="finished before"):
        provider.finish(LoginAnswer("guess", given["state"], given["code"]))
    assert provider.finish(LoginAnswer(mine.secret, given["state"], given["code"])).name == "ann"
    with pytest.raises(ForbiddenError, match="finished before"):
        provider.finish(LoginAnswer(mine.secret, given["state"], given["code"]))
    late = provider.begin(BACK)
    given = visit(late.url)
    now[0] = ATTEMPT_S + 1
    with pytest.raises(ForbiddenError, match="took too long"):
        provider.finish(LoginAnswer(late.secret, given["state"], given["code"]))


def test_a_code_of_another_attempt_is_worth_nothing(make):
    provider = make()
    mine, theirs = provider.begin(BACK), provider.begin(BACK)
    stolen = visit(theirs.url)["code"]
    state = visit(mine.url)["state"]
    with pytest.raises(ForbiddenError, match="does not accept"):  # PKCE: another verifier
        provider.finish(LoginAnswer(mine.secret, state, stolen))


def test_of_too_many_attempts_the_oldest_go(make):
    provider = make()
    first = provider.begin(BACK)
    second = provider.begin(BACK)
    for _ in range(MOST_ATTEMPTS - 1):
        provider.begin(BACK)
    for start, why in ((first, "finished before"), (second, "another log-in")):
        with pytest.raises(ForbiddenError, match=why):
            provider.finish(LoginAnswer(start.secret, "x", "x"))


def test_the_answer_says_who_answers(make, stand_in):
    stand_in.document["authorization_response_iss_parameter_supported"] = True
    provider = make()
    start = provider.begin(BACK)
    given = visit(start.url)
    with pytest.raises(ForbiddenError, match="another identity provider"):
        provider.finish(LoginAnswer(start.secret, given["state"], given["code"]))
    start = provider.begin(BACK)
    given = visit(start.url)
    answer = LoginAnswer(start.secret, given["state"], given["code"])
    assert provider.finish(answer, stand_in.issuer).name == "ann"


def test_a_client_with_a_secret(make, stand_in, tmp_path):
    stand_in.client_secret = "s3cret"  # noqa: S105 - of a stand-in
    with pytest.raises(ForbiddenError, match="does not accept"):
        log_in(make())
    kept = tmp_path / "secret"
    kept.write_text("s3cret\n")
    assert log_in(make(client_secret_file=str(kept))).name == "ann"
    with pytest.raises(InputError, match=r"client_secret_file .*cannot be read"):
        log_in(make(client_secret_file=str(tmp_path / "none")))


def test_a_provider_that_cannot_be_used(make, stand_in):
    stand_in.document["issuer"] = "https://elsewhere.example"
    with pytest.raises(UnavailableError, match="calls itself 'https://elsewhere"):
        make().begin(BACK)
    stand_in.document = {"token_endpoint": "http://id.example/token"}
    with pytest.raises(UnavailableError, match="not encrypted"):
        make().begin(BACK)
    stand_in.document = {"jwks_uri": 7}
    with pytest.raises(UnavailableError, match="cannot be used"):
        make().begin(BACK)
    stand_in.document = {}
    stand_in.broken = 503
    with pytest.raises(UnavailableError, match="it says 503"):
        make().begin(BACK)
    stand_in.broken = 0
    provider = make()
    start = provider.begin(BACK)
    given = visit(start.url)
    stand_in.broken = 500
    with pytest.raises(UnavailableError, match="it says 500"):
        provider.finish(LoginAnswer(start.secret, given["state"], given["code"]))


def test_nobody_is_there(make, stand_in):
    with pytest.raises(UnavailableError, match="cannot be used"):
        make(issuer="http://127.0.0.1:1").begin(BACK)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("issuer: http://id.example\n  default_role: user", "https:// URL"),
        ("issuer: ftp://127.0.0.1\n  default_role: user", "https:// URL"),
        ("issuer: https://id.example", "nobody would get a role"),
        ("issuer: https://id.example\n  default_role: king", "default_role is 'king'"),
        ("issuer: https://id.example\n  roles: {staff: agent}", "staff is 'agent'"),
        ("default_role: user", "issuer is empty"),
        ("issuer: https://i\n  default_role: user\n  scopes: [email]", "openid must be"),
        ("issuer: https://i\n  default_role: user\n  session_s: 1", "session_s is 1"),
        (
            "issuer: https://i\n  default_role: user\n  clientid: x",
            "clientid: there is no",
        ),
    ],
)
def test_mistakes_in_the_configuration(tmp_path, said, why):
    file = tmp_path / "rota.yaml"
    file.write_text(f"oidc:\n  {said}\n")
    with pytest.raises(InputError, match=why):
        read_settings(file, {})


# --- who they are here ----------------------------------------------------------------------------


@pytest.fixture
def daemon(running, make):
    with running(provider=make()) as daemon:
        yield daemon


def come(daemon):
    start = daemon.identities.begin_login(BACK)
    given = visit(start.url)
    return daemon.identities.finish_login(LoginAnswer(start.secret, given["state"], given["code"]))


def test_people_are_added_when_they_first_come(daemon, stand_in, admin):
    person = come(daemon)
    assert (person.name, person.role, person.subject) == ("ann", "user", "s-1")
    assert daemon.identities.people() == [person]
    stand_in.claims |= {"groups": ["ops"], "preferred_username": "ann.married"}
    assert come(daemon).role == "operator"
    assert daemon.identities.person_actor("ann") == Actor("ann", "operator"), (
        "the subject says who it is"
    )
    daemon.identities.allow_person("ann", admin, allowed=False)
    with pytest.raises(ForbiddenError, match="ann is disabled"):
        come(daemon)
    acts = [line.act.partition(":")[0] for line in daemon.store.audit(0, 100)]
    assert acts == [
        "person 'ann' added by the identity provider",
        "person 'ann' changed by the identity provider",
        "person 'ann' disabled by root",
    ]


def test_a_name_that_is_taken_is_not_taken_over(daemon, stand_in, admin):
    daemon.identities.add_person(NewPerson(name="ann", role="admin"), admin)
    daemon.identities.create_token("robot", "operator", admin)
    for name in ("ann", "robot"):
        stand_in.claims["preferred_username"] = name
        with pytest.raises(ForbiddenError, match=f"name '{name}' is taken"):
            come(daemon)
    stand_in.claims["preferred_username"] = "local"
    with pytest.raises(InputError, match="daemon's own"):
        come(daemon)
    daemon.identities.change_person("ann", PersonChange(subject="s-1"), admin)
    assert come(daemon).name == "ann"


def test_without_a_provider_nobody_logs_in(running):
    with running() as daemon:
        with pytest.raises(NotFoundError, match=r"set oidc\.issuer"):
            daemon.identities.begin_login(BACK)
        with pytest.raises(NotFoundError, match=r"set oidc\.issuer"):
            daemon.identities.finish_login(LoginAnswer("a", "b", "c"))


def test_many_come_at_the_same_time(daemon):
    found = []
    threads = [threading.Thread(target=lambda: found.append(come(daemon))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(daemon.identities.people()) == 1
    assert [person.name for person in found] == ["ann"] * 4
