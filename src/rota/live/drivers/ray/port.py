"""The few things that Rota asks of Ray, and the process that does them."""

import base64
import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rota.core.errors import ClusterError, install
from rota.live.agent import shim
from rota.live.drivers.ray import bridge
from rota.live.drivers.ray.options import RayOptions
from rota.live.drivers.ray.process import ENDED, RayProcess

log = logging.getLogger("rota.ray")

START_S = 180.0  # to import Ray and to connect, on a busy machine
CLIENT = "ray://"
CLOSED = "the connection to Ray is closed"
REFUSALS = ("ConnectionRefusedError", "TimeoutError", "ConnectionError", "gaierror", "OSError")


class RayNode(msgspec.Struct, frozen=True):
    """A node as Ray tells of it; `free`: GPUs that nobody holds."""

    id: str
    name: str
    alive: bool = True
    address: str = "127.0.0.1"
    resources: Mapping[str, float] = msgspec.field(default_factory=dict)
    free: float = 0.0
    why: str = ""  # it is not alive


class RayMoment(msgspec.Struct, frozen=True):
    """The time of day and the seconds since boot of a node."""

    time: float = 0.0
    clock: float = 0.0


class RayPart(msgspec.Struct, frozen=True):
    """What is known of a part of a run.

    `none`: Ray knows no actor of that name. `waiting`: it has not spoken yet. `gone`: it died, and
    with it the job.
    """

    state: str = "none"  # or waiting, starting, running, ended, lost, gone
    ran: bool = False
    code: int = 0
    asked: bool = False
    timed_out: bool = False
    why: str = ""
    began: RayMoment = RayMoment()
    ended: RayMoment = RayMoment()
    values: Mapping[str, float] = msgspec.field(default_factory=dict)


class RayGroup(msgspec.Struct, frozen=True):
    """The placement group of a run; `held`: the node of each bundle and its GPUs."""

    state: str
    parts: tuple[RayPart, ...] = ()
    held: tuple[tuple[str, float], ...] = ()

    @property
    def placed(self) -> bool:
        """Does it have its place?"""
        return self.state == "CREATED"


class RayView(msgspec.Struct, frozen=True):
    """All nodes, and the groups of this daemon by run."""

    nodes: tuple[RayNode, ...] = ()
    groups: Mapping[str, RayGroup] = msgspec.field(default_factory=dict)


class NewPart(msgspec.Struct, frozen=True):
    """What an actor is made from: the id of its node, its amounts, and what it is told."""

    node: str
    bundle: Mapping[str, float]
    asked: Mapping[str, Any]


class RayPort(Protocol):
    """What Rota asks of Ray. Any thread may; raises `ClusterError`."""

    def look(self) -> RayView:
        """What there is."""
        ...

    def create(self, run: str, parts: Sequence[NewPart]) -> None:
        """Make the group of a run and its actors. Ray takes the name of a run only once."""
        ...

    def stop(self, run: str, rank: int, how: str) -> None:
        """Ask a part to end: `halt` or `kill`."""
        ...

    def read(self, run: str, rank: int, name: str, offset: int, limit: int) -> tuple[int, bytes]:
        """A piece of the output `out`, `err` or `order` of a part, and where it begins."""
        ...

    def remove(self, run: str) -> None:
        """Remove the group of a run, and with it its actors; fine if there is none."""
        ...

    def close(self) -> None:
        """No more requests come; what runs goes on."""
        ...


