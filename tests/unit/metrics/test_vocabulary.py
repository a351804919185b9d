"""One name and one way of writing for each number."""

import re

import pytest

from rota.core.words import brief, counted, duration
from rota.core.workload import Quality
from rota.metrics.vocabulary import BY_KEY, MEASURES, alike, label_of, written
from shared_data import CHECKOUT


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0004, "0.0004 s"), (37.5, "37.5 s"), (59.4, "59.4 s"), (59.7, "1m 00s"),
        (245, "4m 05s"), (3599.4, "1h 00m"), (7440, "2h 04m"), (86_399, "1d 00h"),
        (273_600, "3d 04h"), (1e8, "1,157d 10h"), (-75, "-1m 15s"), (None, "-"),
        (float("nan"), "-"), (float("inf"), "for ever"),
    ],
)  # fmt: skip
def test_a_duration(seconds, text):
    assert duration(seconds) == text


def test_a_round_time_is_brief():
    assert [brief(at) for at in (30, 60, 600, 3600, 5400, 345_600)] == [
        "30 s", "1m", "10m", "1h", "1h 30m", "4d",
    ]  # fmt: skip


def test_numbers_by_unit():
    assert written(7440, "s") == "2h 04m"
    assert alike([0.8123, None], "share") == ["81.2%", "-"]
    assert alike([1234, 1234.5], "count") == ["1,234", "1,234.5"]
    assert alike([1.2345, 12.345, 1234.5], "ratio") == ["1.234", "12.35", "1,234"]


def test_names_are_unique_and_unknown_keys_are_words():
    assert len({measure.label for measure in MEASURES}) == len(MEASURES) == len(BY_KEY)
    assert label_of("avg_jct_s") == "mean JCT"
    assert label_of("node_count") == "node count"


def test_no_module_writes_durations_in_a_way_of_its_own():
    """Units other than those of `duration`, or hours from seconds, next to a formatted number."""
    own = re.compile(r"\} (h|min|d)\b|3_?600(\.0)?:,?\.\d[^}]*\} h\b")
    found = {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "src" / "rota").rglob("*.py")
        for line in path.read_text().splitlines()
        if own.search(line) and 'f"' in line
    }
    # these restate published tables, or name an option in hours
    assert {name for name in found if "reproduce" not in name} <= {
        "src/rota/study/rough.py",
        "src/rota/study/run.py",
    }


def test_one_is_no_plural():
    assert [counted(number, "row") for number in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


def test_what_an_import_did_counts_rows_not_jobs():
    quality = Quality(803, 400)
    quality.drop("step of a job", 400)
    quality.repair("cut")
    assert quality.told == [
        "400 rows of the trace left out: step of a job", "1 row of the trace changed: cut",
    ]  # fmt: skip
