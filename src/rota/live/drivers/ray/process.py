"""A process that speaks with Ray for us: what it was asked, and what it says."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rota.core.errors import ClusterError
from rota.live.drivers.ray import bridge

MISTAKES = ("ValueError", "TypeError")  # what Ray will never take
ENDED = "Ray's bridge ended"


class RayProcess:
    """A bridge at work, and who waits for its answers.

    It is over when its output ends, although the process may still be there for a while: from then
    on nobody would hear an answer. So what is asked of it afterwards fails at once.

    Args:
        process: With pipes as its input and output.
        log: What it has to say when it fails.
        heard: Called, by a thread of its own, when there is something to look at.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", log: Path, heard: Callable[[], None]
    ) -> None:
        self._process, self._log, self._heard = process, log, heard
        self._lock = threading.Lock()  # of the two below
        self._waiting: dict[int, Future[Any]] = {}
        self._over = ""  # why nothing comes any more
        threading.Thread(target=self._listen, name="rota-ray-bridge", daemon=True).start()

    @property
    def works(self) -> bool:
        """Can it be asked?"""
        return not self._over and self._process.poll() is None

    def expect(self, number: int) -> Future[Any]:
        """The answer to a request that is about to be sent."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._over:
                answer.set_exception(ClusterError(self._over, retryable=True))
            else:
                self._waiting[number] = answer
        return answer

    def send(self, message: Mapping[str, object]) -> None:
        """Raises `OSError` if it takes nothing any more."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it end, and see to it."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()  # then it ends
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it now. Nobody waits any longer, even if a child of it holds its output open."""
        self._process.kill()
        self._finish()

    def _listen(self) -> None:
        """Hand out answers until it ends."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            with self._process.stdout as lines:
                for line in lines:
                    said = _heard_in(line)
                    if said is not None:
                        self._take(said)
        finally:
            self._finish()

    def _take(self, said: Mapping[str, Any]) -> None:
        with self._lock:
            answer = self._waiting.pop(said.get("id", -1), None)
        if answer is None:
            self._heard()
        elif "error" in said:
            mistaken = said["error"].startswith(MISTAKES)
            answer.set_exception(ClusterError(said["error"], retryable=not mistaken))
        else:
            answer.set_result(said["answer"])

    def _finish(self) -> None:
        """It is over: known before anybody is told, who may then ask for another at once."""
        last = bridge.tail_of(self._log) or "without a word"  # the next one empties it
        with self._lock:
            self._over = self._over or f"{ENDED}: {last}"
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            answer.set_exception(ClusterError(self._over, retryable=True))


def _heard_in(line: bytes) -> dict[str, Any] | None:
    """What the bridge says; None: somebody else wrote that, as a wrapper around Python may."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
