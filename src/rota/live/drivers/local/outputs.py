"""Who has the output of a job: it stays on the machines where the job was."""

from collections.abc import Iterable

from rota.live.agent.messages import LogPiece
from rota.live.drivers.local.fleet import AgentFleet, KnownAgent

JOBS_KEPT = 100_000

Stream = tuple[str, int]
"""Which output (`out` or `err`), and the rank of the node."""


class _Kept:
    """What is known about the output of one job."""

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete  # only `agents` can have any of it
        self.agents: dict[str, None] = {}
        self.asked: dict[Stream, set[str]] = {}
        self.seen: dict[Stream, dict[str, LogPiece]] = {}


class Outputs:
    """Remembers which agents had a job, and how much output each of them had.

    What a server finds when it starts may have been elsewhere before: then all agents are asked,
    once. What is on an agent that was lost keeps its place in the stream, so that the offsets of
    those who follow it do not change.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Kept] = {}

    def begin(self, job: str) -> None:
        """Its first run is ordered now: there is no output of it anywhere."""
        if job not in self._jobs:
            self._enter(job, complete=True)

    def note(self, job: str, agent: str) -> None:
        """This agent has the job, or had it."""
        kept = self._jobs.get(job) or self._enter(job, complete=False)
        kept.agents[agent] = None

    def _enter(self, job: str, *, complete: bool) -> _Kept:
        kept = self._jobs[job] = _Kept(complete=complete)
        if len(self._jobs) > JOBS_KEPT:
            del self._jobs[next(iter(self._jobs))]
        return kept

    def whom_to_ask(self, job: str, stream: Stream, fleet: AgentFleet) -> list[KnownAgent]:
        """One agent for each folder of jobs that may have some of it."""
        kept = self._jobs.get(job) or self._enter(job, complete=False)
        known = [fleet.agents[agent] for agent in kept.agents if agent in fleet.agents]
        found = [agent for agent in known if agent.state != "lost"]
        if not kept.complete:
            asked = kept.asked.get(stream, ())
            others = (agent for agent in fleet.agents.values() if agent.id not in kept.agents)
            found += [agent for agent in others if agent.state == "up" and agent.id not in asked]
        return list({agent.jobs or agent.id: agent for agent in reversed(found)}.values())

    def answered(self, job: str, stream: Stream, agent: str, piece: LogPiece) -> None:
        """An agent said how much of it it has."""
        kept = self._jobs.get(job) or self._enter(job, complete=False)
        kept.asked.setdefault(stream, set()).add(agent)
        if piece.end:
            kept.agents[agent] = None
            kept.seen.setdefault(stream, {})[agent] = piece

    def out_of_reach(
        self, job: str, stream: Stream, fleet: AgentFleet, asked: Iterable[KnownAgent]
    ) -> list[tuple[LogPiece, KnownAgent]]:
        """What lost agents had: places in the stream that cannot be read now."""
        reached = {agent.jobs or agent.id for agent in asked}
        kept = self._jobs.get(job)
        seen = kept.seen.get(stream, {}) if kept is not None else {}
        return [
            (LogPiece(0, start=piece.end, end=piece.end, since=piece.since), agent)
            for agent, piece in ((fleet.agents[name], piece) for name, piece in seen.items())
            if (agent.jobs or agent.id) not in reached and agent.state == "lost"
        ]
