"""Operations on jobs."""

from collections.abc import AsyncIterator

import anyio
import structlog
from starlette.responses import Response

from rota.api.limits import in_thread
from rota.api.problems import Refusal, input_problem
from rota.api.routing import ApiCall, serves
from rota.api.streams import Stream, StreamLife
from rota.core.efficiency import JobUsage
from rota.core.errors import InputError, RotaError
from rota.core.verdict import Verdict
from rota.jobfile.model import JobFile
from rota.wire import (
    CANCEL_ARRAY,
    CANCEL_JOB,
    ENDED,
    EXPLAIN_JOB,
    FIND_JOBS,
    FORECAST_JOB,
    FORECAST_NEW,
    GET_ARRAY,
    GET_JOB,
    GET_USAGE,
    HOLD_ARRAY,
    HOLD_JOB,
    LIST_EFFICIENCY,
    LIST_JOBS,
    NEXT_OFFSET,
    READ_OUTPUT,
    RELEASE_ARRAY,
    RELEASE_JOB,
    SUBMIT_JOBS,
    TEXT,
    WHY_JOB,
    WHY_NEW,
    ArrayInfo,
    EfficiencyQuery,
    Explanation,
    FindQuery,
    Forecast,
    ForecastQuery,
    FoundJobs,
    JobInfo,
    JobsQuery,
    OutputQuery,
    Problem,
    SubmitHeaders,
    UsageSummary,
)

log = structlog.get_logger("rota.api")


@serves(SUBMIT_JOBS)
def submit_jobs(
    call: ApiCall, headers: SubmitHeaders, body: JobFile | list[JobFile]
) -> list[JobInfo]:
    """Submit one job or a list of jobs.

    The answer is a list in both cases. All jobs are accepted or none; they are stored safely when
    it comes. A request whose answer got lost can be repeated with the same `Idempotency-Key`:
    nothing is submitted twice.
    """
    jobs = body if isinstance(body, list) else [body]
    if not jobs:
        raise input_problem("the list of jobs is empty", "send at least one")
    most = call.context.settings.max_jobs
    if len(jobs) > most:
        error = f"{len(jobs)} jobs in one request; at most {most} are allowed"
        raise Refusal(413, Problem(error, "too_large", "send them in several requests"))
    return call.service.submit(jobs, call.actor, key=headers.key or "")


@serves(LIST_JOBS)
def list_jobs(call: ApiCall, query: JobsQuery) -> list[JobInfo]:
    """List jobs that the token may see, oldest first, in pages.

    The next page begins `after` the last id of this one; a page with fewer than `limit` jobs is the
    last.
    """
    return call.service.jobs(
        call.actor,
        states=query.state,
        queue=query.queue,
        user=query.user,
        name=query.name,
        array=query.array,
        after=query.after,
        limit=query.limit,
        active=query.active,
    )


@serves(FIND_JOBS)
def find_jobs(call: ApiCall, query: FindQuery) -> FoundJobs:
    """Look for jobs that the token may see: a piece of a table, sorted, and how many there are."""
    return call.service.find_jobs(query, call.actor)


@serves(GET_JOB)
def get_job(call: ApiCall, job: str) -> JobInfo:
    """Show one job."""
    return call.service.job(job, call.actor)


@serves(CANCEL_JOB)
def cancel_job(call: ApiCall, job: str) -> JobInfo:
    """End a job for good.

    Cancelling a finished job changes nothing.
    """
    return call.service.cancel(job, call.actor)


@serves(HOLD_JOB)
def hold_job(call: ApiCall, job: str) -> JobInfo:
    """Keep a job out of the queue; if it runs, stop it first."""
    return call.service.hold(job, call.actor)


@serves(RELEASE_JOB)
def release_job(call: ApiCall, job: str) -> JobInfo:
    """Let a held job into the queue."""
    return call.service.release(job, call.actor)


@serves(GET_USAGE)
def get_job_usage(call: ApiCall, job: str) -> JobUsage:
    """Tell what a job used of what it asked for, with the series, and advice that follows."""
    return call.service.job_usage(job, call.actor)


@serves(LIST_EFFICIENCY)
def list_efficiency(call: ApiCall, query: EfficiencyQuery) -> list[UsageSummary]:
    """Tell what users or queues used of what they asked for, of the jobs that the token may see."""
    return call.service.efficiency(call.actor, by=query.by)


@serves(GET_ARRAY)
def get_array(call: ApiCall, array: str) -> ArrayInfo:
    """Show an array as a whole; `list_jobs` with its id has its jobs."""
    return call.service.array(array, call.actor)


