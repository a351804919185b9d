"""What the API (and the embedded command line) may ask of a daemon.

Every call is thread-safe and may block for a moment; `RotaError`s are answers for the caller:
`NotFoundError` (no such job or node), `ForbiddenError` (a job of somebody else), `ConflictError`
(not in this state), `InputError` (the submission is wrong), `UnavailableError` (the store is full
or locked, or the daemon is stopping: nothing was accepted, try again).

Roles are checked before these calls, by `rota.daemon.access.check_role`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from rota.core.efficiency import JobUsage
from rota.core.findings import Finding
from rota.core.manifest import FileManifest
from rota.core.membership import Membership
from rota.core.verdict import Verdict
from rota.daemon.board import Board
from rota.jobfile.model import JobFile
from rota.live.calls import CallAnswer, FileCall, RunCall
from rota.wire import (
    PAGE,
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
    KeptBrowser,
    Lanes,
    LanesQuery,
    LoginAnswer,
    LoginStart,
    MadeSession,
    NewPerson,
    NewRestart,
    NewWindow,
    NodeEvent,
    NodeInfo,
    Operation,
    Person,
    PersonChange,
    QueueInfo,
    RestartInfo,
    SecretInfo,
    SessionInfo,
    TokenInfo,
    TrialAnswer,
    UsageSummary,
    WhatIf,
    WindowInfo,
)


class IdentityService(Protocol):
    """Who may come in, as the API sees it."""

    # --- tokens ----------------------------------------------------------------------------------

    def holder(self, digest: str) -> Actor | None:
        """Whose token has this digest?"""
        ...

    def recognise(self, certificate: str) -> Actor | None:
        """Whose certificate has this SHA-256? TLS has checked that they have its key."""
        ...

    def authority(self) -> str:
        """The certificate of the daemon's own authority (PEM); NotFoundError if it has none."""
        ...

    def invite(self, node: str, valid_s: float, actor: Actor) -> str:
        """A code with which one machine may join once, as this node."""
        ...

    def join(self, secret: str, node: str, csr: str = "") -> Membership:
        """Exchange the secret of a code for the node's own credential."""
        ...

    def renew_certificate(self, csr: str, actor: Actor) -> Membership:
        """Another certificate for a node that has joined."""
        ...

    def prove(self, label: str, nonce: str, port: int) -> str:
        """The proof that we know the token with this label; empty if we do not."""
        ...

    def create_token(
        self, name: str, role: str, actor: Actor, *, user: str = "", valid_s: float | None = None
    ) -> str:
        """A new token; only its hash is kept. `user`: the person whose it is."""
        ...

    def tokens(self) -> list[TokenInfo]:
        """Names and roles."""
        ...

    def revoke_token(self, name: str, actor: Actor) -> None:
        """It is worth nothing from now on."""
        ...

    # --- people ----------------------------------------------------------------------------------

    def account(self, actor: Actor) -> Actor | None:
        """Somebody whom the machine knows by this name; None: they are disabled."""
        ...

    def people(self) -> list[Person]:
        """Everybody, by name."""
        ...

    def add_person(self, new: NewPerson, actor: Actor) -> Person:
        """Somebody who may use the cluster; a token of their name is theirs from now on."""
        ...

    def change_person(self, name: str, change: PersonChange, actor: Actor) -> Person:
        """Let some things be different; None where the configuration shall say it."""
        ...

    def allow_person(self, name: str, actor: Actor, *, allowed: bool) -> Person:
        """Let somebody in, or end what their tokens and sessions are good for, at once."""
        ...

    def person_actor(self, name: str) -> Actor | None:
        """What a person is at present; None: they are disabled."""
        ...

    def sessions(self) -> list[SessionInfo]:
        """Sessions of people that are not over, those of browsers excepted."""
        ...

    def end_session(self, session: str, actor: Actor) -> bool:
        """End one, by id; False if there is none."""
        ...

    def keep_browser(self, browser: KeptBrowser) -> None:
        """Let a browser come again with its key, after a restart too."""
        ...

    def kept_browser(self, key: str) -> KeptBrowser | None:
        """The browser that has this key, if it may come again."""
        ...

    def forget_browser(self, session: str) -> None:
        """A browser's session was ended, by its id."""
        ...

    def begin_session(self, name: str, seconds: float) -> MadeSession:
        """Somebody has shown who they are."""
        ...

    def begin_login(self, redirect: str) -> LoginStart:
        """Where a browser has to go to show who somebody is; NotFoundError: there is no provider.

        `redirect`: where the identity provider sends it back to.
        """
        ...

    @property
    def session_s(self) -> float:
        """How long somebody stays logged in."""
        ...

    def finish_login(self, answer: LoginAnswer, issuer: str = "") -> Person:
        """Who it is, whom the identity provider has recognised; ForbiddenError: nobody of ours."""
        ...


