"""A job that nobody has submitted yet, in a state that is only simulated."""

import msgspec

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.jobs import Behaviour, Job, JobSpec
from rota.core.log import Record
from rota.core.ports import Source
from rota.engine.loop import Engine


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What is submitted at this instant, and the job that is cancelled for it."""

    spec: JobSpec
    behaviour: Behaviour = Behaviour(INF)  # as if it had been submitted: what its owner says
    instead_of: int | None = None
    index: int | None = None  # its number; None: the next one
    held: bool = False  # until its owner releases it


class OneMore:
    """The jobs of another source, and one that comes at a given moment."""

    def __init__(self, others: Source, index: int, spec: JobSpec, behaviour: Behaviour) -> None:
        self._others = others
        self._job: tuple[int, JobSpec, Behaviour] | None = (index, spec, behaviour)
        self.linked = others.linked
        self._note()

    def _note(self) -> None:
        mine_s = self._job[1].submit_s if self._job is not None else INF
        self.next_s = min(self._others.next_s, mine_s)

    def take(self, now_s: float) -> list[tuple[int, JobSpec, Behaviour]]:
        """Those of the other source first."""
        taken = list(self._others.take(now_s)) if self._others.next_s <= now_s else []
        if self._job is not None and self._job[1].submit_s <= now_s:
            taken.append(self._job)
            self._job = None
        self._note()
        return taken


def propose(engine: Engine, proposal: Proposal, *, first_task: int) -> int:
    """Submit it now, as a daemon would, and let the scheduler decide once; its number.

    `first_task`: numbers from here on are tasks of jobs.
    """
    now_s = engine.cluster.now_s
    if proposal.instead_of is not None:
        gone = engine.jobs[proposal.instead_of]
        for job in members(gone):
            if not job.terminal:
                engine.cancel(job, None, now_s)
    index = proposal.index
    if index is None:
        index = max((number for number in engine.jobs if number < first_task), default=-1) + 1
    name = proposal.spec.id or str(index)
    spec = msgspec.structs.replace(proposal.spec, id=name, submit_s=now_s)
    if proposal.held:
        engine.lifecycle.detained.add(index)
    engine.source = OneMore(engine.source, index, spec, proposal.behaviour)
    engine.advance(now_s)
    job = engine.jobs[index]
    for one in members(job):  # how long it runs is not known, whatever its owner says
        if not one.terminal:
            one.truth = Behaviour(INF)
            one.true_work = INF
    return index


def refusal(message: str | None) -> InputError:
    """What somebody is told who asks about a job that would be refused."""
    return InputError(f"such a job would be refused: it {message or 'cannot run here'}")


def refuse_hopeless(engine: Engine, job: Job) -> None:
    """Raise if a job that was proposed can never run: there is nothing to simulate."""
    if job.terminal:
        from rota.core.eventlog import EventLog  # tables: a daemon does without

        rows = EventLog(engine.log.frame()).only(Record.REJECTED)
        raise refusal(next((row.text for row in rows if row.job == job.index), None))


def members(job: Job) -> list[Job]:
    """The tasks of a non-gang job; of all others the job itself."""
    whole = job.family is not None and job.parent is None
    return job.family.members if whole and job.family else [job]
