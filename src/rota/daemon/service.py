"""The daemon as the API sees it: every question is answered by the engine's thread."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, TypeVar

from rota.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from rota.core.jobs import Job, Phase
from rota.core.log import LABELS
from rota.daemon.access import check_job, sees_job, sees_submission
from rota.daemon.core import Core
from rota.daemon.explain import explain
from rota.daemon.export import Export, export_live
from rota.daemon.forecast import forecast
from rota.daemon.logtable import LogTable
from rota.daemon.measures import Histogram
from rota.daemon.nodes import remove_node, wish_node
from rota.daemon.pictures import picture_job, picture_nodes, picture_queues, state_of
from rota.daemon.settings import (
    Scheduling,
    Settings,
    changes,
    needs_restart,
    read_settings,
)
from rota.daemon.status import status_of
from rota.daemon.store import StoredJob
from rota.daemon.submissions import refuse_impossible, with_ids, with_priorities
from rota.daemon.tokens import Tokens
from rota.jobfile.convert import to_request
from rota.jobfile.model import JobFile
from rota.live.inputs import (
    Input,
    JobWish,
    Noted,
    Reconfigured,
    Submitted,
)
from rota.live.mailbox import Ask, LaterError
from rota.wire import (
    CANCEL_JOB,
    EXPLAIN_JOB,
    FORECAST_JOB,
    GET_JOB,
    HOLD_JOB,
    MAX_JOBS,
    PAGE,
    READ_OUTPUT,
    RELEASE_JOB,
    Actor,
    Event,
    Explanation,
    Forecast,
    JobInfo,
    NodeInfo,
    Operation,
    QueueInfo,
)

T = TypeVar("T")
PROBE_S = 2.0  # the longest that a question for readiness may take


class Daemon:
    """Implements `Service` around a `Core`; `run` is the engine's thread."""

    def __init__(
        self,
        core: Core,
        tokens: Tokens,
        *,
        config: Path | None = None,
        said: Any = None,
        settings: Settings | None = None,
        complete: Callable[[Settings], Scheduling] = lambda settings: settings.scheduling,
    ) -> None:
        """Answer for a core.

        Args:
            core: The engine with its memory.
            tokens: Who may come in.
            config: The configuration file, for `reload`.
            said: What the command line said on top of it.
            settings: What holds now.
            complete: Makes the scheduling from settings (queues may stand in a cluster file).
        """
        self.core = core
        self.access = tokens
        self.started_unix = time()
        self.decision_s = Histogram()
        self.start_s = Histogram()
        self.commit_s = Histogram()
        core.cluster.observe = self.decision_s.observe
        core.projection.observe = self.start_s.observe
        core.store.observe = self.commit_s.observe
        self._config = config
        self._said = said or {}
        self._settings = settings
        self._complete = complete
        self._log = LogTable(core.store)
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._running = False
        self._submissions = 0
        self.failure = ""

    # --- life -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Go live and work until `stop`; saves everything at the end."""
        core = self.core
        core.go_live()
        self._running = True
        try:
            while not self._stopping.is_set():
                before = core.store.log_number
                core.step()
                if core.store.log_number != before:
                    self._tell_news()
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._running = False
            core.cluster.close()
            self._tell_news()
        core.close()

    def stop(self) -> None:
        """Let `run` come to its end; from any thread."""
        self._stopping.set()
        self.core.cluster.interrupt()

    def _tell_news(self) -> None:
        with self._news:
            self._news.notify_all()

    def _ask(self, read: Callable[[], T]) -> T:
        """Something that changes nothing."""
        return self.core.cluster.mailbox.ask(Ask(lambda: ([], read)))

    def _do(self, act: Callable[[], tuple[list[Input], Callable[[], T]]]) -> T:
        return self.core.cluster.mailbox.ask(Ask(act))

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobFile], actor: Actor, *, key: str = "") -> list[JobInfo]:
        """Accept all jobs or none; they are safe in the store when this returns."""
        if not 0 < len(jobs) <= MAX_JOBS:
            raise InputError(f"{len(jobs)} jobs in one submission: send 1 to {MAX_JOBS:,}")
        for number, job in enumerate(jobs):
            to_request(job, f"job {number + 1} of {len(jobs)}" if len(jobs) > 1 else "job")
        return self._do(lambda: self._submit(jobs, actor, key))

    def _submit(
        self, jobs: Sequence[JobFile], actor: Actor, key: str
    ) -> tuple[list[Input], Callable[[], list[JobInfo]]]:
        core = self.core
        if key:
            if core.is_pending(actor.name, key):
                raise LaterError
            known = core.store.known_key(actor.name, key)
            if known is not None:
                numbers = range(known[0], known[0] + known[1])
                return [], lambda: [self._picture(core.engine.jobs[n]) for n in numbers]
        first = core.next_number()
        refuse_impossible(jobs, core.driver)
        jobs = with_priorities(jobs, core.engine.view.tenants)
        stored = [
            StoredJob(first + i, actor.name, core.cluster.now_s, job)
            for i, job in enumerate(with_ids(jobs, first, actor, core.engine.jobs))
        ]
        core.accept(stored, (actor.name, key) if key else None)
        return [Submitted(first, len(jobs))], lambda: self._accepted(stored)

    def _accepted(self, stored: list[StoredJob]) -> list[JobInfo]:
        self._submissions += len(stored)
        return [self._picture(self.core.engine.jobs[job.number]) for job in stored]

    def jobs(
        self,
        actor: Actor,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        user: str = "",
        after: str = "",
        limit: int = PAGE,
        active: bool = False,
    ) -> list[JobInfo]:
        """Jobs that the actor may see, by number."""
        least = int(after) if after.isdigit() else 0

        def read() -> list[JobInfo]:
            engine = self.core.engine
            found = engine.view.active if active else engine.jobs
            out = []
            for job in found.values():
                if job.index <= least or job.parent is not None:
                    continue
                if not sees_job(actor, job.spec.user):
                    continue
                if states and state_of(job) not in states:
                    continue
                if (queue and job.tenant != queue) or (user and job.spec.user != user):
                    continue
                out.append(self._picture(job))
                if len(out) >= limit:
                    break
            return out

        return self._ask(read)

    def job(self, job: str, actor: Actor) -> JobInfo:
        """One job, by id; its owner and admins are also told what was submitted."""
        found = self._ask(lambda: self._picture(self._find(GET_JOB, job, actor)))
        if sees_submission(actor, found.user):
            found.file = self.core.store.jobs(int(found.id), 1)[0].file
        return found

    def cancel(self, job: str, actor: Actor) -> JobInfo:
        """End it for good. Cancelling what is over already changes nothing."""
        return self._wish(CANCEL_JOB, "cancel", job, actor)

    def hold(self, job: str, actor: Actor) -> JobInfo:
        """Keep it out of the queue; a running job is stopped first."""
        return self._wish(HOLD_JOB, "hold", job, actor)

    def release(self, job: str, actor: Actor) -> JobInfo:
        """Let a held job into the queue."""
        return self._wish(RELEASE_JOB, "release", job, actor)

    def _wish(self, operation: Operation[Any], what: Any, name: str, actor: Actor) -> JobInfo:
        def act() -> tuple[list[Input], Callable[[], JobInfo]]:
            job = self._find(operation, name, actor)
            wanted: list[Input] = [JobWish(what, job.index, actor.name)]
            if not self._makes_sense(what, job):
                wanted = []
            return wanted, lambda: self._picture(job)

        return self._do(act)

    def _makes_sense(self, what: str, job: Job) -> bool:
        """False if it is so already; raises if it cannot be."""
        if job.terminal:
            if what == "cancel":
                return False
            raise ConflictError(f"job {job.id} is over ({state_of(job)}): it cannot be {what}ed")
        held = job.index in self.core.engine.detained
        if what == "hold":
            return not held
        if what == "release" and not held:
            if job.phase == Phase.HELD:
                reason = self.core.projection.held_for(job.index).label
                raise ConflictError(f"job {job.id} is held for {reason}, not on request")
            return False
        return True

    def _find(self, operation: Operation[Any], name: str, actor: Actor) -> Job:
        job = self.core.engine.jobs.get(int(name)) if name.isascii() and name.isdigit() else None
        check_job(operation, actor, name, job.spec.user if job else None)
        assert job is not None  # noqa: S101 - just checked
        return job

    def _picture(self, job: Job) -> JobInfo:
        core = self.core
        epoch, view = core.store.epoch_unix, core.engine.view
        return picture_job(job, core.cluster, core.projection, epoch, view)

    def explain(self, job: str, actor: Actor) -> Explanation:
        """Why it waits or waited."""
        self._ask(self.core.idle)  # what was logged must be in the store
        return explain(self.core, self._log, self._ask, lambda: self._find(EXPLAIN_JOB, job, actor))

    def when(self, job: str, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it will start."""
        return forecast(self.core, self._ask, lambda: self._find(FORECAST_JOB, job, actor), runs)

    def logs(
        self, job: str, actor: Actor, *, stream: str, node_rank: int, offset: int, limit: int
    ) -> bytes:
        """A piece of its output; empty at the end."""
        found = self._ask(lambda: self._find(READ_OUTPUT, job, actor))
        if not self.core.driver.capabilities.logs:
            raise NotFoundError(f"the backend {self.core.driver.name!r} keeps no output")
        return self.core.driver.read_log(found.id, stream, node_rank, offset, limit)

    # --- cluster ----------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All nodes."""
        return self._ask(lambda: picture_nodes(self.core.engine.view, self.core.cluster))

    def drain(self, node: str, actor: Actor, *, stop: bool = False) -> NodeInfo:
        """Start nothing more there; `stop`: and preempt what runs there."""
        return self._do(lambda: wish_node(self.core, "clear" if stop else "drain", node, actor))

    def undrain(self, node: str, actor: Actor) -> NodeInfo:
        """Use it again."""
        return self._do(lambda: wish_node(self.core, "undrain", node, actor))

    def remove_node(self, node: str, actor: Actor) -> None:
        """Forget a node that nobody uses; it is there again when its agent comes back."""
        self._do(lambda: remove_node(self.core, node, actor))

    def queues(self) -> list[QueueInfo]:
        """All queues that are declared or in use."""
        return self._ask(lambda: picture_queues(self.core.engine.view))

    def status(self) -> dict[str, Any]:
        """Version, policy, times, counts by state, GPUs, latencies."""
        own = {
            "started_at": self.started_unix,
            "submissions": self._submissions,
            "decision_s": self.decision_s.as_dict(),
            "start_s": self.start_s.as_dict(),
            "commit_s": self.commit_s.as_dict(),
        }
        return self._ask(lambda: status_of(self.core) | own)

    def ready(self) -> tuple[bool, str]:
        """Can work be accepted? And if not, why."""
        if self.failure:
            return False, f"the daemon has failed: {self.failure}"
        if self._stopping.is_set() or not self._running:
            return False, "the daemon is starting or stopping"
        if self.core.trouble:
            with suppress(UnavailableError):  # busy with the trouble
                self.core.cluster.mailbox.ask(Ask(lambda: ([], self.core.probe)), PROBE_S)
        trouble = self.core.trouble
        return not trouble, trouble

    def reload(self, actor: Actor) -> list[str]:
        """Read the configuration file again; what changed."""
        settings = read_settings(self._config, self._said)
        wanted = self._complete(settings)
        later = [] if self._settings is None else needs_restart(self._settings, settings)

        def act() -> tuple[list[Input], Callable[[], list[str]]]:
            changed = changes(self.core.scheduling, wanted)
            if not changed:
                return [], lambda: later
            change = Reconfigured(wanted.as_dict(), by=actor.name)
            self.core.compose_for(change)
            return [change], lambda: [*changed, *later]

        return self._do(act)

    # --- log --------------------------------------------------------------------------------------

    def events(self, after: int, limit: int = PAGE) -> list[Event]:
        """Rows of the event log after this number."""
        epoch = self.core.store.epoch_unix
        return [
            Event(
                number=number, time_s=time_s, at=epoch + time_s, event=LABELS[event],
                job=str(job) if job >= 0 else None, ref=ref, other=other, value=value, text=text,
            )
            for number, time_s, event, job, ref, other, value, text in self.core.store.rows(
                after, limit
            )
        ]  # fmt: skip

    def wait_events(self, after: int, timeout_s: float) -> bool:
        """Block until there are rows after this number; False if the time is over."""
        with self._news:
            return (
                self._news.wait_for(
                    lambda: self.core.store.log_number > after or self._stopping.is_set(), timeout_s
                )
                and not self._stopping.is_set()
            )

    def export(self) -> Export:
        """The whole log, and what it was made with."""
        return export_live(self.core, self._ask)

    # --- tokens -----------------------------------------------------------------------------------

    def authenticate(self, token: str) -> Actor | None:
        """Whose token is it?"""
        return self.access.authenticate(token)

    def create_token(self, name: str, role: str, actor: Actor) -> str:
        """A new token; only its digest is kept."""
        token = self.access.create(name, role)
        self._note(f"token {name!r} with the role {role} created by {actor.name}")
        return token

    def tokens(self) -> list[Actor]:
        """Names and roles."""
        return self.access.all()

    def revoke_token(self, name: str, actor: Actor) -> None:
        """It is worth nothing from now on."""
        if name == actor.name:
            raise ConflictError(f"token {name!r} is the one that you use: use another to revoke it")
        self.access.revoke(name)
        self._note(f"token {name!r} revoked by {actor.name}")

    def _note(self, text: str) -> None:
        self._do(lambda: ([Noted(text)], lambda: None))