class Service(Protocol):
    """The daemon as the API sees it."""

    @property
    def identities(self) -> IdentityService:
        """People, tokens and sessions."""
        ...

    # --- jobs ------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobFile], actor: Actor, *, key: str = "") -> list[JobInfo]:
        """Accept all jobs or none; they are safe in the store when this returns.

        `key`: the same key from the same actor again returns the jobs of the first time.
        """
        ...

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
        """Jobs that the actor may see, by number; `after` an id, for pages."""
        ...

    def find_jobs(self, query: FindQuery, actor: Actor) -> FoundJobs:
        """A piece of a table of the jobs that the actor may see."""
        ...

    def job(self, job: str, actor: Actor) -> JobInfo:
        """One job, by id; its owner and admins also see what was submitted."""
        ...

    def job_usage(self, job: str, actor: Actor) -> JobUsage:
        """What it used, with the series."""
        ...

    def efficiency(self, actor: Actor, *, by: str) -> list[UsageSummary]:
        """What users or queues used of what they asked for."""
        ...

    def cancel(self, job: str, actor: Actor) -> JobInfo:
        """End it for good. Cancelling a finished job changes nothing."""
        ...

    def hold(self, job: str, actor: Actor) -> JobInfo:
        """Keep it out of the queue; a running job is stopped first."""
        ...

    def release(self, job: str, actor: Actor) -> JobInfo:
        """Let a held job into the queue."""
        ...

    def array(self, array: str, actor: Actor) -> ArrayInfo:
        """An array, by the id of its first job."""
        ...

    def cancel_array(self, array: str, actor: Actor) -> ArrayInfo:
        """End all of it for good."""
        ...

    def hold_array(self, array: str, actor: Actor) -> ArrayInfo:
        """Keep what is left of it out of the queue."""
        ...

    def release_array(self, array: str, actor: Actor) -> ArrayInfo:
        """Let what is held of it into the queue."""
        ...

    def explain(self, job: str, actor: Actor) -> Explanation:
        """Why it waits or waited."""
        ...

    def when(self, job: str, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it will start."""
        ...

    def why(self, job: str, actor: Actor, *, runs: int = 20) -> Verdict:
        """Why it does not run, and what would start it."""
        ...

    def when_new(self, job: JobFile, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it would start if it were submitted now; nothing is submitted."""
        ...

    def why_new(self, job: JobFile, actor: Actor, *, runs: int = 20) -> Verdict:
        """Why it would not start if it were submitted now, and what would start it."""
        ...

    def logs(
        self, job: str, actor: Actor, *, stream: str, node_rank: int, offset: int, limit: int
    ) -> bytes:
        """A piece of its output; empty at the end."""
        ...

    def reach(
        self, operation: Operation[Any], job: str, actor: Actor, node_rank: int, call: RunCall
    ) -> CallAnswer:
        """Call the machine where a job runs, into the job; blocks as long as the call says."""
        ...

    def reach_files(
        self, operation: Operation[Any], job: str, actor: Actor, call: FileCall
    ) -> CallAnswer:
        """Ask for files in the folders of a job."""
        ...

    def plan_upload(self, manifest: FileManifest, actor: Actor) -> tuple[str, list[str]]:
        """The id of an upload, and digests of its pieces that are missing; none: it is complete."""
        ...

    def set_secret(self, name: str, value: str, actor: Actor) -> None:
        """Keep a secret for the jobs of the actor."""
        ...

    def secrets(self, actor: Actor) -> list[SecretInfo]:
        """Names of the actor's secrets."""
        ...

    def remove_secret(self, name: str, actor: Actor) -> None:
        """Forget one."""
        ...

    def take_piece(self, digest: str, data: bytes, actor: Actor) -> None:
        """Keep a piece of an upload."""
        ...

    # --- cluster ---------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All nodes."""
        ...

    def drain(
        self, node: str, actor: Actor, *, stop: bool = False, deadline_s: float | None = None
    ) -> NodeInfo:
        """Start nothing more there; `stop`: and preempt what runs there, at the deadline if any."""
        ...

    def windows(self) -> list[WindowInfo]:
        """Maintenance and reservations, by their start."""
        ...

    def add_window(self, asked: NewWindow, actor: Actor) -> WindowInfo:
        """Plan a maintenance, or reserve nodes."""
        ...

    def remove_window(self, name: str, actor: Actor) -> None:
        """Give one up, or end it early."""
        ...

    def begin_restart(self, asked: NewRestart, actor: Actor) -> RestartInfo:
        """Let agents begin anew, one after the other."""
        ...

    def restart_progress(self) -> RestartInfo:
        """How far the rolling restart is, or how the last one ended."""
        ...

    def stop_restart(self, actor: Actor) -> RestartInfo:
        """Let no more agents begin anew."""
        ...

    def node_history(self, node: str) -> list[NodeEvent]:
        """When it was lost, back, closed and opened, oldest first."""
        ...

    def undrain(self, node: str, actor: Actor) -> NodeInfo:
        """Use it again."""
        ...

    def remove_node(self, node: str, actor: Actor) -> None:
        """Forget a node that is not in use; it is there again when its agent comes back."""
        ...

    def audit(self) -> list[Finding]:
        """Queues that starve, quotas that lie idle, jobs that can never start, and so on."""
        ...

    def audit_log(self, after: int | None, limit: int) -> AuditPage:
        """Who did what after this line (None: at last), with the check of the chain."""
        ...

    def queues(self) -> list[QueueInfo]:
        """All queues that are declared or in use."""
        ...

    def status(self) -> dict[str, Any]:
        """Version, policy, times, counts by state, GPUs, latencies: for `top` and /metrics."""
        ...

    def board(self, seen: int) -> Board | None:
        """Which job has which GPU; None: nothing has happened since the version that was seen."""
        ...

    def lanes(self, query: LanesQuery, actor: Actor) -> Lanes:
        """Who had which GPUs; whose the jobs are is told of those that the actor may see."""
        ...

    def choices(self) -> Choices:
        """What can be chosen for policy and placement, and what holds now."""
        ...

    def try_out(self, trial: WhatIf) -> TrialAnswer:
        """How the present queue would fare under something else; nothing is changed."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Can work be accepted? And if not, why."""
        ...

    def reload(self, actor: Actor) -> list[str]:
        """Read the configuration file again; what changed."""
        ...

    # --- log -------------------------------------------------------------------------------------

    def events(self, after: int, limit: int = PAGE, job: str = "") -> list[Event]:
        """Rows of the event log after this number; `job`: only of this one."""
        ...

    def wait_events(self, after: int, timeout_s: float) -> bool:
        """Block until there are rows after this number; False after the timeout."""
        ...

    def note(self, text: str) -> None:
        """Write something into the event log and the audit log."""
        ...
