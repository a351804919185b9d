"""Work that others bring to the platform becomes jobs, by the same door as every submission.

The key of a submission is that of the work, so that a daemon that was killed at any moment neither
loses nor doubles it. Nothing else is kept: what is out there, and the journal, tell the rest.
"""

import logging
from collections.abc import Collection
from time import monotonic

import msgspec

from rota.core.errors import ConflictError, ForbiddenError, InputError
from rota.core.reasons import Reason
from rota.core.words import TEXTS
from rota.daemon.periodic import PeriodicThread
from rota.daemon.pictures import JobCondition
from rota.daemon.service import Daemon
from rota.jobfile.model import Checkpoint, JobFile, Resources
from rota.live.external import (
    OVER,
    ExternalSource,
    ExternalWork,
    external_text,
    is_repeated,
    origin_of,
)
from rota.wire import ADMIN, ENDED, USER, Actor

log = logging.getLogger("rota.intake")
STEP_S = 0.5
AGAIN_S = 15.0  # work that was refused is tried again
WAITS = ("PENDING", "HELD")
STARTABLE = (*WAITS, "STARTING")
BY = Actor("kubernetes", ADMIN)


class _Refusal(msgspec.Struct):
    until_s: float
    why: str


class Intake:
    """Takes work in, gives up jobs whose work is gone, and tells why the rest waits."""

    def __init__(self, daemon: Daemon, source: ExternalSource) -> None:
        self._daemon = daemon
        self._source = source
        self._jobs: dict[str, str] | None = None  # by id: what they are
        self._gone: dict[str, float] = {}  # since when nothing of it is there
        self._refused: dict[str, _Refusal] = {}
        self.thread = PeriodicThread("intake", self.step, STEP_S)

    def step(self) -> None:
        """Look at what is out there, and at the jobs made of it."""
        if not self._source.ready():
            return
        if self._jobs is None:
            self._jobs = {
                job: external
                for job, external in self._daemon.external_jobs().items()
                if self._source.claims(origin_of(external))
            }
            for job, external in self._jobs.items():
                self._source.recall(job, origin_of(external))
        known = set(self._jobs)
        fresh = [work for work in self._source.offers() if not self._recognise(work)]
        bereft = self._bereft() if fresh else {}
        for work in fresh:
            heirs = bereft.get(work.origin)
            if heirs:
                self._source.assign(work.key, heirs.pop())
            else:
                self._take(work)
        self._refused = {
            work.key: self._refused[work.key] for work in fresh if work.key in self._refused
        }
        self._follow(known)

    def _recognise(self, work: ExternalWork) -> bool:
        """Was it taken in before a restart?"""
        if work.key in self._refused:
            return False
        job = self._daemon.taken_in(_actor(work), work.key)
        if job:
            self._source.assign(work.key, job)
            assert self._jobs is not None  # noqa: S101 - set by `step`
            self._jobs.setdefault(job, external_text(work))
        return bool(job)

    def _take(self, work: ExternalWork) -> None:
        jobs = self._jobs
        assert jobs is not None  # noqa: S101 - set by `step`
        known = self._refused.get(work.key)
        if known is None or monotonic() >= known.until_s:
            why = self._why_not(work)
            if not why:
                try:
                    info = self._daemon.take_in(job_file(work), _actor(work), work.key)
                except (InputError, ForbiddenError, ConflictError) as error:
                    why = str(error)
                else:
                    jobs[info.id] = external_text(work)
                    self._source.assign(work.key, info.id)
                    log.info("%s is job %s", work.what, info.id)
                    return
            self._refused[work.key] = known = _Refusal(monotonic() + AGAIN_S, why)
        self._source.explain(work.key, "RotaRefuses", known.why)

    def _why_not(self, work: ExternalWork) -> str:
        if work.refused:
            return work.refused
        most = self._daemon.largest_node(work.gpu_type)
        if 0 < most < work.gpus:
            each = "each of its pods" if work.parts > 1 else "it"
            return (
                f"{each} asks for {work.gpus:g} GPUs on one node: the largest node here has "
                f"{most:g}: ask for less, on more pods"
            )
        if not (work.repeated or work.resumed) and self._daemon.may_preempt():
            return (
                "the policy may preempt it, but nobody would make it again: give it an owner that "
                'does (a Job, a StatefulSet), or the annotation rota.dev/preemptible: "true"'
            )
        return ""

    def _bereft(self) -> dict[str, list[str]]:
        """By origin: jobs that wait for another one in place of what they lost; oldest last."""
        assert self._jobs is not None  # noqa: S101 - set by `step`
        found: dict[str, list[str]] = {}
        lacking = [job for job in self._jobs if not self._source.alive(job)]
        seen = self._daemon.conditions(lacking)
        for job in sorted(seen, key=int, reverse=True):
            if seen[job].state in STARTABLE:
                found.setdefault(origin_of(self._jobs[job]), []).append(job)
        return found

    def _follow(self, known: Collection[str]) -> None:
        """Look at all jobs; that one waits is not told at once: most are started right away."""
        assert self._jobs is not None  # noqa: S101 - set by `step`
        seen = self._daemon.conditions(self._jobs)
        for job, external in list(self._jobs.items()):
            now = seen.get(job)
            if now is None or now.state in ENDED:
                if now is not None:
                    why = f" ({now.message})" if now.message else ""
                    text = f"job {job} of Rota is over: {now.state.lower()}{why}"
                    self._source.explain_job(job, OVER, text)
                del self._jobs[job]
                self._gone.pop(job, None)
            elif self._source.alive(job):
                self._gone.pop(job, None)
                if now.state in WAITS and job in known:
                    self._source.explain_job(job, *reason_text(job, now))
            elif now.state in STARTABLE:
                patience_s = self._source.successor_s if is_repeated(external) else 0.0
                if monotonic() - self._gone.setdefault(job, monotonic()) >= patience_s:
                    log.info("job %s is given up: nothing of it is there any more", job)
                    self._daemon.cancel(job, BY)
        self._source.forget_jobs(self._jobs)


def reason_text(job: str, now: JobCondition) -> tuple[str, str]:
    """Why a job waits, as a reason for the platform and in words."""
    label = now.reason or Reason.ORDER.label
    told = TEXTS[Reason[label.upper()]]
    more = f" ({now.message})" if now.message else ""
    return (
        f"Rota{label.title()}",
        f"job {job} of Rota waits: {told}{more}; `rota why {job}` tells more",
    )


def job_file(work: ExternalWork) -> JobFile:
    """The job of some work; its command is for people only."""
    return JobFile(
        run=work.what,
        name=work.name,
        resources=Resources(
            gpus=int(work.gpus), gpu_type=work.gpu_type, cpus=work.cpus, mem=work.mem_gib
        ),
        nodes=work.parts,
        queue=work.queue,
        priority_class=work.priority_class,
        checkpoint=Checkpoint(grace_s=work.grace_s),
        external=external_text(work),
    )


def _actor(work: ExternalWork) -> Actor:
    return Actor(work.owner, USER)
