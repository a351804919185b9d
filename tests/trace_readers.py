"""The readers that import more than jobs, for tests that hold for each of them."""

import csv

from rota.core.registry import FORMATS, load, names

OTHERS = ("csv", "tiresias", "synergy", "sacct", "kubernetes", "rota-log")  # tested apart
RICH = [name for name in names(FORMATS) if name not in OTHERS]


def reader(name):
    """Return the format object of a name."""
    return load(FORMATS, name)


def counted(quality):
    """Return whether every row that was read is either kept or dropped for a reason."""
    return quality.rows == quality.kept + sum(quality.dropped.values())


def quoted(path):
    """Return a copy of a csv file with every cell in quotes: the standard parser reads it."""
    copy = path.with_name(f"quoted-{path.name}")
    with path.open(newline="") as file, copy.open("w", newline="") as other:
        csv.writer(other, quoting=csv.QUOTE_ALL).writerows(csv.reader(file))
    return copy
