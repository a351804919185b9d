"""From submissions to jobs: shapes, groups, tasks of non-gang jobs, dependencies."""

from collections.abc import Callable

import msgspec

from rota.core.jobs import (
    DONE,
    Behaviour,
    Group,
    Job,
    JobSpec,
    Request,
    Shape,
    SpeedBook,
    TaskGroup,
)
from rota.core.knowledge import Knowledge
from rota.core.windows import barred, bars


class Arrivals:
    """Makes `Job`s. A non-gang job becomes one job per task, with the whole as their `parent`."""

    def __init__(
        self,
        knowledge: Knowledge,
        first_task: int,
        belief: Callable[[int], float] | None = None,
        *,
        linked: bool = True,
        refine: Callable[[JobSpec], Request] | None = None,
    ) -> None:
        self.refine = refine  # a placement may tell more jobs apart than requests do
        self.linked = linked  # jobs may depend on each other: remember them by name
        self.knowledge = int(knowledge)
        self.shapes: list[Shape] = []
        self.groups: dict[str, Group] = {}
        self.by_id: dict[str, Job] = {}
        self.waiting_for: dict[str, list[Job]] = {}  # unfinished job id -> who depends on it
        self.next_task = first_task
        self._belief = belief
        self.book: SpeedBook | None = None  # what jobs say of their speeds; None: the truth
        self._shape_of: dict[int, Shape] = {}
        self._shape_by_value: dict[Request, Shape] = {}

    def shape(self, request: Request) -> Shape:
        """The shape of a request; equal requests share one."""
        shape = self._shape_of.get(id(request))
        if shape is None:
            shape = self._shape_by_value.get(request)
            if shape is None:
                opened = self.shape(barred(request, ())) if bars(request.labels) else None
                shape = Shape(len(self.shapes), request)
                shape.opened = opened
                self.shapes.append(shape)
                self._shape_by_value[request] = shape
            if shape.request is request:  # ids of other equal objects may be reused after they die
                self._shape_of[id(request)] = shape
        return shape

    def job(
        self, index: int, spec: JobSpec, behaviour: Behaviour, request: Request | None = None
    ) -> Job:
        """A job as a whole.

        `request` is the one by which it is placed; None: as the placement refines its own.
        """
        if request is None:
            request = spec.request if self.refine is None else self.refine(spec)
        shape = self._shape_of.get(id(request)) or self.shape(request)
        job = Job(spec, behaviour, index, shape)
        job.known = self.knowledge
        if self._belief is not None:
            job.belief = self._belief(index)
        if self.book is not None:
            job.book = self.book
        if spec.group:
            self._join(job, spec.group)
        return job

    def _join(self, job: Job, name: str) -> None:
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name)
        group.members.append(job)
        job.group = group

    def tasks(self, parent: Job) -> list[Job]:
        """One job per task of a non-gang job."""
        spec, behaviour, request = parent.spec, parent.truth, parent.shape.request
        tasks = []
        family = Group(spec.id)
        for number, group in enumerate(_unrolled(request)):
            single = Request((group,), request.gpu_types, request.labels)
            task_spec = msgspec.structs.replace(spec, id=f"{spec.id}#{number}", request=single)
            task = Job(task_spec, behaviour, self.next_task, self.shape(single))
            self.next_task += 1
            task.known, task.belief, task.book = parent.known, parent.belief, parent.book
            task.parent = parent
            task.group = task.family = family
            family.members.append(task)
            tasks.append(task)
        parent.family = family
        return tasks

    def discard(self, job: Job) -> None:
        """Nobody needs a job any more that is over."""
        if self.by_id.get(job.id) is job:
            del self.by_id[job.id]
        if job.group is not None and job.parent is None:
            job.group.members.remove(job)
            if not job.group.members:
                self.groups.pop(job.group.name, None)

    # --- dependencies ---------------------------------------------------------------------------

    def blockers(self, job: Job) -> list[str]:
        """Ids that the job waits for. A job that was never seen counts: it may come later."""
        spec = job.spec
        out = []
        for name in spec.dependencies:
            other = self.by_id.get(name)
            if other is None or not other.terminal:
                out.append(name)
            elif other.phase == DONE:
                if name in spec.after_fail:
                    out.append(name)
            elif name in spec.depends_on:
                out.append(name)
        return out

    def hopeless(self, job: Job) -> str:
        """The id of a dependency that will never be done; empty if there is none."""
        for name in job.spec.depends_on:
            other = self.by_id.get(name)
            if other is not None and other.terminal and other.phase != DONE:
                return name
        return ""

    def spared(self, job: Job) -> str:
        """The id of a job that is done although this one waits for its failure; empty: none."""
        for name in job.spec.after_fail:
            other = self.by_id.get(name)
            if other is not None and other.phase == DONE:
                return name
        return ""

    def await_all(self, job: Job, names: list[str]) -> None:
        """Remember whom the job waits for."""
        for name in names:
            self.waiting_for.setdefault(name, []).append(job)

    def released_by(self, job: Job) -> list[Job]:
        """Jobs that depended on this one (whatever became of it)."""
        return self.waiting_for.pop(job.id, [])


def _unrolled(request: Request) -> list[TaskGroup]:
    return [
        msgspec.structs.replace(group, count=1)
        for group in request.groups
        for _ in range(group.count)
    ]
