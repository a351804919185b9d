"""What a daemon tells about jobs, and to whom."""

import pytest

from daemon_slow import Slow, state, until
from rota.core.errors import InputError
from rota.core.log import Record
from rota.daemon.logtable import LogTable
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.live.driver import RunMetrics
from rota.live.drivers.pretend import PretendDriver
from rota.metrics import fold_jobs
from rota.metrics.story import Stories
from rota.wire import Actor

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


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "las", "easy", "conservative"])
def test_reasons_are_of_now(policy, running, alice, file):
    """Who leaves the queue takes the reason of the next one with it, at once."""
    with running(nodes=(1, 2), policy=policy) as daemon:
        daemon.submit([file(2, estimate=60), *[file(2, estimate=60) for _ in range(3)]], alice)
        state(daemon, alice, "1", "RUNNING")
        assert [job.reason for job in daemon.jobs(alice)] == ["", "capacity", "order", "order"]
        assert daemon.explain("3", alice).text.startswith("PENDING: others are served first (2);")
        daemon.cancel("2", alice)
        assert [daemon.job(n, alice).reason for n in "34"] == ["capacity", "order"]
        assert daemon.explain("4", alice).ahead == ["3"]
        daemon.hold("3", alice)
        assert daemon.job("4", alice).reason == "capacity"


def test_who_holds_a_job_and_what_it_depends_on_are_named(running, alice, file):
    with running(nodes=(1, 1)) as daemon:
        daemon.submit([file(1), file(1, depends_on=["1"]), file(1)], alice)
        state(daemon, alice, "1", "RUNNING")
        waits = daemon.explain("2", alice)
        assert waits.text.startswith("HELD: it waits until 1 is done;")
        assert waits.waits_for == ["1"]
        daemon.hold("1", alice)
        state(daemon, alice, "1", "HELD")
        state(daemon, alice, "3", "RUNNING")  # it has the GPU now, but it did not preempt anybody
        held = daemon.job("1", alice)
        assert (held.message, held.preemptions) == ("held by alice", 0)
        assert daemon.explain("1", alice).text.startswith("HELD: held by alice; it has waited")
        daemon.release("1", alice)
        released = daemon.explain("1", alice)
        assert released.text.startswith("PENDING: fewer GPUs")
        assert released.preempted_by == []
        assert daemon.status()["preemptions"] == 0
        log = daemon.export().log
    story = Stories(log).tell(0)
    assert "preempted" not in story.text
    assert "held by alice" in story.text
    assert fold_jobs(log)["preemptions"].to_list() == [0, 0, 0]


class Telling(PretendDriver):
    """Its jobs say what the test says."""

    def __init__(self):
        super().__init__()
        self.runs = {}  # the newest of each job

    def launch(self, order):
        self.runs[order.job] = order.run
        super().launch(order)

    def tell(self, job, **values):
        self._listener(RunMetrics(self.runs[job], values))


def test_an_elastic_job_is_told_why_it_shrank_and_why_it_is_small(running, alice):
    def elastic(least, most):
        gpus = GpuRange(least, most) if least < most else least
        return JobFile(run="true", resources=Resources(gpus=gpus), envs={"PRETEND_S": "600"})

    driver = Telling()
    with running(nodes=(1, 8), policy="afs", driver=driver) as daemon:

        def has(job, gpus):
            held = until(lambda: daemon.job(job, alice), lambda info: info.nodes == {"n0": gpus})
            state(daemon, alice, job, "RUNNING")
            driver.tell(job, throughput=10.0)  # however many GPUs it has
            until(lambda: daemon.why(job, alice).text, lambda text: f"10 with {gpus} GPU" in text)
            return held

        daemon.submit([elastic(1, 8)], alice)
        assert daemon.job("1", alice).gpus == 1
        assert has("1", 8).sized() == "8 of 1-8"
        assert daemon.explain("1", alice).text.endswith(
            "it has 8 GPUs and takes 1 to 8; it measured 10 with 8 GPUs (samples per second)"
        )
        daemon.submit([elastic(1, 8)], alice)
        has("1", 4)
        has("2", 4)
        shrunk = daemon.explain("1", alice)
        assert [(one.what, one.gpus, one.by) for one in shrunk.sizes] == [
            ("started", 8, []), ("shrunk", 4, ["2"]),
        ]  # fmt: skip
        assert "shrunk from 8 GPUs because the policy gave GPUs that it left to 2" in (
            shrunk.sizes[1].text
        )
        assert "shrunk once (on 4 to 8 GPUs), for 2" in shrunk.text
        daemon.submit([elastic(6, 6)], alice)
        assert daemon.job("3", alice).elastic is None
        has("1", 1)
        has("2", 1)
        state(daemon, alice, "3", "RUNNING")
        daemon.cancel("3", alice)
        state(daemon, alice, "3", "CANCELLED")
        until(daemon.nodes, lambda nodes: nodes[0].free_gpus == 6)  # nobody wants them
        small = daemon.why("1", alice)
        assert small.text == (
            "it runs; it has 1 GPU and takes 1 to 8; it measured 10 with 1 GPU, 10 with 4 GPUs, "
            "10 with 8 GPUs (samples per second): more GPUs than 1 did not make it faster"
        )
        assert daemon.explain("3", alice).sizes == []


def test_the_log_is_read_once(running, alice, file, monkeypatch):
    driver = Slow()  # nothing happens by itself while the log is compared
    with running(driver=driver) as daemon:
        daemon.submit([file(), file()], alice)
        for job in "12":
            state(daemon, alice, job, "RUNNING")
        daemon.explain("1", alice)
        store, asked = daemon.loop.store, []
        rows = store.all_rows
        monkeypatch.setattr(store, "all_rows", lambda after: asked.append(after) or rows(after))
        before = daemon._log.frame(1e9).height - 1  # but for the row that ends it
        asked.clear()
        assert daemon.explain("2", alice).state == "RUNNING"
        assert min(asked) >= before > 0
        daemon.cancel("2", alice)
        daemon.explain("2", alice)
        fresh = LogTable(store).frame(1e9)
        assert fresh.equals(daemon._log.frame(1e9))
        assert fresh.height == store.log_number + 1
        ends = daemon._log.frame(1e9, (3, 4), leaving=[2])["event"].tail(2).to_list()
        assert ends == [Record.STOPPED.name.lower(), Record.END.name.lower()]
        driver.let_go()


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
