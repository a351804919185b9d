"""What several daemons share must not depend on one of their machines."""

import pytest

from rota.core.errors import InputError
from rota.daemon.settings import Settings, needs_restart, read_settings

URL = "postgresql://rota:secret@db/rota"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"store": "mysql://rota:secret@db/rota"}, r"rota:\*\*\*@db.*write postgresql://USER"),
        ({"store": URL, "lease_s": 0.5}, r"lease_s=0.5: give 1 to .*\(30\)"),
        ({"store": URL, "lease_s": 31.0}, "agents outlive a change of the leader"),
        ({"store": URL, "backend": "slurm"}, "backend slurm.*leave store empty"),
        ({"store": URL, "cluster": "4x4"}, "cluster '4x4'.*join by `rota agent`"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(said, words):
    with pytest.raises(InputError, match=words) as refused:
        read_settings(None, said)
    assert "secret" not in str(refused.value)


def test_a_store_is_accepted_and_changes_with_a_restart_without_its_password():
    settings = read_settings(None, {"store": URL})
    assert needs_restart(Settings(), settings) == [
        "store: (empty) -> postgresql://rota:***@db/rota (after a restart)"
    ]
