"""What was found once is not found again."""

import pytest

from regressions import REGRESSIONS


@pytest.mark.parametrize("name", REGRESSIONS)
def test_the_naive_engine_agrees(name):
    make, scenario = REGRESSIONS[name]
    assert scenario.mismatch(make) == ""
