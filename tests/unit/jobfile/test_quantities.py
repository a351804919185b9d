"""Durations and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.jobfile.quantities import duration_s, memory_gib, shown, slurm_time_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90), (1.5, 1.5), ("90", 90), ("90s", 90), ("90m", 5400), ("2h30m", 9000),
        ("1d", 86400), ("1.5h", 5400), ("1d 12h", 129600), ("2 hours", 7200), ("1w", 604800),
        ("30:00", 1800), ("12:30:00", 45000), ("1-12", 129600), ("1-12:30", 131400),
        ("1-12:00:30", 129630), ("0", 0),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert duration_s(text, "estimate") == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "5x", "1h-", "m", "1:2:3:4", "nan", "inf", "99999w", "1e3", "٣m"]
)
def test_bad_durations(text):
    with pytest.raises(InputError, match="estimate is "):
        duration_s(text, "estimate")


@pytest.mark.parametrize(
    "value", [-1, float("nan"), float("inf"), 10**400], ids=["negative", "nan", "inf", "huge"]
)
def test_bad_seconds(value):
    with pytest.raises(InputError, match="estimate is "):
        duration_s(value, "estimate")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:15", 1815), ("1-0", 86400), ("UNLIMITED", None), ("0", None)],
)
def test_times_of_slurm(text, seconds):
    assert slurm_time_s(text, "--time") == seconds


@pytest.mark.parametrize(
    ("text", "gib"),
    [(8, 8), ("8", 8), ("64GB", 64), ("64 GiB", 64), ("64g", 64), ("512M", 0.5), ("1T", 1024),
     ("1048576K", 1), ("1073741824B", 1), ("0", 0)],
)  # fmt: skip
def test_memory(text, gib):
    assert memory_gib(text, "mem") == gib


@pytest.mark.parametrize("text", ["", "GB", "-1", "1GBs", "1X", float("nan"), -1.0])
def test_bad_memory(text):
    with pytest.raises(InputError, match="mem is "):
        memory_gib(text, "mem")


@given(st.text())
def test_any_text_is_a_quantity_or_refused(text):
    for read in (duration_s, memory_gib, slurm_time_s):
        try:
            value = read(text, "key")
        except InputError as error:
            assert "key is" in str(error)  # noqa: PT017 - anything else would escape
        else:
            assert value is None or value >= 0


def test_what_is_shown_is_short():
    assert len(shown("x" * 10_000)) < 100
    assert len(shown([["y" * 100] * 100] * 100)) < 1000
