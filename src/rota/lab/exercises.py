"""The exercises: what is asked, a file to start from, and what is checked."""

from collections.abc import Callable
from functools import lru_cache, partial
from random import Random

import msgspec

from rota.core.errors import OptionError
from rota.core.knowledge import Knowledge
from rota.core.registry import nearest
from rota.core.workload import Workload
from rota.lab.checks import (
    LabJob,
    LabScene,
    Loads,
    MeasureCheck,
    as_placement,
    is_a_placement,
    keeps_the_contract,
    keeps_the_contract_of_placements,
)
from rota.lab.grade import Check


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """One of them.

    Args:
        name: In commands.
        title: In lists.
        task: What is asked, in a few sentences.
        starter: A file that loads and is not yet a solution.
        checks: What is looked at, with a name for each.
    """

    name: str
    title: str
    task: str
    starter: str
    checks: tuple[tuple[str, Check], ...]


@lru_cache(maxsize=16)
def drawn(kind: str, options: tuple[tuple[str, str], ...], gpus: int, seed: int) -> Workload:
    """The same workload for everybody who names it; half as much again as the cluster can do."""
    from rota.traces.synth.generate import generate

    return generate(kind, jobs=200, gpus=gpus, load=1.5, seed=seed, options=dict(options))


def workloads(kind: str, gpus: int, **options: str) -> Callable[[int], Workload]:
    """Drawn by seed."""
    return partial(drawn, kind, tuple(options.items()), gpus)


def typed(seed: int) -> Workload:
    """Jobs that gain 1.1 to 5 times from the fast GPUs, one GPU each."""
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    specs, behaviours = [], []
    now_s = 0.0
    for number in range(200):
        now_s += rng.expovariate(1 / 40)
        job = LabJob(
            id=f"j{number}",
            submit_s=round(now_s),
            run_s=rng.randint(60, 600),
            speeds={"fast": 1.0, "slow": rng.choice([0.2, 0.3, 0.8, 0.9])},
        )
        specs.append(job.spec())
        behaviours.append(job.behaviour())
    return Workload(specs, behaviours, name="lab")


def elastic(seed: int) -> Workload:
    """Jobs of 1 to 8 GPUs that gain less and less from each further one."""
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    specs, behaviours = [], []
    now_s = 0.0
    for number in range(150):
        now_s += rng.expovariate(1 / 60)
        job = elastic_job(f"j{number}", rng.randint(60, 900), submit_s=round(now_s))
        specs.append(job.spec())
        behaviours.append(job.behaviour())
    return Workload(specs, behaviours, name="lab")


CONCAVE = ((1.0, 1.0), (2.0, 1.8), (4.0, 3.0), (8.0, 4.0))
"""Speed by GPUs, of one GPU."""


def elastic_job(name: str, run_s: float, submit_s: float = 0.0) -> LabJob:
    """It asks for one GPU and takes up to eight."""
    return LabJob(id=name, submit_s=submit_s, run_s=run_s, least=1, most=8, scaling=CONCAVE)


PHILLY = workloads("philly-like", 32, max_s="86400")
CROWDED = workloads("poisson", 16, durations="philly", max_s="36000", sizes="1:80/2:10/4:8/8:2")
ESTIMATED = workloads("philly-like", 32, max_s="86400", estimate_factor="1")

SRTF = Exercise(
    name="srtf",
    title="Queueing: the shortest first",
    task="""\
Jobs wait for GPUs. In which order should they be served so that the mean time from submission to
end (JCT) is small? The starter serves them in the order of their submission. Write the key of a
priority policy: the smallest is served first, and a waiting job may displace running ones with
larger keys. You may know how long each job still needs (`job.remaining_s(now_s)`).""",
    starter='''\
"""My policy: who is served first?"""

from rota.core.jobs import RUNNING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class MyPolicy(PriorityPolicy[Params]):
    """First come, first served: change this."""

    name = "my-policy"
    knowledge = Knowledge.REMAINING_WORK

    def key(self, job: Job, now_s: float) -> float:
        """The smallest is served first."""
        return job.submit_s

    def slope(self, job: Job) -> float:
        """How the key changes in each second in which the job makes progress."""
        return 0.0
''',
    checks=(
        ("the file has a policy", Loads(Knowledge.REMAINING_WORK)),
        ("it keeps the contract of policies", keeps_the_contract),
        (
            "three jobs, one GPU",
            LabScene(
                cluster="1x1",
                jobs=(
                    LabJob(id="a", run_s=10),
                    LabJob(id="b", submit_s=1, run_s=3),
                    LabJob(id="c", submit_s=2, run_s=1),
                ),
                ends={"c": 3, "b": 5, "a": 14},
                why="At 1 s a needs 9 s and b 3 s; at 2 s b needs 2 s and c 1 s: whoever needs "
                "least runs, and who was displaced goes on later.",
            ),
        ),
        (
            "who is nearly done is not displaced",
            LabScene(
                cluster="1x1",
                jobs=(LabJob(id="a", run_s=10), LabJob(id="b", submit_s=8, run_s=3)),
                ends={"a": 10, "b": 13},
                why="At 8 s a needs 2 s more, less than b: what counts is what remains, not the "
                "whole length.",
            ),
        ),
        (
            "as good as the best on 200 jobs",
            MeasureCheck(
                draw=CROWDED, cluster="2x8", against={"policy": "srtf"}, at_most=1.01,
                why="Is `slope` right? A running job's key falls by its speed in every second.",
            ),
        ),
    ),
)  # fmt: skip