@serves(CANCEL_ARRAY)
def cancel_array(call: ApiCall, array: str) -> ArrayInfo:
    """End all jobs of an array for good."""
    return call.service.cancel_array(array, call.actor)


@serves(HOLD_ARRAY)
def hold_array(call: ApiCall, array: str) -> ArrayInfo:
    """Keep all jobs of an array out of the queue that are not over; what runs is stopped first."""
    return call.service.hold_array(array, call.actor)


@serves(RELEASE_ARRAY)
def release_array(call: ApiCall, array: str) -> ArrayInfo:
    """Let the held jobs of an array into the queue."""
    return call.service.release_array(array, call.actor)


@serves(EXPLAIN_JOB)
def explain_job(call: ApiCall, job: str) -> Explanation:
    """Explain why a job waits or waited; the parts add up to its waiting time."""
    return call.service.explain(job, call.actor)


@serves(FORECAST_JOB)
async def forecast_job(call: ApiCall, job: str, query: ForecastQuery) -> Forecast:
    """Predict when a job will start, simulated from the present state."""
    return await call.context.forecast_lane.run_for(
        call.actor.name, call.service.when, job, call.actor, runs=query.runs
    )


@serves(WHY_JOB)
async def why_job(call: ApiCall, job: str, query: ForecastQuery) -> Verdict:
    """Name the one reason why a job does not run, and the smallest change that would start it."""
    return await call.context.forecast_lane.run_for(
        call.actor.name, call.service.why, job, call.actor, runs=query.runs
    )


@serves(FORECAST_NEW)
async def forecast_new_job(call: ApiCall, query: ForecastQuery, body: JobFile) -> Forecast:
    """Predict when a job would start if it were submitted now."""
    return await call.context.forecast_lane.run_for(
        call.actor.name, call.service.when_new, body, call.actor, runs=query.runs
    )


@serves(WHY_NEW)
async def why_new_job(call: ApiCall, query: ForecastQuery, body: JobFile) -> Verdict:
    """Tell why a job would not start if it were submitted now."""
    return await call.context.forecast_lane.run_for(
        call.actor.name, call.service.why_new, body, call.actor, runs=query.runs
    )


# --- output --------------------------------------------------------------------------------------


@serves(READ_OUTPUT)
async def read_job_log(call: ApiCall, job: str, query: OutputQuery) -> Response:
    """Read what a job writes.

    Without `follow`: a piece from `offset` on; the header `Rota-Next-Offset` says where the next
    one begins, and an empty piece is the end so far. With `follow` the answer goes on until the job
    has ended (or the stream has been open too long: count the bytes and resume from there). Where
    the beginning is not kept any more the answer is 410; the header `Rota-First-Offset` says where
    the rest begins.
    """
    output = _JobOutput(call, job, query)
    offset = query.offset
    if query.follow and offset < 0:
        raise InputError(f"offset={offset}: to follow an output, count from its beginning")
    if not query.follow:
        data = await call.context.output_lane.run(output.piece, offset)
        headers = {NEXT_OFFSET: str(offset + len(data))} if offset >= 0 else {}
        return Response(data, 200, headers, media_type=TEXT)
    await in_thread(call.service.job, job, call.actor)
    content = output.follow(StreamLife(call.context, call.request), offset)
    return Stream(call.context, call.actor, content, TEXT)


class _JobOutput:
    """One output of one job."""

    def __init__(self, call: ApiCall, job: str, query: OutputQuery) -> None:
        self._call = call
        self._job = job
        self._query = query

    def piece(self, offset: int) -> bytes:
        query = self._query
        return self._call.service.logs(
            self._job,
            self._call.actor,
            stream=query.stream,
            node_rank=query.node_rank,
            offset=offset,
            limit=query.limit,
        )

    def _has_ended(self) -> bool:
        return self._call.service.job(self._job, self._call.actor).state in ENDED

    async def follow(self, life: StreamLife, offset: int) -> AsyncIterator[bytes]:
        ended = False  # known before the last look, so that nothing written before is missed
        try:
            while not await life.is_over():
                try:
                    data = await self._call.context.output_lane.run(self.piece, offset)
                except Refusal:  # many read at the same time: with the next look
                    await anyio.sleep(self._call.context.settings.poll_s)
                    continue
                offset += len(data)
                if data:
                    yield data
                elif ended:
                    return
                else:
                    ended = await in_thread(self._has_ended)
                    await anyio.sleep(0 if ended else self._call.context.settings.poll_s)
        except RotaError as error:
            log.warning("api.stream.ended", why=str(error))
