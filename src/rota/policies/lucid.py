"""Lucid: profile briefly, predict readably, pack by score (Hu et al., ASPLOS 2023).

A new job of up to `profile_size` GPUs first runs alone for `profile_s` seconds, the smallest jobs
first, on at most `profile_gpus` GPUs at a time: what it does to a GPU (`profiles`) is known only
after that. A decision tree (`PackingTree`) makes a sharing score of it: 0 hardly disturbs others, 2
much. Then jobs are served by their expected GPU-time (estimated duration times GPUs), nobody is
ever stopped in favour of another, and a job without a place does not hold up others. A job that
finds no GPUs of its own joins a running one that has as many, is alone, and

* whose score and its own are at most `most_score` together, the least first,
* whose GPU memory and its own fit into `gpu_mem_gib`,
* that is expected to take at least half of its own GPU-time.

Durations are estimated by an additive model of finished jobs (`estimate=history`), refitted every
`refit_s`; or they are what users say, or true. Both can be read: `str(policy.durations)`, and
`rota policy show lucid:profiles=DIR` for the tree.

Departs from the paper: jobs share only when there is no other place (`eager=yes`: whenever they
can, as in its simulator); the profiler has no nodes of its own, and its size is fixed; effects of
single traits only, no interactions. For its simulator as it is: `--like lucid`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from rota.core.allocation import host_of
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import PairingPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.models.colocation import Colocation, KindProfile, load_colocation
from rota.models.interpretable import AdditiveDurations, LabelTree, traits_of

MIB = 1024.0  # in a GiB
LONGER = 2.0  # a guest may be so many times as large as its host
MANY = 8  # times as many as there are jobs
MEMORY = 5_000  # finished jobs that durations are fitted to

Natural = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class LucidPolicyParams(Params, frozen=True):
    """Measurements, the profiler's time and size, whom to pack, and where estimates come from."""

    profiles: str = ""
    profile_s: Natural = 200.0
    profile_gpus: Natural = 16.0
    profile_size: Natural = 8.0
    gpu_mem_gib: Positive = 24.0
    most_score: Annotated[int, msgspec.Meta(ge=0, le=4)] = 2
    eager: bool = False
    estimate: Literal["history", "user", "oracle"] = "history"
    prior_s: Positive = 3600.0
    refit_s: Positive = 86400.0


class LucidState(State):
    """Who is being profiled (since when) or was, and what finished jobs took."""

    profiling: dict[int, float] = {}
    profiled: set[int] = set()
    finished: list[tuple[dict[str, str], float]] = []
    seen: int = 0
    fitted: int = 0  # so many of them were there when durations were fitted
    fitted_s: float = -INF
    expected: dict[int, float] = {}


KNOWLEDGE = {
    "oracle": Knowledge.REMAINING_WORK,
    "user": Knowledge.USER_ESTIMATE,
    "history": Knowledge.HISTORY,
}


class PackingTree:
    """Sharing scores by what kinds of jobs do to a GPU, fitted to labels of measured kinds."""

    def __init__(self, profiles: Sequence[KindProfile]) -> None:
        rows = [self._features(profile) for profile in profiles]
        self._tree = LabelTree(rows, [profile.label for profile in profiles])

    def score(self, profile: KindProfile) -> int:
        """0: it hardly disturbs others; 2: much."""
        return self._tree.label(self._features(profile))

    @staticmethod
    def _features(profile: KindProfile) -> Mapping[str, float]:
        return {
            "gpu_util": profile.gpu_util,
            "gmem_util": profile.gmem_util,
            "gmem": profile.gmem,
            "amp": float(profile.amp),
        }

    def __str__(self) -> str:
        return str(self._tree)


