"""Names that go into Slurm and into paths, and the mark by which Rota finds its jobs again."""

import re
from hashlib import sha256

import msgspec

from rota.core.errors import ClusterError

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
MARK = "rota"


def plain(what: str, text: str) -> str:
    """The text itself if it can be part of a path and of a command; raises otherwise."""
    if PLAIN.fullmatch(text) is None:
        raise ClusterError(f"{what} {text!r} cannot be used with Slurm: only letters, digits, ._-")
    return text


def job_name(name: str, job: str) -> str:
    """How the job is called in `squeue`."""
    return UNUSUAL.sub("-", name).strip("-.")[:60] or f"rota-{job}"


class Mark(msgspec.Struct, frozen=True):
    """The comment of a Slurm job: whose it is and which run it carries out.

    `restarts` is Slurm's own count at the moment when the run was ordered: when it is higher, the
    run is over. `shape` tells whether another run of the same job can reuse the Slurm job.
    """

    store: str
    run: str
    restarts: int
    shape: str

    def text(self) -> str:
        """As a comment."""
        return ":".join((MARK, self.store, self.run, str(self.restarts), self.shape))

    @property
    def job(self) -> str:
        """The job of Rota."""
        return self.run.rpartition(".")[0] or self.run


def read_mark(comment: str, store: str) -> Mark | None:
    """The mark of this store in a comment; None if there is none."""
    parts = comment.split(":")
    if len(parts) != 5 or parts[:2] != [MARK, store] or not parts[3].isdecimal():  # noqa: PLR2004
        return None
    return Mark(store, parts[2], int(parts[3]), parts[4])


def fingerprint(*texts: str) -> str:
    """A short name for what texts say together."""
    return sha256("\0".join(texts).encode()).hexdigest()[:12]
