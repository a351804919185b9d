"""What the server knows about a run: the states of its parts become one state."""

from rota.backends.live.orders import Part, RunOrder, RunStatus
from rota.backends.local.messages import (
    HALT,
    KILL,
    OVER,
    LaunchPart,
    PartKey,
    PartStatus,
)


class RunRecord:
    """A run that shall exist, until it is forgotten.

    It runs when all its parts do, and is over when all are. When one part fails or is lost the
    others are halted, and that part's end is the end of the run.
    """

    def __init__(self, order: RunOrder) -> None:
        self.order = order
        self.parts: dict[PartKey, Part] = {
            PartKey(order.run, part.node_rank): part for part in order.parts
        }
        self.statuses: dict[PartKey, PartStatus] = {}
        self.halting = self.killing = False
        self._cause: PartStatus | None = None
        self._told_running = self._told_end = False

    def over(self, key: PartKey) -> bool:
        """Is this part over, once and for all?"""
        status = self.statuses.get(key)
        return status is not None and status.state in OVER

    def wants(self, key: PartKey) -> str:
        """How this part shall end: empty if it shall go on."""
        if self.over(key):
            return ""
        if self.killing:
            return KILL
        return HALT if self.halting or self._cause is not None else ""

    def was_started(self, key: PartKey) -> bool:
        """Did its agent ever say that it began?"""
        status = self.statuses.get(key)
        return status is not None and status.state != "waiting"

    def launch_of(self, key: PartKey, master_address: str) -> LaunchPart:
        """What the agent of this part is told."""
        order = self.order
        return LaunchPart(
            run=order.run,
            job=order.job,
            name=order.name,
            launch=order.launch,
            part=self.parts[key],
            nodes=len(order.parts),
            world_size=order.world_size,
            master_address=master_address,
            master_port=order.master_port,
            restart=order.restart,
        )

    def note(self, status: PartStatus) -> list[RunStatus]:
        """Take over what an agent says; what follows for the whole run."""
        if status.key not in self.parts or self.over(status.key):
            return []  # also a part that was given up and came back
        self.statuses[status.key] = status
        failed = status.state == "ended" and status.code and not status.asked
        if self._cause is None and (failed or status.state == "lost"):
            self._cause = status
        return self._news()

    def lose(self, key: PartKey, why: str) -> list[RunStatus]:
        """Nothing is left of this part, and nobody knows how it ended."""
        known = self.statuses.get(key)
        return self.note(PartStatus(key, "lost", ran=known is not None and known.ran, why=why))

    def _news(self) -> list[RunStatus]:
        news = []
        statuses = [self.statuses.get(key) for key in self.parts]
        if not self._told_running and all(status and status.ran for status in statuses):
            self._told_running = True
            news.append(RunStatus(self.order.run, "running"))
        if not self._told_end and all(self.over(key) for key in self.parts):
            self._told_end = True
            news.append(self._end())
        return news

    def _end(self) -> RunStatus:
        run, cause = self.order.run, self._cause
        if cause is not None:
            why = cause.why
            if len(self.parts) > 1:
                why = f"node {self.parts[cause.key].node}: {why}"
            state = cause.state if cause.state == "lost" else "ended"
            return RunStatus(run, state, cause.code, why=why)
        statuses = [self.statuses[key] for key in self.parts]
        first = next((status for status in statuses if status.code), statuses[0])
        asked = any(status.asked for status in statuses)
        return RunStatus(run, "ended", first.code, asked, first.why)
