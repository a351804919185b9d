"""The one place where commands of Slurm are called: argument lists, time limits, no shell.

To only watch, use `SlurmQueries`: it has no other verbs, and refuses everything else.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rota.core.errors import ClusterError
from rota.live.drivers.slurm.layout import SeenJob, SeenNode, read_jobs, read_nodes

Recorder: TypeAlias = Callable[[tuple[str, ...]], None]
"""Told of every command before it is called."""

TIMEOUT_S = 20.0
SHOWS_NODES = (23, 2)  # from this version on `sinfo --json` groups nodes, `scontrol` knows --json
OURS = ("ROTA_",)  # never reaches a job: there may be tokens among them
INPUTS = re.compile(r"(SBATCH|SQUEUE|SINFO|SCANCEL|SALLOC|SLURM)_")  # would change what we ask for
READING = frozenset({"squeue", "sinfo", "sacct"})


class SlurmQueries:
    """Questions. `call` refuses everything that could change something."""

    def __init__(
        self,
        conf: str = "",
        *,
        timeout_s: float = TIMEOUT_S,
        recorder: Recorder | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        source = os.environ if environ is None else environ
        kept = {
            name: value
            for name, value in source.items()
            if not name.startswith(OURS) and (name == "SLURM_CONF" or not INPUTS.match(name))
        }
        self._env = {**kept, **({"SLURM_CONF": conf} if conf else {})}
        self._timeout_s = timeout_s
        self._recorder = recorder
        self._version: tuple[int, int] | None = None

    def allowed(self, argv: Sequence[str]) -> bool:
        """Does it only read?"""
        return argv[0] in READING or tuple(argv[:2]) in {
            ("scontrol", "show"), ("scontrol", "ping"), ("scontrol", "--version"),
        }  # fmt: skip

    def call(self, *argv: str, unix_times: bool = False) -> str:
        """What the command prints; `unix_times`: with seconds since 1970, if it prints times.

        Raises:
            ClusterError: It failed; `retryable` if the controller did not answer.
        """
        if not self.allowed(argv):
            raise ClusterError(f"{' '.join(argv[:2])!r} is refused: only reading is allowed here")
        if self._recorder is not None:
            self._recorder(argv)
        try:
            done = subprocess.run(  # noqa: S603 - a list of arguments; no shell looks at it
                argv,
                env={**self._env, **({"SLURM_TIME_FORMAT": "%s"} if unix_times else {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{argv[0]} did not answer within {self._timeout_s:g} s", retryable=True
            ) from error
        except OSError as error:
            raise ClusterError(
                f"cannot call {argv[0]} ({error.strerror}): are Slurm's commands installed and on "
                f"the PATH?"
            ) from error
        if done.returncode:
            raise _failure(argv, done.stderr.decode(errors="replace"), done.returncode)
        return done.stdout.decode(errors="replace")

    # --- questions -------------------------------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """Year and month of the release."""
        if self._version is None:
            text = self.call("sinfo", "--version")
            found = re.search(r"(\d+)\.(\d+)", text)
            if found is None:
                raise ClusterError(f"cannot read Slurm's version from {text.strip()!r}")
            self._version = int(found[1]), int(found[2])
        return self._version

    def jobs(self) -> list[SeenJob]:
        """Everything that the controller remembers, also what ended lately."""
        return read_jobs(self.call("squeue", "--states=all", "--json"))

    def nodes(self) -> list[SeenNode]:
        """All nodes."""
        if self.shows_nodes():
            return read_nodes(self.call("scontrol", "show", "nodes", "--json"))
        return read_nodes(self.call("sinfo", "--json"))

    def shows_nodes(self) -> bool:
        """Is it `scontrol` that lists single nodes as JSON?"""
        return self.version() >= SHOWS_NODES

    def config(self) -> dict[str, str]:
        """The settings of the controller."""
        pairs = (
            line.split("=", 1)
            for line in self.call("scontrol", "show", "config").splitlines()
            if "=" in line
        )
        return {name.strip(): value.strip() for name, value in pairs}

    def partitions(self) -> dict[str, dict[str, str]]:
        """Settings of each partition by its name."""
        found = {}
        for line in self.call("scontrol", "show", "partition", "--oneliner").splitlines():
            settings = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "PartitionName" in settings:
                found[settings["PartitionName"]] = settings
        return found


class SlurmCommands(SlurmQueries):
    """Questions and orders."""

    def allowed(self, argv: Sequence[str]) -> bool:
        """The orders below, and questions."""
        return argv[0] in {"sbatch", "scontrol", "scancel"} or super().allowed(argv)

    def submit(self, options: Sequence[str], script: Path) -> int:
        """Submit a held job; its number."""
        text = self.call("sbatch", "--parsable", "--hold", *options, str(script))
        number = text.strip().split(";")[0]
        if not number.isdecimal():
            raise ClusterError(f"sbatch answers {text.strip()!r} instead of a number")
        return int(number)

    def would_accept(self, options: Sequence[str]) -> None:
        """Raise if such a job would be refused; nothing is submitted."""
        self.call("sbatch", "--test-only", *options, "--wrap=true")

    def update(self, job: int, **settings: str) -> None:
        """Change a pending job."""
        pairs = [f"{name}={value}" for name, value in settings.items()]
        self.call("scontrol", "update", f"JobId={job}", *pairs)

    def release(self, job: int) -> None:
        """Let a held job start."""
        self.call("scontrol", "release", str(job))

    def hold(self, job: int) -> None:
        """Keep a pending job from starting."""
        self.call("scontrol", "hold", str(job))

    def reconfigure(self, job: int) -> None:  # noqa: ARG002 - as the others
        """Let the controller count again who uses what, because a job waits for nothing."""
        self.call("scontrol", "reconfigure")

    def requeue_held(self, job: int) -> None:
        """Put a running or finished job back into the queue, held."""
        self.call("scontrol", "requeuehold", str(job))

    def signal(self, job: int, name: str, whom: str) -> None:
        """Signal a job: its `steps`, its `batch` script alone, or `everyone`."""
        options = {"steps": (), "batch": ("--batch",), "everyone": ("--full",)}[whom]
        self.call("scancel", f"--signal={name}", *options, str(job))

    def cancel(self, job: int) -> None:
        """End a job for good."""
        self.call("scancel", str(job))


def _failure(argv: Sequence[str], output: str, code: int) -> ClusterError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    what = lines[-1] if lines else f"exit code {code}"
    return ClusterError(f"{' '.join(argv[:2])}: {what}", retryable=_away(output))


def _away(output: str) -> bool:
    """Is it the controller that does not answer? Then it is worth trying again."""
    signs = ("Unable to contact", "Connection refused", "timed out", "Socket timed out",
             "Resource temporarily unavailable", "Unable to establish", "authentication",
             "backup controller", "Unexpected message", "Zero Bytes")  # fmt: skip
    return any(sign.lower() in output.lower() for sign in signs)
