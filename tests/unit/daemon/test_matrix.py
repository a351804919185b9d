"""Every operation x every role x every queue, on a real daemon: who gets what.

The table is complete: an operation of `rota.wire` that is not in it fails. A cell is what a request
gets that is otherwise right: `+` the answer of the operation, `-` 401, `.` 403, `?` 404, `=` 409.
"""

import itertools
from hashlib import sha256
from types import SimpleNamespace

import pytest
import structlog
from starlette.testclient import TestClient

from rota.api import ApiSettings, create_app
from rota.core.proof import token_digest, token_label
from rota.daemon.secrets import SecretStore
from rota.daemon.settings import read_settings
from rota.daemon.uploads import UploadStore
from rota.jobfile.model import JobFile, Resources
from rota.live.calls import CallAnswer
from rota.live.driver import Capabilities
from rota.live.drivers.pretend import PretendDriver
from rota.wire import OPERATIONS, Actor, NewPerson, NewWindow

ADMIN = Actor("root", "admin")
CONFIGURATION = """
queues: {research: {}, vision: {parent: research}, production: {}, closed: {}}
priority_classes: {urgent: {value: 4}}
permissions:
  queues: {closed: []}
  priority_classes: {urgent: [otto, ursula]}
  max_priority: 5
"""
COLUMNS = ("nobody", "disabled", "viewer", "user", "other", "operator", "admin", "agent")
STATUS = {"-": 401, ".": 403, "?": 404, "=": 409}
FOR_ALL = "+ + + + + + + +"
FOR_PEOPLE = "- - + + + + + ."
FOR_USERS = "- - . + + + + ."
FOR_OPERATORS = "- - . . . + + ."
FOR_ADMINS = "- - . . . . + ."
FOR_AGENTS = "- - . . . . + +"
SEEN = {"job of user": "- - + + ? + + .", "job of other": "- - + ? + + + ."}
OWNED = {"job of user": "- - . + ? + + .", "job of other": "- - . ? + + + ."}
INSIDE = {"job of user": "- - . + ? . + .", "job of other": "- - . ? + . + ."}

SEEN_ARRAY = {name.replace("job", "array"): cells for name, cells in SEEN.items()}
OWNED_ARRAY = {name.replace("job", "array"): cells for name, cells in OWNED.items()}

