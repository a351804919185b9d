"""A trace without names: it can be given to others, and is simulated as before.

Names of one kind are numbered in the order in which they appear; the same name gets the same
number everywhere. Partitions and labels are of one kind, because jobs in a partition run on nodes
that have it as a label. Times, sizes, GPU types, roles and priorities stay: they are the trace.
"""

from collections.abc import Iterable, Mapping

import msgspec

from rota.core.topology import NodeSpec
from rota.traces.imported import Imported, SiteQueues
from rota.traces.observed import Observed
from rota.traces.schema import CAPACITY, DEPENDENCIES
from rota.traces.tools.change import with_jobs

KINDS = {
    "job_id": "job", "array": "job", **dict.fromkeys(DEPENDENCIES, "job"), "vc": "queue",
    "user": "user", "group": "group", "name": "name", "account": "account", "partition": "label",
    "qos": "qos", "labels": "label",
}  # fmt: skip
"""Columns of jobs that hold names, and of which kind they are."""
MODELS = {"model": "model"}


class Redaction:
    """Which name stands for which."""

    def __init__(self) -> None:
        self.names: dict[str, dict[str, str]] = {}

    def __call__(self, kind: str, name: str) -> str:
        """The name that stands for one; parts of a queue keep their places."""
        if kind == "queue" and "/" in name:
            return "/".join(self(kind, part) for part in name.split("/"))
        if not name:
            return ""
        known = self.names.setdefault(kind, {})
        # Jobs are plain numbers: other formats want them so.
        number = f"{len(known) + 1}"
        return known.setdefault(name, number if kind == "job" else f"{kind}-{number}")

    def all(self, kind: str, names: Iterable[str]) -> list[str]:
        """Several of them."""
        return [self(kind, name) for name in names]

    def node(self, node: NodeSpec) -> NodeSpec:
        """A machine, and where it stands."""
        return msgspec.structs.replace(
            node,
            name=self("node", node.name),
            path=tuple(self.all("place", node.path)),
            labels=tuple(self.all("label", node.labels)),
        )

    def queues(self, queues: SiteQueues) -> SiteQueues:
        """Who shares the machines."""
        tenants = [
            msgspec.structs.replace(
                tenant, name=self("queue", tenant.name), parent=self("queue", tenant.parent)
            )
            for tenant in queues.tenants
        ]
        return msgspec.structs.replace(queues, tenants=tuple(tenants))


def redact(imported: Imported, *, models: bool = False) -> tuple[Imported, Mapping[str, object]]:
    """The trace without names, and by kind which name stands for which.

    Notes and texts of events are left out: anything may be in them.
    """
    import polars as pl

    made = Redaction()
    jobs = imported.jobs
    columns = []
    for column, kind in (KINDS | (MODELS if models else {})).items():
        old = jobs[column]
        new = (
            [made.all(kind, names) for names in old.to_list()]
            if old.dtype == pl.List(pl.String)
            else made.all(kind, old.to_list())
        )
        columns.append(pl.Series(column, new, dtype=old.dtype))
    seen = imported.observed.frame
    nodes = [made.all("node", names) for names in seen["nodes"].to_list()]
    events = imported.events
    subjects = [
        made("queue" if kind == CAPACITY else "node", subject)
        for kind, subject in events.select("kind", "subject").iter_rows()
    ]
    cluster = [made.node(node) for node in imported.cluster]
    redacted = with_jobs(
        imported,
        jobs.with_columns(columns),
        observed=Observed(seen.with_columns(pl.Series("nodes", nodes, dtype=seen["nodes"].dtype))),
        events=events.with_columns(
            pl.Series("subject", subjects, dtype=pl.String), pl.lit("").alias("text")
        ),
    )
    redacted.cluster = tuple(cluster)
    redacted.queues = made.queues(imported.queues)
    redacted.name = "redacted"
    redacted.notes = ["names were replaced"]
    return redacted, made.names