class RayBridge:
    """Implements `RayPort` by a process that is started when it is needed, and again if it ended.

    Args:
        namespace: For the names of groups and actors.
        folder: For its lock and for what it has to say.
        options: How to reach the cluster.
        heard: Called, by a thread of its own, when there is something to look at.
    """

    def __init__(
        self, namespace: str, folder: Path, options: RayOptions, heard: Callable[[], None]
    ) -> None:
        if options.address.startswith(CLIENT):
            raise ClusterError(
                f"ray.address is {options.address!r}: clients of Ray cannot do what Rota needs: "
                "run the daemon on a machine of the cluster and give auto, or HOST:PORT of its head"
            )
        self._namespace, self._folder, self._options = namespace, folder, options
        self._heard = heard
        self._script = Path(shim.__file__).read_text(encoding="utf-8")
        self._lock = threading.Lock()
        self._process: RayProcess | None = None
        self._starting: RayProcess | None = None
        self._count = 0
        self._closed = threading.Event()
        self.version = ""  # of Ray and its Python, once it was reached

    # --- the port ---------------------------------------------------------------------------------

    def look(self) -> RayView:
        """What there is."""
        return msgspec.convert(self._ask("look"), RayView)

    def create(self, run: str, parts: Sequence[NewPart]) -> None:
        """Make the group of a run and its actors."""
        made = [msgspec.to_builtins(part) for part in parts]
        self._ask("create", run=run, parts=made, shim=self._script)

    def stop(self, run: str, rank: int, how: str) -> None:
        """Ask a part to end."""
        self._ask("stop", run=run, rank=rank, how=how)

    def read(self, run: str, rank: int, name: str, offset: int, limit: int) -> tuple[int, bytes]:
        """A piece of an output."""
        at, data = self._ask("read", run=run, rank=rank, name=name, offset=offset, limit=limit)
        return int(at), base64.b64decode(data)

    def remove(self, run: str) -> None:
        """Remove the group of a run."""
        self._ask("remove", run=run)

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        starting = self._starting
        if starting is not None:  # somebody waits for it
            starting.kill()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    # --- the process ------------------------------------------------------------------------------

    def _ask(self, do: str, **rest: object) -> Any:
        with self._lock:
            process = self._started()
            self._count += 1
            number = self._count
            answer = process.expect(number)
            try:
                process.send({"id": number, "do": do, **rest})
            except OSError as error:
                self._give_up(process)
                raise ClusterError(f"Ray is out of reach: {error}", retryable=True) from error
        try:
            return answer.result(self._options.timeout_s)
        except LateError:
            with self._lock:
                self._give_up(process)
            raise ClusterError(
                f"Ray did not answer within {self._options.timeout_s:g} s ({do})", retryable=True
            ) from None

    def _started(self) -> RayProcess:
        if self._closed.is_set():
            raise ClusterError(CLOSED)
        if self._process is not None and self._process.works:
            return self._process
        if self._process is not None:
            self._give_up(self._process)
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        python = self._options.python or sys.executable
        lock = str(self._folder / "bridge.lock")
        begin = {"address": self._options.address, "namespace": self._namespace, "lock": lock}
        words = self._folder / "bridge.log"
        try:
            with words.open("wb") as errors:
                made = subprocess.Popen(  # noqa: S603 - our own script
                    [python, bridge.__file__],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise ClusterError(f"ray.python is {python!r}: {error.strerror}") from error
        process = RayProcess(made, words, self._news)
        self._starting = process
        if self._closed.is_set():  # before there was one to be killed
            process.kill()
        hello = process.expect(0)
        with contextlib.suppress(OSError):  # it has ended: that is heard below
            process.send({"id": 0, **begin})
        try:
            told = hello.result(START_S)
        except LateError:
            process.end()
            raise ClusterError(f"Ray did not answer within {START_S:g} s", retryable=True) from None
        except ClusterError as error:
            process.end()
            if self._closed.is_set():
                raise ClusterError(CLOSED) from None
            raise self._unreachable(str(error), python) from None
        finally:
            self._starting = None
        self.version = f"Ray {told['ray']}, Python {told['python']}"
        self._process = process
        return process

    def _unreachable(self, why: str, python: str) -> ClusterError:
        """With what helps."""
        if "No module named 'ray'" in why:
            helps = f"{python} has no Ray: {install('ray')}, or set `ray.python`"
            return ClusterError(f"the backend ray needs Ray ({why}): {helps}")
        if "ersion mismatch" in why:
            return ClusterError(
                f"{why}: set `ray.python` to an interpreter with the Ray and the Python of the "
                "cluster"
            )
        if why.startswith(ENDED):
            return ClusterError(
                f"{why}: {python} must be a Python that has Ray: check `ray.python`"
            )
        return ClusterError(
            f"ray.address is {self._options.address!r}: no Ray cluster answers ({why}): start the "
            "daemon on a machine of the cluster (`ray start --head`, or `ray start --address "
            "HOST:PORT`), and give --ray-address HOST:PORT of its head, or auto",
            retryable=why.startswith(REFUSALS),
        )

    def _give_up(self, process: RayProcess) -> None:
        """It does not work as it should: the next request starts another."""
        if self._process is process:
            self._process = None
        process.end()

    def _news(self) -> None:
        if not self._closed.is_set():
            self._heard()
