"""The readers that import more than jobs, for tests that hold for each of them."""

import importlib

MODULES = {
    "helios": "helios:FORMAT",
    "alibaba-2020": "pai:FORMAT",
    "openb": "openb:FORMAT",
    "spot": "spot:FORMAT",
    "pollux": "pollux:FORMAT",
    "sia": "pollux:SIA",
    "pollux-results": "pollux_results:FORMAT",
    "gavel": "gavel:FORMAT",
    "chronus": "chronus:FORMAT",
    "swf": "swf:FORMAT",
    "batsim": "batsim:FORMAT",
    "philly": "philly:FORMAT",
    "rota": "store:FORMAT",
}


def reader(name):
    """Return the format object of a name, whether or not the name is registered yet."""
    module, _, attribute = MODULES[name].partition(":")
    return getattr(importlib.import_module(f"rota.traces.{module}"), attribute)


def counted(quality):
    """Return whether every row that was read is either kept or dropped for a reason."""
    return quality.rows == quality.kept + sum(quality.dropped.values())
