"""Logs of a process that serves."""

import logging
import sys
from io import StringIO

from rota.api.logs import configure


def test_lines_go_to_the_standard_error_output_of_the_moment(monkeypatch, restore_logging):
    """Also when the one at the start was replaced and closed."""
    before, now = StringIO(), StringIO()
    monkeypatch.setattr(sys, "stderr", before)
    configure()
    monkeypatch.setattr(sys, "stderr", now)
    before.close()
    restore_logging().warning("of.structlog", job=1)
    logging.getLogger("rota.daemon").warning("of.logging")
    assert [line.split("]")[1].split()[0] for line in now.getvalue().splitlines()] == [
        "of.structlog", "of.logging",
    ]  # fmt: skip
