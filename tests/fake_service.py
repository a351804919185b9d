"""A daemon in memory: obeys the contract of `rota.daemon.ports.Service`, and runs nothing.

Tests move jobs along by hand (`start`, `finish`, `write`). Tokens are the names of `TOKENS`.
"""

import hashlib
import hmac
import threading
import time

import msgspec

from rota.core.efficiency import JobUsage
from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from rota.core.findings import Finding
from rota.core.membership import Membership
from rota.core.proof import server_code, token_label
from rota.core.verdict import Verdict
from rota.daemon.access import check_job, sees_job
from rota.daemon.board import Board, BoardJob, BoardNode
from rota.daemon.pictures import picture_array
from rota.jobfile.arrays import array_of, expanded
from rota.jobfile.model import GpuRange
from rota.live.calls import CallAnswer, FoundFile, OpenedChannel
from rota.wire import (
    CANCEL_ARRAY,
    CANCEL_JOB,
    ENDED,
    GET_ARRAY,
    GET_JOB,
    HOLD_ARRAY,
    HOLD_JOB,
    PEOPLE,
    READ_OUTPUT,
    RELEASE_ARRAY,
    RELEASE_JOB,
    ROLES,
    TOKEN_NAME,
    Actor,
    AuditEntry,
    AuditPage,
    Choices,
    Event,
    Explanation,
    Forecast,
    FoundJobs,
    JobInfo,
    LaneBar,
    Lanes,
    LoginStart,
    MadeSession,
    NodeEvent,
    NodeInfo,
    Person,
    QueueInfo,
    RestartedNode,
    RestartInfo,
    SessionInfo,
    TokenInfo,
    TrialAnswer,
    TrialOutcome,
    WhyPart,
    WindowInfo,
)

WAITING = {"HELD", "PENDING"}
EPOCH = 1_700_000_000.0
TOKENS = {
    "viewer-token": Actor("vera", "viewer"),
    "user-token": Actor("ursula", "user"),
    "other-token": Actor("otto", "user"),
    "operator-token": Actor("olga", "operator"),
    "admin-token": Actor("ada", "admin"),
    "agent-token": Actor("n1", "agent"),
}


def _hash(token):
    return hashlib.sha256(token.encode()).hexdigest()


