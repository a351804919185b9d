"""`rota when` and `rota why` beside a Slurm: the picture becomes a world, and that is asked."""

from collections.abc import Callable
from difflib import get_close_matches
from math import ceil
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.jobs import Job, JobSpec, Request, TaskGroup
from rota.core.reasons import Reason
from rota.core.topology import NodeSpec
from rota.core.verdict import Remedy, Verdict
from rota.core.words import TEXTS, duration
from rota.engine.loop import Engine
from rota.live.drivers.slurm.layout import PENDING, SeenJob, SeenNode
from rota.live.drivers.slurm.mirror import eligible
from rota.policies.slurm.params import SlurmPolicyParams
from rota.sim.durations import Durations
from rota.sim.foresight import DurationSpread, Foreseen, foresee, is_placed, sentence
from rota.sim.proposal import Proposal, refuse_hopeless
from rota.sim.verdict import judge, wait_for
from rota.study.beside.past import LEAST_WIDTH_S, SlurmPast, StartsBacktest
from rota.study.beside.saved import SlurmPicture, rules_of
from rota.study.beside.world import GUEST, SlurmWorld, WorldJob
from rota.wire import Forecast

FEW = 5
_REASONS = (
    (("Priority",), Reason.ORDER),
    (("Resources", "ReqNodeNotAvail, May"), Reason.CAPACITY),
    (("Dependency",), Reason.DEPENDENCY),
    (("QOS", "Assoc", "JobArrayTaskLimit", "Licenses", "MaxJobs", "PartitionTimeLimit",
      "PartitionNodeLimit"), Reason.QUOTA),
    (("ReqNodeNotAvail", "NodeDown", "PartitionDown", "PartitionInactive", "NodesNotAvail"),
     Reason.DOWN),
    (("BadConstraints", "InvalidAccount", "AccountNotAllowed"), Reason.CONSTRAINT),
    (("JobHeld", "BeginTime", "Reservation", "Prolog"), Reason.ADMISSION),
)  # fmt: skip
"""Beginnings of Slurm's reasons, and what they mean here; the first that fits counts."""


def meaning(reason: str) -> str:
    """The name of the `Reason` for one of Slurm's; empty: it tells none."""
    for beginnings, found in _REASONS:
        if reason.startswith(beginnings):
            return found.label
    return ""


class SlurmForecast(msgspec.Struct, kw_only=True):
    """When a job of a Slurm starts."""

    forecast: Forecast
    now_at: float  # Unix seconds
    ahead: list[str]
    ahead_count: int
    starts_backtest: StartsBacktest
    slurm_says: float | None = None  # Slurm's own expectation of the start


