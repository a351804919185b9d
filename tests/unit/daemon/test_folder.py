"""The state folder, and what a restored backup may not do."""

import pytest

from rota.core.errors import ConflictError
from rota.daemon.folder import StateFolder
from rota.daemon.store import Store


def test_one_daemon_at_a_time(tmp_path):
    with StateFolder(tmp_path / "state"), pytest.raises(ConflictError, match="another daemon"):
        StateFolder(tmp_path / "state")
    StateFolder(tmp_path / "state").close()


def test_a_number_with_a_folder_is_not_given_again(tmp_path):
    with StateFolder(tmp_path / "state") as folder:
        assert folder.last_job() == 0
        for name in ("3", "7", "x", "12#0", "²"):
            (folder.jobs / name).mkdir(parents=True)
        store = Store(folder.store, durable=False)
        store.skip_to(folder.last_job())
        assert (folder.last_job(), store.job_number) == (7, 7)
        store.close()