class FakeService:
    """The daemon's service; every public call counts in `calls`, those that change in `changes`."""

    def __init__(self, nodes=(("n1", 4.0), ("n2", 4.0))):
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._jobs: dict[str, JobInfo] = {}
        self._keys: dict[tuple[str, str], list[str]] = {}
        self._rows: list[Event] = []
        self._logs: dict[tuple[str, str, int], bytes] = {}
        self._people = {"pia": Person(name="pia", role="user")}
        self._sessions: dict[str, SessionInfo] = {}
        self._browsers = {}
        self._tokens = {_hash(token): actor for token, actor in TOKENS.items()}
        self._restart = None
        self._windows = {}
        self._nodes = {
            name: NodeInfo(name=name, state="up", gpus=gpus, free_gpus=gpus) for name, gpus in nodes
        }
        self.changes: list[str] = []
        self.reached: list[object] = []  # calls into jobs
        self.extra_queues: list[QueueInfo] = []
        self.broken: Exception | None = None  # raised by every call but `authenticate`
        self.is_ready = (True, "")
        self.identities = self  # `IdentityService`, too

    # --- what tests do to it ---------------------------------------------------------------------

    def start(self, job):
        with self._lock:
            found = self._jobs[job]
            found.state, found.started_at, found.starts = "RUNNING", time.time(), found.starts + 1
            found.nodes = {"n1": found.gpus}
            self._row("start", job)

    def finish(self, job, state="SUCCEEDED"):
        with self._lock:
            self._jobs[job].state, self._jobs[job].ended_at = state, time.time()
            self._row({"SUCCEEDED": "done", "FAILED": "failed"}[state], job)

    def write(self, job, data, stream="out", node_rank=0):
        with self._lock:
            for key in ((job, stream, node_rank), (job, "all", node_rank)):
                self._logs[key] = self._logs.get(key, b"") + data

    def row(self, event, text=None):
        with self._lock:
            self._row(event, "-1", text)

    # --- jobs ------------------------------------------------------------------------------------

    def submit(self, jobs, actor, *, key=""):
        with self._change("submit"):
            if key and (actor.name, key) in self._keys:
                return [self._jobs[name] for name in self._keys[actor.name, key]]
            for number, job in enumerate(jobs):
                self._check(job, number)
            made = [self._add(job, actor) for job in expanded(jobs)]
            if key:
                self._keys[actor.name, key] = [job.id for job in made]
            return made

    def _check(self, job, number):
        gpus = job.resources.gpus
        most = gpus.max if isinstance(gpus, GpuRange) else gpus
        if not 0 < most <= 8:
            raise InputError(f"job {number}: resources.gpus: {most} is not above 0 and at most 8")
        if not 1 <= job.nodes <= 2:
            raise InputError(f"job {number}: nodes: {job.nodes} is not 1 or 2")
        if not job.run.strip():
            raise InputError(f"job {number}: run: is empty; give a command")
        if any(ord(letter) < 32 or letter == "/" for letter in job.name + job.queue + job.group):
            raise InputError(f"job {number}: names must not hold slashes or control characters")
        for wanted in job.depends_on:
            if wanted not in self._jobs:
                raise InputError(f"job {number}: depends_on: there is no job {wanted!r}")

    def _add(self, job, actor):
        gpus = job.resources.gpus
        number = str(len(self._jobs) + 1)
        array = array_of(job, number)
        made = JobInfo(
            id=number,
            array=array[0] if array else "",
            task=job.task,
            name=job.name,
            user=actor.name,
            queue=job.queue or "default",
            state="HELD" if job.hold else "PENDING",
            reason="admission" if job.hold else "capacity",
            gpus=float(gpus.min if isinstance(gpus, GpuRange) else gpus),
            gpu_type=job.resources.gpu_type,
            priority=job.priority,
            group=job.group,
            submitted_at=time.time(),
        )
        self._jobs[made.id] = made
        self._row("submit", made.id, made.id)
        return made

    def jobs(
        self, actor, *, states=(), queue="", user="", name="", array="", after="", limit=1000,
        active=False,
    ):  # fmt: skip
        with self._look():
            found = [
                job
                for job in self._jobs.values()
                if sees_job(actor, job.user, int(job.id))
                and (not states or job.state in states)
                and queue in ("", job.queue)
                and user in ("", job.user)
                and name in ("", job.name)
                and array in ("", job.array)
                and int(job.id) > int(after or 0)
                and not (active and job.state in ENDED)
            ]
            return found[:limit]

    def find_jobs(self, query, actor):
        found = self.jobs(
            actor, states=query.state, queue=query.queue, user=query.user, active=query.active,
            limit=1_000_000,
        )  # fmt: skip
        keys = {"submitted": "submitted_at", "started": "started_at", "ended": "ended_at",
                "run": "run_s"}  # fmt: skip
        key = keys.get(query.sort, query.sort)
        found = [job for job in found if query.search in job.name + job.id]
        found.sort(
            key=lambda job: (
                int(job.id) if key == "id" else (v := getattr(job, key)) is not None and v,
                int(job.id),
            ),
            reverse=not query.rising,
        )
        return FoundJobs(len(found), found[query.offset : query.offset + query.limit])

    def job(self, job, actor):
        with self._look():
            return self._mine(job, actor)

    def cancel(self, job, actor):
        with self._change("cancel"):
            found = self._mine(job, actor, CANCEL_JOB)
            if found.state not in ENDED:
                found.state, found.ended_at = "CANCELLED", time.time()
                self._row("cancelled", job)
            return found

    def job_usage(self, job, actor):
        with self._look():
            self._mine(job, actor)
            return JobUsage()

    def efficiency(self, actor, *, by):
        return []

    def array(self, array, actor):
        with self._look():
            return self._array(array, actor, GET_ARRAY)

    def cancel_array(self, array, actor):
        return self._change_array("cancel", array, actor, CANCEL_ARRAY)

    def hold_array(self, array, actor):
        return self._change_array("hold", array, actor, HOLD_ARRAY)

    def release_array(self, array, actor):
        return self._change_array("release", array, actor, RELEASE_ARRAY)

    def _change_array(self, verb, array, actor, operation):
        self._array(array, actor, operation)
        for job in [job for job in self._jobs.values() if job.array == array]:
            getattr(self, verb)(job.id, actor)
        return self._array(array, actor, operation)

    def _array(self, array, actor, operation):
        first = self._mine(array, actor, operation)
        if first.array != array:
            raise NotFoundError(f"there is no array {array!r}")
        return picture_array([job for job in self._jobs.values() if job.array == array], 0)

    def hold(self, job, actor):
        with self._change("hold"):
            found = self._mine(job, actor, HOLD_JOB)
            if found.state in ENDED:
                raise ConflictError(f"job {job} is over ({found.state})")
            found.state = "HELD"
            self._row("held", job)
            return found

    def release(self, job, actor):
        with self._change("release"):
            found = self._mine(job, actor, RELEASE_JOB)
            if found.state != "HELD":
                raise ConflictError(f"job {job} is not held but {found.state}")
            found.state = "PENDING"
            self._row("admitted", job)
            return found

    def explain(self, job, actor):
        with self._look():
            found = self._mine(job, actor)
            wait_s = (found.started_at or time.time()) - found.submitted_at
            part = WhyPart(reason="capacity", seconds=wait_s, text="fewer GPUs free than asked")
            return Explanation(
                id=job, state=found.state, reason="capacity", text="It waits for GPUs.",
                wait_s=wait_s, parts=[part],
            )  # fmt: skip

    def when(self, job, actor, *, runs=20):
        with self._look():
            found = self._mine(job, actor)
            if found.state in ENDED:
                raise ConflictError(f"job {job} is over ({found.state})")
            now = time.time()
            return Forecast(
                id=job, state=found.state, starts_at=now + 60, earliest_at=now,
                latest_at=now + 120, runs=runs, never=0, text="In a minute.",
                assumptions={"arrivals": "none"},
            )  # fmt: skip

    def why(self, job, actor, *, runs=20):
        with self._look():
            found = self._mine(job, actor)
            return Verdict(id=job, state=found.state, reason="capacity", text="Too few are free.")

    def when_new(self, job, actor, *, runs=20):
        with self._look():
            now = time.time()
            return Forecast(
                id="new", state="not submitted", starts_at=now, earliest_at=now, latest_at=now,
                runs=runs, never=0, text="Now.", assumptions={},
            )  # fmt: skip

    def why_new(self, job, actor, *, runs=20):
        with self._look():
            return Verdict(id="new", state="not submitted", reason="", text="it would start now")

    def logs(self, job, actor, *, stream, node_rank, offset, limit):
        with self._look():
            self._mine(job, actor, READ_OUTPUT)
            data = self._logs.get((job, stream, node_rank), b"")
            offset = max(0, len(data) + offset) if offset < 0 else offset
            return data[offset : offset + limit]

    def reach(self, operation, job, actor, node_rank, call):
        with self._look():
            found = self._mine(job, actor, operation)
            if found.state in ENDED:
                raise ConflictError(f"job {job} is over ({found.state})")
            self.reached.append(call)
            opened = (OpenedChannel("main", "terminal"),)
            return CallAnswer(b"\1\0\0\0\2hi", 3, taken=5, channels=opened)

    def reach_files(self, operation, job, actor, call):
        with self._look():
            self._mine(job, actor, operation)
            self.reached.append(call)
            return CallAnswer(b"hi", files=(FoundFile("a", 2, 3),))

    def plan_upload(self, manifest, actor):
        with self._change("plan_upload"):
            manifest.check()
            return "0" * 32 + manifest.id, []

    def set_secret(self, name, value, actor):
        with self._change("set_secret"):
            return

    def secrets(self, actor):
        with self._look():
            return []

    def remove_secret(self, name, actor):
        with self._change("remove_secret"):
            raise NotFoundError(f"there is no secret {name!r}")

    def take_piece(self, digest, data, actor):
        with self._change("take_piece"):
            if hashlib.sha256(data).hexdigest() != digest:
                raise InputError("these bytes are others")

    # --- cluster ---------------------------------------------------------------------------------

    def nodes(self):
        with self._look():
            return list(self._nodes.values())

    def node_history(self, node):
        with self._look():
            self._node(node)
            return [NodeEvent(at=1.0, event="closed", text="drained by olga")]

    def drain(self, node, actor, *, stop=False, deadline_s=None):
        with self._change("drain"):
            self._node(node).state = "draining" if not stop else "drained"
            return self._nodes[node]

    def undrain(self, node, actor):
        with self._change("undrain"):
            self._node(node).state = "up"
            return self._nodes[node]

    def windows(self):
        with self._look():
            return list(self._windows.values())

    def add_window(self, asked, actor):
        with self._change("add_window"):
            if asked.name in self._windows:
                raise ConflictError(f"there is a window {asked.name!r} already")
            made = WindowInfo(
                name=asked.name or "maintenance-1", kind=asked.kind, state="planned",
                nodes=asked.nodes, gpus=4, start=1.0, by=actor.name,
            )  # fmt: skip
            self._windows[made.name] = made
            return made

    def remove_window(self, name, actor):
        with self._change("remove_window"):
            if name not in self._windows:
                raise NotFoundError(f"there is no maintenance or reservation {name!r}")
            del self._windows[name]

    def begin_restart(self, asked, actor):
        with self._change("begin_restart"):
            if self._restart is not None and self._restart.state == "going":
                raise ConflictError("a rolling restart is going on")
            nodes = [RestartedNode(node=n, state="waiting") for n in asked.nodes or self._nodes]
            self._restart = RestartInfo(state="going", nodes=nodes, began=1.0, by=actor.name)
            return self._restart

    def restart_progress(self):
        with self._look():
            if self._restart is None:
                raise NotFoundError("no rolling restart was begun here")
            return self._restart

    def stop_restart(self, actor):
        with self._change("stop_restart"):
            if self._restart is None:
                raise NotFoundError("no rolling restart was begun here")
            self._restart.state = "stopped"
            return self._restart

    def remove_node(self, node, actor):
        with self._change("remove_node"):
            if self._node(node).state == "up":
                raise ConflictError(f"node {node} cannot be removed while it is in use")
            del self._nodes[node]

    def audit(self):
        with self._look():
            return [Finding(kind="never", subject="1", text="job 1 can never start", remedy="-")]

    def audit_log(self, after, limit):
        with self._look():
            lines = [AuditEntry(n, 1e9, "ann", f"cancel job {n}", "d") for n in (1, 2)]
            shown = lines[after or 0 :][:limit]
            return AuditPage(shown, 2, end=True, broken=0, last=2)

    def queues(self):
        with self._look():
            found = {name: QueueInfo(name=name) for name in {j.queue for j in self._jobs.values()}}
            for job in self._jobs.values():
                queue = found[job.queue]
                queue.pending += job.state == "PENDING"
                queue.held += job.state == "HELD"
                queue.running += job.state == "RUNNING"
                queue.gpus += job.gpus if job.state == "RUNNING" else 0.0
                queue.asked_gpus += job.gpus if job.state == "PENDING" else 0.0
            return [*found.values(), *self.extra_queues]

    def status(self):
        with self._look():
            states = [job.state for job in self._jobs.values()]
            seconds = {"count": 3, "sum": 0.12, "buckets": [(0.01, 1), (0.1, 2)]}
            total = sum(node.gpus for node in self._nodes.values())
            used = sum(job.gpus for job in self._jobs.values() if job.state == "RUNNING")
            return {
                "version": "0",
                "policy": "fifo",
                "placement": "consolidate",
                "backend": "fake",
                "now": time.time(),
                "started_at": EPOCH,
                "epoch_unix": EPOCH,
                "last_event": len(self._rows),
                "jobs": {state: states.count(state) for state in set(states)},
                "gpus": {"total": total, "free": total - used, "used": used, "down": 0.0},
                "nodes": {"up": len(self._nodes)},
                "agents": {"up": len(self._nodes)},
                "submissions": len(self._jobs),
                "decisions": 3,
                "preemptions": 0,
                "restarts": 0,
                "decision_s": seconds,
                "start_s": seconds,
                "commit_s": seconds,
                "journal_lag_s": 0.0,
            }

    def board(self, seen):
        with self._look():
            if seen == self.version:
                return None
            nodes = [
                BoardNode(each.name, each.state, int(each.gpus), "")
                for each in self._nodes.values()
            ]
            owners, jobs = [], {}
            for node in nodes:
                held = []
                for job in self._jobs.values():
                    if job.state == "RUNNING":
                        held += [int(job.id)] * int(job.nodes.get(node.name, 0))
                        jobs[int(job.id)] = BoardJob(
                            int(job.id), job.gpus, job.started_at, job.name, job.user, job.queue,
                            None,
                        )  # fmt: skip
                owners += (held + [0] * node.gpus)[: node.gpus]
            counts = {"waiting": 0, "held": 0, "running": len(jobs), "asked": 0, "longest_s": 0}
            return Board(self.version, len(self._rows), EPOCH, nodes, owners, jobs, counts)

    @property
    def version(self):
        return len(self._rows)

    def lanes(self, query, actor):
        with self._look():
            bars = [
                LaneBar(
                    job=job.id, nodes=job.nodes, began_at=job.started_at, ended_at=job.ended_at,
                    user=job.user if sees_job(actor, job.user, int(job.id)) else "",
                )
                for job in self._jobs.values()
                if job.started_at is not None
            ]  # fmt: skip
            return Lanes(query.since, EPOCH, bars[-query.limit :])

    def choices(self):
        return Choices("fifo", "consolidate", "accept-all", {}, ["fifo", "srtf"], ["consolidate"])

    def try_out(self, trial):
        with self._look():
            if trial.policy not in ("", "fifo", "srtf"):
                raise InputError(f"there is no policy {trial.policy!r}")
            outcomes = [
                TrialOutcome(
                    policy=name, placement="consolidate", gpus=8.0, waiting=0, never=0,
                    mean_wait_s=None, longest_wait_s=None, queue_empty_s=0.0, all_done_s=0.0,
                    mean_left_s=None, preemptions=0.0, starts=[],
                )
                for name in ("fifo", trial.policy or "fifo")
            ]  # fmt: skip
            return TrialAnswer(EPOCH, trial.runs, *outcomes, assumptions={})

    def ready(self):
        return self.is_ready

    def reload(self, actor):
        with self._change("reload"):
            return ["policy: fifo -> tiresias"]

    # --- log -------------------------------------------------------------------------------------

    def events(self, after, limit=1000, job=""):
        with self._look():
            return [row for row in self._rows[after:] if job in ("", row.job)][:limit]

    def wait_events(self, after, timeout_s):
        with self._news:
            return self._news.wait_for(lambda: len(self._rows) > after, timeout_s)

    # --- tokens ----------------------------------------------------------------------------------

    def authenticate(self, token):
        given = _hash(token)
        with self._lock:
            for kept, actor in self._tokens.items():
                if hmac.compare_digest(kept, given):
                    return actor
        return None

    def holder(self, digest):
        with self._lock:
            return self._tokens.get(digest)

    def keep_browser(self, browser):
        with self._change("keep_browser"):
            self._browsers[browser.key] = browser

    def kept_browser(self, key):
        return self._browsers.get(key)

    def forget_browser(self, session):
        for key, each in list(self._browsers.items()):
            if each.session == session:
                del self._browsers[key]

    def recognise(self, certificate):
        return None

    def authority(self):
        return "-----BEGIN CERTIFICATE-----\n"

    def invite(self, node, valid_s, actor):
        with self._change("invite"):
            return f"code-for-{node}"

    def join(self, secret, node, csr=""):
        if secret != f"code-for-{node}":
            raise ForbiddenError("the code is not good")
        with self._change("join"):
            return Membership(node, token=f"made-for-{node}")

    def renew_certificate(self, csr, actor):
        with self._look():
            return Membership(actor.name, certificate="another")

    def prove(self, label, nonce, port):
        with self._lock:
            known = {token_label(digest): digest for digest in self._tokens}
            return server_code(known[label], nonce, port) if label in known else ""

    def create_token(self, name, role, actor, *, user="", valid_s=None):
        if role not in ROLES or not TOKEN_NAME.fullmatch(name):
            raise InputError(f"bad role {role!r} or name {name!r}")
        if user and user not in self._people:
            raise NotFoundError(f"there is no person {user!r}")
        with self._change("create_token"):
            if any(known.name == name for known in self._tokens.values()):
                raise ConflictError(f"there is a token {name!r} already; revoke it first")
            token = f"made-for-{name}"
            self._tokens[_hash(token)] = Actor(user or name, role)
            return token

    def tokens(self):
        with self._look():
            return [TokenInfo(known.name, known.role) for known in self._tokens.values()]

    def revoke_token(self, name, actor):
        with self._change("revoke_token"):
            found = [key for key, known in self._tokens.items() if known.name == name]
            if not found:
                raise NotFoundError(f"there is no token {name!r}")
            for key in found:
                del self._tokens[key]

    # --- people ----------------------------------------------------------------------------------

    session_s = 3600.0

    def account(self, actor):
        return actor

    def people(self):
        with self._look():
            return list(self._people.values())

    def _person(self, name):
        if name not in self._people:
            raise NotFoundError(f"there is no person {name!r}")
        return self._people[name]

    def add_person(self, new, actor):
        with self._change("add_person"):
            if new.name in self._people:
                raise ConflictError(f"{new.name!r} is there already")
            if new.role not in PEOPLE:
                raise InputError(f"role {new.role!r}")
            self._people[new.name] = Person(**msgspec.structs.asdict(new))
            return self._people[new.name]

    def change_person(self, name, change, actor):
        with self._change("change_person"):
            said = msgspec.structs.asdict(change)
            wanted = {key: value for key, value in said.items() if value is not msgspec.UNSET}
            if wanted.get("role", "user") not in PEOPLE:
                raise InputError(f"role {wanted['role']!r}")
            self._people[name] = msgspec.structs.replace(self._person(name), **wanted)
            return self._people[name]

    def allow_person(self, name, actor, *, allowed):
        with self._change("allow_person"):
            person = msgspec.structs.replace(self._person(name), disabled=not allowed)
            self._people[name] = person
            return person

    def person_actor(self, name):
        person = self._people.get(name)
        return None if person is None or person.disabled else Actor(name, person.role)

    def sessions(self):
        with self._look():
            return list(self._sessions.values())

    def end_session(self, session, actor):
        with self._change("end_session"):
            return self._sessions.pop(session, None) is not None

    def begin_session(self, name, seconds):
        with self._change("begin_session"):
            token = f"session-of-{name}-{len(self._sessions)}"
            number = f"{len(self._sessions):012x}"
            person = self._people[name]
            self._sessions[number] = SessionInfo(
                id=number, user=name, role=person.role, via="oidc", began_at=EPOCH,
                until=EPOCH + seconds,
            )  # fmt: skip
            self._tokens[_hash(token)] = Actor(name, person.role)
            return MadeSession(number, name, person.role, token, EPOCH + seconds)

    def note(self, text):
        with self._look():
            self.row("note", text)

    def begin_login(self, redirect):
        with self._look():
            return LoginStart(f"https://id.example/authorize?redirect_uri={redirect}", "secret")

    def finish_login(self, answer, issuer=""):
        if (answer.secret, answer.state) != ("secret", "state"):
            raise ForbiddenError("the answer belongs to another log-in: begin again")
        with self._change("finish_login"):
            return self._people.setdefault("pia", Person(name="pia", role="user"))

    # --- inside ----------------------------------------------------------------------------------

    def _look(self):
        if self.broken is not None:
            raise self.broken
        return self._lock

    def _change(self, what):
        if not self.is_ready[0]:
            raise UnavailableError(self.is_ready[1])
        self.changes.append(what)
        return self._look()

    def _mine(self, job, actor, operation=GET_JOB):
        found = self._jobs.get(job)
        check_job(operation, actor, job, found and found.user)
        return found

    def _node(self, name):
        if name not in self._nodes:
            raise NotFoundError(f"there is no node {name!r}")
        return self._nodes[name]

    def _row(self, event, job, text=None):
        number = len(self._rows) + 1
        at = EPOCH + number
        self._rows.append(
            Event(
                number=number, time_s=float(number), at=at, event=event,
                job=None if job == "-1" else job, ref=-1, other=-1, value=0.0, text=text,
            )
        )  # fmt: skip
        self._news.notify_all()
