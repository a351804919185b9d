"""Operations on jobs."""

from collections.abc import AsyncIterator

import anyio
import structlog
from starlette.responses import Response

from rota.api.limits import in_thread
from rota.api.problems import Refusal, input_problem
from rota.api.routing import Ask, serves
from rota.api.streams import Stream, StreamLife
from rota.core.errors import InputError, RotaError
from rota.jobfile.model import JobFile
from rota.wire import (
    CANCEL_JOB,
    ENDED,
    EXPLAIN_JOB,
    FORECAST_JOB,
    GET_JOB,
    HOLD_JOB,
    LIST_JOBS,
    NEXT_OFFSET,
    READ_OUTPUT,
    RELEASE_JOB,
    SUBMIT_JOBS,
    TEXT,
    Explanation,
    Forecast,
    ForecastQuery,
    JobInfo,
    JobsQuery,
    OutputQuery,
    Problem,
    SubmitHeaders,
)

log = structlog.get_logger("rota.api")


@serves(SUBMIT_JOBS)
def submit_jobs(ask: Ask, headers: SubmitHeaders, body: JobFile | list[JobFile]) -> list[JobInfo]:
    """Submit one job or a list of jobs.

    The answer is a list in both cases. All jobs are accepted or none; they are stored safely when
    it comes. A request whose answer got lost can be repeated with the same `Idempotency-Key`:
    nothing is submitted twice.
    """
    jobs = body if isinstance(body, list) else [body]
    if not jobs:
        raise input_problem("the list of jobs is empty", "send at least one")
    most = ask.context.settings.max_jobs
    if len(jobs) > most:
        error = f"{len(jobs)} jobs in one request; at most {most} are allowed"
        raise Refusal(413, Problem(error, "too_large", "send them in several requests"))
    return ask.service.submit(jobs, ask.actor, key=headers.key or "")


@serves(LIST_JOBS)
def list_jobs(ask: Ask, query: JobsQuery) -> list[JobInfo]:
    """List jobs that the token may see, oldest first, in pages.

    The next page begins `after` the last id of this one; a page with fewer than `limit` jobs is the
    last.
    """
    return ask.service.jobs(
        ask.actor,
        states=query.state,
        queue=query.queue,
        user=query.user,
        after=query.after,
        limit=query.limit,
        active=query.active,
    )


@serves(GET_JOB)
def get_job(ask: Ask, job: str) -> JobInfo:
    """Show one job."""
    return ask.service.job(job, ask.actor)


@serves(CANCEL_JOB)
def cancel_job(ask: Ask, job: str) -> JobInfo:
    """End a job for good.

    Cancelling a finished job changes nothing.
    """
    return ask.service.cancel(job, ask.actor)


@serves(HOLD_JOB)
def hold_job(ask: Ask, job: str) -> JobInfo:
    """Keep a job out of the queue; if it runs, stop it first."""
    return ask.service.hold(job, ask.actor)


@serves(RELEASE_JOB)
def release_job(ask: Ask, job: str) -> JobInfo:
    """Let a held job into the queue."""
    return ask.service.release(job, ask.actor)


@serves(EXPLAIN_JOB)
def explain_job(ask: Ask, job: str) -> Explanation:
    """Explain why a job waits or waited; the parts add up to its waiting time."""
    return ask.service.explain(job, ask.actor)


@serves(FORECAST_JOB)
async def forecast_job(ask: Ask, job: str, query: ForecastQuery) -> Forecast:
    """Predict when a job will start, simulated from the present state."""
    return await ask.context.forecast_lane.run(ask.service.when, job, ask.actor, runs=query.runs)


# --- output --------------------------------------------------------------------------------------


@serves(READ_OUTPUT)
async def read_job_log(ask: Ask, job: str, query: OutputQuery) -> Response:
    """Read what a job writes.

    Without `follow`: a piece from `offset` on; the header `Rota-Next-Offset` says where the next
    one begins, and an empty piece is the end so far. With `follow` the answer goes on until the job
    has ended (or the stream has been open too long: count the bytes and resume from there). Where
    the beginning is not kept any more the answer is 410; the header `Rota-First-Offset` says where
    the rest begins.
    """
    output = _Output(ask, job, query)
    offset = query.offset
    if query.follow and offset < 0:
        raise InputError(f"offset={offset}: to follow an output, count from its beginning")
    if not query.follow:
        data = await in_thread(output.piece, offset)
        headers = {NEXT_OFFSET: str(offset + len(data))} if offset >= 0 else {}
        return Response(data, 200, headers, media_type=TEXT)
    await in_thread(ask.service.job, job, ask.actor)
    content = output.follow(StreamLife(ask.context, ask.request), offset)
    return Stream(ask.context, ask.actor, content, TEXT)


class _Output:
    """One output of one job."""

    def __init__(self, ask: Ask, job: str, query: OutputQuery) -> None:
        self._ask = ask
        self._job = job
        self._query = query

    def piece(self, offset: int) -> bytes:
        query = self._query
        return self._ask.service.logs(
            self._job,
            self._ask.actor,
            stream=query.stream,
            node_rank=query.node_rank,
            offset=offset,
            limit=query.limit,
        )

    def _has_ended(self) -> bool:
        return self._ask.service.job(self._job, self._ask.actor).state in ENDED

    async def follow(self, life: StreamLife, offset: int) -> AsyncIterator[bytes]:
        ended = False  # known before the last look, so that nothing written before is missed
        try:
            while not await life.is_over():
                data = await in_thread(self.piece, offset)
                offset += len(data)
                if data:
                    yield data
                elif ended:
                    return
                else:
                    ended = await in_thread(self._has_ended)
                    await anyio.sleep(0 if ended else self._ask.context.settings.poll_s)
        except RotaError as error:
            log.warning("api.stream.ended", why=str(error))
