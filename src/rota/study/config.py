"""Everything that determines a run, as one frozen value; the small languages of its options."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from rota.core import events as ev
from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.registry import parse_params

DEFAULT_COSTS = "zero"
DEFAULT_RATES = "uniform"

ENDS = frozenset(
    {ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_STOPPED, ev.JOB_CANCELLED, ev.JOB_EVICTED,
     ev.NODE_DOWN, ev.NODE_UP}
)  # fmt: skip

S = TypeVar("S", bound=msgspec.Struct)


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as texts: the same configuration and files give the same log.

    None means "not said": a dialect may then choose, else the default holds.
    """

    trace: str
    cluster: str
    policy: str
    format: str | None = None
    limit: int | None = None
    window: str | None = None
    placement: str | None = None
    admission: str | None = None
    costs: str | None = None
    rates: str | None = None
    like: str | None = None
    seed: int = 0
    round: str | None = None
    estimate_error: str | None = None
    speed_error: str | None = None
    mtbf: float | None = None
    mttr: float | None = None
    outages: Literal["recorded"] | None = None  # nodes fail as they did where the jobs come from
    measure: str | None = None
    check: bool = False
    maintenance: tuple[str, ...] = ()  # as `core.windows` reads them
    reserve: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data: what was said, nothing else."""
        return {
            key: value
            for key, value in msgspec.structs.asdict(self).items()
            if value not in (None, False, ())
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        """From the plain data of `as_dict`."""
        return msgspec.convert(data, cls)


class RoundOptions(msgspec.Struct, frozen=True):
    """Decisions only at multiples of `every_s`, with what published simulators do differently.

    `refill`: GPUs that become free within a round are given out at once. `arrivals`: new jobs are
    looked at when they come (`now`) or wait for the next round. `finish`: jobs end when they are
    done (`exact`) or only at the end of a round (`boundary`).
    """

    every_s: float
    refill: bool = False
    arrivals: str = "round"
    finish: str = "exact"

    @property
    def wake(self) -> Wake:
        """The engine's form."""
        on = ENDS if self.refill else frozenset()
        if self.arrivals == "now":
            on |= {ev.JOB_SUBMIT}
        return Wake(on=frozenset(on), every_s=self.every_s)

    @property
    def finish_round_s(self) -> float:
        """The cluster's form."""
        return self.every_s if self.finish == "boundary" else 0.0


class EstimateError(msgspec.Struct, frozen=True):
    """How wrong an oracle is: per job a factor with mean 1 + bias, coefficient of variation cv."""

    cv: float = 0.0
    bias: float = 0.0

    @property
    def sigma(self) -> float:
        """Of the logarithm of the factor."""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def mu(self) -> float:
        """Of the logarithm of the factor."""
        return math.log1p(self.bias) - self.sigma**2 / 2


def parse_rounds(text: str) -> RoundOptions:
    """From `300` or `300,refill=yes,arrivals=now,finish=boundary`."""
    length, *parts = text.split(",")
    every_s = _number(length)
    if not 0 < every_s < math.inf:
        raise OptionError(f"round {text!r}: {length!r} is not a length in seconds: write e.g. 300")
    rounds = _struct(
        "round", text, RoundOptions, {"every_s": length, **_pairs("round", text, parts)}
    )
    if rounds.arrivals not in ("now", "round") or rounds.finish not in ("exact", "boundary"):
        raise OptionError(
            f"round {text!r} is not understood: arrivals is now or round, "
            f"finish is exact or boundary, refill is yes or no"
        )
    return rounds


def parse_estimate_error(text: str, option: str = "estimate-error") -> EstimateError:
    """From `cv=0.5,bias=0.1`; what is left out is 0."""
    options = _pairs(option, text, text.split(","))
    error = _struct(option, text, EstimateError, options)
    if not (0 <= error.cv < math.inf and -1 < error.bias < math.inf):
        raise OptionError(f"{option} {text!r}: give cv of 0 or more and bias above -1")
    return error


def _pairs(option: str, text: str, parts: list[str]) -> dict[str, str]:
    pairs = {}
    for part in parts:
        match = re.fullmatch(r"\s*([\w-]+)\s*=\s*(\S+)\s*", part)
        if not match:
            raise OptionError(f"{option} {text!r}: {part!r} is not key=value")
        pairs[match[1].replace("-", "_")] = match[2]
    return pairs


def _struct(option: str, text: str, kind: type[S], values: Mapping[str, str]) -> S:
    parsed: S = parse_params(f"{option} {text!r}", kind, values)
    return parsed


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
