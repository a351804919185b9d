"""The readers that import more than jobs, for tests that hold for each of them."""

from rota.core.registry import FORMATS, load, names

OTHERS = ("csv", "tiresias", "synergy", "sacct", "kubernetes", "rota-log")  # tested apart
RICH = [name for name in names(FORMATS) if name not in OTHERS]


def reader(name):
    """Return the format object of a name."""
    return load(FORMATS, name)


def counted(quality):
    """Return whether every row that was read is either kept or dropped for a reason."""
    return quality.rows == quality.kept + sum(quality.dropped.values())