MATRIX = {
    "submit_jobs": {
        "queue research": FOR_USERS,  # `user` may submit there and to its parts only
        "queue vision": FOR_USERS,
        "queue production": "- - . . + + + .",
        "queue closed": "- - . . . + + .",  # the configuration names nobody
        "queue undeclared": "- - . . . . . .",
        "queue": "- - . . + + + .",
        "priority 9": "- - . . . + + .",
        "class urgent": "- - . . + + + .",
    },
    "list_jobs": {"": FOR_PEOPLE},
    "find_jobs": {"": FOR_PEOPLE},
    "get_job": SEEN,
    "cancel_job": OWNED,
    "hold_job": OWNED,
    "release_job": OWNED,
    "get_job_usage": SEEN,
    "list_efficiency": {"": FOR_PEOPLE},
    "get_array": SEEN_ARRAY,
    "cancel_array": OWNED_ARRAY,
    "hold_array": OWNED_ARRAY,
    "release_array": OWNED_ARRAY,
    "explain_job": SEEN,
    "forecast_job": SEEN,
    "why_job": SEEN,
    "forecast_new_job": {"": FOR_USERS},
    "why_new_job": {"": FOR_USERS},
    "read_job_log": OWNED,
    "open_channel": INSIDE,
    "list_channels": INSIDE,
    "read_channel": INSIDE,
    "write_channel": INSIDE,
    "close_channel": INSIDE,
    "list_files": INSIDE,
    "read_job_file": INSIDE,
    "plan_upload": {"": FOR_USERS},
    "send_piece": {"": FOR_USERS},
    "set_secret": {"": FOR_USERS},
    "list_secrets": {"": FOR_USERS},
    "remove_secret": {"": "- - . ? ? ? ? ."},  # they have none of that name
    "list_events": {"": FOR_PEOPLE, **SEEN},
    "stream_events": {"": FOR_PEOPLE, **SEEN},
    "stream_board": {"": FOR_PEOPLE},
    "export_events": {"": FOR_OPERATORS},
    "audit_queues": {"": FOR_OPERATORS},
    "list_audit": {"": FOR_OPERATORS},
    "list_nodes": {"": FOR_PEOPLE},
    "node_history": {"": FOR_PEOPLE},
    "drain_node": {"": FOR_OPERATORS},
    "undrain_node": {"": FOR_OPERATORS},
    "list_windows": {"": FOR_PEOPLE},
    "add_window": {"": FOR_OPERATORS},
    "remove_window": {"": FOR_OPERATORS},
    "begin_restart": {"": "- - . . . = = ."},  # this backend has no agents
    "get_restart": {"": "- - = = = = = ."},
    "stop_restart": {"": "- - . . . = = ."},
    "remove_node": {"": "- - . . . = = ."},  # it is in use
    "list_queues": {"": FOR_PEOPLE},
    "get_status": {"": FOR_PEOPLE},
    "list_lanes": {"": FOR_PEOPLE},
    "list_choices": {"": FOR_PEOPLE},
    "try_out": {"": FOR_OPERATORS},
    "whoami": {"": FOR_PEOPLE},
    "list_tokens": {"": FOR_ADMINS},
    "create_token": {"": FOR_ADMINS},
    "revoke_token": {"": FOR_ADMINS},
    "list_people": {"": FOR_ADMINS},
    "add_person": {"": FOR_ADMINS},
    "change_person": {"": FOR_ADMINS},
    "disable_person": {"": FOR_ADMINS},
    "enable_person": {"": FOR_ADMINS},
    "list_sessions": {"": FOR_PEOPLE},
    "end_session": {
        "session of user": "- - ? + ? ? + .",
        "session of other": "- - ? ? + ? + .",
    },
    "begin_login": {"": "? ? ? ? ? ? ? ?"},  # this daemon has no identity provider
    "finish_login": {"": "? ? ? ? ? ? ? ?"},
    "begin_web_login": {"": "? ? ? ? ? ? ? ?"},
    "finish_web_login": {"": "- - - - - - - -"},  # no browser began
    "reload_configuration": {"": FOR_ADMINS},
    "prove_server": {"": FOR_ALL},
    "create_web_code": {"": FOR_PEOPLE},
    "log_in": {"": "- - - - - - - -"},  # without a code of `create_web_code`
    "keep_browser": {"": "- - = = = = = ."},  # none of them is a browser
    "challenge_browser": {"": FOR_ALL},
    "resume_browser": {"": "- - - - - - - -"},  # with a key that nobody has
    "show_page": {"": FOR_ALL},
    "get_asset": {"": FOR_ALL},
    "sync_agent": {"": FOR_AGENTS},
    "call_agent": {"": FOR_AGENTS},
    "fetch_piece": {"": FOR_AGENTS},
    "invite_node": {"": FOR_ADMINS},
    "join_node": {"": ". . . . . . . ."},  # with a wrong code
    "renew_node": {"": "- - . . . . . ."},  # none of them has joined
    "get_authority": {"": "? ? ? ? ? ? ? ?"},  # this daemon has none
    "check_health": {"": FOR_ALL},
    "check_ready": {"": FOR_ALL},
    "get_metrics": {"": FOR_PEOPLE},
    "get_schema": {"": FOR_ALL},
}


class WritingDriver(PretendDriver):
    """Its jobs have output and a way in."""

    capabilities = Capabilities(measured=False, joins=False)

    def read_log(self, job, stream, node_rank, offset, limit):
        return b""

    def reach(self, job, node_rank, call):
        return CallAnswer()

    def reach_files(self, job, call):
        return CallAnswer()


