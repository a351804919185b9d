"""What the server knows about a run: the states of its parts become one state."""

from collections.abc import Mapping

from rota.live.agent.messages import (
    HALT,
    KILL,
    OVER,
    LaunchPart,
    PartKey,
    PartStatus,
    PartTerms,
)
from rota.live.driver import RunOrder, RunPart, RunStatus


class AgentRun:
    """A run that shall exist, until it is forgotten.

    It runs when all its parts do, and is over when all are. When one part fails or is lost the
    others are halted, and that part's end is the end of the run.
    """

    def __init__(self, order: RunOrder, account: str = "", *, of_owner: bool = False) -> None:
        self._account, self._of_owner = account, of_owner
        self.parts: dict[PartKey, RunPart]
        self.renew(order)
        self.statuses: dict[PartKey, PartStatus] = {}
        self.halting = self.killing = False
        self._cause: PartStatus | None = None
        self._began_s: dict[PartKey, float] = {}  # by the server's `boot_time_s`
        self._ended_s: dict[PartKey, float] = {}
        self._told_running = self._told_end = False

    def renew(self, order: RunOrder) -> None:
        """It has other terms."""
        self.order = order
        self.parts = {PartKey(order.run, part.node_rank): part for part in order.parts}

    def new_terms(self, key: PartKey, status: PartStatus) -> list[PartTerms]:
        """By which a part has its turns, if its agent (of this version) knows others; else none."""
        wanted = PartTerms.of(key, self.parts[key])
        known = status.terms is None or self.over(key)
        return [] if known or status.terms == wanted else [wanted]

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

    def launch_of(
        self, key: PartKey, master_address: str, secrets: Mapping[str, str] | None = None
    ) -> LaunchPart:
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
            account=self._account,
            of_owner=self._of_owner,
            limit_s=order.limit_s,
            user=order.user,
            secrets=secrets or {},
        )

    def note(self, status: PartStatus, ahead_s: float | None = None) -> list[RunStatus]:
        """Take over what an agent says; what follows for the whole run.

        `ahead_s`: how far the server's clock is ahead of the agent's (None: nobody knows).
        """
        if status.key not in self.parts or self.over(status.key):
            return []  # also a part that was given up and came back
        self.statuses[status.key] = status
        if ahead_s is not None:
            self._note_times(status, ahead_s)
        failed = status.timed_out or (status.state == "ended" and status.code and not status.asked)
        if self._cause is None and (failed or status.state == "lost"):
            self._cause = status
        return self._news()

    def _note_times(self, status: PartStatus, ahead_s: float) -> None:
        """Its agent's clock is translated once; from then on the agent's durations count."""
        key = status.key
        if status.began_s is not None:
            self._began_s.setdefault(key, status.began_s + ahead_s)
        if status.ended_s is not None:
            lasted_s = None if status.began_s is None else status.ended_s - status.began_s
            since_s = self._began_s.get(key)
            measured = since_s is not None and lasted_s is not None
            self._ended_s[key] = (
                since_s + lasted_s if measured else status.ended_s + ahead_s  # type: ignore[operator]
            )

    def lose(self, key: PartKey, why: str, seen_s: float | None = None) -> list[RunStatus]:
        """Nothing is left of this part, and how it ended is unknown; when it was seen last."""
        known = self.statuses.get(key)
        if seen_s is not None and not self.over(key):
            self._ended_s[key] = seen_s
        return self.note(PartStatus(key, "lost", ran=known is not None and known.ran, why=why))

    def _news(self) -> list[RunStatus]:
        news = []
        statuses = [self.statuses.get(key) for key in self.parts]
        if not self._told_running and all(status and status.ran for status in statuses):
            self._told_running = True
            news.append(RunStatus(self.order.run, "running", began_s=self._last(self._began_s)))
        if not self._told_end and all(self.over(key) for key in self.parts):
            self._told_end = True
            news.append(self._end())
        return news

    def _end(self) -> RunStatus:
        run, cause = self.order.run, self._cause
        began_s, ended_s = self._last(self._began_s), self._last(self._ended_s)
        if cause is not None:
            why = cause.why
            if len(self.parts) > 1:
                why = f"node {self.parts[cause.key].node}: {why}"
            state = cause.state if cause.state == "lost" else "ended"
            return RunStatus(
                run, state, cause.code, why=why, began_s=began_s, ended_s=ended_s,
                timed_out=cause.timed_out,
            )  # fmt: skip
        statuses = [self.statuses[key] for key in self.parts]
        first = next((status for status in statuses if status.code), statuses[0])
        asked = any(status.asked for status in statuses)
        return RunStatus(run, "ended", first.code, asked, first.why, began_s, ended_s)

    def _last(self, times: Mapping[PartKey, float]) -> float | None:
        """It runs when the last of its parts does, and is over when the last one is."""
        return max(times.values()) if times.keys() == self.parts.keys() else None
