"""What a dialect is: the assumptions and quirks of a published simulator, as one object.

`--like NAME` asks a dialect for what it decides (rounds, costs, placement, and a scheduler for
its own meaning of a policy's name), so that the simulator's published numbers come out. Options
that the user gives win; what a dialect cannot honour it refuses, never ignoring it silently. The
clean policies know nothing of any of this.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from rota.core.admission import Admission
from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.jobs import Shape
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.registry import DIALECTS, load, parse_params, split
from rota.core.topology import Topology
from rota.core.workload import Workload

P = TypeVar("P", bound=Params)


class Dialect(ABC):
    """Base of all dialects; an instance is one configured `--like NAME:key=value`."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    """Paper and repository, and where the quirks are documented."""
    policies: ClassVar[Mapping[str, str]]
    """Names that `build` understands, each with the simulator's own name for it."""
    Parameters: ClassVar[type[Params]] = Params
    like_format: ClassVar[tuple[str, ...]] = ()
    """Parameters that are those of the trace's format unless they are given."""

    placement: str
    """Used unless the user names one."""
    costs: str = "zero"
    rates: str | None = None
    """Used unless the user names some; None: the common default."""
    finish_round_s: float = 0.0
    """Jobs end only at multiples of it; 0: exactly."""
    wake: Wake | None = None
    """Imposed on the engine; None: as the scheduler wishes."""
    endless: bool = False
    """No job ever ends: a run ends when the last job has come (a study of placements)."""

    def __init__(self, params: Params | None = None) -> None:
        self.params: Any = params if params is not None else self.Parameters()

    def in_rounds(self, round_s: float) -> None:
        """Decide, and end jobs, only at multiples of so many seconds."""
        if round_s < 1:
            raise OptionError(
                f"dialect {self.name!r}: round={round_s}: give at least 1 second, e.g. round=300"
            )
        self.finish_round_s = float(round_s)
        self.wake = Wake(on=frozenset(), every_s=round_s)

    @property
    @abstractmethod
    def notes(self) -> dict[str, str]:
        """Every quirk and departure by name, for the assumptions printed with each result."""

    @abstractmethod
    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The scheduler for `name` or `name:key=value,..`; no placement means the dialect's own."""

    def rates_for(self, policy_text: str) -> str | None:  # noqa: ARG002 - most have one model
        """The rates under a policy, unless the user names some; None: the common default."""
        return self.rates

    def adapt(self, workload: Workload) -> Workload:
        """The jobs as the simulator sees them."""
        return workload

    def meet(self, scheduler: Scheduler, workload: Workload, topology: Topology) -> None:  # noqa: B027
        """Tell a scheduler from `build` what its jobs will be, if it shall know."""

    def policy(self, text: str) -> tuple[str, dict[str, str]]:
        """A policy of this dialect with its options; an unknown name is refused."""
        name, options = split(text)
        if name not in self.policies:
            known = ", ".join(
                mine if mine == theirs else f"{mine} (their {theirs})"
                for mine, theirs in self.policies.items()
            )
            raise OptionError(f"dialect {self.name!r} knows no policy {name!r}: it knows {known}")
        return name, options

    def require_own_placement(self, given: str | None, instead: str = "") -> None:
        """It places jobs itself: refuse another placement (`instead`: what else can be done)."""
        if given not in (None, self.placement):
            raise OptionError(
                f"dialect {self.name!r} knows the placement {self.placement!r} without options, "
                f"not {given!r}: leave --placement out{instead}, or leave --like out"
            )

    def plain_policy(
        self, text: str, placement: str | None, topology: Topology, *, instead: str = ""
    ) -> str:
        """Its policy, where none has options; refuses other placements and several GPU types."""
        name, options = self.policy(text)
        self.parameters(name, Params, options)
        require_one_type(topology, self.name)
        self.require_own_placement(placement, instead)
        return name

    def parameters(self, name: str, params_type: type[P], options: Mapping[str, str]) -> P:
        """Typed parameters of one of its policies."""
        params: P = parse_params(f"dialect {self.name!r}, policy {name!r}", params_type, options)
        return params


def create(text: str, format_text: str | None = None) -> Dialect:
    """The dialect for `name` or `name:key=value,..`, found through the registry.

    Args:
        text: As given.
        format_text: How the trace is read: a dialect may need the same files.
    """
    name, options = split(text)
    kind: type[Dialect] = load(DIALECTS, name)
    said = split(format_text or "")[1]
    options = {key: said[key] for key in kind.like_format if key in said} | options
    return kind(parse_params(f"dialect {name!r}", kind.Parameters, options))


class Everyone(Admission):
    """The published simulators let every job in."""

    name = "all"
    trivial = True


def require_one_type(topology: Topology, dialect: str) -> None:
    """The simulators with one kind of GPU say nothing about several."""
    if len(topology.types) > 1:
        raise OptionError(
            f"dialect {dialect!r} knows one type of GPU, this cluster has "
            f"{', '.join(kind or 'untyped' for kind in topology.types)}: "
            f"use a cluster of one type, or leave --like out"
        )


def refusal(shape: Shape, topology: Topology) -> str | None:
    """Why a simulator that counts whole GPUs of one type can never run this; None if it can."""
    if shape.gpus < 1 or shape.gpus != int(shape.gpus):
        return f"asks for {shape.describe()}, but this dialect counts whole GPUs: ask for 1 or more"
    if shape.gpus > topology.gpus:
        return f"asks for {shape.describe()}, but the whole cluster has {topology.gpus} GPUs"
    if shape.types and not set(shape.types) & set(topology.types):
        return f"asks for {shape.describe()}, but the cluster has no such GPUs"
    if any(label not in node.labels for label in shape.labels for node in topology.nodes):
        return f"asks for {shape.describe()}, but this dialect does not tell nodes apart"
    return None
