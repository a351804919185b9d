"""Declared knowledge in words; the guards themselves are tested with jobs and views."""

import pytest

from rota.core.knowledge import Knowledge


@pytest.mark.parametrize(
    ("knowledge", "text"),
    [
        (Knowledge.NOTHING, "nothing"),
        (Knowledge.USER_ESTIMATE, "user estimate"),
        (Knowledge.REMAINING_WORK | Knowledge.HISTORY, "history, remaining work"),
        (Knowledge(63), "user estimate, history, progress, rate, distribution, remaining work"),
        (Knowledge.FUTURE_ARRIVALS, "future arrivals"),
        (Knowledge.SPEEDS, "speeds"),
    ],
)
def test_knowledge_describes_itself(knowledge, text):
    assert knowledge.describe() == text


def test_the_numbers_that_jobs_compare_with():
    assert [int(flag) for flag in Knowledge] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert (Knowledge.USER_ESTIMATE, Knowledge.PROGRESS, Knowledge.REMAINING_WORK) == (1, 4, 32)
    assert (Knowledge.SPEEDS, Knowledge.SCALING, Knowledge.DEADLINES) == (128, 256, 512)
