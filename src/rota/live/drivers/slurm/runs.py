"""Brings Slurm jobs, step by step, to where their runs want them.

A job of Rota is one Slurm job for as long as possible: preempted, it is put back into Slurm's queue
and held there (*parked*); its next run releases it on other nodes. Nothing is remembered that Slurm
and the folders do not tell: `step` looks at what a run wants and at what Slurm says about it, and
does the next thing. It may be called again and again.
"""

import logging
from collections.abc import Callable, Mapping
from time import monotonic, time

from msgspec.structs import replace

from rota.core.errors import ClusterError
from rota.live.clock import boot_time_s
from rota.live.driver import RunMetrics, RunOrder, RunStatus
from rota.live.drivers.orders import HALT, KILL, REFUSED, RUN, OrderedRun, OrderedRuns
from rota.live.drivers.slurm.commands import SlurmCommands
from rota.live.drivers.slurm.folders import SlurmFolders
from rota.live.drivers.slurm.layout import PENDING, SeenJob, SeenNode
from rota.live.drivers.slurm.names import Mark, job_name, read_mark
from rota.live.drivers.slurm.options import SlurmOptions
from rota.live.drivers.slurm.request import SbatchRequest, is_even, make_request
from rota.live.drivers.slurm.verdict import judge, judge_requeued

log = logging.getLogger("rota.slurm")

BIRTH_S = 2.0  # between the start of a Slurm job and that of its processes
LATE_S = 5.0  # records on a shared file system may be seen late
AGAIN_S = 5.0  # between signals that should have had an effect
PARKING_S = 15.0  # until a requeued job can be used again
STUCK_S = 60.0  # a released job should have been started
FORGOTTEN_S = 5.0  # the same, where a node looks idle but its GPUs do not
# Nodes refuse what was signed in the second in which they ended the job's run before ("Job
# credential revoked"), and Slurm then calls it failed.
NEXT_SECOND = "now+1"


class SlurmRun(OrderedRun):
    """A run and how far it has come."""

    def __init__(self, order: RunOrder, *, unsure: bool, want: str = RUN) -> None:
        super().__init__(order, want)
        self.unsure = unsure  # there may be a Slurm job for it already
        self.number: int | None = None  # of its Slurm job
        self.restarts = 0  # of the Slurm job when the run was ordered
        self.released_s: float | None = None
        self.withdrawn = False  # its nodes became unusable before it began
        self.signalled_s: float | None = None  # when SIGTERM was sent
        self.killed_s: float | None = None
        self.asked_s: float | None = None  # when it was first seen running although it shall end
        self.acted_s = 0.0  # what was seen before this time says nothing about it
        self.odd_s: float | None = None  # since when its state makes no sense
        self.finished_s: float | None = None  # when its processes were seen to be over
        self.offset = 0  # read so far of its reports