BACKFILL = Exercise(
    name="backfill",
    title="Backfilling: use the gaps, delay nobody",
    task="""\
First come, first served leaves GPUs idle while a large job waits for room. Let later jobs start in
the gap if that does not delay the first job that waits (the head). Users say how long their jobs
will run (`job.estimate_s()`), and here they are right. `plan.earliest(head, ends)` tells when the
head would fit if jobs end at these times; `plan.withdraw(job)` takes the latest placement back.""",
    starter='''\
"""My policy: first come, first served, and the gaps?"""

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class MyBackfill(DecidePolicy[Params]):
    """In the order of submission; nobody passes the head."""

    name = "my-backfill"
    knowledge = Knowledge.USER_ESTIMATE
    coupled = "there is one queue with one head, whatever jobs compete for"
    plan_type = ReservingPlan

    def decide(self, view: View) -> ReservingPlan:
        """Running jobs go on; then the queue, until one does not fit."""
        plan = view.plan(ReservingPlan)
        for job in view.running:
            plan.place(job)
        for job in sorted(view.waiting, key=lambda job: (job.submit_s, job.index)):
            if not plan.place(job):
                break
        return plan
''',
    checks=(
        ("the file has a policy", Loads(Knowledge.USER_ESTIMATE)),
        ("it keeps the contract of policies", keeps_the_contract),
        (
            "a short job fills the gap",
            LabScene(
                cluster="1x4",
                jobs=(
                    LabJob(id="runs", gpus=3, run_s=10),
                    LabJob(id="head", submit_s=1, gpus=4, run_s=5),
                    LabJob(id="short", submit_s=2, gpus=1, run_s=8),
                ),
                starts={"short": 2, "head": 10},
                why="The head cannot start before 10 s; until then a GPU is idle, and the short "
                "job needs it for 8 s only.",
            ),
        ),
        (
            "a long job does not",
            LabScene(
                cluster="1x4",
                jobs=(
                    LabJob(id="runs", gpus=3, run_s=10),
                    LabJob(id="head", submit_s=1, gpus=4, run_s=5),
                    LabJob(id="long", submit_s=2, gpus=1, run_s=20),
                ),
                starts={"head": 10, "long": 15},
                why="The long job would hold the fourth GPU until 22 s, and the head needs all "
                "four at 10 s.",
            ),
        ),
        (
            "a long job beside the head",
            LabScene(
                cluster="1x4",
                jobs=(
                    LabJob(id="runs", gpus=3, run_s=10),
                    LabJob(id="head", submit_s=1, gpus=3, run_s=5),
                    LabJob(id="long", submit_s=2, gpus=1, run_s=20),
                ),
                starts={"long": 2, "head": 10},
                why="The head needs three GPUs at 10 s, and three are free then: the fourth may "
                "be used for any length of time.",
            ),
        ),
        (
            "waits on 200 jobs",
            MeasureCheck(
                draw=ESTIMATED, cluster="4x8", key="avg_wait_s", called="mean wait",
                against={"policy": "easy"}, at_most=1.05,
                why="Every job that fits and does not delay the head may start, not only the "
                "second in the queue.",
            ),
        ),
    ),
)  # fmt: skip

