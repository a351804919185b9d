"""Jobs and pods of DeepBoot's simulator, and what its policies see of the loop."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rota.core.events import INF
from rota.core.jobs import JobSpec
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.reproduce.deepboot.training import DeepBootTrainee

PROTECT_S, BONUS_S, MOST_S = 30, 15, 120
RUNNING, PROTECTED, ASLEEP = "RUNNING", "PROTECT", "SLEEP"

Nodes = list[int]
"""A node for each GPU."""


class DeepBootPod:
    """Where inference runs: busy, protected for a while, or asleep."""

    __slots__ = ("app", "hits", "live_s", "name", "state", "until_s")

    def __init__(self, name: str, app: str) -> None:
        self.name = name  # of the job that it was made for
        self.app = app
        self.state = RUNNING
        self.live_s = PROTECT_S
        self.hits = 0
        self.until_s = INF

    def protect(self) -> int:
        """How long it is kept for the next request."""
        return int(min(PROTECT_S + self.hits * BONUS_S, MOST_S))

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [self.name, self.state, self.live_s, self.hits, self.until_s]

    @classmethod
    def restored(cls, name: str, app: str, state: Sequence[Any]) -> "DeepBootPod":
        """From the state of `snapshot`, after its name."""
        made = cls(name, app)
        made.state, made.live_s, made.hits, made.until_s = state
        return made


class BootJob:
    """A job in the loop's accounts; `trainee` None: inference."""

    def __init__(
        self, number: int, spec: JobSpec, duration_s: float, trainee: DeepBootTrainee | None
    ) -> None:
        self.number = number
        self.name = spec.id
        self.app = spec.model
        self.submit_s = spec.submit_s
        self.gpus = int(spec.request.sizes[1])
        self.asked = int(ordered_sum(group.count * group.gpus for group in spec.request.groups))
        self.duration_s = duration_s
        self.trainee = trainee
        self.begun_s: float | None = None  # inference: when its pod was placed
        self.ready_s: float = INF
        self.done_s: float | None = None
        self.pod: DeepBootPod | None = None
        self.cached = False
        self.attained = 0.0

    @property
    def learner(self) -> DeepBootTrainee:
        """Of a training job."""
        if self.trainee is None:
            raise TypeError(f"{self.name} is inference")
        return self.trainee

    @property
    def over_s(self) -> float | None:
        """When it is done, once that is known."""
        return self.done_s if self.trainee is None else self.trainee.done_s

    @property
    def service(self) -> float:
        """By which policies order jobs."""
        return self.attained if self.trainee is None else self.trainee.attained

    def snapshot(self) -> list[Any]:
        """As plain data: what happened to it."""
        return [
            self.begun_s, self.ready_s, self.done_s, self.cached, self.attained,
            None if self.pod is None else self.pod.name,
            None if self.trainee is None else self.trainee.snapshot(),
        ]  # fmt: skip

    def restore(self, state: Sequence[Any], pods: Mapping[str, DeepBootPod]) -> None:
        """Take the state of `snapshot` up again; `pods`: of its application."""
        self.begun_s, self.ready_s, self.done_s, self.cached, self.attained, pod, training = state
        self.pod = None if pod is None else pods.get(pod, DeepBootPod(pod, self.app))
        if self.trainee is not None:
            self.trainee.restore(training)


class BootAccounts(Protocol):
    """The loop, as far as policies ask it."""

    topology: Topology

    def asleep(self) -> set[str]:
        """Names of pods that may be taken away."""
        ...
