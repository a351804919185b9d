"""A small living cluster in one object, for rehearsals and tests: no daemon, no memory."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import Self

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.launch import Launch
from rota.core.topology import Topology
from rota.live.clock import WallClock
from rota.live.cluster import LiveCluster
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import EmbeddedAgent

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
        super().__init__(topology, driver, self._launch_of, clock, ends=True)
        self.go_live()
        self._agent.start()

    def _launch_of(self, job: Job) -> Launch:
        name = job.id if job.parent is None else job.parent.id
        return Launch(run="exec " + shlex.join(self._commands[name]), grace_s=self.grace_s)

    def close(self) -> None:
        """Ask everything to end, kill what does not, and wait until it is gone."""
        if self.closed:
            return
        for run in list(self.runs.current.values()):
            self.release(run.job)
        last_s = monotonic() + self.grace_s + KILLED_S
        while self.runs.by_id and monotonic() < last_s:
            self.mailbox.wait(0.1)
            self._events(self._gather())
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
