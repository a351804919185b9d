"""The daemon as the API sees it: every question is answered by the engine's thread."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from rota.core.admission import BudgetUse
from rota.core.efficiency import JobUsage
from rota.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from rota.core.findings import AuditFacts, Finding, find
from rota.core.jobs import Job, Phase, Shape
from rota.core.log import LABELS
from rota.core.manifest import FileManifest
from rota.core.registry import PLACEMENTS, POLICIES, names
from rota.core.tenants import TenantTree
from rota.core.verdict import Verdict
from rota.core.words import moment
from rota.daemon.access import check_job, sees_all_jobs, sees_job, sees_submission, submitted_job
from rota.daemon.board import Board, BoardCut
from rota.daemon.browsers import Browsers
from rota.daemon.efficiency import UsageBook, summaries
from rota.daemon.explain import JobSituation
from rota.daemon.export import Export, ExportCut
from rota.daemon.forgotten import expendable, ranges_of
from rota.daemon.identities import Identities
from rota.daemon.lanes import LaneBook, shown
from rota.daemon.logtable import LogTable
from rota.daemon.loop import DaemonLoop
from rota.daemon.notify import refuse_targets
from rota.daemon.oidc import Provider
from rota.daemon.pictures import (
    JobCondition,
    picture_array,
    picture_job,
    picture_nodes,
    picture_queues,
    state_of,
    tasks_of,
)
from rota.daemon.queue_audit import audit_facts
from rota.daemon.restarts import RollingRestart
from rota.daemon.secrets import SecretStore
from rota.daemon.settings import (
    NotifySettings,
    Permissions,
    Scheduling,
    Settings,
    changes,
    needs_restart,
    read_settings,
)
from rota.daemon.status import Histogram, status_of
from rota.daemon.store import StoredJob, UsedKey
from rota.daemon.submissions import (
    Allowance,
    refuse_forbidden,
    refuse_impossible,
    refuse_undeclared,
    refuse_unlabelled,
    with_ids,
    with_priorities,
    with_times,
)
from rota.daemon.tokens import Tokens
from rota.daemon.uploads import UploadStore
from rota.daemon.windows import made as made_window
from rota.daemon.windows import picture_window
from rota.engine.parts import make_policy
from rota.jobfile.arrays import expanded
from rota.jobfile.convert import to_behaviour, to_request, to_spec
from rota.jobfile.model import JobFile
from rota.live.calls import CallAnswer, FileCall, OpenChannel, RunCall
from rota.live.driver import RunOrder
from rota.live.inputs import (
    Input,
    JobRequest,
    NodeRequest,
    Noted,
    Reconfigured,
    Submitted,
    WindowChange,
)
from rota.live.mailbox import LaterError, PendingCall
from rota.live.nodes import NodeRecord
from rota.sim.proposal import Proposal
from rota.wire import (
    CANCEL_ARRAY,
    CANCEL_JOB,
    EXPLAIN_JOB,
    FORECAST_JOB,
    GET_ARRAY,
    GET_JOB,
    GET_USAGE,
    HOLD_ARRAY,
    HOLD_JOB,
    MAIN,
    MAX_JOBS,
    PAGE,
    READ_OUTPUT,
    RELEASE_ARRAY,
    RELEASE_JOB,
    STATES,
    USER,
    WHY_JOB,
    Actor,
    ArrayInfo,
    AuditPage,
    Choices,
    Event,
    Explanation,
    FindQuery,
    Forecast,
    FoundJobs,
    JobInfo,
    Lanes,
    LanesQuery,
    NewRestart,
    NewWindow,
    NodeEvent,
    NodeInfo,
    Operation,
    QueueInfo,
    RestartInfo,
    SecretInfo,
    TrialAnswer,
    UsageSummary,
    WhatIf,
    WindowInfo,
)

if TYPE_CHECKING:
    from rota.daemon.forecast import ClusterOutlook

T = TypeVar("T")
DAY_S = 86_400.0
_COLUMNS: dict[str, Callable[[Job], Any]] = {  # by what a table of jobs can be sorted
    "id": attrgetter("index"),
    "submitted": attrgetter("submit_s"),
    "name": lambda job: job.spec.name.lower(),
    "user": lambda job: job.spec.user,
    "queue": lambda job: job.tenant,
    "state": lambda job: STATES.index(state_of(job)),
    "gpus": lambda job: job.gpus,
    "started": lambda job: job.first_start_s,
    "ended": lambda job: job.end_s,
    "run": lambda job: job.run_s,
}
PRUNE_S = 3_600.0  # between looks for files that nobody needs
PROBE_S = 10.0  # the longest that a question for readiness may take: then the loop is stuck


class Daemon:
    """Implements `Service` around a `DaemonLoop`; `run` is the engine's thread."""

    def __init__(
        self,
        loop: DaemonLoop,
        tokens: Tokens,
        *,
        config: Path | None = None,
        said: Any = None,
        settings: Settings | None = None,
        complete: Callable[[Settings], Scheduling] = lambda settings: settings.scheduling,
        provider: Provider | None = None,
    ) -> None:
        """Answer for a loop, from any thread.

        Args:
            loop: Drives the engine.
            tokens: Who may come in.
            config: The configuration file, for `reload`.
            said: What the command line said on top of it.
            settings: What holds now.
            complete: Makes the scheduling from settings (queues may stand in a cluster file).
            provider: By whom people log in.
        """
        self.loop = loop
        self.state = loop.state
        self.store = loop.store
        self.identities = Identities(
            tokens, Browsers(loop.store), note=self.note, last_job=self._last_job,
            tenants=self._tenants, provider=provider,
        )  # fmt: skip
        self.started_unix = time()
        self.decision_s = Histogram()
        self.start_s = Histogram()
        self.commit_s = Histogram()
        loop.observe = self.decision_s.observe
        loop.on_log = self._tell_news
        loop.state.projection.observe = self.start_s.observe
        loop.store.observe = self.commit_s.observe
        self._config = config
        self._said = said or {}
        self._settings = settings
        self._permissions = Permissions() if settings is None else settings.permissions
        self._complete = complete
        self.on_reload: Callable[[], list[str]] = list  # what else changed, for people
        self.on_submit: Callable[[Actor], None] = lambda _: None  # before the jobs are accepted
        self._log = LogTable(loop.store)
        self._lanes = LaneBook(loop.store)
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._abandoned = False
        self._running = False
        self._submissions = 0
        self._unfinished_at_most: dict[str, int] = {}  # jobs by user; they can only become fewer
        self.failure = ""
        self.uploads: UploadStore | None = None
        self.vault: SecretStore | None = None
        self._next_prune_unix = 0.0
        self.restarts: RollingRestart | None = None  # None: there are no agents
        self.usage: UsageBook | None = None  # what jobs used; None: nobody keeps it

    # --- life -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Go live and work until `stop`; saves everything at the end."""
        loop = self.loop
        loop.go_live()
        self._running = True
        try:
            while not self._stopping.is_set():
                loop.step()
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._running = False
            loop.disconnect()
            self._tell_news()
        if not self._abandoned:
            loop.close()

    def stop(self) -> None:
        """Let `run` come to its end; from any thread."""
        self._stopping.set()
        self.loop.interrupt()

    def abandon(self) -> None:
        """As `stop`, but write nothing more: another daemon leads."""
        self._abandoned = True
        self.stop()

    def _tell_news(self) -> None:
        with self._news:
            self._news.notify_all()

    def _ask(self, read: Callable[[], T]) -> T:
        """Something that changes nothing."""
        return self.loop.mailbox.call(PendingCall(lambda: ([], read)))

    def _do(self, act: Callable[[], tuple[list[Input], Callable[[], T]]]) -> T:
        return self.loop.mailbox.call(PendingCall(act))

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobFile], actor: Actor, *, key: str = "") -> list[JobInfo]:
        """Accept all jobs or none; they are safe in the store when this returns."""
        if not 0 < len(jobs) <= MAX_JOBS:
            raise InputError(f"{len(jobs)} jobs in one submission: send 1 to {MAX_JOBS:,}")
        for number, job in enumerate(jobs):
            where = f"job {number + 1} of {len(jobs)}" if len(jobs) > 1 else "job"
            if job.task is not None:
                raise InputError(f"{where}: task is {job.task}: Rota numbers tasks: give `array`")
            if job.external:
                raise InputError(f"{where}: external is {job.external!r}: only the backend can say")
            to_request(job, where)
            if job.upload and self.loop.driver.capabilities.files:
                self._kept_uploads().check(job.upload, actor)
            if job.secrets and self.loop.driver.capabilities.secrets:
                self._check_secrets(job, actor)
        digest = sha256(msgspec.msgpack.encode(jobs)).hexdigest() if key else ""
        jobs = expanded(jobs, MAX_JOBS)
        return self._do(lambda: self._submit(jobs, actor, key, digest))

    def take_in(self, job: JobFile, actor: Actor, key: str) -> JobInfo:
        """Accept work that others brought to the platform, once for each key."""
        to_request(job)
        (found,) = self._do(lambda: self._submit([job], actor, key, ""))
        return found

    def taken_in(self, actor: Actor, key: str) -> str:
        """The job that was made of such work; empty: none was."""
        known = self.store.known_key(actor.name, key)
        return "" if known is None else str(known.first)

    def external_jobs(self) -> dict[str, str]:
        """Jobs that wait or run and that others brought to the platform: what they are."""

        def read() -> dict[str, str]:
            active = self.state.engine.view.active.values()
            return {
                job.id: launch.external
                for job in active
                if job.parent is None and (launch := self.state.launch_of(job)).external
            }

        return self._ask(read)

    def conditions(self, jobs: Collection[str]) -> dict[str, JobCondition]:
        """How those of these jobs are that are known."""

        def read() -> dict[str, JobCondition]:
            known, state = self.state.engine.jobs, self.state
            found = ((name, known.get(int(name))) for name in jobs)
            return {
                name: JobCondition.of(job, state.projection, state.engine.view)
                for name, job in found
                if job is not None
            }

        return self._ask(read)

    def may_preempt(self) -> bool:
        """May the policy stop jobs that run?"""
        return self._ask(self.state.may_preempt)

    def largest_node(self, gpu_type: str) -> float:
        """The most GPUs that a node of this type (empty: of any) has; 0: there is none."""

        def read() -> float:
            specs = self.state.engine.view.topology.specs
            fine = (spec.gpus for spec in specs if gpu_type in ("", spec.gpu_type))
            return max(fine, default=0)

        return self._ask(read)

    def _submit(
        self, jobs: Sequence[JobFile], actor: Actor, key: str, digest: str
    ) -> tuple[list[Input], Callable[[], list[JobInfo]]]:
        journal, engine = self.loop.journal, self.state.engine
        if key:
            if journal.is_pending(actor.name, key):
                raise LaterError
            known = self.store.known_key(actor.name, key)
            if known is not None:
                if known.digest not in ("", digest) or known.first <= actor.after_job:
                    raise ConflictError(
                        f"the key {key!r} was used for another submission: repeat that one "
                        "unchanged, or use a new key"
                    )
                numbers = range(known.first, known.first + known.count)
                if any(number not in engine.jobs for number in numbers):
                    raise ConflictError(
                        f"the key {key!r} was used for jobs that are over and were forgotten "
                        f"({known.first} and later): use a new key to run them again"
                    )
                return [], lambda: [self._picture(engine.jobs[n]) for n in numbers]
        unfinished = self._unfinished(actor, len(jobs))
        allowed = Allowance.of(self._permissions, self.identities.person(actor.name))
        refuse_forbidden(jobs, actor, allowed, engine.view.tenants, unfinished)
        self.on_submit(actor)
        first = journal.next_number()
        refuse_impossible(jobs, self.loop.driver)
        refuse_unlabelled(jobs, engine.view.topology)
        refuse_undeclared(jobs, engine.view.topology)
        refuse_targets(jobs, NotifySettings() if self._settings is None else self._settings.notify)
        jobs = with_priorities(jobs, engine.view.tenants)
        jobs = with_times(jobs, self.state.scheduling.queues)
        stored = [
            StoredJob(first + i, actor.name, self.state.cluster.now_s, job)
            for i, job in enumerate(with_ids(jobs, first, actor, engine.jobs, self._task_of))
        ]
        used = UsedKey(actor.name, key, first, len(jobs), digest) if key else None
        journal.accept(stored, used)
        if actor.name in self._unfinished_at_most:
            self._unfinished_at_most[actor.name] += len(jobs)
        return [Submitted(first, len(jobs))], lambda: self._accepted(stored)

    def _unfinished(self, actor: Actor, more: int) -> int:
        """Jobs of an actor that are held, wait or run, those of the batch being made too.

        At most so many: they are counted only if so many more could be too many.
        """
        if actor.role != USER:
            return 0  # nothing depends on it
        known = self._unfinished_at_most.get(actor.name)
        person = self.identities.person(actor.name)
        if known is None or known + more > Allowance.of(self._permissions, person).max_jobs:
            active = self.state.engine.view.active.values()
            known = sum(
                submitted_job(actor, job.spec.user, job.index) and job.parent is None
                for job in active
            ) + self.loop.journal.accepted_by(actor.name)
            self._unfinished_at_most[actor.name] = known
        return known

    def _accepted(self, stored: list[StoredJob]) -> list[JobInfo]:
        self._submissions += len(stored)
        return [self._picture(self.state.engine.jobs[job.number]) for job in stored]

    def jobs(  # noqa: PLR0913 - as in the query
        self,
        actor: Actor,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        user: str = "",
        name: str = "",
        array: str = "",
        after: str = "",
        limit: int = PAGE,
        active: bool = False,
    ) -> list[JobInfo]:
        """Jobs that the actor may see, by number."""
        least = int(after) if after.isdigit() else 0

        def read() -> list[JobInfo]:
            engine = self.state.engine
            found = engine.view.active if active else engine.jobs
            out = []
            for job in found.values():
                if job.index <= least or job.parent is not None:
                    continue
                if not sees_job(actor, job.spec.user, job.index):
                    continue
                if states and state_of(job) not in states:
                    continue
                spec = job.spec
                if (queue and job.tenant != queue) or (user and spec.user != user):
                    continue
                if (name and spec.name != name) or (array and spec.array != array):
                    continue
                out.append(self._picture(job))
                if len(out) >= limit:
                    break
            return out

        return self._ask(read)

    def find_jobs(self, query: FindQuery, actor: Actor) -> FoundJobs:
        """A piece of a table of the jobs that the actor may see.

        The engine's thread only copies the list of jobs, and makes the pictures of a page: to look
        through all of them does not delay a decision.
        """
        engine = self.state.engine
        known = self._ask(
            lambda: list((engine.view.active if query.active else engine.jobs).values())
        )
        found = [job for job in known if job.parent is None]
        for is_wanted in _filters(query, actor):
            found = [job for job in found if is_wanted(job)]
        found.sort(key=_COLUMNS[query.sort], reverse=not query.rising)
        page = found[query.offset : query.offset + query.limit]
        return FoundJobs(len(found), self._ask(lambda: [self._picture(job) for job in page]))

    def job(self, job: str, actor: Actor) -> JobInfo:
        """One job, by id; its owner and admins also see what was submitted."""

        def read() -> tuple[JobInfo, Shape]:
            there = self._find(GET_JOB, job, actor)
            return self._picture(there), there.shape

        found, shape = self._ask(read)
        if sees_submission(actor, found.user, int(found.id)):
            found.file = self.store.jobs(int(found.id), 1)[0].file
        if self.usage is not None and found.starts:
            found.used = self.usage.of(int(found.id), shape)
        return found

    def job_usage(self, job: str, actor: Actor) -> JobUsage:
        """What it used, with the series."""
        shape = self._ask(lambda: self._find(GET_USAGE, job, actor).shape)
        return JobUsage() if self.usage is None else self.usage.of(int(job), shape, series=True)

    def efficiency(self, actor: Actor, *, by: str) -> list[UsageSummary]:
        """What users or queues used of what they asked for."""
        book = self.usage
        if book is None:
            return []

        def read() -> list[tuple[str, int, Shape, float]]:
            now_s = self.state.cluster.now_s
            return [
                (job.spec.user if by == "user" else job.tenant, job.index, job.shape,
                 job.executed_s(now_s))
                for job in self.state.engine.jobs.values()
                if job.parent is None and job.started
                and sees_job(actor, job.spec.user, job.index)
            ]  # fmt: skip

        return summaries(
            (name, book.of(index, shape), run_s) for name, index, shape, run_s in self._ask(read)
        )

    def cancel(self, job: str, actor: Actor) -> JobInfo:
        """End it for good. Cancelling a finished job changes nothing."""
        return self._request(CANCEL_JOB, "cancel", job, actor)

    def hold(self, job: str, actor: Actor) -> JobInfo:
        """Keep it out of the queue; a running job is stopped first."""
        return self._request(HOLD_JOB, "hold", job, actor)

    def release(self, job: str, actor: Actor) -> JobInfo:
        """Let a held job into the queue."""
        return self._request(RELEASE_JOB, "release", job, actor)

    def _request(self, operation: Operation[Any], what: Any, name: str, actor: Actor) -> JobInfo:
        def act() -> tuple[list[Input], Callable[[], JobInfo]]:
            job = self._find(operation, name, actor)
            wanted: list[Input] = [JobRequest(what, job.index, actor.name)]
            if not self._makes_sense(what, job):
                wanted = []
            return wanted, lambda: self._picture(job)

        return self._do(act)

    # --- arrays -----------------------------------------------------------------------------------

    def array(self, array: str, actor: Actor) -> ArrayInfo:
        """An array, by the id of its first job."""
        return self._ask(lambda: self._picture_array(self._members(GET_ARRAY, array, actor)))

    def cancel_array(self, array: str, actor: Actor) -> ArrayInfo:
        """End all of it for good."""
        return self._request_array(CANCEL_ARRAY, "cancel", array, actor)

    def hold_array(self, array: str, actor: Actor) -> ArrayInfo:
        """Keep what is left of it out of the queue."""
        return self._request_array(HOLD_ARRAY, "hold", array, actor)

    def release_array(self, array: str, actor: Actor) -> ArrayInfo:
        """Let what is held of it into the queue."""
        return self._request_array(RELEASE_ARRAY, "release", array, actor)

    def _request_array(
        self, operation: Operation[Any], what: Any, name: str, actor: Actor
    ) -> ArrayInfo:
        def act() -> tuple[list[Input], Callable[[], ArrayInfo]]:
            members = self._members(operation, name, actor)
            detained = self.state.engine.lifecycle.detained
            left = [job for job in members if not job.terminal]
            if not left and what != "cancel":
                raise ConflictError(f"array {name} is over: it cannot be {what}ed")
            if what == "hold":
                left = [job for job in left if job.index not in detained]
            elif what == "release":
                left = [job for job in left if job.index in detained]
            wanted: list[Input] = [JobRequest(what, job.index, actor.name) for job in left]
            return wanted, lambda: self._picture_array(members)

        return self._do(act)

    def _members(self, operation: Operation[Any], name: str, actor: Actor) -> list[Job]:
        known = self.state.engine.jobs.values()
        found = [job for job in known if job.spec.array == name and job.parent is None]
        if not found:
            raise NotFoundError(f"there is no array {name!r}: see `rota ls --all`")
        check_job(operation, actor, name, found[0].spec.user)
        return found

    def _picture_array(self, jobs: Sequence[Job]) -> ArrayInfo:
        return picture_array([self._picture(job) for job in jobs], jobs[0].spec.array_limit)

    # --- questions --------------------------------------------------------------------------------

    def _makes_sense(self, what: str, job: Job) -> bool:
        """False if it is so already; raises if it cannot be."""
        if job.terminal:
            if what == "cancel":
                return False
            raise ConflictError(f"job {job.id} is over ({state_of(job)}): it cannot be {what}ed")
        held = job.index in self.state.engine.lifecycle.detained
        if what == "hold":
            return not held
        if what == "release" and not held:
            if job.phase == Phase.HELD and job.index not in self.state.engine.lifecycle.returning:
                reason = self.state.projection.held_for(job.index).label
                raise ConflictError(f"job {job.id} is held for {reason}, not on request")
            return job.phase == Phase.HELD  # it failed: it is tried again at once
        return True

    def _find(self, operation: Operation[Any], name: str, actor: Actor) -> Job:
        number = int(name) if name.isascii() and name.isdigit() else 0
        job = self.state.engine.jobs.get(number)
        if job is None and number in self.state.forgotten:
            since = moment(self.store.epoch_unix + self.state.forgotten.since_s)
            raise NotFoundError(
                f"job {name} is over and was forgotten: what ended since {since} is still known"
            )
        check_job(operation, actor, name, job.spec.user if job else None)
        assert job is not None  # noqa: S101 - just checked
        return job

    def _picture(self, job: Job) -> JobInfo:
        state = self.state
        epoch, view = self.store.epoch_unix, state.engine.view
        found = picture_job(job, state.cluster, state.projection, epoch, view)
        lifecycle = state.engine.lifecycle
        found.failures = lifecycle.failures.get(job.index, 0)
        found.task = self._task_of(job)
        if job.phase == Phase.HELD:
            found.message = found.message or state.engine.scheduler.why_held(job, view)
            found.waits_for = state.engine.arrivals.blockers(job)
            if job.index in lifecycle.returning:
                found.retry_at = epoch + lifecycle.returning[job.index]
        return found

    def _task_of(self, job: Job) -> int | None:
        """Its number in its array; None: it is in none."""
        task = self.state.launch_of(job).task if job.spec.array else None
        return None if task is None else task.index

    def explain(self, job: str, actor: Actor) -> Explanation:
        """Why it waits or waited."""
        self._ask(self.loop.flush)  # what was logged must be in the store
        seen = self._ask(lambda: JobSituation.of(self.state, self._find(EXPLAIN_JOB, job, actor)))
        return seen.explain(self._log, self.store.epoch_unix)

    def when(self, job: str, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it will start."""
        from rota.daemon.forecast import ClusterOutlook  # NumPy: only for those who ask

        seen = self._ask(lambda: ClusterOutlook(self.state, self._find(FORECAST_JOB, job, actor)))
        return seen.forecast(self.store.epoch_unix, runs)

    def why(self, job: str, actor: Actor, *, runs: int = 20) -> Verdict:
        """Why it does not run, and what would start it."""
        from rota.daemon.forecast import ClusterOutlook

        seen = self._ask(lambda: ClusterOutlook(self.state, self._find(WHY_JOB, job, actor)))
        return seen.why(runs)

    def when_new(self, job: JobFile, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it would start if it were submitted now."""
        return self._proposed(job, actor).forecast(self.store.epoch_unix, runs)

    def why_new(self, job: JobFile, actor: Actor, *, runs: int = 20) -> Verdict:
        """Why it would not start if it were submitted now, and what would start it."""
        return self._proposed(job, actor).why(runs)

    def _proposed(self, job: JobFile, actor: Actor) -> "ClusterOutlook":
        from rota.daemon.forecast import ClusterOutlook

        to_request(job)

        def freeze() -> ClusterOutlook:
            engine = self.state.engine
            allowed = Allowance.of(self._permissions, self.identities.person(actor.name))
            refuse_forbidden([job], actor, allowed, engine.view.tenants, 0)
            refuse_impossible([job], self.loop.driver)
            refuse_unlabelled([job], self.state.engine.view.topology)
            refuse_undeclared([job], self.state.engine.view.topology)
            first = self.loop.journal.next_number()
            ranked = with_priorities([job], engine.view.tenants)
            timed = with_times(ranked, self.state.scheduling.queues)
            (file,) = with_ids(timed, first, actor, engine.jobs, self._task_of)
            spec = to_spec(file, str(first), self.state.cluster.now_s, actor.name)
            lasts = to_behaviour(file, spec)
            proposal = Proposal(spec=spec, behaviour=lasts, index=first, held=file.hold)
            return ClusterOutlook(self.state, proposal=proposal)

        return self._ask(freeze)

    def budgets(self) -> Sequence[BudgetUse]:
        """What was used of budgets by now."""

        def read() -> Sequence[BudgetUse]:
            engine = self.state.engine
            return engine.scheduler.budgets(engine.view, self.state.cluster.now_s)

        return self._ask(read)

    def audit(self) -> list[Finding]:
        """Queues that starve, quotas that lie idle, jobs that can never start, and so on."""

        def facts() -> AuditFacts:
            users = {job.spec.user for job in self.state.engine.view.active.values()}
            allowed = {
                user: Allowance.of(self._permissions, self.identities.person(user)).max_jobs
                for user in users
            }
            return audit_facts(self.state, allowed)

        return find(self._ask(facts))

    def logs(
        self, job: str, actor: Actor, *, stream: str, node_rank: int, offset: int, limit: int
    ) -> bytes:
        """A piece of its output; empty at the end."""
        found = self._ask(lambda: self._find(READ_OUTPUT, job, actor))
        if not self.loop.driver.capabilities.logs:
            raise NotFoundError(f"the backend {self.loop.driver.name!r} keeps no output")
        return self.loop.driver.read_log(found.id, stream, node_rank, offset, limit)

    def reach(
        self, operation: Operation[Any], job: str, actor: Actor, node_rank: int, call: RunCall
    ) -> CallAnswer:
        """Call the machine where a job runs, into the job."""
        found = self._ask(lambda: self._find(operation, job, actor))
        answer = self.loop.driver.reach(found.id, node_rank, call)
        if isinstance(call, OpenChannel) and not call.port:
            what = "the terminal of" if call.channel == MAIN else "a command in"
            self.note(f"{what} job {found.id} opened by {actor.name}")
        return answer

    def reach_files(
        self, operation: Operation[Any], job: str, actor: Actor, call: FileCall
    ) -> CallAnswer:
        """Ask for files in the folders of a job."""
        found = self._ask(lambda: self._find(operation, job, actor))
        return self.loop.driver.reach_files(found.id, call)

    def plan_upload(self, manifest: FileManifest, actor: Actor) -> tuple[str, list[str]]:
        """The id of an upload, and digests of its pieces that are missing."""
        uploads = self._kept_uploads()
        if time() > self._next_prune_unix:
            self._next_prune_unix = time() + PRUNE_S
            uploads.prune(self._needed_uploads())
        return uploads.plan(manifest, actor)

    def set_secret(self, name: str, value: str, actor: Actor) -> None:
        """Keep a secret for the jobs of the actor; the log has its name only."""
        self._kept_secrets().set(name, value, actor)
        self.note(f"secret {name} set by {actor.name}")

    def secrets(self, actor: Actor) -> list[SecretInfo]:
        """Names of the actor's secrets."""
        return self._kept_secrets().all(actor)

    def remove_secret(self, name: str, actor: Actor) -> None:
        """Forget one."""
        self._kept_secrets().remove(name, actor)
        self.note(f"secret {name} removed by {actor.name}")

    def secrets_of(self, order: RunOrder) -> dict[str, str]:
        """Values for a run that starts now."""
        names = tuple(item.removeprefix("file:") for item in order.launch.secrets)
        return self._kept_secrets().values(names, order.user, int(order.job))

    def _kept_secrets(self) -> SecretStore:
        if self.vault is None:
            raise ConflictError(
                "this daemon keeps no secrets, because another one may lead next: let jobs read "
                "them from a file of their owner"
            )
        return self.vault

    def _check_secrets(self, job: JobFile, actor: Actor) -> None:
        known = {info.name for info in self._kept_secrets().all(actor)}
        for item in job.secrets:
            name = item.removeprefix("file:")
            if name not in known:
                raise InputError(
                    f"secret {name!r}: you have none of that name: set it with `rota "
                    f"secret set {name}`"
                )

    def take_piece(self, digest: str, data: bytes, actor: Actor) -> None:
        """Keep a piece of an upload."""
        self._kept_uploads().take(digest, data, actor)

    def piece(self, job: str, digest: str) -> bytes:
        """A piece of what was sent for a job."""
        stored = self.store.jobs(int(job), 1) if job.isdecimal() else []
        upload = stored[0].file.upload if stored else ""
        return self._kept_uploads().read(upload, digest)

    def _kept_uploads(self) -> UploadStore:
        if self.uploads is None:
            raise ConflictError(
                "this daemon keeps no files, because another one may lead next: put them where the "
                "nodes can read them, and name that as workdir"
            )
        return self.uploads

    def _needed_uploads(self) -> list[str]:
        """Of jobs that are not finished."""
        active = self._ask(lambda: list(self.state.engine.view.active))
        files = (job.file for number in active for job in self.store.jobs(number, 1))
        return [file.upload for file in files if file.upload]

    def expired(self, jobs: Sequence[str]) -> list[str]:
        """Those of these jobs that ended so long ago that nothing of them need be kept."""
        days = None if self._settings is None else self._settings.retention.folders_days
        if days is None:
            return []

        def read() -> list[str]:
            before_s = self.state.cluster.now_s - days * DAY_S
            known = self.state.engine.jobs

            def over(job: Job | None) -> bool:
                return (
                    job is not None
                    and job.terminal
                    and job.end_s < before_s
                    and not self._is_needed(job)
                )

            return [
                name
                for name in jobs
                if name.isascii() and name.isdigit()
                and (int(name) in self.state.forgotten or over(known.get(int(name))))
            ]  # fmt: skip

        return self._ask(read)

    def forget_ended(self) -> int:
        """Forget jobs that ended long enough ago; how many."""
        retention = None if self._settings is None else self._settings.retention
        if retention is None or retention.jobs_days is retention.jobs_count is None:
            return 0

        def act() -> tuple[list[Input], Callable[[], int]]:
            state = self.state
            jobs, since_s = expendable(
                state.engine, state.cluster.runs, retention, state.cluster.now_s
            )
            if not jobs:
                return [], lambda: 0
            numbers = ranges_of(sorted(job.index for job in jobs))
            change = Reconfigured(by="retention", forget=tuple(numbers), since_s=since_s)
            return [change], lambda: len(jobs)

        forgotten = self._do(act)
        # what no kept snapshot knows can be removed: so keep newer ones
        if self.store.count_jobs() != self._ask(self._count_jobs):
            self._ask(self.loop.snapshot)
        self._log.renew()
        return forgotten

    def _count_jobs(self) -> int:
        return sum(job.parent is None for job in self.state.engine.jobs.values())

    def _is_needed(self, job: Job) -> bool:
        """Is anything of it still being stopped?"""
        return any(self.state.cluster.runs.ending(task) for task in tasks_of(job))

    # --- cluster ----------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All nodes."""
        return self._ask(
            lambda: picture_nodes(
                self.state.engine.view, self.state.cluster, self.state.windows.values()
            )
        )

    def drain(
        self, node: str, actor: Actor, *, stop: bool = False, deadline_s: float | None = None
    ) -> NodeInfo:
        """Start nothing more there; `stop`: and preempt what runs there, at the deadline if any."""
        if not stop or deadline_s is not None:
            return self._do(lambda: self._request_node("drain", node, actor, deadline_s))
        return self._do(lambda: self._request_node("clear", node, actor))

    def undrain(self, node: str, actor: Actor) -> NodeInfo:
        """Use it again."""
        return self._do(lambda: self._request_node("undrain", node, actor))

    def _request_node(
        self,
        what: Literal["drain", "clear", "undrain"],
        name: str,
        actor: Actor,
        deadline_s: float | None = None,
    ) -> tuple[list[Input], Callable[[], NodeInfo]]:
        node = self._known_node(name)
        if what == "undrain":
            changes = node.drained or bool(node.sick)
        else:
            changes = what == "clear" or not node.drained or deadline_s is not None
        at_s = None if deadline_s is None else self.state.cluster.now_s + deadline_s
        wanted: list[Input] = [NodeRequest(what, name, actor.name, at_s)] if changes else []
        return wanted, lambda: self._picture_node(name)

    def windows(self) -> list[WindowInfo]:
        """Maintenance and reservations, by their start."""

        def read() -> list[WindowInfo]:
            found = sorted(self.state.windows.values(), key=lambda one: (one.start_s, one.name))
            return [self._picture_window(window.name) for window in found]

        return self._ask(read)

    def add_window(self, asked: NewWindow, actor: Actor) -> WindowInfo:
        """Plan a maintenance, or reserve nodes."""

        def act() -> tuple[list[Input], Callable[[], WindowInfo]]:
            state = self.state
            if not state.engine.scheduler.trusted:
                raise ConflictError(
                    f"policy {state.engine.scheduler.name!r} chooses GPUs itself and keeps to no "
                    f"maintenance or reservation: choose another policy first (e.g. capacity), or "
                    f"take nodes out of use with `rota drain NODE --deadline T`"
                )
            now_s, epoch = state.cluster.now_s, self.store.epoch_unix
            present = state.windows.values()
            window = made_window(
                asked, present, state.engine.view, now_s, epoch, actor.name,
                strict=not self._permissions.undeclared_queues,
            )  # fmt: skip
            change = WindowChange(by=actor.name, add=window)
            return [change], lambda: self._picture_window(window.name)

        return self._do(act)

    def remove_window(self, name: str, actor: Actor) -> None:
        """Give one up, or end it early."""

        def act() -> tuple[list[Input], Callable[[], None]]:
            if name not in self.state.windows:
                raise NotFoundError(
                    f"there is no maintenance or reservation {name!r}: see `rota maintenance ls` "
                    f"and `rota reserve ls`"
                )
            return [WindowChange(by=actor.name, remove=name)], lambda: None

        self._do(act)

    def _picture_window(self, name: str) -> WindowInfo:
        state = self.state
        window = state.windows[name]
        return picture_window(window, state.engine.view, state.cluster.now_s, self.store.epoch_unix)

    def begin_restart(self, asked: NewRestart, actor: Actor) -> RestartInfo:
        """Let agents begin anew, one after the other."""

        def check() -> None:
            for name in asked.nodes:
                self._known_node(name)

        self._ask(check)
        return self._known_restarts().begin(asked, actor)

    def restart_progress(self) -> RestartInfo:
        """How far the rolling restart is, or how the last one ended."""
        return self._known_restarts().progress()

    def stop_restart(self, actor: Actor) -> RestartInfo:
        """Let no more agents begin anew."""
        return self._known_restarts().give_up(actor)

    def _known_restarts(self) -> RollingRestart:
        if self.restarts is None:
            raise ConflictError(
                f"the backend {self.loop.driver.name!r} has no agents of Rota that could be "
                f"restarted: use the means of that backend"
            )
        return self.restarts

    def node_history(self, node: str) -> list[NodeEvent]:
        """When it was lost, back, closed and opened, oldest first."""
        epoch = self.store.epoch_unix

        def number() -> int:
            self._known_node(node)
            self.loop.flush()
            return self.state.cluster.nodes.vertex(node).id

        return [
            NodeEvent(at=epoch + time_s, event=LABELS[event].removeprefix("node_"), text=text or "")
            for time_s, event, text in self.store.node_rows(self._ask(number))
        ]

    def remove_node(self, node: str, actor: Actor) -> None:
        """Forget a node that is not in use; it is there again when its agent comes back."""
        self._do(lambda: self._remove_node(node, actor))
        self.identities.release(node)

    def _remove_node(self, name: str, actor: Actor) -> tuple[list[Input], Callable[[], None]]:
        """Its number stays, for the log."""
        self._known_node(name)
        found = self._picture_node(name)
        leaving = [run.job.id for run in self.state.cluster.runs.on(name)]
        busy = list(dict.fromkeys([*found.jobs, *leaving]))
        if busy:
            jobs = f"job {busy[0]} is" if len(busy) == 1 else f"{len(busy)} jobs are"
            raise ConflictError(
                f"node {name} cannot be removed: {jobs} there: drain it with "
                f"`rota drain {name} --stop`, and try again when it is drained"
            )
        if found.state == "up":
            raise ConflictError(
                f"node {name} cannot be removed while it is in use: `rota drain {name}` first, or "
                f"stop its agent with --leave"
            )
        note = Noted(f"node {name} removed by {actor.name}")
        return [NodeRequest("remove", name, actor.name), note], lambda: None

    def _known_node(self, name: str) -> NodeRecord:
        node = self.state.cluster.nodes.by_name.get(name)
        if node is None or node.removed:
            raise NotFoundError(f"there is no node {name!r}: see `rota nodes`")
        return node

    def _picture_node(self, name: str) -> NodeInfo:
        nodes = picture_nodes(
            self.state.engine.view, self.state.cluster, self.state.windows.values()
        )
        return next(info for info in nodes if info.name == name)

    def queues(self) -> list[QueueInfo]:
        """All queues that are declared or in use."""
        return self._ask(lambda: picture_queues(self.state.engine.view))

    def status(self) -> dict[str, Any]:
        """Version, policy, times, counts by state, GPUs, latencies."""
        own = {
            "started_at": self.started_unix,
            "submissions": self._submissions,
            "decision_s": self.decision_s.as_dict(),
            "start_s": self.start_s.as_dict(),
            "commit_s": self.commit_s.as_dict(),
        }
        return self._ask(lambda: status_of(self.loop) | own)

    def board(self, seen: int) -> Board | None:
        """Which job has which GPU; None: nothing has happened since the version that was seen."""
        state, store, usage = self.state, self.store, self.usage

        def cut() -> BoardCut | None:
            version = state.engine.view.version + (0 if usage is None else usage.taken)
            if version == seen:
                return None
            busy = {} if usage is None else usage.busy
            self.loop.flush()  # all that is shown is up to the last row
            return BoardCut(state, store.epoch_unix, store.log_number, version, busy)

        found = self._ask(cut)
        return None if found is None else found.board()

    def lanes(self, query: LanesQuery, actor: Actor) -> Lanes:
        """Who had which GPUs; whose the jobs are is told of those that the actor may see."""
        self._ask(self.loop.flush)  # what was logged must be in the store
        bars = self._lanes.bars(query.since, query.limit)
        known = self.state.engine.jobs
        out = []
        for bar in bars:
            job = known.get(int(bar.job))
            sees = job is not None and sees_job(actor, job.spec.user, job.index)
            out.append(shown(bar, job.spec if job is not None and sees else None))
        since = max(query.since, out[0].began_at) if len(out) == query.limit else query.since
        return Lanes(since, self.store.epoch_unix + self.state.cluster.now_s, out)

    def choices(self) -> Choices:
        """What can be chosen for policy and placement, and what holds now."""
        scheduling = self.state.scheduling
        params = msgspec.to_builtins(make_policy(scheduling.policy).params)
        return Choices(
            scheduling.policy, scheduling.placement, scheduling.admission, params,
            names(POLICIES), names(PLACEMENTS),
        )  # fmt: skip

    def try_out(self, trial: WhatIf) -> TrialAnswer:
        """How the present queue would fare; nothing is changed."""
        from rota.daemon.trial import QueueTrial  # NumPy: only for those who ask

        seen = self._ask(lambda: QueueTrial(self.state))
        return seen.compare(trial, self.store.epoch_unix)

    def ready(self) -> tuple[bool, str]:
        """Can work be accepted? And if not, why."""
        if self.failure:
            return False, f"the daemon has failed: {self.failure}"
        if self._stopping.is_set() or not self._running:
            return False, "the daemon is starting or stopping"
        probe = PendingCall(lambda: ([], self.loop.journal.probe))
        try:
            self.loop.mailbox.call(probe, PROBE_S)
        except UnavailableError as error:  # it is stuck, or busy with the trouble
            return False, self.loop.journal.trouble or f"the scheduling loop: {error}"
        trouble = self.loop.journal.trouble or self.loop.driver.trouble()
        return not trouble, trouble

    def reload(self, actor: Actor) -> list[str]:
        """Read the configuration file again; what changed."""
        settings = read_settings(self._config, self._said)
        wanted = self._complete(settings)
        later = [] if self._settings is None else needs_restart(self._settings, settings)
        later += self.on_reload()

        def act() -> tuple[list[Input], Callable[[], list[str]]]:
            changed = changes(self.state.scheduling, wanted)
            if not changed:
                return [], lambda: [*self._permit(settings.permissions), *later]
            change = Reconfigured(wanted.as_dict(), by=actor.name)
            self.state.check_change(change)
            return [change], lambda: [*changed, *self._permit(settings.permissions), *later]

        return self._do(act)

    def _permit(self, wanted: Permissions) -> list[str]:
        """Use other permissions from now on; what changed, for people."""
        before, self._permissions = self._permissions, wanted
        return [
            f"permissions.{key}: {getattr(before, key)} -> {getattr(wanted, key)}"
            for key in Permissions.__struct_fields__
            if getattr(before, key) != getattr(wanted, key)
        ]

    # --- log --------------------------------------------------------------------------------------

    def events(self, after: int, limit: int = PAGE, job: str = "") -> list[Event]:
        """Rows of the event log after this number; `job`: only of this one."""
        if self.loop.journal.is_behind:  # what somebody was answered must be in them
            with suppress(UnavailableError):  # nobody writes any more: what is there can be read
                self._ask(self.loop.flush)
        epoch = self.store.epoch_unix
        return [
            Event(
                number=number, time_s=time_s, at=epoch + time_s, event=LABELS[event],
                job=str(job) if job >= 0 else None, ref=ref, other=other, value=value, text=text,
            )
            for number, time_s, event, job, ref, other, value, text in self.store.rows(
                after, limit, int(job) if job else None
            )
        ]  # fmt: skip

    def audit_log(self, after: int | None, limit: int) -> AuditPage:
        """Who did what after this line (None: at last), with the check of the chain."""
        return self.store.audit_page(after, limit)

    def wait_events(self, after: int, timeout_s: float) -> bool:
        """Block until there are rows after this number; False after the timeout."""
        with self._news:
            return (
                self._news.wait_for(
                    lambda: self.store.log_number > after or self._stopping.is_set(), timeout_s
                )
                and not self._stopping.is_set()
            )

    def export(self) -> Export:
        """The whole log, and what it was made with."""
        return self._ask(lambda: ExportCut.of(self.loop)).export(self.store)

    # --- for those who come in --------------------------------------------------------------------

    def _last_job(self, name: str) -> int:
        """The last job that cannot be that of a new holder of a name.

        Nobody gets a name while jobs of a former holder are unfinished: limits count by name.
        """

        def read() -> int:
            active = self.state.engine.view.active.values()
            theirs = [job for job in active if job.spec.user == name and job.parent is None]
            if theirs or self.loop.journal.accepted_by(name):
                raise ConflictError(
                    f"{len(theirs) or 'some'} jobs of a former {name!r} are not finished (such as "
                    f"{theirs[0].id if theirs else 'a new one'}): cancel them or wait, or use "
                    "another name"
                )
            return self.loop.journal.next_number() - 1

        return self._ask(read)

    def _tenants(self) -> TenantTree:
        """The queues that are declared at present."""
        return self.state.scheduling.tenants()

    def note(self, text: str) -> None:
        """Write something into the event log and the audit log."""
        self._do(lambda: ([Noted(text)], lambda: None))


def _filters(query: FindQuery, actor: Actor) -> Iterator[Callable[[Job], bool]]:
    """What jobs have to be, only as far as it matters: there may be very many."""
    if not sees_all_jobs(actor):
        yield lambda job: sees_job(actor, job.spec.user, job.index)
    if query.user:
        yield lambda job: job.spec.user == query.user
    if query.queue:
        yield lambda job: job.tenant == query.queue
    if query.state:
        yield lambda job: state_of(job) in query.state
    if query.array:
        yield lambda job: job.spec.array == query.array
    words = query.search.lower()
    if words:
        yield lambda job: any(
            words in text.lower()
            for text in (job.id, job.spec.name, job.spec.user, job.tenant, job.spec.group)
        )
