"""Pictures of runs and comparisons: their data, static figures, and one page that needs no network.

`data` and `lanes` hold functions from an event log (or a table of jobs) to the table behind each
figure; `figures` draws them with matplotlib (extra `plot`); `write_report` makes the page.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.report.data import cdf, delay_parts, queue, tenant_shares, utilisation
    from rota.report.lanes import fragment_heat, gantt, node_heat
    from rota.report.write import write_report

__all__ = [
    "cdf",
    "delay_parts",
    "fragment_heat",
    "gantt",
    "node_heat",
    "queue",
    "tenant_shares",
    "utilisation",
    "write_report",
]

_HOMES = {
    "fragment_heat": "lanes",
    "gantt": "lanes",
    "node_heat": "lanes",
    "write_report": "write",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: a page needs no matplotlib, a table no page."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'data')}"), name)
