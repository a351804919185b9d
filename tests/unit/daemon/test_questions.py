"""What a daemon tells about jobs, and to whom."""

import pytest

from daemon_slow import Slow, state
from rota.core.errors import InputError
from rota.core.events import Record
from rota.daemon.info import Actor
from rota.daemon.logtable import LogTable
from rota.jobfile.model import JobFile

# --- why it waits ---------------------------------------------------------------------------------


def test_a_job_that_is_being_stopped_blames_nobody(running, alice, operator, file):
    driver = Slow()
    with running(driver=driver, nodes=(1, 2)) as daemon:
        daemon.submit([file(2)], alice)
        state(daemon, alice, "1", "RUNNING")
        daemon.drain("n0", operator, stop=True)
        found = daemon.explain("1", alice)
        assert found.text.startswith(
            "STOPPING: it is being stopped, because n0 is drained (grace up to 30 s); it has waited"
        )
        assert {part.reason for part in found.parts} == {"overhead"}
        daemon.undrain("n0", operator)
        daemon.hold("1", alice)
        assert "stopped, to be held on request (grace" in daemon.explain("1", alice).text
        daemon.cancel("1", alice)
        assert "CANCELLED: it is being stopped, because it was" in daemon.explain("1", alice).text
        driver.let_go()


def test_the_log_is_read_once(running, alice, file, monkeypatch):
    with running() as daemon:
        daemon.submit([file(), file()], alice)
        daemon.explain("1", alice)
        store, asked = daemon.core.store, []
        rows = store.rows
        monkeypatch.setattr(store, "rows", lambda *args: asked.append(args[0]) or rows(*args))
        before = daemon._log.frame(1e9).height - 1  # but for the row that ends it
        asked.clear()
        assert daemon.explain("2", alice).state in ("STARTING", "RUNNING")
        assert min(asked) >= before > 0
        daemon.cancel("2", alice)
        daemon.explain("2", alice)
        fresh = LogTable(store).frame(1e9)
        assert fresh.equals(daemon._log.frame(1e9))
        assert fresh.height == store.log_number + 1
        ends = daemon._log.frame(1e9, (3, 4), leaving=[2])["event"].tail(2).to_list()
        assert ends == [Record.STOPPED.name.lower(), Record.END.name.lower()]


# --- what was submitted ---------------------------------------------------------------------------


def test_what_a_job_executes_is_for_its_owner(daemon, alice, operator, admin, viewer):
    job = JobFile(run="python train.py", envs={"TOKEN": "secret"})
    daemon.submit([job], alice)
    for actor in (alice, admin):
        assert daemon.job("1", actor).file == job
    for actor in (operator, viewer, Actor("root2", "operator")):
        assert daemon.job("1", actor).file is None
    assert all(info.file is None for info in daemon.jobs(alice))


def test_users_wait_for_jobs_of_their_own_only(daemon, alice, bob, operator, file):
    daemon.submit([file()], alice)
    with pytest.raises(InputError, match="depends_on '1': you have no such job"):
        daemon.submit([file(depends_on=("1",))], bob)
    with pytest.raises(InputError, match="depends_on '2'"):  # not even for itself
        daemon.submit([file(depends_on=("2",))], bob)
    mine = daemon.submit([file(), file(depends_on=("2",)), file(depends_on=("02",))], bob)
    assert [info.state for info in mine][1:] == ["HELD", "HELD"]
    assert daemon.submit([file(depends_on=("1",))], operator)[0].reason == "dependency"
