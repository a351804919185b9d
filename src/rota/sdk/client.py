"""The client for ordinary programs."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2

from rota.core.errors import GoneError, UnavailableError
from rota.sdk import calls
from rota.sdk.answers import unreachable
from rota.sdk.base import STREAM_S, Base, wait_after_answer
from rota.sdk.calls import ENDS, PAGE, Call, JobLike
from rota.sdk.events import Event, Messages
from rota.sdk.patience import Patience
from rota.wire import Actor, Explanation, Forecast, JobInfo, NodeInfo, QueueInfo


class Client(Base):
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
        super().__init__(server, token, token_file=token_file, ca=ca, patience_s=patience_s)
        self._http = httpx2.Client(**self._settings(), transport=transport)

    def close(self) -> None:
        """Give up the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, job: JobLike, *, key: str | None = None) -> JobInfo:
        """Submit a job; with the same `key` again, the same job comes back."""
        return self.submit_many([job], key=key)[0]

    def submit_many(self, jobs: Sequence[JobLike], *, key: str | None = None) -> list[JobInfo]:
        """Submit jobs, all or none (of every 5,000)."""
        return [info for call in calls.submit(jobs, key) for info in self._ask(call)]

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        user: str = "",
        active: bool = False,
    ) -> Iterator[JobInfo]:
        """Jobs that the token may see, oldest first."""
        after = ""
        while True:
            page: list[JobInfo] = self._ask(
                calls.jobs(states=states, queue=queue, user=user, active=active, after=after)
            )
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def job(self, job: str) -> JobInfo:
        """One job, by id."""
        found: JobInfo = self._ask(calls.job(job))
        return found

    def cancel(self, job: str) -> JobInfo:
        """End it for good."""
        return self._change(job, "cancel")

    def hold(self, job: str) -> JobInfo:
        """Keep it out of the queue; a running job is stopped first."""
        return self._change(job, "hold")

    def release(self, job: str) -> JobInfo:
        """Let a held job into the queue."""
        return self._change(job, "release")

    def _change(self, job: str, verb: str) -> JobInfo:
        found: JobInfo = self._ask(calls.change(job, verb))
        return found

    def explain(self, job: str) -> Explanation:
        """Why it waits or waited."""
        found: Explanation = self._ask(calls.explain(job))
        return found

    def when(self, job: str, *, runs: int = 20) -> Forecast:
        """When it will start, simulated so many times from the present state."""
        found: Forecast = self._ask(calls.when(job, runs))
        return found

    def wait(self, job: str, timeout_s: float | None = None) -> JobInfo:
        """The job when it is over.

        Raises:
            TimeoutError: It is not over in time.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = 0.05
        while True:
            found = self.job(job)
            if found.state in ENDS:
                return found
            if until_s is not None and time.monotonic() + pause_s > until_s:
                raise TimeoutError(f"job {job} is {found.state} after {timeout_s:g} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    def logs(
        self,
        job: str,
        *,
        stream: str = "out",
        node_rank: int = 0,
        offset: int = 0,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """What it wrote to `out`, `err` or `all` (both, in order) on one of its nodes, in pieces.

        `follow`: until it is over; a daemon that goes away and comes back is not noticed.
        """
        which = {"stream": stream, "node_rank": node_rank}
        while True:
            ended = not follow or self.job(job).state in ENDS
            while True:
                offset, piece = self._piece(job, offset, which)
                if not piece:
                    break
                yield piece
            if ended:
                return
            for piece in self._follow(calls.logs(job, offset=offset, follow=True, **which)):
                offset += len(piece)
                yield piece

    def last_output(
        self, job: str, *, stream: str = "all", node_rank: int = 0, most: int = 4096
    ) -> bytes:
        """The end of what it wrote, at most so many bytes."""
        call = calls.logs(job, stream=stream, node_rank=node_rank, offset=-most, limit=most)
        piece: bytes = self._ask(call)
        return piece

    def _piece(self, job: str, offset: int, which: dict[str, Any]) -> tuple[int, bytes]:
        """A piece and where the next one begins; what was rotated away is passed over."""
        try:
            piece: bytes = self._ask(calls.logs(job, offset=offset, **which))
        except GoneError as error:
            if error.first <= offset:
                raise
            offset = error.first
            piece = self._ask(calls.logs(job, offset=offset, **which))
        return offset + len(piece), piece

    def _follow(self, call: Call) -> Iterator[bytes]:
        """Pieces until the connection ends, for whatever reason: the caller looks again."""
        try:
            with self._open(call) as response:
                yield from response.iter_bytes()
        except (httpx2.TransportError, UnavailableError):
            time.sleep(0.2)

    # --- cluster --------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All nodes."""
        found: list[NodeInfo] = self._ask(calls.nodes())
        return found

    def drain(self, node: str, *, stop: bool = False) -> NodeInfo:
        """Start nothing more there; `stop`: and preempt what runs there."""
        found: NodeInfo = self._ask(calls.drain(node, stop=stop))
        return found

    def undrain(self, node: str) -> NodeInfo:
        """Use it again."""
        found: NodeInfo = self._ask(calls.undrain(node))
        return found

    def remove_node(self, node: str) -> None:
        """Forget a node that is down or drained; it is there again when its agent is."""
        self._ask(calls.remove_node(node))

    def queues(self) -> list[QueueInfo]:
        """All queues."""
        found: list[QueueInfo] = self._ask(calls.queues())
        return found

    def status(self) -> dict[str, Any]:
        """Version, policy, times, counts."""
        found: dict[str, Any] = self._ask(calls.status())
        return found

    def reload(self) -> list[str]:
        """Let the daemon read its configuration again; what changed."""
        changes: list[str] = self._ask(calls.reload()).get("changes", [])
        return changes

    # --- tokens ---------------------------------------------------------------------------------

    def whoami(self) -> Actor:
        """Name and role of the token."""
        found: Actor = self._ask(calls.whoami())
        return found

    def tokens(self) -> list[Actor]:
        """Names and roles of all tokens."""
        found: list[Actor] = self._ask(calls.tokens())
        return found

    def create_token(self, name: str, role: str) -> str:
        """A new token; it is told this once."""
        token: str = self._ask(calls.create_token(name, role))["token"]
        return token

    def revoke_token(self, name: str) -> None:
        """It is worth nothing from now on."""
        self._ask(calls.revoke_token(name))

    # --- events ---------------------------------------------------------------------------------

    def events(
        self, *, after: int | None = 0, job: str = "", follow: bool = False
    ) -> Iterator[Event]:
        """Rows of the event log after this number (None: only new ones).

        `follow`: for ever; a connection that breaks is taken up again where it was.
        """
        if not follow:
            yield from self._pages(after or 0, job)
            return
        messages = Messages(after)
        patience = Patience(self.patience_s)
        while True:
            try:
                with self._open(calls.stream(messages.last, job)) as response:
                    for line in response.iter_lines():
                        event = messages.take(line)
                        if event is not None:
                            yield event
                        patience.reset()
                pause_s = 0.2  # the daemon ends streams that are old
            except httpx2.TransportError as error:
                again_s = patience.wait_s()
                if again_s is None:
                    raise unreachable(error, self.place) from error
                pause_s = again_s
            messages.restart()
            time.sleep(pause_s)

    def export(self) -> bytes:
        """The whole event log, and what it was made with, as a Parquet file; for operators."""
        data: bytes = self._ask(calls.export())
        return data

    def _pages(self, after: int, job: str) -> Iterator[Event]:
        while True:
            page = self._ask(calls.events(after, PAGE, job))
            yield from page.events
            after = page.next
            if page.end:
                return

    # --- sending --------------------------------------------------------------------------------

    def _moved(self) -> None:
        settings = self._settings()
        self._http.base_url = settings["base_url"]
        self._http.headers = settings["headers"]

    def _ask(self, call: Call) -> Any:
        patience = Patience(self.patience_s)
        while True:
            try:
                response = self._http.request(**self._request(call))
            except httpx2.TransportError as error:
                pause_s = self._pause_s(call, patience, error)
                if pause_s is None:
                    raise unreachable(error, self.place) from error
            else:
                pause_s = self._pause_s(call, patience, response)
                if pause_s is None:
                    return self._answer(call, response)
            time.sleep(pause_s)

    @contextmanager
    def _open(self, call: Call) -> Iterator[httpx2.Response]:
        """An answer that is read while it comes."""
        patience = Patience(self.patience_s)
        request = self._request(call) | {"timeout": STREAM_S}
        while True:
            with self._http.stream(**request) as response:
                if response.status_code == httpx2.codes.OK:
                    yield response
                    return
                response.read()
                pause_s = wait_after_answer(call, response, patience)
                if pause_s is None:
                    raise self._refused(response)
            time.sleep(pause_s)
