"""Short names: what tells policies apart stays."""

import pytest

from rota.report.style import LONG, cut, short_names


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["fifo", "las:limits=100/400"], ["fifo", "las:limits=100/400"]),
        (["pol/srgt.py", "fifo"], ["srgt.py", "fifo"]),
        (["a/x.py", "b/x.py"], ["a/x.py", "b/x.py"]),
        (
            ["pol/srgt.py:aging=1,limit=20", "pol/srgt.py:aging=2,limit=20"],
            ["srgt.py:aging=1", "srgt.py:aging=2"],
        ),
        (["x" * 30 + "1" + "y" * 20, "x" * 30 + "2" + "y" * 20], None),
        (["_" * 40, "_" * 41, "_" * 42], None),
    ],
)
def test_labels_are_short_and_differ(names, labels):
    found = short_names(names)

    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(len(label) <= LONG + 4 for label in found.values())
    assert labels is None or list(found.values()) == labels


def test_the_middle_goes():
    assert cut("abcdefghij", 5) == "ab\u2026ij"
    assert cut("abcde", 5) == "abcde"
