"""What an import gives: jobs, the observed schedule, cluster events and machines.

    imported = rota.traces.read.read_trace(path, "helios")
    imported.workload        # JobSpec and Behaviour objects, for a simulation
    imported.jobs            # the same as one polars frame (see `schema`), for everything else
    imported.observed        # what really happened (see `observed`); empty when not recorded
    imported.events          # capacity changes and outages (see `schema`)
    imported.cluster         # the machines, if the trace lists them: NodeSpec objects
    imported.queues          # who shares them, if the trace tells: a SiteQueues
    imported.quality         # rows read, kept, dropped by reason, repaired by rule
    imported.notes           # remarks for people: contradictions, what to beware of
    imported.original        # the jobs as recorded, where the reader repeated or removed some

Jobs come either as a frame or as a workload; the other form is made when it is first asked for. A
million jobs are quick as a frame and slow as objects, so only a simulation asks for objects.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.core.workload import Failures, Quality, RankNodes, Workload
from rota.traces.observed import Observed
from rota.traces.schema import (
    NODE_DOWN,
    NODE_UP,
    complete,
    events_frame,
    from_workload,
    to_workload,
    without_lost,
)

if TYPE_CHECKING:
    import polars as pl

NOT_IMPORTED = "not imported: "
"""How a note starts that tells what the file has and the schema has no place for."""


class SiteQueues(msgspec.Struct, frozen=True):
    """The queues of a site with their quotas, and the policy of Rota that keeps to them."""

    tenants: tuple[Tenant, ...] = ()
    policy: str = ""


class Imported:
    """A trace after its import."""

    def __init__(
        self,
        jobs: "pl.DataFrame | Workload",
        *,
        observed: Observed | None = None,
        events: "pl.DataFrame | None" = None,
        cluster: Sequence[NodeSpec] = (),
        quality: Quality | None = None,
        name: str = "",
        origin: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        """Put the parts together.

        Args:
            jobs: A frame with columns of `schema.JOBS` (optional ones may be absent) or a workload.
            observed: Attempts; their `job` is the position in `jobs`.
            events: Rows of `schema.EVENTS`.
            cluster: Machines that the trace lists.
            quality: Default: that of the workload, or one that kept every row.
            name: Of the trace; default: the workload's.
            origin: What second 0 was on the trace's own clock, as text; empty when unknown.
            notes: Remarks for people.
        """
        self._source = jobs
        self._observed = observed
        self._events = events
        self.cluster = tuple(cluster)
        if isinstance(jobs, Workload):
            self.quality = quality or jobs.quality
            self.name = name or jobs.name
        else:
            self.quality = quality or Quality(rows=jobs.height, kept=jobs.height)
            self.name = name
        self.origin = origin
        self.notes = list(notes)
        self.original: pl.DataFrame | None = None  # before jobs were repeated or removed
        self.rank_nodes: RankNodes | None = None  # as of a workload
        self.queues = SiteQueues()  # who shares the machines, if the trace tells
        self.training: Mapping[str, Any] = {}  # by id: what a reader knows beyond the columns

    def __len__(self) -> int:
        source = self._source
        return len(source) if isinstance(source, Workload) else int(source.height)

    @property
    def origin_s(self) -> float:
        """What second 0 was on the trace's own clock, in seconds; 0 with dates, or if unknown."""
        seconds, unit = self.origin[:-2], self.origin[-2:]
        return float(seconds) if unit == " s" else 0.0

    @cached_property
    def until_s(self) -> float:
        """When the log was taken: what still ran then is cut there.

        Readers give a job that still runs the time of its last attempt up to that moment (some add
        up earlier attempts: the shortest tells).
        """
        import polars as pl

        frame = self.observed.frame
        latest = [frame["start_s"].max(), frame["end_s"].max()]
        lengths = self.jobs.select("duration_s").with_row_index("job").cast({"job": pl.Int64})
        runs = frame.filter(pl.col("end_s").is_null()).join(lengths, on="job")
        latest.append((runs["start_s"] + runs["duration_s"]).min())
        known = [float(time_s) for time_s in latest if isinstance(time_s, (int, float))]
        return max(known, default=0.0)

    @cached_property
    def workload(self) -> Workload:
        """The jobs as objects."""
        if isinstance(self._source, Workload):
            return self._source
        made = to_workload(self._source, name=self.name, quality=self.quality)
        made.origin_s = self.origin_s
        if self.training:
            made = self._trained(made)
        failures = self.failures
        open_ended = self.open_ended
        if self.original is None and self.rank_nodes is None and not failures and not open_ended:
            return made
        usual = None
        if self.original is not None:
            usual = to_workload(self.original, name=self.name, quality=self.quality).usual
        whole = Workload(
            made.specs, made.behaviours, name=self.name, quality=self.quality, usual=usual,
            rank_nodes=self.rank_nodes, failures=failures, open_ended=open_ended,
        )  # fmt: skip
        whole.origin_s = self.origin_s
        return whole

    def _trained(self, made: Workload) -> Workload:
        behaviours = [
            msgspec.structs.replace(behaviour, training=self.training.get(spec.id))
            for spec, behaviour in made
        ]
        return made.like(made.specs, behaviours, quality=made.quality)

    @property
    def open_ended(self) -> frozenset[str]:
        """Ids of the jobs that still ran when the log was taken."""
        import polars as pl

        seen = self.observed.per_job()
        running = seen.filter(pl.col("end_s").is_null())["job"].cast(pl.UInt32)
        return frozenset(self.jobs["job_id"].gather(running).to_list())

    @property
    def failures(self) -> Failures:
        """When which node went down or came up."""
        rows = self.events.select("time_s", "subject", "kind").iter_rows()
        return [
            (at_s, n, kind == NODE_UP) for at_s, n, kind in rows if kind in (NODE_DOWN, NODE_UP)
        ]

    @property
    def lossless(self) -> bool:
        """What jobs lost with a node that went down is in their run times."""
        rows = self.events.select("kind", "value").iter_rows()
        return any(kind == NODE_DOWN and value > 0 for kind, value in rows)

    @cached_property
    def jobs(self) -> "pl.DataFrame":
        """The jobs as one frame with every column of `schema.JOBS`."""
        source = self._source
        return from_workload(source) if isinstance(source, Workload) else complete(source)

    @cached_property
    def observed(self) -> Observed:
        """What really happened."""
        return self._observed or Observed()

    @cached_property
    def events(self) -> "pl.DataFrame":
        """What happened to the cluster, by time."""
        return events_frame() if self._events is None else self._events

    def first(self, limit: int) -> "Imported":
        """Only the first jobs, without dependencies on others; the rest is counted as dropped."""
        if limit >= len(self):
            return self
        frame = self.jobs.head(limit)
        old = self.quality
        dropped = {**old.dropped, "beyond the limit": len(self) - limit}
        quality = Quality(old.rows, limit, dropped, dict(old.repaired))
        frame, lost = without_lost(frame)
        if lost:
            quality.repaired["dependency on a job beyond the limit removed"] = lost
        first = Imported(
            frame,
            observed=self.observed.only(range(limit)),
            events=self.events,
            cluster=self.cluster,
            quality=quality,
            name=self.name,
            origin=self.origin,
            notes=self.notes,
        )
        first.original, first.rank_nodes = self.original, self.rank_nodes
        first.queues = self.queues
        first.training = self.training
        return first