class Lucid(DecidePolicy[LucidPolicyParams]):
    """Serve the least expected GPU-time first, and pack jobs that do not disturb each other."""

    name = "lucid"
    paper = (
        "Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning "
        "Training Jobs, ASPLOS 2023"
    )
    Parameters = LucidPolicyParams
    knowledge = Knowledge.REMAINING_WORK | Knowledge.USER_ESTIMATE | Knowledge.HISTORY
    plan_type = PairingPlan
    keeps_unnamed = True
    coupled = "all jobs share the profiler, and estimates are learnt from all that finish"

    def __init__(self, params: LucidPolicyParams | None = None) -> None:
        super().__init__(params)
        self.knowledge = KNOWLEDGE[self.params.estimate]
        self.state: LucidState = LucidState()
        self._known: Colocation | None = None
        self.tree: PackingTree | None = None
        if self.params.profiles:
            self._known = load_colocation(self.params.profiles)
            self.tree = PackingTree(self._known.profiles)
        self.durations = AdditiveDurations([])
        if self.tree is None or not self.params.profile_s:
            self.preemptive = False  # else the profiler stops jobs

    def resumed(self) -> None:
        """The model follows from what finished."""
        self.durations = AdditiveDurations(self.state.finished[: self.state.fitted])

    def models(self) -> Mapping[str, Any]:
        """What it predicts by, to be printed."""
        tree = {} if self.tree is None else {"sharing score by use of a GPU alone": self.tree}
        learnt = {"duration": self.durations} if self.durations.rows else {}
        return {**tree, **learnt}

    def decide(self, view: View) -> Plan:
        """Profile new jobs, then serve the others."""
        plan = view.plan(PairingPlan)
        self._learn(view)
        self._forget(view.active)
        self._end_profiles(view, plan)
        waiting = view.waiting
        self._profile([job for job in waiting if self._is_new(job)], view, plan)
        ready = [job for job in waiting if not self._is_new(job) and not self._profiled_now(job)]
        self._serve(sorted(ready, key=self._gpu_s), view, plan)
        return plan

    def _serve(self, jobs: Sequence[Job], view: View, plan: PairingPlan) -> None:
        """GPUs of its own, or those of another: what is tried first is up to `eager`."""
        packs = self.tree is not None and view.sharing and jobs
        hosts = self._hosts(view) if packs else {}
        for job in jobs:
            if self.params.eager and self._join(job, hosts, plan):
                continue
            if plan.place(job):
                if packs:
                    hosts.setdefault(job.gpus, []).append(job)
            elif not self.params.eager:
                self._join(job, hosts, plan)

    # --- the profiler -----------------------------------------------------------------------------

    def _is_new(self, job: Job) -> bool:
        """It is to be profiled first."""
        params = self.params
        return (
            self._known is not None
            and params.profile_s > 0
            and 0 < job.gpus <= min(params.profile_size, params.profile_gpus)
            and job.index not in self.state.profiled
            and job.index not in self.state.profiling
        )

    def _profiled_now(self, job: Job) -> bool:
        return job.index in self.state.profiling

    def _profile(self, jobs: Sequence[Job], view: View, plan: PairingPlan) -> None:
        """The smallest first, as many at a time as the profiler has GPUs."""
        profiling = self.state.profiling
        free = self.params.profile_gpus - ordered_sum(
            view.active[index].gpus for index in profiling
        )
        for job in sorted(jobs, key=lambda job: job.gpus):
            if job.gpus > free or not plan.place(job):
                break
            free -= job.gpus
            profiling[job.index] = view.now_s
        if profiling:
            plan.wake_at(max(view.now_s, min(profiling.values()) + self.params.profile_s))

    def _end_profiles(self, view: View, plan: PairingPlan) -> None:
        """Jobs whose time is over are known now; they are served as others from then on."""
        for index, since_s in list(self.state.profiling.items()):
            job = view.active[index]
            if view.now_s >= since_s + self.params.profile_s or not job.running:
                del self.state.profiling[index]
                self.state.profiled.add(index)
                if job.running:
                    plan.stop(job, why="its profile is complete")
                    plan.wake_at(view.now_s)  # it is served among those that wait

    # --- the binder -------------------------------------------------------------------------------

    def _hosts(self, view: View) -> dict[float, list[Job]]:
        """Running jobs that are alone, by their GPUs, each list in the order of their starts."""
        running = sorted(view.running, key=lambda job: (job.start_s, job.index))
        taken = {host_of(job.allocation) for job in running}
        found: dict[float, list[Job]] = {}
        for job in running:
            alone = job.index not in taken and host_of(job.allocation) < 0
            if alone and job.index not in self.state.profiling:
                found.setdefault(job.gpus, []).append(job)
        return found

    def _join(self, job: Job, by_gpus: Mapping[float, list[Job]], plan: PairingPlan) -> bool:
        """Share GPUs with the running job that is disturbed least, if there is one."""
        hosts = by_gpus.get(job.gpus) if job.gpus % 1 == 0 else None
        if not hosts or self._known is None or self.tree is None:
            return False
        mine = self._known.of(job)
        score, most = self.tree.score(mine), self._gpu_s(job) / LONGER
        suited = []
        for number, host in enumerate(hosts):
            theirs = self._known.of(host)
            together = score + self.tree.score(theirs)
            if (
                together <= self.params.most_score
                and mine.gmem + theirs.gmem < self.params.gpu_mem_gib * MIB
                and most <= self._gpu_s(host)
            ):
                suited.append((together, number))
        for _, number in sorted(suited):
            if plan.place_beside(job, hosts[number]):
                del hosts[number]
                return True
        return False

    # --- estimates --------------------------------------------------------------------------------

    def _gpu_s(self, job: Job) -> float:
        """Expected GPU-seconds; an estimate is made once."""
        if self.params.estimate == "oracle":
            return job.duration_s() * job.gpus
        if self.params.estimate == "user":
            return job.estimate_s() * job.gpus
        expected_s = self.state.expected.get(job.index)
        if expected_s is None:
            known = self.durations.rows > 0
            expected_s = self.durations.predict_s(_traits(job)) if known else self.params.prior_s
            self.state.expected[job.index] = expected_s
        return expected_s * job.gpus

    def _learn(self, view: View) -> None:
        """Jobs that have finished since it was asked last."""
        if self.params.estimate != "history":
            return
        history, state = view.history, self.state
        for job in history[state.seen :]:
            state.finished.append((_traits(job), job.run_s))
        state.seen = len(history)
        if state.finished and view.now_s >= state.fitted_s + self.params.refit_s:
            del state.finished[:-MEMORY]
            state.fitted, state.fitted_s = len(state.finished), view.now_s
            self.durations = AdditiveDurations(state.finished)

    def _forget(self, active: Mapping[int, Job]) -> None:
        """Jobs that are over, when there are many."""
        state = self.state
        state.profiling = {index: at for index, at in state.profiling.items() if index in active}
        if len(state.profiled) + len(state.expected) > MANY * (len(active) + 1):
            state.profiled &= active.keys()
            state.expected = {i: value for i, value in state.expected.items() if i in active}


def _traits(job: Job) -> dict[str, str]:
    spec = job.spec
    return traits_of(spec.user, spec.name, spec.model, job.gpus)
