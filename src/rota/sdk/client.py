"""The clients. `AsyncClient` has the methods; `Client` runs them without an event loop."""

import math
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeAlias, TypeVar

import httpx2
import msgspec
from msgspec import UNSET

from rota.core.efficiency import JobUsage
from rota.core.errors import (
    ConflictError,
    GoneError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from rota.core.findings import Finding
from rota.core.verdict import Verdict
from rota.jobfile.arrays import array_plan
from rota.jobfile.check import check
from rota.jobfile.model import JobFile
from rota.sdk.files import LIMIT, ScannedFolder
from rota.sdk.inside import OUT, ChannelOutput, ExecResult, new_channel_id
from rota.sdk.place import Place
from rota.sdk.transport import (
    AsyncIO,
    Backoff,
    BlockingIO,
    DaemonSession,
    EventParser,
    unreachable,
)
from rota.wire import (
    ADD_PERSON,
    ADD_WINDOW,
    AUDIT_QUEUES,
    BEGIN_LOGIN,
    BEGIN_RESTART,
    CANCEL_ARRAY,
    CANCEL_JOB,
    CHANGE_PERSON,
    CHANNEL_BYTES,
    CHANNEL_WAIT_S,
    CLOSE_CHANNEL,
    CREATE_TOKEN,
    CREATE_WEB_CODE,
    DISABLE_PERSON,
    DRAIN_NODE,
    ENABLE_PERSON,
    END_SESSION,
    ENDED,
    EXPLAIN_JOB,
    EXPORT_EVENTS,
    FIND_JOBS,
    FINISH_LOGIN,
    FORECAST_JOB,
    FORECAST_NEW,
    GET_ARRAY,
    GET_JOB,
    GET_RESTART,
    GET_STATUS,
    GET_USAGE,
    HOLD_ARRAY,
    HOLD_JOB,
    INVITE_NODE,
    LIST_AUDIT,
    LIST_CHANNELS,
    LIST_CHOICES,
    LIST_EFFICIENCY,
    LIST_EVENTS,
    LIST_FILES,
    LIST_JOBS,
    LIST_LANES,
    LIST_NODES,
    LIST_PEOPLE,
    LIST_QUEUES,
    LIST_SECRETS,
    LIST_SESSIONS,
    LIST_TOKENS,
    LIST_WINDOWS,
    MAX_BODY_BYTES,
    MAX_JOBS,
    MAX_KEY,
    NODE_HISTORY,
    OPEN_CHANNEL,
    PAGE,
    PLAN_UPLOAD,
    READ_CHANNEL,
    READ_FILE,
    READ_OUTPUT,
    RELEASE_ARRAY,
    RELEASE_JOB,
    RELOAD,
    REMOVE_NODE,
    REMOVE_SECRET,
    REMOVE_WINDOW,
    REVOKE_TOKEN,
    SEND_PIECE,
    SET_SECRET,
    STOP_RESTART,
    STREAM_EVENTS,
    SUBMIT_JOBS,
    TRY_OUT,
    UNDRAIN_NODE,
    WHOAMI,
    WHY_JOB,
    WHY_NEW,
    WRITE_CHANNEL,
    Actor,
    ArrayInfo,
    AuditPage,
    AuditQuery,
    ChannelInfo,
    ChannelQuery,
    Choices,
    DrainQuery,
    EfficiencyQuery,
    Event,
    EventsQuery,
    Explanation,
    FileQuery,
    FilesQuery,
    FindQuery,
    Folder,
    Forecast,
    ForecastQuery,
    FoundJobs,
    InputQuery,
    JobFileInfo,
    JobInfo,
    JobsQuery,
    Lanes,
    LanesQuery,
    LoginAnswer,
    LoginRequest,
    LoginStart,
    MadeSession,
    NewChannel,
    NewInvitation,
    NewPerson,
    NewRestart,
    NewSecret,
    NewToken,
    NewWindow,
    NodeEvent,
    NodeInfo,
    OutputQuery,
    Person,
    PersonChange,
    QueueInfo,
    RankQuery,
    RestartInfo,
    SecretInfo,
    SessionInfo,
    StreamQuery,
    SubmitHeaders,
    TokenInfo,
    TrialAnswer,
    UsageSummary,
    WebCode,
    WhatIf,
    WindowInfo,
)

P = ParamSpec("P")
T = TypeVar("T")
JobLike: TypeAlias = JobFile | Mapping[str, Any]
LONGEST_KEY = MAX_KEY - 50  # the number of the request is appended


def as_job(job: JobLike, where: str = "job") -> JobFile:
    """A job from a struct or from keys as in a job file."""
    if not isinstance(job, JobFile):
        try:
            job = msgspec.convert(job, JobFile)
        except msgspec.ValidationError as error:
            raise InputError(f"{where}: {str(error).replace('`', '')}: correct it") from error
    check(job, where)
    return job


def _submissions(jobs: Sequence[JobLike]) -> Iterator[bytes]:
    """The bodies that submit these jobs: one, unless there are too many for that."""
    batch: list[bytes] = []
    size, count = 2, 0
    for number, job in enumerate(jobs, 1):
        checked = as_job(job, f"job {number}")
        encoded = msgspec.json.encode(checked)
        more = len(array_plan(checked.array).indices) if checked.array else 1
        if batch and (count + more > MAX_JOBS or size + len(encoded) > MAX_BODY_BYTES):
            yield b"[" + b",".join(batch) + b"]"
            batch, size, count = [], 2, 0
        batch.append(encoded)
        count += more
        size += len(encoded) + 1
    if batch:
        yield b"[" + b",".join(batch) + b"]"


class _OnSession:
    """What is common to the clients: where the daemon is and how patient to be."""

    _session: DaemonSession

    @property
    def place(self) -> Place:
        """Where the daemon is."""
        return self._session.place

    @property
    def patience_s(self) -> float:
        """How long to try again while the daemon cannot be reached or is not ready."""
        return self._session.patience_s

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        self._session.patience_s = seconds

    @property
    def on_start(self) -> Callable[[str], None]:
        """Called with a message when a daemon that is just starting is waited for."""
        return self._session.on_start

    @on_start.setter
    def on_start(self, call: Callable[[str], None]) -> None:
        self._session.on_start = call


class AsyncClient(_OnSession):
    """As `Client`, with `await` and `async for`."""

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        patience_s: float = 10.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._session = DaemonSession(
            server, token, token_file=token_file, ca=ca, patience_s=patience_s,
            connect=partial(AsyncIO, transport=transport),
        )  # fmt: skip

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.io.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- jobs -----------------------------------------------------------------------------------

    async def submit(self, job: JobLike, *, key: str | None = None) -> JobInfo:
        """Submit a job; with the same `key` again, the same job comes back."""
        return (await self.submit_many([job], key=key))[0]

    async def submit_many(
        self, jobs: Sequence[JobLike], *, key: str | None = None
    ) -> list[JobInfo]:
        """Submit jobs, all or none (of every 10,000)."""
        key = key or uuid.uuid4().hex
        visible = key.isascii() and key.isprintable() and " " not in key
        if not visible or len(key) > LONGEST_KEY:
            raise InputError(f"key is {key[:60]!r}: give 1 to {LONGEST_KEY} letters and digits")
        found: list[JobInfo] = []
        for number, body in enumerate(list(_submissions(jobs))):  # all are right before any is sent
            headers = SubmitHeaders(f"{key}-{number}" if number else key)
            accepted = await self._session.ask(SUBMIT_JOBS, headers=headers, body=body)
            found.extend(accepted)
        return found

    async def jobs(
        self,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        user: str = "",
        name: str = "",
        array: str = "",
        active: bool = False,
        after: str = "",
        limit: int | None = None,
    ) -> AsyncGenerator[JobInfo, None]:
        """Jobs that the token may see, oldest first, fetched a page at a time.

        Args:
            states: Only in these states.
            queue: Only of this queue.
            user: Only of this user.
            name: Only of this name.
            array: Only of this array.
            active: Only unfinished jobs.
            after: Only after this id.
            limit: At most so many; None: all.
        """
        left = math.inf if limit is None else limit
        while left > 0:
            query = JobsQuery(
                state=list(states),  # type: ignore[arg-type]  # the daemon refuses others
                queue=queue,
                user=user,
                name=name,
                array=array,
                active=active,
                after=after,
                limit=int(min(left, PAGE)),
            )
            page = await self._session.ask(LIST_JOBS, query=query)
            for info in page:
                yield info
            if len(page) < query.limit:
                return
            left -= len(page)
            after = page[-1].id

    async def find_jobs(self, query: FindQuery | None = None) -> FoundJobs:
        """A piece of a table of jobs, sorted and filtered by the daemon, and how many there are."""
        return await self._session.ask(FIND_JOBS, query=query or FindQuery())

    async def job(self, job: str) -> JobInfo:
        """One job, by id."""
        return await self._session.ask(GET_JOB, job=job)

    async def cancel(self, job: str) -> JobInfo:
        """End it for good."""
        return await self._session.ask(CANCEL_JOB, job=job)

    async def hold(self, job: str) -> JobInfo:
        """Keep it out of the queue; a running job is stopped first."""
        return await self._session.ask(HOLD_JOB, job=job)

    async def release(self, job: str) -> JobInfo:
        """Let a held job into the queue."""
        return await self._session.ask(RELEASE_JOB, job=job)

    async def usage(self, job: str) -> JobUsage:
        """What it used of what it asked for, with the series."""
        return await self._session.ask(GET_USAGE, job=job)

    async def efficiency(self, *, by: Literal["user", "queue"] = "user") -> list[UsageSummary]:
        """What users or queues used of what they asked for."""
        return await self._session.ask(LIST_EFFICIENCY, query=EfficiencyQuery(by=by))

    async def array(self, array: str) -> ArrayInfo:
        """An array as a whole, by the id of its first job; `jobs(array=...)` has its jobs."""
        return await self._session.ask(GET_ARRAY, array=array)

    async def cancel_array(self, array: str) -> ArrayInfo:
        """End all of it for good."""
        return await self._session.ask(CANCEL_ARRAY, array=array)

    async def hold_array(self, array: str) -> ArrayInfo:
        """Keep what is left of it out of the queue; what runs is stopped first."""
        return await self._session.ask(HOLD_ARRAY, array=array)

    async def release_array(self, array: str) -> ArrayInfo:
        """Let what is held of it into the queue."""
        return await self._session.ask(RELEASE_ARRAY, array=array)

    async def wait_array(self, array: str, timeout_s: float | None = None) -> ArrayInfo:
        """The array when all of it has finished.

        Raises:
            TimeoutError: It has not finished in time.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = 0.05
        while True:
            found = await self.array(array)
            if found.ended_at is not None:
                return found
            if until_s is not None and time.monotonic() + pause_s > until_s:
                raise TimeoutError(f"array {array} is not over after {timeout_s:g} s")
            await self._session.io.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    async def explain(self, job: str) -> Explanation:
        """Why it waits or waited."""
        return await self._session.ask(EXPLAIN_JOB, job=job)

    async def when(self, job: str, *, runs: int = 20) -> Forecast:
        """When it will start, simulated so many times from the present state."""
        return await self._session.ask(FORECAST_JOB, query=ForecastQuery(runs), job=job)

    async def why(self, job: str, *, runs: int = 20) -> Verdict:
        """The one reason why it does not run, and the smallest change that would start it."""
        return await self._session.ask(WHY_JOB, query=ForecastQuery(runs), job=job)

    async def when_new(self, job: JobLike, *, runs: int = 20) -> Forecast:
        """When it would start if it were submitted now; nothing is submitted."""
        body = msgspec.json.encode(as_job(job))
        return await self._session.ask(FORECAST_NEW, query=ForecastQuery(runs), body=body)

    async def why_new(self, job: JobLike, *, runs: int = 20) -> Verdict:
        """Why it would not start if it were submitted now; nothing is submitted."""
        body = msgspec.json.encode(as_job(job))
        return await self._session.ask(WHY_NEW, query=ForecastQuery(runs), body=body)

    async def wait(self, job: str, timeout_s: float | None = None) -> JobInfo:
        """The job when it has finished.

        Raises:
            TimeoutError: It has not finished in time.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = 0.05
        while True:
            found = await self.job(job)
            if found.state in ENDED:
                return found
            if until_s is not None and time.monotonic() + pause_s > until_s:
                raise TimeoutError(f"job {job} is {found.state} after {timeout_s:g} s")
            await self._session.io.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    async def logs(
        self,
        job: str,
        *,
        stream: str = "out",
        node_rank: int = 0,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """What it wrote to `out`, `err` or `all` (both, in order) on one of its nodes, in pieces.

        `follow`: until it has finished; a daemon that goes away and comes back is not noticed.
        """
        which: dict[str, Any] = {"stream": stream, "node_rank": node_rank}
        while True:
            ended = not follow or (await self.job(job)).state in ENDED
            while True:
                offset, piece = await self._piece(job, offset, which)
                if not piece:
                    break
                yield piece
            if ended:
                return
            query = OutputQuery(offset=offset, follow=True, **which)
            async with aclosing(self._follow(job, query)) as pieces:
                async for piece in pieces:
                    offset += len(piece)
                    yield piece

    async def last_output(
        self, job: str, *, stream: str = "all", node_rank: int = 0, most: int = 4096
    ) -> bytes:
        """The end of what it wrote, at most so many bytes."""
        which: dict[str, Any] = {"stream": stream, "node_rank": node_rank}
        query = OutputQuery(offset=-most, limit=most, **which)
        return await self._session.ask(READ_OUTPUT, query=query, job=job)

    async def _piece(self, job: str, offset: int, which: dict[str, Any]) -> tuple[int, bytes]:
        """A piece and where the next one begins; what was rotated away is passed over."""
        ask = partial(self._session.ask, READ_OUTPUT, job=job)
        try:
            piece = await ask(query=OutputQuery(offset=offset, **which))
        except GoneError as error:
            if error.first <= offset:
                raise
            offset = error.first
            piece = await ask(query=OutputQuery(offset=offset, **which))
        return offset + len(piece), piece

    async def _follow(self, job: str, query: OutputQuery) -> AsyncGenerator[bytes, None]:
        """Pieces until the connection ends, for whatever reason: the caller looks again."""
        session = self._session
        try:
            async with session.open(READ_OUTPUT, query, job=job) as response:
                async for piece in session.io.pieces(response):
                    yield piece
        except httpx2.TransportError as error:
            session.take_turns(error)
            await session.io.sleep(0.2)
        except UnavailableError:
            await session.io.sleep(0.2)

    # --- files ----------------------------------------------------------------------------------

    async def upload(self, folder: str | Path, *, limit: int = LIMIT) -> str:
        """Send the files of a folder; the id, for the key `upload` of a job.

        What was sent before is not sent again. `.rotaignore` in the folder names what is left out.

        Args:
            folder: The folder.
            limit: Refuse more bytes than that.
        """
        scanned = ScannedFolder(folder, limit)
        body = msgspec.json.encode(scanned.manifest)
        if len(body) > MAX_BODY_BYTES:
            raise InputError(f"--upload {folder}: too many files: name some in .rotaignore")
        while True:
            state = await self._session.ask(PLAN_UPLOAD, body=body)
            if not state.missing:
                return state.id
            for digest in state.missing:
                piece = scanned.piece(digest)
                await self._session.ask(SEND_PIECE, body=piece, digest=digest)

    async def files(
        self, job: str, path: str = "", *, folder: Folder = "work"
    ) -> tuple[list[JobFileInfo], list[str]]:
        """Plain files in the working folder of a job (or its `checkpoint` folder), by path.

        And paths of what is no plain file (the first hundred): links, pipes, ...
        """
        found: list[JobFileInfo] = []
        skipped: dict[str, None] = {}
        while True:
            after = found[-1].path if found else ""
            query = FilesQuery(folder=folder, path=path, after=after)
            page = await self._session.ask(LIST_FILES, query=query, job=job)
            found += page.files
            skipped |= dict.fromkeys(page.skipped)
            if not page.more or not page.files:
                return found, list(skipped)[:100]

    async def read_file(
        self, job: str, path: str, *, folder: Folder = "work"
    ) -> AsyncGenerator[bytes, None]:
        """The content of a file of a job, in pieces."""
        offset = 0
        while True:
            query = FileQuery(path=path, folder=folder, offset=offset)
            piece = await self._session.ask(READ_FILE, query=query, job=job)
            if not piece:
                return
            yield piece
            offset += len(piece)

    async def set_secret(self, name: str, value: str) -> None:
        """Keep a secret for our own jobs; nobody is shown it again."""
        body = msgspec.json.encode(NewSecret(name, value))
        await self._session.ask(SET_SECRET, body=body)

    async def secrets(self) -> list[SecretInfo]:
        """Names of our secrets."""
        return await self._session.ask(LIST_SECRETS)

    async def remove_secret(self, name: str) -> None:
        """Forget one."""
        await self._session.ask(REMOVE_SECRET, secret=name)

    # --- into jobs ------------------------------------------------------------------------------

    async def exec(
        self, job: str, argv: Sequence[str], *, stdin: bytes = b"", node_rank: int = 0
    ) -> ExecResult:
        """Run a command in a job that runs, as the job's user and in its sandbox; wait for its end.

        Args:
            job: Its id.
            argv: The command; it is not read by a shell.
            stdin: What it finds on its standard input.
            node_rank: On which of the job's nodes.
        """
        opened = await self.open_channel(job, argv, node_rank=node_rank)
        output, sent, eof = ChannelOutput(), 0, False
        found: dict[int, list[bytes]] = {}
        while output.code is None:
            if not eof:
                piece = stdin[sent : sent + CHANNEL_BYTES]
                last = sent + len(piece) == len(stdin)
                taken = await self.write_channel(
                    job, opened.id, piece, offset=sent, eof=last, wait_s=0.0, node_rank=node_rank
                )
                eof, sent = last and taken >= len(stdin), taken
            answer = await self.read_channel(
                job, opened.id, offset=output.offset, wait_s=CHANNEL_WAIT_S if eof else 0.1,
                node_rank=node_rank,
            )  # fmt: skip
            for stream, data in output.take(answer):
                found.setdefault(stream, []).append(data)
        with suppress(NotFoundError, ConflictError):  # it may be gone by itself
            await self.close_channel(job, opened.id, node_rank=node_rank)
        out = b"".join(found.pop(OUT, []))
        return ExecResult(output.code, out, b"".join(b"".join(rest) for rest in found.values()))

    async def open_channel(
        self,
        job: str,
        argv: Sequence[str] = (),
        *,
        id: str = "",  # noqa: A002 - the field
        tty: bool = False,
        size: tuple[int, int] = (0, 0),
        term: str = "",
        port: int = 0,
        node_rank: int = 0,
    ) -> ChannelInfo:
        """Start a command in a job that runs, or connect to a port there; see `exec`.

        Args:
            job: Its id.
            argv: The command; empty: a shell.
            id: A name for it (16 to 32 hexadecimal digits); `main`: the job's own terminal.
            tty: Give it a terminal.
            size: Rows and columns of that.
            term: What kind of terminal it is (TERM).
            port: Connect there instead.
            node_rank: On which of the job's nodes.
        """
        new = NewChannel(
            id=id or new_channel_id(), argv=tuple(argv), tty=tty, rows=size[0], cols=size[1],
            term=term, port=port, node_rank=node_rank,
        )  # fmt: skip
        return await self._session.ask(OPEN_CHANNEL, body=msgspec.json.encode(new), job=job)

    async def channels(self, job: str, *, node_rank: int = 0) -> list[ChannelInfo]:
        """Ways into a job that are open."""
        query = RankQuery(node_rank=node_rank)
        return await self._session.ask(LIST_CHANNELS, query=query, job=job)

    async def read_channel(
        self, job: str, channel: str, *, offset: int = 0, wait_s: float = 0.0, node_rank: int = 0
    ) -> tuple[int, bytes]:
        """Where the next piece begins, and output from an offset on (see `ChannelOutput`)."""
        query = ChannelQuery(offset=offset, wait_s=wait_s, node_rank=node_rank)
        return await self._session.ask_piece(READ_CHANNEL, query, job=job, channel=channel)

    async def write_channel(  # noqa: PLR0913 - as the operation
        self,
        job: str,
        channel: str,
        data: bytes = b"",
        *,
        offset: int = 0,
        eof: bool = False,
        size: tuple[int, int] = (0, 0),
        wait_s: float | None = None,
        writer: str = "",
        node_rank: int = 0,
    ) -> int:
        """Send input that begins at an offset; where the next piece begins.

        Args:
            job: Its id.
            channel: The id of the channel.
            data: The input.
            offset: Bytes that were sent before.
            eof: There is no more.
            size: Rows and columns of the terminal now.
            wait_s: How long to wait until it is taken; None: until all of it is.
            writer: Who sends it, where several do: each counts for themselves.
            node_rank: On which of the job's nodes.
        """
        end = offset + len(data)
        while True:
            piece = data[len(data) - (end - offset) :][:CHANNEL_BYTES]
            query = InputQuery(
                offset=offset, eof=eof and offset + len(piece) == end, rows=size[0], cols=size[1],
                wait_s=CHANNEL_WAIT_S if wait_s is None else wait_s, writer=writer,
                node_rank=node_rank,
            )  # fmt: skip
            answer = await self._session.ask(
                WRITE_CHANNEL, query=query, body=piece, job=job, channel=channel
            )
            offset = max(offset, answer.taken)
            if wait_s is not None or offset >= end:
                return offset

    async def close_channel(self, job: str, channel: str, *, node_rank: int = 0) -> None:
        """End what a channel started."""
        query = RankQuery(node_rank=node_rank)
        await self._session.ask(CLOSE_CHANNEL, query=query, job=job, channel=channel)

    # --- cluster --------------------------------------------------------------------------------

    async def nodes(self) -> list[NodeInfo]:
        """All nodes."""
        return await self._session.ask(LIST_NODES)

    async def drain(
        self, node: str, *, stop: bool = False, deadline_s: float | None = None
    ) -> NodeInfo:
        """Start nothing more there; `stop`: and preempt what runs there, at the deadline if any."""
        query = DrainQuery(stop, UNSET if deadline_s is None else deadline_s)
        return await self._session.ask(DRAIN_NODE, query=query, node=node)

    async def windows(self) -> list[WindowInfo]:
        """Maintenance and reservations, by their start."""
        return await self._session.ask(LIST_WINDOWS)

    async def add_window(self, window: NewWindow) -> WindowInfo:
        """Plan a maintenance, or reserve nodes for users and queues."""
        return await self._session.ask(ADD_WINDOW, body=msgspec.json.encode(window))

    async def remove_window(self, name: str) -> None:
        """Give one up, or end it early."""
        await self._session.ask(REMOVE_WINDOW, window=name)

    async def begin_restart(self, asked: NewRestart) -> RestartInfo:
        """Let agents begin anew, one after the other; their jobs run on."""
        return await self._session.ask(BEGIN_RESTART, body=msgspec.json.encode(asked))

    async def restart_progress(self) -> RestartInfo:
        """How far the rolling restart is, or how the last one ended."""
        return await self._session.ask(GET_RESTART)

    async def stop_restart(self) -> RestartInfo:
        """Let no more agents begin anew; who was asked already does."""
        return await self._session.ask(STOP_RESTART)

    async def node_history(self, node: str) -> list[NodeEvent]:
        """When it was lost, back, closed and opened, oldest first."""
        return await self._session.ask(NODE_HISTORY, node=node)

    async def undrain(self, node: str) -> NodeInfo:
        """Use it again."""
        return await self._session.ask(UNDRAIN_NODE, node=node)

    async def remove_node(self, node: str) -> None:
        """Forget a node that is down or drained; it is there again when its agent is."""
        await self._session.ask(REMOVE_NODE, node=node)

    async def audit(self) -> list[Finding]:
        """What an operator should know of the queues, each with numbers and a remedy."""
        return await self._session.ask(AUDIT_QUEUES)

    async def audit_log(self, *, after: int | None = None, limit: int = PAGE) -> AuditPage:
        """Who did what after this line (None: at last), with the check of the chain."""
        query = AuditQuery(after=UNSET if after is None else after, limit=limit)
        return await self._session.ask(LIST_AUDIT, query=query)

    async def queues(self) -> list[QueueInfo]:
        """All queues."""
        return await self._session.ask(LIST_QUEUES)

    async def lanes(self, since: float = 0.0) -> Lanes:
        """Who had which GPUs since then (Unix seconds)."""
        return await self._session.ask(LIST_LANES, query=LanesQuery(since=since))

    async def choices(self) -> Choices:
        """Which policy holds, with its parameters, and which there are."""
        return await self._session.ask(LIST_CHOICES)

    async def try_out(self, change: WhatIf) -> TrialAnswer:
        """How the present queue would fare under another policy or size; nothing is changed."""
        return await self._session.ask(TRY_OUT, body=msgspec.json.encode(change))

    async def status(self) -> dict[str, Any]:
        """Version, policy, times, counts."""
        return await self._session.ask(GET_STATUS)

    async def reload(self) -> list[str]:
        """Let the daemon read its configuration again; what changed."""
        return (await self._session.ask(RELOAD)).changes

    # --- tokens ---------------------------------------------------------------------------------

    async def whoami(self) -> Actor:
        """Name and role of the token."""
        return await self._session.ask(WHOAMI)

    async def web_code(self) -> WebCode:
        """A code with which one browser may log in as we, once and soon."""
        return await self._session.ask(CREATE_WEB_CODE)

    async def tokens(self) -> list[TokenInfo]:
        """Names and roles of all tokens."""
        return await self._session.ask(LIST_TOKENS)

    async def invite(self, node: str, valid_s: float = 3600.0) -> str:
        """A code with which one machine joins once, as this node."""
        body = msgspec.json.encode(NewInvitation(node, valid_s))
        return (await self._session.ask(INVITE_NODE, body=body)).code

    async def create_token(
        self, name: str, role: str, *, user: str = "", valid_s: float | None = None
    ) -> str:
        """A new token; the daemon shows it only this once.

        Args:
            name: Its name.
            role: What it is good for.
            user: The person whose it is; empty: the one of its name, if there is one.
            valid_s: How long it is good, in seconds; None: until it is revoked.
        """
        body = msgspec.json.encode(NewToken(name, role, user, valid_s))
        return (await self._session.ask(CREATE_TOKEN, body=body)).token

    async def revoke_token(self, name: str) -> None:
        """Make a token worthless."""
        await self._session.ask(REVOKE_TOKEN, name=name)

    # --- people ---------------------------------------------------------------------------------

    async def people(self) -> list[Person]:
        """Everybody who was added."""
        return await self._session.ask(LIST_PEOPLE)

    async def add_person(self, person: NewPerson) -> Person:
        """Add somebody."""
        return await self._session.ask(ADD_PERSON, body=msgspec.json.encode(person))

    async def change_person(self, name: str, change: PersonChange) -> Person:
        """Change what somebody is and may submit."""
        body = msgspec.json.encode(change)
        return await self._session.ask(CHANGE_PERSON, body=body, person=name)

    async def disable_person(self, name: str) -> Person:
        """Let somebody in no more: sessions end, tokens are worth nothing."""
        return await self._session.ask(DISABLE_PERSON, person=name)

    async def enable_person(self, name: str) -> Person:
        """Let somebody in again."""
        return await self._session.ask(ENABLE_PERSON, person=name)

    async def sessions(self) -> list[SessionInfo]:
        """Our own sessions; an administrator's: all."""
        return await self._session.ask(LIST_SESSIONS)

    async def end_session(self, session: str) -> None:
        """End one, by its id."""
        await self._session.ask(END_SESSION, session=session)

    async def begin_login(self, redirect: str) -> LoginStart:
        """Where a browser has to go; `redirect`: where this program waits for its answer."""
        return await self._session.ask(
            BEGIN_LOGIN, body=msgspec.json.encode(LoginRequest(redirect))
        )

    async def finish_login(self, secret: str, state: str, code: str) -> MadeSession:
        """Exchange what the browser brought for a session."""
        body = msgspec.json.encode(LoginAnswer(secret, state, code))
        return await self._session.ask(FINISH_LOGIN, body=body)

    # --- events ---------------------------------------------------------------------------------

    async def events(
        self, *, after: int | None = 0, job: str = "", follow: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Rows of the event log after this number (None: only new ones).

        `follow`: for ever; a connection that breaks is taken up again where it was.
        """
        pages = self._events_to_come(after, job) if follow else self._events(after or 0, job)
        async with aclosing(pages) as events:
            async for event in events:
                yield event

    async def _events(self, after: int, job: str) -> AsyncGenerator[Event, None]:
        while True:
            query = EventsQuery(after=after, job=job or UNSET)
            page = await self._session.ask(LIST_EVENTS, query=query)
            for event in page.events:
                yield event
            after = page.next
            if page.end:
                return

    async def _events_to_come(self, after: int | None, job: str) -> AsyncGenerator[Event, None]:
        session = self._session
        parser = EventParser(after)
        backoff = Backoff(session.patience_s)
        while True:
            start = UNSET if parser.last is None else parser.last
            query = StreamQuery(after=start, job=job or UNSET)
            try:
                async with session.open(STREAM_EVENTS, query) as response:
                    async for line in session.io.lines(response):
                        event = parser.take(line)
                        if event is not None:
                            yield event
                        backoff.reset()
                pause_s = 0.2  # the daemon ends streams that are old
            except httpx2.TransportError as error:
                again_s = backoff.wait_s()
                if again_s is None:
                    raise unreachable(error, session.place) from error
                session.take_turns(error)
                pause_s = again_s
            parser.restart()
            await session.io.sleep(pause_s)

    async def export(self) -> bytes:
        """The whole event log, and what it was made with, as a Parquet file; for operators."""
        return await self._session.ask(EXPORT_EVENTS)


# --- without an event loop -----------------------------------------------------------------------


def finish(work: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, because its I/O blocks."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("blocking I/O has suspended")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Awaitable[T]],
) -> "Callable[Concatenate[Client, P], T]":
    """The method, without `await`."""

    @wraps(method)
    def call(self: "Client", /, *args: P.args, **options: P.kwargs) -> T:
        return finish(method(self._client, *args, **options))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> "Callable[Concatenate[Client, P], Iterator[T]]":
    """The method, with `for` instead of `async for`."""

    @wraps(method)
    def call(self: "Client", /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        items = method(self._client, *args, **options)
        try:
            while True:
                try:
                    item = finish(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            finish(items.aclose())

    return call


class _BlockingClient(AsyncClient):
    """The methods over I/O that blocks."""

    def __init__(self, session: DaemonSession) -> None:
        self._session = session


class Client(_OnSession):
    """A daemon, as Python sees it. Errors are those of `rota.core.errors`.

    Requests that can be repeated without harm are repeated while the daemon is away, for
    `patience_s` seconds; a submission carries a key, so that it never counts twice.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        patience_s: float = 10.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.another: Callable[[], Client] = partial(
            Client, server, token, token_file=token_file, ca=ca, patience_s=patience_s,
            transport=transport,
        )  # fmt: skip
        """Makes another client for the same daemon: each thread needs one of its own."""
        self._session = DaemonSession(
            server, token, token_file=token_file, ca=ca, patience_s=patience_s,
            connect=partial(BlockingIO, transport=transport),
        )  # fmt: skip
        self._client = _BlockingClient(self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(AsyncClient.aclose)

    submit = _blocking(AsyncClient.submit)
    submit_many = _blocking(AsyncClient.submit_many)
    jobs = _iterating(AsyncClient.jobs)
    find_jobs = _blocking(AsyncClient.find_jobs)
    job = _blocking(AsyncClient.job)
    cancel = _blocking(AsyncClient.cancel)
    hold = _blocking(AsyncClient.hold)
    release = _blocking(AsyncClient.release)
    usage = _blocking(AsyncClient.usage)
    efficiency = _blocking(AsyncClient.efficiency)
    array = _blocking(AsyncClient.array)
    cancel_array = _blocking(AsyncClient.cancel_array)
    hold_array = _blocking(AsyncClient.hold_array)
    release_array = _blocking(AsyncClient.release_array)
    wait_array = _blocking(AsyncClient.wait_array)
    explain = _blocking(AsyncClient.explain)
    when = _blocking(AsyncClient.when)
    why = _blocking(AsyncClient.why)
    when_new = _blocking(AsyncClient.when_new)
    why_new = _blocking(AsyncClient.why_new)
    wait = _blocking(AsyncClient.wait)
    logs = _iterating(AsyncClient.logs)
    last_output = _blocking(AsyncClient.last_output)

    upload = _blocking(AsyncClient.upload)
    files = _blocking(AsyncClient.files)
    read_file = _iterating(AsyncClient.read_file)

    set_secret = _blocking(AsyncClient.set_secret)
    secrets = _blocking(AsyncClient.secrets)
    remove_secret = _blocking(AsyncClient.remove_secret)

    exec = _blocking(AsyncClient.exec)
    open_channel = _blocking(AsyncClient.open_channel)
    channels = _blocking(AsyncClient.channels)
    read_channel = _blocking(AsyncClient.read_channel)
    write_channel = _blocking(AsyncClient.write_channel)
    close_channel = _blocking(AsyncClient.close_channel)

    nodes = _blocking(AsyncClient.nodes)
    drain = _blocking(AsyncClient.drain)
    begin_restart = _blocking(AsyncClient.begin_restart)
    restart_progress = _blocking(AsyncClient.restart_progress)
    stop_restart = _blocking(AsyncClient.stop_restart)
    node_history = _blocking(AsyncClient.node_history)
    undrain = _blocking(AsyncClient.undrain)
    windows = _blocking(AsyncClient.windows)
    add_window = _blocking(AsyncClient.add_window)
    remove_window = _blocking(AsyncClient.remove_window)
    remove_node = _blocking(AsyncClient.remove_node)
    queues = _blocking(AsyncClient.queues)
    audit = _blocking(AsyncClient.audit)
    audit_log = _blocking(AsyncClient.audit_log)
    lanes = _blocking(AsyncClient.lanes)
    choices = _blocking(AsyncClient.choices)
    try_out = _blocking(AsyncClient.try_out)
    status = _blocking(AsyncClient.status)
    reload = _blocking(AsyncClient.reload)

    whoami = _blocking(AsyncClient.whoami)
    web_code = _blocking(AsyncClient.web_code)
    tokens = _blocking(AsyncClient.tokens)
    invite = _blocking(AsyncClient.invite)
    create_token = _blocking(AsyncClient.create_token)
    revoke_token = _blocking(AsyncClient.revoke_token)

    people = _blocking(AsyncClient.people)
    add_person = _blocking(AsyncClient.add_person)
    change_person = _blocking(AsyncClient.change_person)
    disable_person = _blocking(AsyncClient.disable_person)
    enable_person = _blocking(AsyncClient.enable_person)
    sessions = _blocking(AsyncClient.sessions)
    end_session = _blocking(AsyncClient.end_session)
    begin_login = _blocking(AsyncClient.begin_login)
    finish_login = _blocking(AsyncClient.finish_login)

    events = _iterating(AsyncClient.events)
    export = _blocking(AsyncClient.export)
