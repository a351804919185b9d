"""Bugs planted in the third door are found by comparing policies with their plain forms."""

import pytest

from differential.test_incremental import alike
from mutants.planting import plant
from rota.core.errors import RotaError

GENERAL = "rota.engine.general:GeneralScheduler"
MUTANTS = {
    "ends are not heard of": (f"{GENERAL}._ended", "self._hears.ended(job, now_s)", "pass"),
    "starts are not heard of": (f"{GENERAL}._report", "hears.started(job, now_s)", "pass"),
    "reasons are not looked at again": (
        f"{GENERAL}._tell",
        "not self._dirty and trusted",
        "trusted",
    ),
    "a plan displaces whom it does not name": (
        "rota.engine.plans:PlacementPlan._place_anew",
        "not self._may_displace or ",
        "",
    ),
}


def caught():
    for number in range(6):
        try:
            alike("easy", "Easy", {}, number, 80)
        except (AssertionError, LookupError, RotaError):
            return True
    return False


def test_the_door_itself_passes():
    assert not caught()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_bug_planted_in_the_third_door_is_caught(name, monkeypatch):
    plant(monkeypatch, *MUTANTS[name])
    assert caught()