class SlurmRuns(OrderedRuns[SlurmRun]):
    """All runs. Everything is called by one thread."""

    def __init__(
        self, commands: SlurmCommands, folders: SlurmFolders, options: SlurmOptions, store: str
    ) -> None:
        super().__init__()
        self.nodes: Mapping[str, SeenNode] = {}
        self._commands = commands
        self._folders = folders
        self._options = options
        self._store = store
        self._seen: Mapping[int, SeenJob] = {}
        self._looked_s = 0.0
        self._parked: dict[str, tuple[int, float]] = {}  # by job of Rota: Slurm job, since when
        self._retired: set[str] = set()
        self._recounted_s = 0.0

    # --- what is seen ----------------------------------------------------------------------------

    def look(
        self, jobs: Mapping[int, SeenJob], nodes: Mapping[str, SeenNode], asked_s: float
    ) -> None:
        """Take in what Slurm says; runs that may have a Slurm job already find it."""
        self._seen, self.nodes, self._looked_s = jobs, nodes, asked_s
        unsure = {name: run for name, run in self.runs.items() if run.unsure}
        if unsure:
            for job in jobs.values():
                mark = read_mark(job.comment, self._store)
                run = unsure.get(mark.run) if mark else None
                if mark is not None and run is not None and (run.number or 0) < job.id:
                    run.number, run.restarts = job.id, mark.restarts
                    if self._parked.get(mark.job, (0, 0.0))[0] == job.id:
                        del self._parked[mark.job]
            for run in unsure.values():
                run.unsure = False
                if run.number is None and self._folders.started(run.order.run):
                    self._finish(run, None)

    def claim_parked(self) -> None:
        """After a start: Slurm jobs of this store that carry out none of the runs."""
        mine = {run.number for run in self.runs.values()}
        for job in self._seen.values():
            mark = read_mark(job.comment, self._store)
            if mark is None or job.id in mine or job.over:
                continue
            if job.state == PENDING and job.held and mark.job not in self._parked:
                self._parked[mark.job] = (job.id, monotonic())
            else:
                log.warning("Slurm job %d (run %s) is not wanted any more", job.id, mark.run)
                self._try(self._commands.cancel, job.id)

    def expire(self) -> None:
        """Let go of Slurm jobs that have been parked for too long."""
        for job, (_, since_s) in list(self._parked.items()):
            if job in self._retired or monotonic() - since_s > self._options.parked_s:
                self._let_go(job)
        active = {run.order.job for run in self.runs.values()}
        self._retired &= active

    def retire(self, job: str) -> None:
        """A job of Rota is over for good: nothing of it needs to stay in Slurm."""
        self._retired.add(job)

    def _job_of(self, run: SlurmRun) -> SeenJob | None:
        """Its Slurm job. A controller that lost its memory may give the number to another one."""
        job = self._seen.get(run.number or 0)
        mark = read_mark(job.comment, self._store) if job is not None else None
        return job if mark is not None and mark.run == run.order.run else None

    def _parked_job(self, job: str) -> SeenJob | None:
        """The Slurm job that waits for the next run of a job."""
        found = self._seen.get(self._parked[job][0])
        mark = read_mark(found.comment, self._store) if found is not None else None
        return found if mark is not None and mark.job == job else None

    def _let_go(self, job: str) -> None:
        found = self._parked_job(job)
        del self._parked[job]
        if found is not None and not found.over:
            self._try(self._commands.cancel, found.id)

    # --- steps -----------------------------------------------------------------------------------

    def step(self, run: SlurmRun) -> None:
        """Do the next thing for a run."""
        if run.over is not None or run.unsure:
            return
        try:
            if run.number is None:
                self._begin(run)
            elif run.acted_s < self._looked_s:
                self._follow(run, self._job_of(run))
        except ClusterError as error:
            if error.retryable:
                raise
            log.warning("run %s: %s", run.order.run, error)
            if run.number is None:
                self._end(run, RunStatus(run.order.run, "ended", REFUSED, why=str(error)))

    def _begin(self, run: SlurmRun) -> None:
        if run.ending:  # it was never launched
            self._end(run, RunStatus(run.order.run, "ended", asked=True))
            return
        request = make_request(run.order, self._options, self.nodes)
        parked = self._parked.get(run.order.job)
        if parked is not None:
            job = self._parked_job(run.order.job)
            if job is None or job.busy or not job.held:
                if monotonic() - parked[1] < PARKING_S:
                    return  # it is on its way into the queue
            elif self._reuse(run, request, job):
                return
            self._let_go(run.order.job)
        self._prepare(run, request)
        self._submit(run, request)

    def _prepare(self, run: SlurmRun, request: SbatchRequest) -> None:
        first = min(run.order.parts, key=lambda part: part.node_rank).node
        master = self.nodes[first].address if first in self.nodes else first
        self._folders.write(run.order, request, master)

    def _submit(self, run: SlurmRun, request: SbatchRequest) -> None:
        order = run.order
        common = [
            "--open-mode=append",
            f"--output={str(self._folders.slurm_log(order.job)).replace('%', '%%')}",
            f"--chdir={self._folders.root}",
            f"--job-name={job_name(order.name, order.job)}",
            f"--comment={Mark(self._store, order.run, 0, request.shape).text()}",
        ]
        try:
            run.number = self._commands.submit(request.argv(common), self._folders.bootstrap)
        except ClusterError as error:
            run.unsure = error.retryable  # it may have been accepted all the same
            raise
        run.restarts = 0
        self._release(run)

    def _reuse(self, run: SlurmRun, request: SbatchRequest, job: SeenJob) -> bool:
        """Let the parked Slurm job of the same job carry out this run; False if it cannot."""
        mark = read_mark(job.comment, self._store)
        if mark is None or mark.shape != request.shape:
            return False
        self._prepare(run, request)
        comment = Mark(self._store, run.order.run, job.restarts, request.shape).text()
        nodes = ",".join(request.components[0].nodes)
        try:
            self._commands.update(job.id, NodeList=nodes, StartTime=NEXT_SECOND, Comment=comment)
        except ClusterError as error:
            if error.retryable:
                run.unsure = True
                raise
            log.warning("Slurm job %d cannot be used again: %s", job.id, error)
            return False
        del self._parked[run.order.job]
        run.number, run.restarts = job.id, job.restarts
        self._release(run)
        return True

    def _release(self, run: SlurmRun) -> None:
        if run.number is not None:
            self._folders.link(run.number, run.order.run)
            self._commands.release(run.number)
            run.released_s = run.acted_s = monotonic()

    def _hold(self, run: SlurmRun, job: SeenJob) -> None:
        self._commands.hold(job.id)
        run.acted_s = monotonic()

    # --- a run with a Slurm job ------------------------------------------------------------------

    def _follow(self, run: SlurmRun, job: SeenJob | None) -> None:
        if job is None:
            if self._odd_for(run) > LATE_S:
                self._finish(run, None)
            return
        if not (job.over or job.state == PENDING):
            run.odd_s = None
        if job.restarts > run.restarts:
            self._requeued(run, job)
        elif job.over:
            self._finish(run, job)
        elif job.state == PENDING:
            self._pending(run, job)
        elif not job.busy:
            self._running(run, job)

    def _odd_for(self, run: SlurmRun) -> float:
        if run.odd_s is None:
            run.odd_s = monotonic()
        return monotonic() - run.odd_s

    def _requeued(self, run: SlurmRun, job: SeenJob) -> None:
        """Slurm has put it back into the queue: its node died, or it was parked before a crash."""
        if job.busy:
            return
        if job.state != PENDING:  # Slurm was quicker: what it starts now leaves at once
            self._try(self._commands.cancel, job.id)
        elif not job.held:
            self._commands.hold(job.id)
        if job.state == PENDING:
            self._set_aside(run, job.id)
        ends = self._folders.ends(run.order)
        nodes = len(run.order.parts)
        self._end(run, judge_requeued(run.order.run, nodes, ends, ending=run.ending))

    def _pending(self, run: SlurmRun, job: SeenJob) -> None:
        if self._folders.started(run.order.run):
            self._forgotten(run, job)
        elif run.want == KILL:
            self._try(self._commands.cancel, job.id)
            run.acted_s = monotonic()
        elif run.ending or run.withdrawn:
            if not job.held:
                self._hold(run, job)
                return
            self._set_aside(run, job.id)
            lost = RunStatus(run.order.run, "lost", why="its nodes cannot be used any more")
            ended = RunStatus(run.order.run, "ended", asked=True)
            self._end(run, ended if run.ending else lost)
        elif run.released_s is None or (job.held and job.reason == "JobHeldUser"):
            self._release(run)  # again: a controller that crashed has forgotten it
        elif any(self._refuses(part.node) for part in run.order.parts):
            run.withdrawn = True
            self._hold(run, job)
        elif monotonic() - max(run.released_s, self._recounted_s) > FORGOTTEN_S and any(
            part.node in self.nodes and self.nodes[part.node].forgotten_gpus
            for part in run.order.parts
        ):
            log.warning("Slurm counts GPUs as used that nobody has: it is asked to count again")
            self._recounted_s = monotonic()
            self._try(self._commands.reconfigure, job.id)
        elif monotonic() - run.released_s > STUCK_S:
            run.released_s = monotonic()
            log.warning("run %s waits in Slurm (job %d): %s", run.order.run, job.id, job.reason)

    def _forgotten(self, run: SlurmRun, job: SeenJob) -> None:
        """A controller that crashed does not know that it has started it, and ends what it finds.

        It must not start it again. One look proves nothing: the run may have begun since Slurm was
        asked, so only the next answer counts.
        """
        if run.odd_s is None:
            run.odd_s = monotonic()
        elif not job.held:
            self._hold(run, job)
        elif self._odd_for(run) > LATE_S:
            self._try(self._commands.cancel, job.id)
            ends, nodes = self._folders.ends(run.order), len(run.order.parts)
            self._end(run, judge_requeued(run.order.run, nodes, ends, ending=run.ending))

    def _refuses(self, node: str) -> bool:
        seen = self.nodes.get(node)
        return seen is None or seen.refuses

    def _running(self, run: SlurmRun, job: SeenJob) -> None:
        order = run.order
        if not run.running and (not order.launch.setup or self._folders.ready(order)):
            run.running = True
            _compare(order, job)
            began_s = _moment(self._folders.began_unix(order))
            self.tell(RunStatus(order.run, "running", began_s=began_s))
        if run.running:
            self._pass_on_reports(run)
            self._folders.note_order(order)
        if self._folders.finished(order):
            self._nudge(run)
        elif run.want == KILL:
            self._kill(run)
        elif run.want == HALT:
            self._halt(run)

    def _nudge(self, run: SlurmRun) -> None:
        """All its processes have ended. If Slurm does not notice it (a message got lost), help."""
        run.finished_s = run.finished_s or monotonic()
        if monotonic() - run.finished_s > LATE_S and run.number is not None:
            log.warning("Slurm has not noticed the end of run %s", run.order.run)
            self._try(self._commands.cancel, run.number)
            run.finished_s = monotonic()

    def _pass_on_reports(self, run: SlurmRun) -> None:
        values, run.offset = self._folders.reports(run.order.run, run.offset)
        if values:
            self.tell(RunMetrics(run.order.run, values))

    def _halt(self, run: SlurmRun) -> None:
        whom = "batch" if len(run.order.parts) == 1 else "steps"  # see script.NODE
        run.asked_s = run.asked_s or monotonic()
        if run.signalled_s is None:
            young = monotonic() - run.asked_s < min(BIRTH_S, run.order.launch.grace_s)
            if young and not run.order.launch.setup and not self._folders.ready(run.order):
                return  # there is no process yet that could receive it
            if self._signal(run, "TERM", whom):
                run.signalled_s = monotonic()
        elif monotonic() - run.signalled_s >= run.order.launch.grace_s:
            self._kill(run)

    def _kill(self, run: SlurmRun) -> None:
        if run.killed_s is None or monotonic() - run.killed_s > AGAIN_S:
            run.killed_s = monotonic()
            run.signalled_s = run.signalled_s or run.killed_s
            self._signal(run, "KILL", "everyone")
            if run.want == KILL and run.number is not None:
                self._try(self._commands.cancel, run.number)

    def _signal(self, run: SlurmRun, name: str, whom: str) -> bool:
        """False if there was nothing left to be signalled."""
        if run.number is None:
            return False
        try:
            self._commands.signal(run.number, name, whom)
        except ClusterError as error:
            if error.retryable:
                raise
            log.info("run %s: %s", run.order.run, error)
            return False
        return True

    # --- ends ------------------------------------------------------------------------------------

    def _finish(self, run: SlurmRun, job: SeenJob | None) -> None:
        status = judge(
            run.order.run, len(run.order.parts), self._folders.ends(run.order), job,
            ending=run.ending, signalled=run.signalled_s is not None,
        )  # fmt: skip
        if status is None:
            if self._odd_for(run) < LATE_S:
                return
            status = RunStatus(run.order.run, "lost", why="nobody knows how it ended")
        self._pass_on_reports(run)
        self._end(run, status, job)
        wanted_again = run.want == HALT and run.order.job not in self._retired
        if job is not None and wanted_again and is_even(run.order):
            self._park(run, job)

    def _park(self, run: SlurmRun, job: SeenJob) -> None:
        """Back into the queue, held, so that its next run is the same Slurm job."""
        if self._try(self._commands.requeue_held, job.id):
            self._parked[run.order.job] = (job.id, monotonic())

    def _set_aside(self, run: SlurmRun, number: int) -> None:
        """Its Slurm job is pending and held: keep it for the next run, if it can be of use."""
        if is_even(run.order):
            self._parked[run.order.job] = (number, monotonic())
        else:
            self._try(self._commands.cancel, number)

    def _end(self, run: SlurmRun, status: RunStatus, job: SeenJob | None = None) -> None:
        """It is over since its nodes wrote that down, else since Slurm says."""
        ends = self._folders.ends(run.order)
        ended = ends[-1].time_s if ends and len(ends) == len(run.order.parts) else None
        if ended is None and job is not None and job.end_s:
            ended = job.end_s
        began = self._folders.began_unix(run.order)
        run.over = replace(status, began_s=_moment(began), ended_s=_moment(ended))
        self.tell(run.over)

    def _try(self, command: Callable[[int], None], number: int) -> bool:
        """For what is good to have done, but not needed."""
        try:
            command(number)
        except ClusterError as error:
            log.info("Slurm job %d: %s", number, error)
            return False
        return True

    def forget(self, name: str) -> None:
        """This run is of no interest any more."""
        run = self.runs.pop(name, None)
        if run is not None:
            self._folders.forget(name, run.number)


def _compare(order: RunOrder, job: SeenJob) -> None:
    """Has Slurm given what was asked? Otherwise what Rota believes is wrong: say so."""
    asked = {part.node: int(part.gpus) for part in order.parts}
    given = dict(zip(job.nodes, job.node_gpus or asked.values(), strict=False))
    if asked != given:
        log.error("run %s: Slurm gives GPUs as %s instead of %s", order.run, given, asked)


def _moment(unix_s: float | None) -> float | None:
    """A time of day as a moment of `boot_time_s`: the clocks of a Slurm cluster agree."""
    return None if unix_s is None else boot_time_s() - (time() - unix_s)