class BesideSlurm:
    """One picture of a Slurm, ready to be asked."""

    def __init__(self, picture: SlurmPicture) -> None:
        self.picture = picture
        values, notes = rules_of(picture.rules, SlurmPolicyParams.files)
        self.notes = [*picture.notes, *notes]
        params = msgspec.convert(values, SlurmPolicyParams, strict=False)
        self.params = msgspec.structs.replace(params, given_priorities=True)
        self._seen = {str(job.id): job for job in picture.jobs}
        self._shift_s = self._origin()
        self.now_s = picture.now + self._shift_s
        self.nodes = [_spec(node) for node in picture.nodes]
        self._partitions = list(
            dict.fromkeys(name for node in picture.nodes for name in node.partitions)
        )
        self._whole = {
            name: all(name in node.partitions for node in picture.nodes)
            for name in self._partitions
        }
        self.world = self._world()
        self._past: SlurmPast | None = None
        if picture.history is not None:
            moved_s = picture.history_began + self._shift_s
            self._past = SlurmPast(picture.history, self.nodes, moved_s)

    def _origin(self) -> float:
        """What is added to Unix seconds: now is a round number, at which backfill is due."""
        picture = self.picture
        times = [job.submit_s for job in picture.jobs if job.submit_s]
        times += [picture.history_began] if picture.history is not None else []
        step_s = self.params.bf_interval_s
        age_s = picture.now - min([picture.now, *times])
        return ceil(age_s / step_s) * step_s - picture.now

    # --- jobs and nodes ---------------------------------------------------------------------------

    def _world(self) -> SlurmWorld:
        jobs = [self._placed(job) for job in self.picture.jobs if _there(job)]
        waits = [job for job in self.picture.jobs if _waits(job) and eligible(job)]
        waits.sort(key=lambda job: (-job.priority, job.id))
        jobs += [WorldJob(self.spec(job)) for job in waits]
        reasons = {str(job.id): meaning(job.reason) for job in waits}
        return SlurmWorld(
            self.nodes, jobs, self.now_s, self.params,
            down=frozenset(node.name for node in self.picture.nodes if node.health == "lost"),
            closed=frozenset(node.name for node in self.picture.nodes if node.health == "silent"),
            reasons=reasons, partitions=self._partitions,
        )  # fmt: skip

    def spec(self, job: SeenJob) -> JobSpec:
        """A job of Slurm as one of Rota."""
        partition = job.partition.partition(",")[0]  # of several the first: Slurm tries them all
        return JobSpec(
            str(job.id),
            min(job.eligible_s or job.submit_s, self.picture.now) + self._shift_s,
            self._request(job, partition),
            tenant=job.account or job.user,
            user=job.user,
            name=job.name,
            priority=job.priority,
            estimate_s=job.limit_s,
            depends_on=tuple(
                other for other in job.after if other in self._seen and not self._seen[other].over
            ),
            account=job.account,
            partition=partition,
            qos=job.qos,
        )

    def _request(self, job: SeenJob, partition: str) -> Request:
        labels = [*([] if self._whole.get(partition, True) else [partition]), *job.features]
        types = (job.gpu_type,) if job.gpu_type else ()
        nodes = job.node_count
        if nodes > 1:
            each = TaskGroup(
                "worker", nodes, job.gpus / nodes, job.cpus / nodes, job.mem_gib / nodes
            )
            return Request((each,), types, tuple(labels), apart=True)
        return Request.of(
            job.gpus, gpu_types=types, cpus=job.cpus, mem_gib=job.mem_gib, labels=tuple(labels)
        )

    def _placed(self, job: SeenJob) -> WorldJob:
        count = len(job.nodes)
        gpus = job.node_gpus if len(job.node_gpus) == count else [job.gpus / max(count, 1)] * count
        places = {
            name: (float(share), job.cpus / count, job.mem_gib / count)
            for name, share in zip(job.nodes, gpus, strict=True)
        }
        start = min(job.start_s or self.picture.now, self.picture.now)
        return WorldJob(self.spec(job), start + self._shift_s, places)

    def _find(self, name: str) -> SeenJob:
        seen = self._seen.get(name)
        if seen is None:
            seen = next((job for job in self.picture.jobs if job.name == name), None)
        if seen is None:
            near = get_close_matches(name, self._seen, n=3)
            hint = f": did you mean {', '.join(near)}?" if near else ""
            raise InputError(f"Slurm has no job {name!r} among its {len(self._seen):,}{hint}")
        return seen

    # --- questions --------------------------------------------------------------------------------

    def _durations(self) -> Durations:
        past = self._past.finished() if self._past is not None else []
        running = [job for job in self.world.thaw().view.active.values() if is_placed(job)]
        return Durations([*past, *running], self.now_s)

    def _at(self, time_s: float | None) -> float | None:
        return None if time_s is None else time_s - self._shift_s

    def _asked(self, job: str | JobSpec) -> "tuple[SeenJob | None, Proposal | None]":
        if isinstance(job, str):
            return self._find(job), None
        queue = job.tenant or next(iter(self._default()), "")
        if queue and queue not in self._partitions:
            known = ", ".join(self._partitions)
            raise InputError(f"--queue {queue!r}: there is no such partition: there are {known}")
        request = job.request
        if queue and not self._whole[queue]:
            request = msgspec.structs.replace(request, labels=(*request.labels, queue))
        spec = msgspec.structs.replace(
            job, request=request, partition=queue, tenant=job.user, submit_s=self.now_s
        )
        return None, self.world.proposal(spec)

    def _default(self) -> list[str]:
        return [part.name for part in self.params.partitions if part.default]

    def when(
        self,
        job: str | JobSpec,
        *,
        runs: int = 20,
        seed: int = 0,
        told: Callable[[int, int], None] | None = None,
        tested: bool = True,
    ) -> SlurmForecast:
        """When it starts, and (`tested`) how often such answers were right in the last month."""
        seen, proposal = self._asked(job)
        durations = self._durations()
        backtest = StartsBacktest(questions=0, share_inside=None)
        if seen is not None and not _waits(seen):
            return SlurmForecast(
                forecast=self._settled(seen), now_at=self.picture.now, ahead=[], ahead_count=0,
                starts_backtest=backtest,
            )  # fmt: skip
        if seen is not None and str(seen.id) not in self.world.index:
            return SlurmForecast(
                forecast=self._kept_back(seen), now_at=self.picture.now, ahead=[], ahead_count=0,
                starts_backtest=backtest,
            )  # fmt: skip
        engine = self.world.thaw(None, proposal)
        asked = self._job(engine, seen)
        if seen is None:
            refuse_hopeless(engine, asked)
        ahead = self.world.ahead(engine, asked)
        found = foresee(
            self.world, durations, asked.index, again=False, runs=runs, seed=seed, told=told,
            proposal=proposal,
        )  # fmt: skip
        if self._past is not None and tested:
            backtest = self._past.backtest(self.world, durations, seed=seed)
            found = self._widened(found, backtest.stretch, durations.doubt)
        return SlurmForecast(
            forecast=Forecast(
                id=GUEST if seen is None else str(seen.id),
                state="not submitted" if seen is None else seen.state,
                starts_at=self._at(found.starts_s),
                earliest_at=self._at(found.earliest_s),
                latest_at=self._at(found.latest_s),
                share=found.share,
                runs=found.runs,
                never=found.never,
                text=found.text,
                assumptions=self._assumptions(durations),
                backtest=found.backtest,
            ),
            now_at=self.picture.now,
            ahead=[other.id for other in ahead],
            ahead_count=len(ahead),
            starts_backtest=backtest,
            slurm_says=seen.start_s or None if seen is not None else None,
        )

    def _widened(self, found: Foreseen, stretch: float, doubt: str) -> Foreseen:
        """With an interval as wide as the past says that it must be."""
        middle_s, early_s = found.starts_s, found.earliest_s
        if stretch <= 1 or middle_s is None or early_s is None:
            return found
        early_s = max(self.now_s, middle_s - stretch * max(middle_s - early_s, LEAST_WIDTH_S))
        late_s = found.latest_s
        if late_s is not None:
            late_s = middle_s + stretch * max(late_s - middle_s, LEAST_WIDTH_S)
        spread = DurationSpread(middle_s, early_s, INF if late_s is None else late_s, found.share)
        text = sentence(spread, self.now_s, doubt, again=False)
        return msgspec.structs.replace(found, earliest_s=early_s, latest_s=late_s, text=text)

    def _job(self, engine: Engine, seen: SeenJob | None) -> Job:
        if seen is None:
            return self.world.newest(engine)
        return engine.jobs[self.world.index[str(seen.id)]]

    def _assumptions(self, durations: Durations) -> dict[str, Any]:
        rules = "Slurm's configuration" if self.picture.rules.get("conf") else "Slurm's defaults"
        found = {
            "policy": f"slurm, with the priorities that Slurm computed and {rules}",
            **durations.describe(),
            "new_jobs": "none, but those submitted later may have a higher priority",
        }
        if self.params.not_modelled:
            found["not_modelled"] = ", ".join(self.params.not_modelled[:FEW])
        if self.notes:
            found["notes"] = "; ".join(self.notes)
        return found

    def _settled(self, seen: SeenJob) -> Forecast:
        start = seen.start_s or None
        text = "has started already" if _there(seen) else "is over"
        return Forecast(
            id=str(seen.id), state=seen.state, starts_at=start, earliest_at=start, latest_at=start,
            runs=0, never=0, text=text, assumptions={},
        )  # fmt: skip

    def _kept_back(self, seen: SeenJob) -> Forecast:
        begin = seen.eligible_s if seen.reason.startswith("BeginTime") else None
        text = f"is kept back by Slurm ({seen.reason}): no simulation tells when that ends"
        if begin is not None:
            in_s = max(0.0, begin - self.picture.now)
            text = f"begins in {duration(in_s)} at the earliest (BeginTime)"
        return Forecast(
            id=str(seen.id), state=seen.state, starts_at=begin, earliest_at=begin, latest_at=None,
            runs=0, never=0, text=text, assumptions={},
        )  # fmt: skip

    def why(self, job: str | JobSpec, *, runs: int = 20, seed: int = 0) -> Verdict:
        """Why it does not run, and the smallest change that would start it."""
        seen, proposal = self._asked(job)
        if seen is not None and not _waits(seen):
            text = "it runs" if _there(seen) else "it is over"
            return Verdict(id=str(seen.id), state=seen.state, reason="", text=text)
        if seen is not None and str(seen.id) not in self.world.index:
            return self._why_kept_back(seen)
        engine = self.world.thaw(None, proposal)
        asked = self._job(engine, seen)
        if seen is None:
            refuse_hopeless(engine, asked)
        given = proposal or msgspec.structs.replace(
            self.world.proposal(asked.spec, asked.spec.priority), instead_of=asked.index
        )

        def forecast() -> Foreseen:
            return foresee(
                self.world, self._durations(), asked.index, again=False, runs=runs, seed=seed,
                proposal=proposal, tested=False,
            )  # fmt: skip

        state = "not submitted" if seen is None else seen.state
        if seen is not None and is_placed(asked):  # in the model, but not in Slurm
            verdict = self._only_here(seen, engine, asked)
        else:
            verdict = judge(self.world, engine, asked, given, state=state, forecast=forecast)
        if seen is not None and seen.reason:
            verdict.evidence.append(f"Slurm's own reason: {seen.reason}")
        if seen is None and is_placed(asked):
            verdict.text = "it would start now"
        elif verdict.remedy is None:
            verdict.remedy = wait_for(forecast(), self.now_s)
        return verdict

    def _only_here(self, seen: SeenJob, engine: Engine, asked: Job) -> Verdict:
        reason = meaning(seen.reason) or Reason.UNKNOWN.label
        ahead = self.world.ahead(engine, asked)
        text = TEXTS.get(Reason[reason.upper()], "Slurm does not tell why")
        return Verdict(
            id=str(seen.id), state=seen.state, reason=reason,
            text=f"{text}; by the rules that are known here it would start at the next look",
            ahead=[other.id for other in ahead[:FEW]], ahead_count=len(ahead),
            remedy=Remedy(
                kind="wait", starts_in_s=0.0,
                text="none is known: wait for Slurm's next look, or see `scontrol show job`",
            ),
        )  # fmt: skip

    def _why_kept_back(self, seen: SeenJob) -> Verdict:
        reason = meaning(seen.reason) or Reason.ADMISSION.label
        evidence = [f"Slurm's own reason: {seen.reason}"]
        remedy = Remedy(kind="none", text="no change of its request would start it")
        if seen.held or seen.reason.startswith("JobHeld"):
            remedy = Remedy(kind="release", text=f"release it: `scontrol release {seen.id}`")
        elif seen.after:
            evidence.append(f"it waits for {', '.join(seen.after)}")
            remedy = Remedy(kind="after", text="it can start when those have ended")
        elif seen.reason.startswith("BeginTime"):
            in_s = max(0.0, seen.eligible_s - self.picture.now)
            remedy = Remedy(
                kind="wait", starts_in_s=in_s, text=f"its begin time comes in {duration(in_s)}"
            )
        elif reason == Reason.QUOTA.label:
            who = seen.user
            mine = sum(job.gpus for job in self.picture.jobs if _there(job) and job.user == who)
            evidence.append(f"{who} has {mine:g} GPUs in use; it asks for {seen.gpus:g}")
            remedy = Remedy(kind="none", text="it can start when jobs under the same limit end")
        return Verdict(
            id=str(seen.id), state=seen.state, reason=reason,
            text=f"{TEXTS[Reason[reason.upper()]]} ({seen.reason}); {remedy.text}",
            evidence=evidence, remedy=remedy,
        )  # fmt: skip


def _spec(node: SeenNode) -> NodeSpec:
    labels = tuple(dict.fromkeys((*node.partitions, *node.features)))
    return NodeSpec(node.name, node.gpus, node.gpu_type, node.cpus, node.mem_gib, (), labels)


def _waits(job: SeenJob) -> bool:
    return job.state == PENDING


def _there(job: SeenJob) -> bool:
    """It holds nodes."""
    return job.state != PENDING and not job.over and bool(job.nodes)
