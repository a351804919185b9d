"""The figures of one run or of several side by side, for notebooks."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rota.core.errors import InputError, RotaError, install
from rota.report.data import cdf, delay_parts, queue, tenant_shares, utilisation
from rota.report.lanes import gantt, node_heat, node_outages
from rota.report.source import RunView
from rota.report.write import has_matplotlib

if TYPE_CHECKING:
    from rota.report.figures import Picture

BINS = 400
Looks = Mapping[str, RunView]


def draw(what: str, looks: Looks, **options: Any) -> "Picture":
    """A figure; without matplotlib an error that says what to install.

    Args:
        what: `cdf`, `utilisation`, `queue`, `gantt`, `heat`, `fragments`, `tenants` or `delay`.
        looks: Runs by name.
        options: Of the figure: `width_in`; of `cdf` also `column`.
    """
    if not has_matplotlib():
        raise RotaError(f"a figure needs matplotlib: {install('plot')}")
    return _DRAW[what](looks, **options)


def _cdf(looks: Looks, column: str = "jct_s", **options: Any) -> "Picture":
    from rota.report.figures import cdf_figure

    curves = {name: cdf(look.jobs, column, look.window) for name, look in looks.items()}
    return cdf_figure(curves, column, **options)


def _utilisation(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import utilisation_figure

    series = {name: utilisation(look.history, BINS) for name, look in looks.items()}
    return utilisation_figure(series, **options)


def _queue(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import queue_figure

    return queue_figure(
        {name: queue(look.history, BINS) for name, look in looks.items()}, **options
    )


def _gantt(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import gantt_figure

    history = next(iter(looks.values())).history
    return gantt_figure(gantt(history), down=node_outages(history), **options)


def _heat(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import heat_figure

    return heat_figure({name: node_heat(look.history) for name, look in looks.items()}, **options)


def _fragments(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import fragments_figure
    from rota.report.write import fragments_of

    heat = fragments_of(looks)
    if not heat:
        raise InputError(
            "no run tells its fragments: they need jobs that are placed on nodes, and a run made "
            "by this version"
        )
    return fragments_figure(heat, **options)


def _tenants(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import tenants_figure

    shares = {name: tenant_shares(look.history) for name, look in looks.items()}
    return tenants_figure(shares, **options)


def _delay(looks: Looks, **options: Any) -> "Picture":
    from rota.report.figures import delay_figure

    return delay_figure(
        delay_parts({name: look.summary for name, look in looks.items()}), **options
    )


_DRAW: dict[str, Callable[..., "Picture"]] = {
    "cdf": _cdf,
    "utilisation": _utilisation,
    "queue": _queue,
    "gantt": _gantt,
    "heat": _heat,
    "fragments": _fragments,
    "tenants": _tenants,
    "delay": _delay,
}
