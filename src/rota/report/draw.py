"""All static figures of a report."""

from collections.abc import Iterator, Mapping

import polars as pl

from rota.report import figures
from rota.report.data import TIMES, cdf, queue, tenant_shares, utilisation
from rota.report.lanes import fragment_heat, gantt, node_heat, node_outages
from rota.report.numbers import delays, ratios
from rota.report.source import Look, Source
from rota.report.style import DOUBLE_IN

BINS = 400


def count(source: Source) -> int:
    """How many figures there will be, or two more."""
    shared = 7 if source.looks else 0
    return shared + len(source.looks) + 2


def pictures(source: Source) -> Iterator[tuple[str, figures.Picture]]:
    """(name of the file without its ending, figure), one after the other."""
    looks = source.looks
    if looks:
        for column in TIMES:
            curves = {look.name: cdf(look.jobs, column, look.window) for look in looks}
            yield f"cdf-{column.removesuffix('_s')}", figures.cdf_figure(curves, column)
        used = {look.name: utilisation(look.history, BINS) for look in looks}
        yield "utilisation", figures.utilisation_figure(used)
        waiting = {look.name: queue(look.history, BINS) for look in looks}
        yield "queue", figures.queue_figure(waiting)
        shares = {look.name: tenant_shares(look.history) for look in looks}
        yield "tenants", figures.tenants_figure(shares)
        heat = {look.name: node_heat(look.history) for look in looks}
        yield "heat", figures.heat_figure(heat, DOUBLE_IN)
        useless = fragments_of({look.name: look for look in looks})
        if useless:
            yield "fragments", figures.fragments_figure(useless, DOUBLE_IN)
        for look in looks:
            name = f"gantt-{look.folder}" if look.folder else "gantt"
            yield name, figures.gantt_figure(gantt(look.history), down=node_outages(look.history))
    yield "delay", figures.delay_figure(delays(source.comparison))
    table = ratios(source.comparison)
    if table.height:
        yield "ratios", figures.ratio_figure(table, DOUBLE_IN)


def fragments_of(looks: Mapping[str, Look]) -> dict[str, pl.DataFrame]:
    """Tables of `fragment_heat` of those runs that have one."""
    found = {name: fragment_heat(look.history, look.basis) for name, look in looks.items()}
    return {name: table for name, table in found.items() if table is not None}
