"""Are the GPUs of a machine well? A check that is repeated, and what the agent says of it.

The check `auto` reads `nvidia-smi` (and `dcgmi`, where there is one); any other is a command of
one's own, which succeeds while all is well and else says in a line why not.
"""

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

import msgspec

from rota.core.errors import OptionError
from rota.live.agent.machine import find_gpus

log = logging.getLogger("rota.agent")

AUTO, OFF = "auto", "off"
EVERY_S, TIMEOUT_S = 60.0, 60.0
LONGEST = 200  # characters of a reason
COUNTERS = (
    "--query-gpu=index,ecc.errors.uncorrected.volatile.total,retired_pages.pending",
    "--format=csv,noheader,nounits",
)
ROWS = (
    "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure",
    "--format=csv,noheader",
)
DCGM = ("health", "-g", "0", "-c")
FIELDS = 3
_OVERALL = re.compile(r"overall health\W+(\w+)", re.IGNORECASE)


class HealthAnswer(msgspec.Struct, frozen=True):
    """What a program said; `code` is None if it did not end in time."""

    code: int | None
    text: str

    @property
    def line(self) -> str:
        """The first line that says something, for people."""
        lines = (line.strip() for line in self.text.splitlines())
        return next((line for line in lines if line), "")[:LONGEST]


Ask = Callable[[Sequence[str]], HealthAnswer]


def ask(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> HealthAnswer:
    """Run a program; one that hangs is killed with all that it started."""
    try:
        process = subprocess.Popen(  # noqa: S603 - what the operator of the machine gave
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return HealthAnswer(127, f"{command[0]} cannot be started: {error.strerror}")
    try:
        text, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return HealthAnswer(None, f"{command[0]} does not answer within {timeout_s:g} s")
    return HealthAnswer(process.returncode, text)


def counted(text: str, gpus: int) -> str:
    """What the table of `nvidia-smi` says against the GPUs; empty: nothing."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == FIELDS and row[0].isdigit()]
    if len(rows) < gpus:
        return f"nvidia-smi finds {len(rows)} of {gpus} GPUs"
    for index, errors, pending in rows:
        if errors.isdigit() and int(errors):
            return f"GPU {index} has {errors} uncorrected memory errors"
        if pending.lower() == "yes":
            return f"GPU {index} has memory pages to be retired: reset it"
    return ""


def remapped(text: str) -> str:
    """What the table of remapped rows says against the GPUs; empty: nothing."""
    for line in text.splitlines():
        row = [field.strip().lower() for field in line.split(",")]
        if len(row) == FIELDS and row[2] in ("yes", "1"):
            return f"GPU {row[0]} could not remap a memory row: replace it"
        if len(row) == FIELDS and row[1] in ("yes", "1"):
            return f"GPU {row[0]} has memory rows to be remapped: reset it"
    return ""


def overall(text: str) -> str:
    """What DCGM says against the GPUs; empty: nothing (a warning is none)."""
    found = _OVERALL.search(text)
    return f"DCGM says {found[1]}" if found and found[1].lower().startswith("fail") else ""


def check_gpus(gpus: int, asks: Ask = ask) -> str:
    """Ask the tools of this machine; why its GPUs are not well, empty if they are."""
    said = asks(["nvidia-smi", *COUNTERS])
    if said.code != 0:
        return said.line or f"nvidia-smi fails with code {said.code}"
    found = counted(said.text, gpus)
    if found:
        return found
    rows = asks(["nvidia-smi", *ROWS])  # which older drivers do not know
    found = remapped(rows.text) if rows.code == 0 else ""
    if not found and shutil.which("dcgmi"):
        dcgm = asks(["dcgmi", *DCGM])
        found = overall(dcgm.text) if dcgm.code == 0 else ""
    return found


def check_with(command: Sequence[str], asks: Ask = ask) -> str:
    """Ask a program of one's own; why the machine is not well, empty if it is."""
    said = asks(command)
    return "" if said.code == 0 else said.line or f"{command[0]} fails with code {said.code}"


def make_check(wanted: str) -> Callable[[], str] | None:
    """The check of this name, or of this command; None: there is nothing to be checked."""
    if wanted == OFF:
        return None
    if wanted == AUTO:
        with contextlib.suppress(OptionError):
            gpus = len(find_gpus())
            return (lambda: check_gpus(gpus)) if gpus else None
        return None
    try:
        command = shlex.split(wanted)
    except ValueError as error:
        raise OptionError(f"health check {wanted!r}: {error}") from error
    if not command or shutil.which(command[0]) is None:
        raise OptionError(
            f"health check {wanted!r}: there is no such program: give {AUTO}, {OFF} or a command"
        )
    return lambda: check_with(command)


def make_hooks(prolog: str, epilog: str) -> dict[str, list[str]]:
    """Commands before and after each job, as the agent takes them."""
    found: dict[str, list[str]] = {}
    for name, wanted in (("prolog", prolog), ("epilog", epilog)):
        try:
            command = shlex.split(wanted)
        except ValueError as error:
            raise OptionError(f"{name} {wanted!r}: {error}") from error
        if command and shutil.which(command[0]) is None:
            raise OptionError(f"{name} {wanted!r}: there is no such program: give a command")
        if command:
            found[name] = command
    return found


class HealthWatch:
    """Repeats a check in a thread of its own, and tells what comes of it."""

    def __init__(
        self, check: Callable[[], str], tell: Callable[[str], None], every_s: float = EVERY_S
    ) -> None:
        self._check = check
        self._tell = tell
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-health", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a check that is under way ends by itself."""
        self._stopped.set()

    def look(self) -> None:
        """Check once."""
        try:
            found = self._check()
        except Exception as error:  # a check that is broken says nothing about the machine
            log.exception("health.failed", extra={"why": repr(error)})
            return
        self._tell(found[:LONGEST])

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self._every_s)