PACKING = Exercise(
    name="packing",
    title="Gangs and fragments: keep whole nodes free",
    task="""\
A gang needs all its GPUs at once, and fast training needs them on one node. Where should small jobs
go so that large ones find a whole node? Write a placement: give every node with room a score from
0 to 100, the highest gets the job. The starter prefers the emptiest node.""",
    starter='''\
"""My placement: on which node?"""

import numpy as np

from rota.placement.fragments import MILLI, Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, Scored, ScoredRequest


class MyPlacement(Scored):
    """The emptiest node: change this."""

    name = "my-placement"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """Score the nodes in `rows`, from 0 to 100: the highest gets the job."""
        free = machines.gpus[rows].sum(axis=1) // MILLI  # GPUs that are free
        return np.minimum(free, BEST)
''',
    checks=(
        ("the file has a placement", is_a_placement),
        ("it keeps the contract of placements", keeps_the_contract_of_placements),
        (
            "two small jobs share a node",
            LabScene(
                cluster="2x4", used_as=as_placement,
                jobs=(
                    LabJob(id="small-1", gpus=2, run_s=100),
                    LabJob(id="small-2", gpus=2, run_s=100),
                    LabJob(id="gang", submit_s=1, gpus=4, run_s=10),
                ),
                starts={"gang": 1},
                why="If each of the small jobs has a node of its own, four GPUs are free, but no "
                "node is.",
            ),
        ),
        (
            "the best gap is the smallest",
            LabScene(
                cluster="3x4", used_as=as_placement,
                jobs=(
                    LabJob(id="three", gpus=3, run_s=100),
                    LabJob(id="two", gpus=2, run_s=100),
                    LabJob(id="one", submit_s=1, gpus=1, run_s=100),
                    LabJob(id="pair", submit_s=2, gpus=2, run_s=100),
                    LabJob(id="gang", submit_s=3, gpus=4, run_s=10),
                ),
                starts={"one": 1, "pair": 2, "gang": 3},
                why="The job of one GPU fits beside the one of three: then a pair and a whole "
                "node are left.",
            ),
        ),
        (
            "waits on 200 jobs",
            MeasureCheck(
                draw=PHILLY, cluster="4x8", key="avg_wait_s", called="mean wait",
                used_as=as_placement, against={"policy": "fifo", "placement": "kubernetes"},
                at_most=0.9, why="Small jobs on the fullest nodes leave whole nodes for gangs.",
            ),
        ),
    ),
)  # fmt: skip

HETEROGENEITY = Exercise(
    name="heterogeneity",
    title="GPUs of two generations: who gains most?",
    task="""\
All jobs are faster on the fast GPUs, but not by the same factor. The starter serves in order, each
job on the free type on which it is fastest. Give the fast GPUs to those who gain most from them.
`job.speed_on(gpu_type)` tells the speed, `plan.place_on(job, gpu_type=...)` runs it there and moves
it if it runs on another type; `view.up_by_type` are the GPUs of each type.""",
    starter='''\
"""My policy: who gets the fast GPUs?"""

from rota.core.knowledge import Knowledge
from rota.core.plan import LocalityPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class MyTypes(DecidePolicy[Params]):
    """First come, first served, each on the fastest type that is left: change this."""

    name = "my-types"
    knowledge = Knowledge.SPEEDS
    coupled = "GPUs are counted over the whole cluster"
    plan_type = LocalityPlan

    def decide(self, view: View) -> LocalityPlan:
        """Every job in turn, on the best type that is left."""
        plan = view.plan(LocalityPlan)
        free = dict(view.up_by_type)
        for job in sorted(view.jobs, key=lambda job: (job.submit_s, job.index)):
            for kind in sorted(free, key=lambda kind: -job.speed_on(kind)):
                fits = free[kind] >= job.gpus and job.speed_on(kind) > 0
                if fits and plan.place_on(job, gpu_type=kind):
                    free[kind] -= job.gpus
                    break
        return plan
''',
    checks=(
        ("the file has a policy", Loads(Knowledge.SPEEDS)),
        ("it keeps the contract of policies", keeps_the_contract),
        (
            "two jobs, two GPUs",
            LabScene(
                cluster="1x1:fast+1x1:slow", rates="types",
                jobs=(
                    LabJob(id="indifferent", run_s=90, speeds={"fast": 1.0, "slow": 0.9}),
                    LabJob(id="needy", run_s=90, speeds={"fast": 1.0, "slow": 0.2}),
                ),
                ends={"needy": 90, "indifferent": 99},
                why="In 90 s on the slow GPU the first job loses 9 s and the second 72 s: who "
                "came first does not matter. At 90 s the fast GPU is free again.",
            ),
        ),
        (
            "who came first moves away",
            LabScene(
                cluster="1x1:fast+1x1:slow", rates="types",
                jobs=(
                    LabJob(id="indifferent", run_s=90, speeds={"fast": 1.0, "slow": 0.9}),
                    LabJob(id="needy", submit_s=45, run_s=90, speeds={"fast": 1.0, "slow": 0.2}),
                ),
                ends={"needy": 135, "indifferent": 95},
                why="At 45 s the job that hardly cares moves to the slow GPU, where its second "
                "half takes 50 s.",
            ),
        ),
        (
            "200 jobs on 4 + 4 GPUs",
            MeasureCheck(
                draw=typed, cluster="1x4:fast+1x4:slow", rates="types",
                against={"policy": "fifo-skip"}, at_most=0.75,
                why="Order the jobs by what they gain, the speed on the best type over that on "
                "the worst, before you give them GPUs.",
            ),
        ),
    ),
)  # fmt: skip

