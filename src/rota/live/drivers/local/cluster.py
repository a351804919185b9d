"""A small living cluster in one object, for rehearsals and tests: no daemon, no memory."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import Self

from rota.core.errors import OptionError
from rota.core.events import INF, Event
from rota.core.jobs import Job
from rota.core.launch import Launch
from rota.core.topology import Topology
from rota.live.clock import WallClock
from rota.live.cluster import LiveCluster
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import EmbeddedAgent
from rota.live.inputs import BatchDraft, Input
from rota.live.mailbox import Mailbox

NAP_S = 3600.0  # the longest single wait: some systems refuse longer ones
KILLED_S = 5.0  # how long `close` waits for processes that were killed


class LocalCluster(LiveCluster):
    """Jobs are processes of this machine, run by an agent of its own; `commands` are by job id.

    Unlike a daemon's cluster it ends what it started when it is closed, and a poll for ever returns
    when nothing runs. Its files are in `folder`.
    """

    def __init__(
        self,
        topology: Topology,
        commands: Mapping[str, Sequence[str]],
        folder: Path,
        *,
        grace_s: float = 5.0,
        speed: float = 1.0,
    ) -> None:
        if grace_s < 0 or not 0 < speed < INF:
            raise OptionError(
                f"grace_s={grace_s:g}, speed={speed:g}: grace_s must not be negative, "
                f"speed must be positive and finite"
            )
        driver = AgentDriver()
        self.grace_s = grace_s
        self._commands = commands
        self._agent = EmbeddedAgent(driver, folder, topology.specs)
        clock = WallClock(time(), speed=speed)
        super().__init__(topology, driver, self._launch_of, clock, Mailbox())
        self.go_live()
        self._agent.start()

    def _launch_of(self, job: Job) -> Launch:
        name = job.id if job.parent is None else job.parent.id
        return Launch(run="exec " + shlex.join(self._commands[name]), grace_s=self.grace_s)

    def poll(self, until_s: float) -> list[Event]:
        """Wait for events until then; for ever only as long as something runs."""
        while until_s > self.now_s:
            self.now_s = max(self.now_s, min(self.clock.now_s(), until_s))
            inputs = self._take()
            if inputs or self.now_s >= until_s:
                self.deliver(inputs, {})
                break
            if until_s == INF and not self.runs.by_id:
                break
            self.mailbox.wait(min(self.clock.wait_s(until_s), NAP_S))
        return super().poll(until_s)

    def _take(self) -> list[Input]:
        draft = BatchDraft()
        self.select(self.mailbox.take()[0], draft)
        return draft.inputs

    def close(self) -> None:
        """Ask everything to end, kill what does not, and wait until it is gone."""
        if self.closed:
            return
        for run in list(self.runs.current.values()):
            self.release(run.job)
        last_s = monotonic() + self.grace_s + KILLED_S
        while self.runs.by_id and monotonic() < last_s:
            self.mailbox.wait(0.1)
            self.deliver(self._take(), {})
        super().close()
        self._agent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
