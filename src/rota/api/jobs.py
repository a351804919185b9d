"""Operations on jobs."""

import re
from typing import Annotated, Literal

import msgspec
from fastapi import Header, Path, Query, Response

from rota.api.access import Asker
from rota.api.bodies import RawBody, decode, encode, keys_of
from rota.api.context import Here
from rota.api.problems import Problem, Refusal, input_problem
from rota.api.routes import Route
from rota.core.errors import NotFoundError
from rota.daemon.info import Explanation, Forecast, JobInfo
from rota.jobfile.model import Checkpoint, GpuRange, JobFile, Resources

State = Literal[
    "HELD", "PENDING", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "REJECTED",
    "CANCELLED",
]  # fmt: skip
ENDED = frozenset({"SUCCEEDED", "FAILED", "REJECTED", "CANCELLED"})
MAX_PAGE = 10_000
MAX_RUNS = 200
TEXT = 256  # characters of a filter

_ID = re.compile(r"[0-9]{1,15}", re.ASCII)
_SUBMISSION = msgspec.json.Decoder(JobFile | list[JobFile])
_KEYS = keys_of(JobFile, Resources, GpuRange, Checkpoint)

JobId = Annotated[str, Path(description="Id of the job.", examples=["17"])]


def known_id(job: str) -> str:
    """A text that can be the id of a job; nothing else goes any further."""
    if not _ID.fullmatch(job):
        raise NotFoundError(f"there is no job {job[:TEXT]!r}; ids are numbers")
    return job


def submit_jobs(
    asker: Asker,
    here: Here,
    body: RawBody,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=200,
            pattern=r"^[!-~]+$",
            description="Send the same key again to get the jobs of the first time.",
        ),
    ] = None,
) -> Response:
    """Submit one job or a list of jobs.

    The answer is a list in both cases. All jobs are accepted or none; they are stored safely when
    it comes. A request whose answer got lost can be repeated with the same `Idempotency-Key`:
    nothing is submitted twice.
    """
    given = decode(body, _SUBMISSION, _KEYS)
    jobs = given if isinstance(given, list) else [given]
    if not jobs:
        raise input_problem("the list of jobs is empty", "send at least one")
    if len(jobs) > here.settings.max_jobs:
        most = here.settings.max_jobs
        problem = Problem(
            f"{len(jobs)} jobs in one request; at most {most} are allowed",
            "too_large",
            "send them in several requests",
        )
        raise Refusal(413, problem)
    return encode(here.service.submit(jobs, asker, key=key or ""), 201)


def list_jobs(
    asker: Asker,
    here: Here,
    *,
    state: Annotated[list[State], Query(description="Only in these states; may be repeated.")] = [],  # noqa: B006 - FastAPI copies it
    queue: Annotated[str, Query(max_length=TEXT, description="Only of this queue.")] = "",
    user: Annotated[str, Query(max_length=TEXT, description="Only of this user.")] = "",
    active: Annotated[bool, Query(description="Only those that have not ended.")] = False,
    after: Annotated[
        str, Query(pattern=r"^[0-9]{0,15}$", description="Only those after this id.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many.")] = 1_000,
) -> Response:
    """List jobs that the token may see, oldest first, in pages.

    The next page begins `after` the last id of this one; a page with fewer than `limit` jobs is the
    last.
    """
    found = here.service.jobs(
        asker, states=state, queue=queue, user=user, after=after, limit=limit, active=active
    )
    return encode(found)


def get_job(asker: Asker, here: Here, job: JobId) -> Response:
    """Show one job."""
    return encode(here.service.job(known_id(job), asker))


def cancel_job(asker: Asker, here: Here, job: JobId) -> Response:
    """End a job for good.

    Cancelling what is over already changes nothing.
    """
    return encode(here.service.cancel(known_id(job), asker))


def hold_job(asker: Asker, here: Here, job: JobId) -> Response:
    """Keep a job out of the queue; if it runs, stop it first."""
    return encode(here.service.hold(known_id(job), asker))


def release_job(asker: Asker, here: Here, job: JobId) -> Response:
    """Let a held job into the queue."""
    return encode(here.service.release(known_id(job), asker))


def explain_job(asker: Asker, here: Here, job: JobId) -> Response:
    """Explain why a job waits or waited; the parts add up to its waiting time."""
    return encode(here.service.explain(known_id(job), asker))


async def forecast_job(
    asker: Asker,
    here: Here,
    job: JobId,
    runs: Annotated[int, Query(ge=1, le=MAX_RUNS, description="Simulations to take.")] = 20,
) -> Response:
    """Tell when a job will start, simulated from the present state."""
    found = await here.forecast_lane.run(here.service.when, known_id(job), asker, runs=runs)
    return encode(found)


_ONE = {
    "name": "train",
    "run": "python train.py",
    "resources": {"gpus": 2},
    "queue": "research",
    "estimate": "2h",
}
_BULK = [{"run": f"python train.py --seed {seed}", "resources": {"gpus": 1}} for seed in (1, 2)]

ROUTES = (
    Route(
        method="POST", path="/jobs", call=submit_jobs, tag="jobs",
        body={"anyOf": [JobFile, {"type": "array", "items": JobFile, "minItems": 1}]},
        examples={"one job": _ONE, "several jobs": _BULK},
        answer=list[JobInfo], status=201, about="The jobs, in their order.", errors=(409,),
    ),
    Route(
        method="GET", path="/jobs", call=list_jobs, tag="jobs", answer=list[JobInfo],
        about="A page of jobs.",
    ),
    Route(
        method="GET", path="/jobs/{job}", call=get_job, tag="jobs", answer=JobInfo,
        about="The job.",
    ),
    *(
        Route(
            method="POST", path=f"/jobs/{{job}}/{verb}", call=call, tag="jobs", answer=JobInfo,
            about="The job afterwards.", errors=(409,),
        )
        for verb, call in (("cancel", cancel_job), ("hold", hold_job), ("release", release_job))
    ),
    Route(
        method="GET", path="/jobs/{job}/explain", call=explain_job, tag="jobs",
        answer=Explanation, about="Why it waits or waited.", errors=(409,),
    ),
    Route(
        method="GET", path="/jobs/{job}/when", call=forecast_job, tag="jobs", answer=Forecast,
        about="When it will start.", errors=(409,),
    ),
)  # fmt: skip
