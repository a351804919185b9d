"""Orders for runs, and a listener that can be waited for: shared by the tests of the driver."""

import threading
import time
from collections.abc import Callable, Sequence

from rota.core.launch import PER_GPU, Launch
from rota.live.driver import Message, NodeStatus, RunMetrics, RunOrder, RunPart, RunStatus

PATIENCE_S = 300.0


def order(name: str, places: Sequence[tuple[str, int]], **launch) -> RunOrder:
    """The run `17.2` on [(node, GPUs), ...]."""
    job, _, number = name.rpartition(".")
    asked = Launch(**launch)
    parts, rank = [], 0
    for node_rank, (node, gpus) in enumerate(places):
        processes = max(1, gpus) if asked.per == PER_GPU else 1
        slices = tuple((-1, 1.0) for _ in range(gpus))
        parts.append(RunPart(node, slices, node_rank, rank, processes))
        rank += processes
    return RunOrder(name, job, asked, tuple(parts), rank, 29500, int(number), "ada", "a job")


class Ears:
    """A listener that remembers; `hear` waits for what is still to come."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._news = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()

    def hear(self, wanted: Callable[[Message], bool], what: str) -> Message:
        deadline = time.monotonic() + PATIENCE_S
        with self._news:
            while True:
                for message in self.messages:
                    if wanted(message):
                        return message
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._news.wait(left_s):
                    raise TimeoutError(f"never heard of {what}: {self.messages}")

    def run(self, run: str, *states: str) -> RunStatus:
        """The first news that a run is in one of these states."""
        return self.hear(
            lambda m: isinstance(m, RunStatus) and m.run == run and m.state in states,
            f"run {run} being {' or '.join(states)}",
        )

    def ends(self, run: str) -> RunStatus:
        return self.run(run, "ended", "lost")

    def node(self, node: str, state: str) -> NodeStatus:
        return self.hear(
            lambda m: isinstance(m, NodeStatus) and (m.node, m.state) == (node, state),
            f"node {node} being {state}",
        )

    def measured(self, run: str) -> RunMetrics:
        return self.hear(lambda m: isinstance(m, RunMetrics) and m.run == run, f"reports of {run}")

    def of(self, run: str) -> list[RunStatus]:
        return [m for m in self.messages if isinstance(m, RunStatus) and m.run == run]
