"""Amounts of `--resource`."""

import pytest

from rota.cli.submit import amounts_of
from rota.core.errors import InputError


def test_of_two_amounts_of_a_kind_none_is_lost():
    assert amounts_of(["matlab=2", "ansys=1"]) == {"matlab": 2.0, "ansys": 1.0}
    with pytest.raises(InputError, match="'matlab' is given twice"):
        amounts_of(["matlab=2", " matlab=1"])