class World:
    """A daemon with people of all kinds, and what requests are about."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.numbers = itertools.count()
        limits = {"queues": ("research",), "priority_classes": ()}
        self.people = {
            "viewer": NewPerson(name="vera", role="viewer"),
            "user": NewPerson(name="ursula", role="user", **limits),
            "other": NewPerson(name="otto", role="user"),
            "operator": NewPerson(name="olga", role="operator"),
            "admin": NewPerson(name="ada", role="admin"),
            "disabled": NewPerson(name="dora", role="admin"),
        }
        self.tokens = {"nobody": ""}
        for column, person in self.people.items():
            daemon.identities.add_person(person, ADMIN)
            self.tokens[column] = daemon.identities.create_token(person.name, person.role, ADMIN)
        self.tokens["agent"] = daemon.identities.create_token("gpu1", "agent", ADMIN)
        daemon.identities.allow_person("dora", ADMIN, allowed=False)
        limits = {"requests_per_s": 1e6, "burst": 10**6}
        strangers = {"strangers_per_s": 1e6, "strangers_burst": 10**6}
        self.app = create_app(
            daemon, agent_sync=lambda body, token: b"{}", agent_calls=lambda body, token: b"{}",
            agent_pieces=lambda body, token: b"{}",
            export_log=lambda: iter([b"PAR1"]),
            settings=ApiSettings(**limits, **strangers, stream_s=0.01),
        )  # fmt: skip

    def fresh(self):
        return f"x{next(self.numbers)}"

    def actor(self, column):
        return self.daemon.identities.authenticate(self.tokens[column])

    def request(self, operation, case, token):
        """The pieces of a request that is right."""
        what, _, which = case.partition(" ")
        made = SimpleNamespace(path=operation.path, params=None, json=None)
        if what in ("job", "array"):
            owner = which.removeprefix("of ")
            file = JobFile(
                run="true", resources=Resources(gpus=8), queue=self.home(owner),
                array="0-1" if what == "array" else "",
            )  # fmt: skip
            job = self.daemon.submit([file], self.actor(owner))[0].id
            if f"{{{what}}}" in made.path:
                made.path = made.path.replace(f"{{{what}}}", job)
            else:
                made.params = {"job": job}
        if what == "session":
            name = self.people[which.removeprefix("of ")].name
            session = self.daemon.identities.begin_session(name, 60).id
            made.path = made.path.replace("{session}", session)
        getattr(self, operation.name, lambda *_: None)(made, case, token)
        return made

    @staticmethod
    def home(owner):
        return "research" if owner == "user" else "production"

    # --- what single operations need --------------------------------------------------------------

    def submit_jobs(self, made, case, token):
        what, _, which = case.partition(" ")
        made.json = {"run": "true", "queue": "research", "resources": {"gpus": 1}}
        made.json |= {
            "queue": {"queue": which},
            "priority": {"priority": int(which) if which.isdigit() else 0},
            "class": {"priority_class": which},
        }[what]

    def drain_node(self, made, case, token):
        made.path = made.path.replace("{node}", "n0")

    undrain_node = node_history = drain_node

    def add_window(self, made, case, token):
        # far away: it must not keep the jobs of others from starting
        made.json = {"kind": "reservation", "nodes": ["n1"], "users": ["pia"], "name": self.fresh()}
        made.json |= {"start": 9e10, "end": 9.1e10}

    def remove_window(self, made, case, token):
        name = self.fresh()
        window = NewWindow(
            kind="maintenance", nodes=["n1"], start=9e10, end=9.1e10, name=name
        )  # fmt: skip
        self.daemon.add_window(window, ADMIN)
        made.path = made.path.replace("{window}", name)

    def begin_restart(self, made, case, token):
        made.json = {"nodes": ["n0"]}

    def remove_node(self, made, case, token):
        made.path = made.path.replace("{node}", "n1")

    def create_token(self, made, case, token):
        made.json = {"name": self.fresh(), "role": "user"}

    def revoke_token(self, made, case, token):
        name = self.fresh()
        self.daemon.identities.create_token(name, "user", ADMIN)
        made.path = made.path.replace("{name}", name)

    def add_person(self, made, case, token):
        made.json = {"name": self.fresh()}

    def change_person(self, made, case, token):
        made.path = made.path.replace("{person}", "pia")
        made.json = {"max_jobs": 7}

    enable_person = disable_person = change_person

    def begin_login(self, made, case, token):
        made.json = {"redirect": "http://127.0.0.1:4000/callback"}

    def finish_login(self, made, case, token):
        made.json = {"secret": "x", "state": "x", "code": "x"}

    def prove_server(self, made, case, token):
        label = token_label(token_digest(self.tokens["user"]))
        made.params = {"token": label, "nonce": "0" * 32}

    def log_in(self, made, case, token):
        made.params = {"code": "none"}

    def sync_agent(self, made, case, token):
        made.json = {}

    call_agent = fetch_piece = sync_agent

    def plan_upload(self, made, case, token):
        made.json = {"files": []}

    def set_secret(self, made, case, token):
        made.json = {"name": "KEY", "value": "x"}

    def remove_secret(self, made, case, token):
        made.path = made.path.replace("{secret}", "NONE")

    def send_piece(self, made, case, token):
        made.path = made.path.replace("{digest}", sha256(b"").hexdigest())

    def open_channel(self, made, case, token):
        made.json = {"id": "0" * 16}

    def write_channel(self, made, case, token):
        made.path = made.path.replace("{channel}", "main")

    read_channel = close_channel = write_channel

    def invite_node(self, made, case, token):
        made.json = {"node": self.fresh(), "valid_s": 60}

    def join_node(self, made, case, token):
        made.json = {"secret": "wrong", "node": "gpu9"}

    def renew_node(self, made, case, token):
        made.json = {"csr": ""}

    def forecast_job(self, made, case, token):
        made.params = {"runs": 1}

    def keep_browser(self, made, case, token):
        made.json = {"key": "A" * 87}

    def resume_browser(self, made, case, token):
        made.json = {"key": "A" * 87, "challenge": "x", "signature": "A" * 86}

    def forecast_new_job(self, made, case, token):
        made.params = {"runs": 1}
        made.json = {"run": "true", "queue": "research"}

    why_new_job = forecast_new_job

    def try_out(self, made, case, token):
        made.json = {"policy": "srtf", "runs": 1}

    def get_asset(self, made, case, token):
        made.path = made.path.replace("{asset}", "app.js")


@pytest.fixture(scope="module")
def world(tmp_path_factory, new_daemon):
    folder = tmp_path_factory.mktemp("matrix")
    config = folder / "rota.yaml"
    config.write_text(CONFIGURATION)  # which a reload reads again
    settings = read_settings(config, {})
    with (
        structlog.testing.capture_logs(),
        new_daemon(
            folder / "rota.db",
            driver=WritingDriver(), nodes=(2, 4), settings=settings, config=config,
            queues=settings.queues, priority_classes=settings.priority_classes,
        ) as daemon,
    ):  # fmt: skip
        daemon.identities.add_person(NewPerson(name="pia"), ADMIN)
        daemon.uploads = UploadStore(folder / "uploads")
        daemon.vault = SecretStore(folder / "secrets", folder / "secrets.key")
        yield World(daemon)


def test_the_table_is_complete():
    assert set(MATRIX) == set(OPERATIONS), "a new operation needs a line: who gets what?"
    assert all(len(cells.split()) == 8 for cases in MATRIX.values() for cells in cases.values())
    of_jobs = {name for name, found in OPERATIONS.items() if "{job}" in found.path}
    assert all({"job of user", "job of other"} <= set(MATRIX[name]) for name in of_jobs)


@pytest.mark.parametrize("name", MATRIX)
def test_who_gets_what(world, name):
    operation = OPERATIONS[name]
    for case, cells in MATRIX[name].items():
        found = []
        for column in COLUMNS:
            token = world.tokens[column]
            made = world.request(operation, case, token)
            client = TestClient(world.app, "http://127.0.0.1", raise_server_exceptions=False)
            answer = client.request(
                operation.method, made.path, params=made.params, json=made.json,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                follow_redirects=False,
            )  # fmt: skip
            told = {operation.status: "+", **{status: sign for sign, status in STATUS.items()}}
            found.append(told.get(answer.status_code, f"{answer.status_code} {answer.text}"))
        assert " ".join(found) == cells, (name, case, COLUMNS)


def test_which_jobs_and_events_each_sees(world):
    numbers = {
        owner: world.daemon.submit(
            [JobFile(run="true", resources=Resources(gpus=8), queue=world.home(owner))],
            world.actor(owner),
        )[0].id
        for owner in ("user", "other")
    }
    for column, sees in {
        "viewer": ("user", "other"), "user": ("user",), "other": ("other",),
        "operator": ("user", "other"), "admin": ("user", "other"),
    }.items():  # fmt: skip
        client = TestClient(
            world.app,
            "http://127.0.0.1",
            headers={"Authorization": f"Bearer {world.tokens[column]}"},
        )
        listed = {job["id"] for job in client.get("/api/v1/jobs?limit=10000").json()}
        found = client.get("/api/v1/find/jobs?limit=1000").json()
        assert {job["id"] for job in found["jobs"]} == listed
        assert found["total"] == len(listed)
        after, told = 0, set()
        while True:
            page = client.get(f"/api/v1/events?after={after}&limit=10000").json()
            told |= {event["job"] for event in page["events"]}
            after = page["next"]
            if page["end"]:
                break
        expected = {numbers[owner] for owner in sees}
        assert listed & set(numbers.values()) == expected, column
        assert told & set(numbers.values()) == expected, column


def test_whose_sessions_each_sees(world):
    for name in ("ursula", "otto"):
        world.daemon.identities.begin_session(name, 600)
    for column, sees in {
        "viewer": set(), "user": {"ursula"}, "other": {"otto"}, "operator": set(),
        "admin": {"ursula", "otto"},
    }.items():  # fmt: skip
        client = TestClient(world.app, "http://127.0.0.1")
        headers = {"Authorization": f"Bearer {world.tokens[column]}"}
        found = client.get("/api/v1/sessions", headers=headers).json()
        assert {each["user"] for each in found} == sees, column
