"""Every exception that Rota raises on purpose.

RotaError
├── InputError            something the user gave is wrong: names the file, the value and the remedy
│   ├── TraceError        a workload file
│   ├── ClusterSpecError  a cluster description
│   ├── OptionError       a policy, placement, cost model, ... or one of its parameters
│   └── StateError        a saved state that this version cannot take up
├── OutputError           results cannot be written where the user asked
├── PolicyError           a policy broke its contract; the engine never repairs silently
│   ├── InvalidPlanError  the plan cannot be carried out
│   ├── KnowledgeError    the policy read something that it did not declare
│   └── LivelockError     the policy asks to be woken again and again without changing anything
├── SolverError           an optimisation problem has no usable answer
│   ├── InfeasibleError   its constraints contradict each other
│   ├── UnboundedError    its objective has no limit
│   └── SolverLimitError  no answer within the time or the number of steps allowed
├── PhaseError            a rate model tells of a phase that cannot be
├── TransitionError       a job was driven through an impossible change of phase
├── InvariantError        a check of `--check` failed: a bug in the engine or in a cluster
├── ClusterError          the outside failed; `retryable` says whether trying again can help
│   └── GoneError         the beginning of an output is not kept any more; `first` says what is
└── RequestError          the daemon refuses a request
    ├── NotFoundError     there is no such job, node, ...
    ├── ForbiddenError    the role does not allow it
    ├── ConflictError     not in its present state
    └── UnavailableError  the daemon cannot accept anything now: try again
"""

import errno
import os
import re


class RotaError(Exception):
    """Base of all errors that Rota raises on purpose."""


class InputError(RotaError):
    """Something the user gave is wrong."""


class TraceError(InputError):
    """A workload file cannot be read as asked."""


class ClusterSpecError(InputError):
    """A cluster description is wrong."""


class OptionError(InputError):
    """A named part (policy, placement, ...) or a parameter of it is unknown or has a bad value."""


class StateError(InputError):
    """A saved state is of another version than this Rota reads, or damaged."""


class OutputError(RotaError):
    """Results cannot be written where the user asked."""


def why_unwritten(error: OSError, otherwise: str) -> str:
    """What is wrong with a place that cannot be written, and the remedy.

    Args:
        error: What the system (or polars, which tells its number in the text only) said.
        otherwise: The remedy unless the disk is full.
    """
    found = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno or (int(found[1]) if found else 0)
    if number in _FULL:
        return (
            f"cannot be written ({os.strerror(number)}): free some space or choose a place on "
            f"another disk; nothing was written"
        )
    return f"cannot be written ({error.strerror or error}): {otherwise}"


EXTRAS = {
    "solve": ("highspy", "scipy"),
    "plot": ("matplotlib", "PIL"),
    "server": (
        "alembic", "anyio", "cryptography", "httpx2", "prometheus_client", "jwt", "sqlalchemy",
        "starlette", "structlog", "uvicorn",
    ),
    "postgres": ("psycopg",),
    "ray": ("ray",),
    "perfetto": ("perfetto",),
    "otel": ("opentelemetry",),
}  # fmt: skip
"""What may be left out of an installation, by the names under which it is imported."""


def lacking(error: ImportError) -> str:
    """What to install if a package of an extra is not there; empty: it is something else."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return f"{package} is missing, which this command needs: {install(extra)}"
    return ""


def install(extra: str) -> str:
    """How to get the packages of an extra; there is no release on an index yet."""
    return (
        f"in a checkout of Rota run `python -m pip install -e '.[{extra}]'`, elsewhere install its "
        f"wheel with [{extra}]"
    )


def is_full(error: OSError) -> bool:
    """There is no more room, wherever it was."""
    return "another disk" in why_unwritten(error, "")


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PolicyError(RotaError):
    """A policy broke its contract."""


class InvalidPlanError(PolicyError):
    """The plan cannot be carried out on the present state."""


class KnowledgeError(PolicyError):
    """A policy read something that it did not declare in `knowledge`."""


class LivelockError(PolicyError):
    """A policy asks to be woken at the same instant again and again without changing anything."""


class SolverError(RotaError):
    """An optimisation problem has no usable answer."""


class InfeasibleError(SolverError):
    """The constraints contradict each other."""


class UnboundedError(SolverError):
    """The objective can grow without limit: a constraint is missing."""


class SolverLimitError(SolverError):
    """No answer within the time or the number of steps allowed."""


class PhaseError(RotaError):
    """A rate model tells of a phase that cannot be."""


class TransitionError(RotaError):
    """A job was driven through an impossible change of phase."""


class InvariantError(RotaError):
    """An invariant of the engine does not hold."""


class ClusterError(RotaError):
    """The cluster behind the port failed."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class GoneError(ClusterError):
    """What was asked for is not kept any more; `first` is the offset of the first byte that is."""

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message)
        self.first = first


class RequestError(RotaError):
    """The daemon refuses a request."""


class NotFoundError(RequestError):
    """There is no such job, node, ..."""


class ForbiddenError(RequestError):
    """The caller's role does not allow it."""


class ConflictError(RequestError):
    """It makes no sense in the present state."""


class UnavailableError(RequestError):
    """The daemon cannot accept anything at the moment; nothing was changed."""
