"""Outages of nodes, from jobs that ended with NODE_FAIL.

The log tells when a node failed, not when it was repaired. It is taken to be down until the next
job was seen to start there (it may have been up earlier), and if none was seen for the option
`outage` (in seconds, an hour unless given). If another job ran on beyond the failure, the node was
not down. Of a job on several nodes it is the node on which another job failed at that moment, else
the one that stayed empty for longest. The report counts all of these; `failures=none` leaves the
outages out. In a replay nodes fail as recorded, whatever the policy: jobs on them start over, or
with `runtime=sum` or `span` go on where they were, since what they lost is in their run time.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.sums import ordered_sum
from rota.core.words import duration
from rota.traces.observed import NODE_FAIL
from rota.traces.schema import NODE_DOWN, NODE_UP, events_frame

if TYPE_CHECKING:
    import polars as pl


class Outages:
    """What attempts tell of nodes that failed: rows of `schema.EVENTS`, and notes for people."""

    def __init__(self, attempts: "pl.DataFrame", assumed_s: float, *, lossless: bool) -> None:
        """Take attempts by `job_id` (see `tidy.attempts_frame`).

        Args:
            attempts: Of all jobs.
            assumed_s: How long a node is down on which no job is seen again.
            lossless: What jobs lost is in their run times, so that they must not lose it again.
        """
        if not 0 <= assumed_s < INF:
            raise OptionError(f"outage={assumed_s:g} is not a time: give seconds, 0 or more")
        self._assumed_s = assumed_s
        self._down: dict[tuple[str, float], tuple[float, str]] = {}  # until when, by which job
        self._unseen = self._guessed = self._ran_on = self._at_once = 0
        self._nodes: dict[str, _OutageNode] = {}
        for job, at_s, names in self._failures(attempts):
            self._failed(job, at_s, names)
        self.events = events_frame(
            row
            for (node, at_s), (until_s, job) in self._down.items()
            for row in (
                (at_s, NODE_DOWN, node, float(lossless), f"job {job} ended with NODE_FAIL"),
                (until_s, NODE_UP, node, 0.0, ""),
            )
        )

    def _failures(self, attempts: "pl.DataFrame") -> list[tuple[str, float, list[str]]]:
        """(job, when, its nodes) of attempts that ended with a node; those on one node first."""
        import polars as pl

        ended = pl.col("end_s").is_not_null() & (pl.col("nodes").list.len() > 0)
        failed = attempts.filter((pl.col("state") == NODE_FAIL) & ended)
        if not failed.height:
            return []
        names = failed["nodes"].explode().unique()
        spans = attempts.select(pl.col("nodes").alias("node"), "start_s", "end_s").explode("node")
        spans = spans.filter(pl.col("node").is_in(names.implode())).sort("start_s")
        for (node,), mine in spans.group_by("node", maintain_order=True):
            self._nodes[str(node)] = _OutageNode(
                mine["start_s"].to_list(), mine["end_s"].fill_null(INF).to_list()
            )
        found: list[tuple[str, float, list[str]]] = failed.select("job_id", "end_s", "nodes").rows()
        return sorted(found, key=lambda one: (len(one[2]) > 1, one[1], one[0]))

    def _failed(self, job: str, at_s: float, names: list[str]) -> None:
        if any((name, at_s) in self._down for name in names):
            return  # another job went down with it
        silent = [name for name in names if not self._nodes[name].busy(at_s)]
        if not silent:
            self._ran_on += 1
            return
        again_s = {name: self._nodes[name].next_s(at_s) for name in silent}
        node = max(silent, key=lambda name: again_s[name])
        self._guessed += len(silent) > 1
        if again_s[node] <= at_s:
            self._at_once += 1
            return
        self._unseen += again_s[node] == INF
        until_s = at_s + self._assumed_s if again_s[node] == INF else again_s[node]
        if until_s > at_s:
            self._down[node, at_s] = (until_s, job)

    @property
    def notes(self) -> list[str]:
        """What was assumed."""
        many = len(self._down)
        for_s = duration(self._assumed_s)
        counted = {
            f"not seen again: taken to be down for {for_s} (outage=)": self._unseen,
            "of several nodes of a job the one that stayed empty for longest": self._guessed,
            "no outage, since another job ran on there": self._ran_on,
            "no outage, since a job started there at once": self._at_once,
        }
        parts = [f"{count:,} {what}" for what, count in counted.items() if count]
        if not many and not parts:
            return []
        down_s = ordered_sum(until_s - at_s for (_, at_s), (until_s, _) in self._down.items())
        what = "1 outage of a node" if many == 1 else f"{many:,} outages of nodes"
        text = (
            f"{what} from NODE_FAIL, {down_s / 3_600:,.1f} node-hours, each until the next job was "
            f"seen to start there"
        )
        return ["; ".join([text, *parts])]


class _OutageNode:
    """When a node was in use."""

    def __init__(self, starts_s: list[float], ends_s: list[float]) -> None:
        self._starts_s = starts_s
        self._latest_s = list(accumulate(ends_s, max))

    def busy(self, at_s: float) -> bool:
        """A job that had started before went on after it."""
        before = bisect_left(self._starts_s, at_s)
        return before > 0 and self._latest_s[before - 1] > at_s

    def next_s(self, at_s: float) -> float:
        """When the next job started; inf: none did."""
        after = bisect_right(self._starts_s, at_s)
        before = bisect_left(self._starts_s, at_s)
        if after > before:
            return at_s
        return self._starts_s[after] if after < len(self._starts_s) else INF
