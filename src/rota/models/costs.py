"""What starting, stopping and moving jobs costs, as named presets.

Published simulators charge very different costs, so that their numbers cannot be compared: every
result states the cost model it was made with (`describe`). A preset is chosen by name, and its
parameters can be changed: `pollux30:start_s=20`. A YAML file can say the same (`load_costs`).

All presets understand `checkpoint_s`: a running job saves its progress each time it has run for so
many seconds, and loses what it did since when its node dies. 0 means that a failure destroys
nothing, inf that all work since the job was started is lost. Stopping a job in order saves its
progress, except for the lost work that a preset charges.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.policy import Params
from rota.core.ports import FREE, Costs, TransitionCost
from rota.core.registry import COSTS, load, parse_params, split

Amount = Annotated[float, msgspec.Meta(ge=0)]
Factor = Annotated[float, msgspec.Meta(gt=0)]
ONE_NODE_GPUS = 8  # Helios and Lucid assume nodes of this size


class CostParams(Params, frozen=True):
    """What all presets understand."""

    checkpoint_s: Amount = 0.0


P = TypeVar("P", bound=CostParams)


class CostModel(Generic[P]):
    """Common part of all presets; implements `core.ports.Costs`.

    `free` promises that nothing ever costs anything, `instant_stop` that stopping takes no time.
    """

    name: str = ""
    source: ClassVar[str] = ""
    Parameters: ClassVar[type[CostParams]] = CostParams

    def __init__(self, params: P | None = None) -> None:
        self.params: P = params if params is not None else self.Parameters()  # type: ignore[assignment]  # the subclass pairs P with Parameters
        self.free = False
        self.instant_stop = True

    def transition(
        self,
        job: Job,
        old: Allocation | None,
        new: Allocation | None,
        now_s: float,  # noqa: ARG002 - for those whom it concerns
    ) -> TransitionCost:
        """From what the job holds (None: it waits) to `new` (None: it stops)."""
        if new is None:
            return self.stop(job)
        if old is None:
            return self.start(job, new)
        return self.move(job, old, new)

    def start(self, job: Job, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """A job that holds nothing starts, for the first time or again."""
        return FREE

    def stop(self, job: Job) -> TransitionCost:  # noqa: ARG002
        """A job returns to the queue."""
        return FREE

    def move(self, job: Job, old: Allocation, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """A job goes from its slices to others at once: by default it is stopped and started."""
        stop, start = self.stop(job), self.start(job, new)
        return TransitionCost(
            stop.stop_s, start.start_s, stop.lost_work, start.slow_s, start.slow_factor
        )

    def failure_loss(self, job: Job, now_s: float) -> float:
        """The work since the last checkpoint, at most that since the job was started."""
        every_s = self.params.checkpoint_s
        if not every_s or job.phase != RUNNING:
            return 0.0
        since_checkpoint_s = job.executed_s(now_s) % every_s
        return min(since_checkpoint_s, now_s - job.start_s) * job.true_rate

    def describe(self) -> Mapping[str, Any]:
        """Name, parameters and source."""
        parameters = {k: v for k, v in msgspec.structs.asdict(self.params).items() if v is not None}
        return {"name": self.name, **parameters, "source": self.source}


def starts_first(job: Job) -> bool:
    """The job never held anything before this start."""
    if job.phase == WAITING:
        return job.first_start_s == INF
    return job.first_start_s == job.start_s


# --- the same for every job -----------------------------------------------------------------------


class FixedParams(CostParams, frozen=True):
    """Constants; None means the same as `start_s`.

    Attributes:
        start_s: Without progress at every start, on the new slices.
        first_s: Instead of `start_s` at a job's first start.
        move_s: Instead of `start_s` when a running job moves.
        stop_s: Without progress after every stop and at the begin of a move, on the old slices.
        abort_s: Instead of `stop_s` when the job was still being started; None: the same.
        lost_work_s: Work to be done again after every stop and move.
        slow_s: How long the rate is times `slow_factor` after every start and move.
        slow_factor: See `slow_s`.
    """

    start_s: Amount = 0.0
    first_s: Amount | None = None
    move_s: Amount | None = None
    stop_s: Amount = 0.0
    abort_s: Amount | None = None
    lost_work_s: Amount = 0.0
    slow_s: Amount = 0.0
    slow_factor: Factor = 1.0


class Custom(CostModel[FixedParams]):
    """Any constants, all 0 unless given."""

    name = "custom"
    source = "given by the user"
    Parameters = FixedParams

    def __init__(self, params: FixedParams | None = None) -> None:
        super().__init__(params)
        p = self.params
        first_s = p.start_s if p.first_s is None else p.first_s
        move_s = p.start_s if p.move_s is None else p.move_s
        slow_s, factor = p.slow_s, p.slow_factor
        self._first = TransitionCost(start_s=first_s, slow_s=slow_s, slow_factor=factor)
        self._again = TransitionCost(start_s=p.start_s, slow_s=slow_s, slow_factor=factor)
        self._stop = TransitionCost(stop_s=p.stop_s, lost_work=p.lost_work_s)
        self._move = TransitionCost(p.stop_s, move_s, p.lost_work_s, slow_s, factor)
        self._abort, self._redirect = self._stop, self._move
        if p.abort_s is not None:  # there is no work yet that could be lost
            self._abort = TransitionCost(stop_s=p.abort_s)
            self._redirect = TransitionCost(p.abort_s, move_s, 0.0, slow_s, factor)
        self.instant_stop = not (p.stop_s or p.abort_s)
        slows = slow_s > 0 and factor != 1
        self.free = not (
            p.start_s or first_s or move_s or p.stop_s or p.abort_s or p.lost_work_s or slows
            or p.checkpoint_s
        )  # fmt: skip

    def start(self, job: Job, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """The first start may cost something else."""
        return self._first if starts_first(job) else self._again

    def stop(self, job: Job) -> TransitionCost:
        """To stop a start may cost something else."""
        return self._abort if job.phase == STARTING else self._stop

    def move(self, job: Job, old: Allocation, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """To stop a start may cost something else."""
        return self._redirect if job.phase == STARTING else self._move


class Zero(Custom):
    """Everything is free and nothing is lost: the simulator of Tiresias, and most theory."""

    name = "zero"
    source = "Tiresias' simulator (Gu et al., NSDI 2019): counts preemptions, charges no time"


class Pollux30Params(FixedParams, frozen=True):
    """30 s at every start, also the first, and at every move."""

    start_s: Amount = 30.0


class Pollux30(Custom):
    """30 s without progress after every (re)allocation, the first included; stopping is free."""

    name = "pollux30"
    source = "Pollux' simulator (Qiao et al., OSDI 2021): rescale_time = 30 at each reallocation"
    Parameters = Pollux30Params


class Migrate8Params(FixedParams, frozen=True):
    """8 s at every move."""

    move_s: Amount | None = 8.0


class Migrate8(Custom):
    """8 s without progress when a running job moves; starting and stopping are free."""

    name = "migrate8"
    source = "AnalySIM (DL_cluster_simulator): adds 8 s per migration"
    Parameters = Migrate8Params


class SuspendParams(FixedParams, frozen=True):
    """0.1 s to suspend, 0.1 s to resume."""

    start_s: Amount = 0.1
    first_s: Amount | None = 0.0
    stop_s: Amount = 0.1


class Suspend(Custom):
    """Suspend and resume in less than a second together; the first start is free.

    The paper reports about a tenth of a second for most models. This is quoted from memory: fit the
    numbers to your own system before you rely on them.
    """

    name = "suspend"
    source = "Gandiva (Xiao et al., OSDI 2018): suspend and resume in about 100 ms"
    Parameters = SuspendParams


class DecimaParams(FixedParams, frozen=True):
    """2 s to move executors to the job and 1 s to warm them up, at every start and move."""

    start_s: Amount = 3.0


class Decima(Custom):
    """2 s to bring executors to a job plus 1 s to warm them up, whenever it gets new ones."""

    name = "decima"
    source = "Decima's simulator (Mao et al., SIGCOMM 2019): moving_delay 2000, warmup_delay 1000"
    Parameters = DecimaParams


# --- by size or state of the job ------------------------------------------------------------------


class SizedParams(CostParams, frozen=True):
    """Seconds of work that a preempted job loses: with 1 GPU, with up to 8, with more."""

    one_s: Amount = 7.0
    node_s: Amount = 30.0
    more_s: Amount = 60.0


class HeliosCosts(CostModel[SizedParams]):
    """A preempted or moved job has so much more to do, by its size; the rest is free."""

    name = "helios"
    source = "Helios' simulator (Hu et al., SC 2021): remaining time grows by 7 / 30 / 60 s"
    Parameters = SizedParams

    def stop(self, job: Job) -> TransitionCost:
        """Lose work."""
        if job.gpus <= 1:
            return TransitionCost(lost_work=self.params.one_s)
        few = job.gpus <= ONE_NODE_GPUS
        return TransitionCost(lost_work=self.params.node_s if few else self.params.more_s)


class LucidParams(SizedParams, frozen=True):
    """40 s with up to 8 GPUs, 60 s with more."""

    one_s: Amount = 40.0
    node_s: Amount = 40.0


class LucidCosts(HeliosCosts):
    """As `helios` with the numbers of Lucid."""

    name = "lucid"
    source = "Lucid's simulator (Hu et al., ASPLOS 2023): remaining time grows by 40 / 60 s"
    Parameters = LucidParams


class BytesParams(CostParams, frozen=True):
    """Size of a checkpoint, speed of the storage, and the time to start a container."""

    checkpoint_gib: Amount = 1.0
    write_gib_s: Factor = 1.0
    read_gib_s: Factor = 1.0
    container_s: Amount = 10.0


class Bytes(CostModel[BytesParams]):
    """Write a checkpoint to stop; start a container and read the checkpoint to go on.

    The defaults are round numbers, made to be replaced by measured ones.
    """

    name = "bytes"
    source = "first principles: bytes / bandwidth + container start; fit the numbers to live runs"
    Parameters = BytesParams

    def __init__(self, params: BytesParams | None = None) -> None:
        super().__init__(params)
        p = self.params
        self._first = TransitionCost(start_s=p.container_s)
        self._again = TransitionCost(start_s=p.container_s + p.checkpoint_gib / p.read_gib_s)
        self._stop = TransitionCost(stop_s=p.checkpoint_gib / p.write_gib_s)
        self.instant_stop = not p.checkpoint_gib

    def start(self, job: Job, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """At first there is no checkpoint to read."""
        return self._first if starts_first(job) else self._again

    def stop(self, job: Job) -> TransitionCost:  # noqa: ARG002 - the same for all
        """Write the checkpoint."""
        return self._stop

    def move(self, job: Job, old: Allocation, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """Write it here, read it there."""
        return TransitionCost(self._stop.stop_s, self._again.start_s)


# --- from texts -----------------------------------------------------------------------------------


def make_costs(text: str) -> Costs:
    """The cost model for `name` or `name:key=value,key=value`."""
    name, options = split(text)
    return _made(name, options)


def load_costs(text: str) -> Costs:
    """The cost model that a YAML text describes.

    The key `preset` names where to begin (`custom` if left out), `name` how results call it; all
    other keys are parameters of the preset:

    ```yaml
    name: our-cluster
    preset: bytes
    checkpoint_gib: 2.5
    container_s: 25
    ```

    Raises:
        OptionError: The text is no YAML, or a key or value is wrong.
    """
    from rota.core.yaml_text import YAMLError, read_yaml

    try:
        content = read_yaml(text)
    except YAMLError as error:
        raise OptionError(f"the cost file is not YAML ({error}): correct it") from error
    if not isinstance(content, dict):
        raise OptionError(
            "the cost file holds no keys: give a preset and its parameters, e.g. `start_s: 20`"
        )
    options = {str(key): value for key, value in content.items()}
    preset = str(options.pop("preset", Custom.name))
    name = options.pop("name", None)
    costs = _made(preset, options)
    if name is not None:
        costs.name = str(name)
    return costs


def _made(name: str, options: Mapping[str, Any]) -> CostModel[Any]:
    kind: type[CostModel[Any]] = load(COSTS, name)
    params = parse_params(f"costs {name!r}", kind.Parameters, options)
    if isinstance(params, FixedParams) and bool(params.slow_s) != (params.slow_factor != 1):
        raise OptionError(
            f"costs {name!r}: slow_s={params.slow_s:g} has no effect with slow_factor="
            f"{params.slow_factor:g}: give both, e.g. slow_s=60 and slow_factor=0.5, or none"
        )
    return kind(params)