ELASTICITY = Exercise(
    name="elasticity",
    title="Elastic jobs: share, do not hog",
    task="""\
Elastic jobs run on 1 to 8 GPUs; each further GPU brings less than the one before. The starter gives
the oldest job all that it can take. Divide the GPUs so that everybody gets on:
`plan.place(job, gpus=n)` runs a job with n of them, `job.min_gpus` and `job.max_gpus` are its
limits.""",
    starter='''\
"""My policy: who gets how many GPUs?"""

from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class MyShares(DecidePolicy[Params]):
    """The oldest takes all that it can: change this."""

    name = "my-shares"
    elastic = True
    coupled = "GPUs are counted over the whole cluster"

    def decide(self, view: View) -> Plan:
        """Try the sizes of every job, the largest first."""
        plan = view.plan()
        for job in sorted(view.jobs, key=lambda job: (job.submit_s, job.index)):
            size = job.max_gpus
            while size and not plan.place(job, gpus=size):
                size = job.size_within(size - 1)
        return plan
''',
    checks=(
        ("the file has a policy", Loads(Knowledge.NOTHING)),
        ("it keeps the contract of policies", keeps_the_contract),
        (
            "two jobs, eight GPUs",
            LabScene(
                cluster="1x8", rates="scaling",
                jobs=(elastic_job("a", 300), elastic_job("b", 300)),
                ends={"a": 100, "b": 100},
                why="Four GPUs each make both three times as fast as one; eight for one of them "
                "make it four times as fast, and the other waits.",
            ),
        ),
        (
            "who is left grows",
            LabScene(
                cluster="1x8", rates="scaling",
                jobs=(elastic_job("a", 300), elastic_job("b", 600)),
                ends={"a": 100, "b": 175},
                why="When a ends at 100 s, b has 300 s of work left and may use all eight GPUs.",
            ),
        ),
        (
            "a newcomer is served at once",
            LabScene(
                cluster="1x8", rates="scaling",
                jobs=(elastic_job("old", 4000), elastic_job("new", 30, submit_s=100)),
                starts={"new": 100}, ends={"new": 110},
                why="The running job shrinks when somebody comes.",
            ),
        ),
        (
            "150 jobs on 16 GPUs",
            MeasureCheck(
                draw=elastic, cluster="2x8", rates="scaling", against={"policy": "fifo-skip"},
                at_most=0.8, why="GPUs that nobody needs make those who run faster.",
            ),
        ),
    ),
)  # fmt: skip

OWN = Exercise(
    name="own",
    title="Your own: good without an oracle",
    task="""\
Nobody knows how long a job will run. You know what everybody knows: when it came, how many GPUs it
asks for, for how long it has run (`job.executed_s(now_s)`) and what it has used
(`job.attained_gpu_s(now_s)`). Find a policy whose mean JCT is at most 0.8 times that of
`fifo-skip`, and in which no job starves.""",
    starter='''\
"""My policy: what is good if nothing is known?"""

from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class MyOwn(DecidePolicy[Params]):
    """In the order of submission: change this."""

    name = "my-own"

    def decide(self, view: View) -> Plan:
        """Who shall run now? `plan.wake_at` and `plan.watch` say when to ask again."""
        plan = view.plan()
        plan.fill(sorted(view.jobs, key=lambda job: (job.submit_s, job.index)))
        return plan
''',
    checks=(
        ("the file has a policy that knows nothing", Loads(Knowledge.NOTHING)),
        ("it keeps the contract of policies", keeps_the_contract),
        (
            "mean JCT on 200 jobs",
            MeasureCheck(
                draw=CROWDED, cluster="2x8", against={"policy": "fifo-skip"}, at_most=0.8,
                why="Most jobs are short: who has used little so far will probably end soon.",
            ),
        ),
        (
            "nobody starves",
            MeasureCheck(
                draw=CROWDED, cluster="2x8", key="p99_jct_s", called="99th percentile of JCT",
                against={"policy": "fifo-skip"}, at_most=1.5,
                why="Large or long jobs must get their turn, too.",
            ),
        ),
    ),
)  # fmt: skip

EXERCISES = {
    exercise.name: exercise
    for exercise in (SRTF, BACKFILL, PACKING, HETEROGENEITY, ELASTICITY, OWN)
}


def find_exercise(name: str) -> Exercise:
    """By its name."""
    if name not in EXERCISES:
        near = nearest(name, EXERCISES)
        hint = f"did you mean {near!r}? `rota lab ls`" if near else "`rota lab ls`"
        raise OptionError(f"exercise {name!r} is unknown: {hint} lists them")
    return EXERCISES[name]
