"""Why a job does not start, what would start it, and jobs that nobody has submitted yet."""

import time

import pytest

from daemon_slow import Slow, state
from rota.core.errors import InputError
from rota.core.topology import NodeSpec
from rota.daemon.settings import Queue
from rota.jobfile.model import JobFile, Resources
from rota.live.driver import Capabilities, RunStatus
from rota.live.drivers.pretend import PretendDriver
from rota.live.inputs import Reconfigured

POLICIES = [
    "fifo", "fifo-skip", "las", "easy", "srtf", "conservative", "gavel-max-min", "yarn-cs",
]  # fmt: skip


class StoppedClock:
    """Time passes when the test says so."""

    time_s = 0.0

    def now_s(self):
        return self.time_s

    def wait_s(self, until_s):
        return 3600.0 if until_s > self.time_s else 0.0

    def at_s(self, moment_s):
        return self.time_s


@pytest.fixture
def busy(running, alice, file):
    """Two nodes of four GPUs: three and two of them are taken, and a job for all eight waits."""

    def make(policy="fifo-skip", **options):
        return running(nodes=(2, 4), policy=policy, driver=Slow(), **options)

    def fill(daemon):
        daemon.submit([file(3, estimate=600), file(2, estimate=1200)], alice)
        for job in "12":
            state(daemon, alice, job, "RUNNING")
        daemon.submit([file(8, estimate=3600)], alice)

    return make, fill


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_is_not_submitted_is_told_what_it_is_told_afterwards(policy, busy, alice, file):
    make, fill = busy
    clock = StoppedClock()
    with make(policy, clock=lambda *_: clock) as daemon:
        fill(daemon)
        clock.time_s = 50.0
        ask = file(4, estimate=900)
        before = daemon.when_new(ask, alice, runs=9)
        assert (before.id, before.state) == ("new", "not submitted")
        daemon.submit([ask], alice)
        after = daemon.when("4", alice, runs=9)
        assert after.starts_at == before.starts_at
        if after.runs:
            keys = ("earliest_at", "latest_at", "never", "share", "text", "assumptions", "backtest")
            assert [getattr(before, key) for key in keys] == [getattr(after, key) for key in keys]
        else:
            assert before.starts_at == daemon.store.epoch_unix + 50.0
        daemon.loop.driver.let_go()


ASKED = {
    "part": {"resources": Resources(gpus=0.5)},
    "no GPUs": {"resources": Resources(gpus=0, cpus=2)},
    "two nodes": {"resources": Resources(gpus=1), "nodes": 2},
    "limit": {"time_limit": "5m"},
    "limit and estimate": {"time_limit": "5m", "estimate": "2m"},
    "first": {"priority": 10},
    "after one": {"after_any": ("1",)},
    "after those": {"depends_on": ("1", "3")},
    "held": {"hold": True},
    "deadline": {"deadline": "1h", "retries": 2},
}


@pytest.mark.parametrize("policy", ["fifo-skip", pytest.param("easy", marks=pytest.mark.soak)])
@pytest.mark.parametrize("asked", ASKED)
def test_whatever_it_asks_for(asked, policy, busy, alice):
    make, fill = busy
    clock = StoppedClock()
    with make(policy, clock=lambda *_: clock) as daemon:
        fill(daemon)
        clock.time_s = 50.0
        ask = JobFile(**{"run": "true", "resources": Resources(gpus=4), **ASKED[asked]})
        before, told = daemon.when_new(ask, alice, runs=5), daemon.why_new(ask, alice, runs=5)
        daemon.submit([ask], alice)
        after, why = daemon.when("4", alice, runs=5), daemon.why("4", alice, runs=5)
        daemon.loop.driver.let_go()
    assert after.starts_at == before.starts_at
    if not after.runs:  # it runs
        assert told.text == "it would start now"
        return
    for key in ("earliest_at", "latest_at", "never", "share", "text", "backtest"):
        assert getattr(before, key) == getattr(after, key)
    for key in ("reason", "evidence", "ahead", "ahead_count"):
        assert getattr(told, key) == getattr(why, key)
    assert (told.remedy.kind, told.others) == (why.remedy.kind, why.others)
    if asked == "held":
        assert told.remedy.text == "leave out `hold`"
    else:
        assert told.text == why.text


def test_the_change_is_the_smallest_that_starts_it(busy, alice, file):
    make, fill = busy
    with make() as daemon:
        fill(daemon)
        found = daemon.why("3", alice)
        assert (found.reason, found.remedy.kind) == ("capacity", "gpus")
        assert found.evidence == ["3 of 8 GPUs are free, it asks for 8 GPUs"]
        would = [n for n in range(1, 8) if daemon.why_new(file(n), alice).reason == ""]
        assert found.remedy.gpus == max(would) == 2  # three are free, on two nodes
        assert daemon.why_new(file(2), alice).text == "it would start now"
        new = daemon.why_new(file(3), alice)
        assert (new.reason, new.remedy.gpus, new.id) == ("fragmentation", 2, "new")
        assert "at most 2 of them on one node" in new.evidence[0]
        assert [job.state for job in daemon.jobs(alice)] == ["RUNNING", "RUNNING", "PENDING"]
        daemon.loop.driver.let_go()


def test_who_is_ahead_is_the_reason_in_strict_order(busy, alice, file):
    make, fill = busy
    with make("fifo") as daemon:
        fill(daemon)
        found = daemon.why_new(file(1, estimate=60), alice, runs=5)
        assert (found.reason, found.ahead, found.remedy.kind) == ("order", ["3"], "wait")
        assert found.remedy.starts_in_s > 0
        daemon.loop.driver.let_go()


def test_a_shorter_limit_is_offered_where_limits_matter(busy, alice, file):
    make, fill = busy
    with make("easy") as daemon:
        fill(daemon)
        found = daemon.why_new(file(2, estimate="9h"), alice, runs=3)
        assert found.reason == "order"
        kinds = {remedy.kind: remedy for remedy in [found.remedy, *found.others]}
        assert kinds["limit"].limit_s == 900.0  # `8` can begin when the second one ends
        daemon.loop.driver.let_go()


def test_less_gpu_memory_is_offered(running, alice):
    def ask(gib):
        return JobFile(run="true", resources=Resources(gpus=0.5, gpu_mem_gib=gib))

    node = NodeSpec("n0", 1, gpu_mem_gib=16.0, sharing="fraction")
    with running(nodes=(), patient=True, driver=Slow(), policy="fifo-skip") as daemon:
        joined = Reconfigured(nodes=(node,), by="join")
        daemon._do(lambda: ([joined], lambda: None))
        big = daemon.why_new(ask(99), alice, runs=3)
        assert (big.reason, big.remedy.kind, big.remedy.gpu_mem_gib) == ("constraint", "memory", 16)
        assert "(GPU type, label, memory)" in big.text
        assert "0 of 0 GPUs of its kind (99 GiB of each GPU's memory) are free" in big.evidence[0]
        daemon.submit([ask(10.5)], alice)
        state(daemon, alice, "1", "RUNNING")
        found = daemon.why_new(ask(6), alice, runs=3)
        assert (found.reason, found.remedy.gpu_mem_gib) == ("memory", 5)
        assert found.text.endswith("with 5 GiB of each GPU's memory it would start now")
        assert daemon.why_new(ask(5), alice).text == "it would start now"
        daemon.submit([ask(5.5)], alice)
        state(daemon, alice, "2", "RUNNING")
        full = daemon.why_new(ask(1), alice, runs=3)  # no compute is left, either
        assert (full.reason, full.remedy.kind) == ("capacity", "wait")
        daemon.loop.driver.let_go()


@pytest.mark.parametrize(("sharing", "free"), [("exclusive", 1.0), ("fraction", 1.5)])
def test_the_rest_of_a_gpu_for_one_job_is_not_free(running, alice, sharing, free):
    node = NodeSpec("n0", 2, sharing=sharing)
    with running(nodes=(), driver=Slow(), policy="fifo-skip") as daemon:
        daemon._do(lambda: ([Reconfigured(nodes=(node,), by="join")], lambda: None))
        daemon.submit([JobFile(run="true", resources=Resources(gpus=0.5))], alice)
        state(daemon, alice, "1", "RUNNING")
        assert [(each.free_gpus, each.jobs) for each in daemon.nodes()] == [(free, ["1"])]
        daemon.loop.driver.let_go()


def test_another_queue_or_type_is_offered(running, alice, file):
    queues = [Queue("full", limit=1), Queue("open")]
    with running(
        nodes=(1, 4), driver=Slow(), policy="fifo-skip", admission="quota", queues=queues
    ) as daemon:
        daemon.submit([file(1, queue="full")], alice)
        state(daemon, alice, "1", "RUNNING")
        found = daemon.why_new(file(1, queue="full"), alice, runs=3)
        assert (found.reason, found.remedy.kind, found.remedy.queue) == ("quota", "queue", "open")
        assert "its limit is 1" in " ".join(found.evidence)
        daemon.loop.driver.let_go()


def test_held_jobs_are_told_who_holds_them(busy, alice, file):
    make, fill = busy
    with make() as daemon:
        fill(daemon)
        daemon.submit([file(1, hold=True), file(1, depends_on=["1"])], alice)
        assert daemon.why("4", alice).remedy.kind == "release"
        waits = daemon.why("5", alice, runs=3)
        assert (waits.reason, waits.remedy.kind) == ("dependency", "after")
        assert waits.evidence[0] == "it waits until 1 is done"
        assert daemon.why("1", alice).text == "it runs"
        daemon.loop.driver.let_go()


class Failing(Slow):
    """Every run fails."""

    def launch(self, order):
        with self._changed:
            self._began[order.run] = 0.0
            self._later(0.0, RunStatus(order.run, "running"))
            self._later(0.0, RunStatus(order.run, "ended", code=3, why="exit code 3"))


def test_no_change_helps_a_job_that_is_tried_again_later(running, alice, file):
    with running(nodes=(1, 4), driver=Failing(), queues=[Queue("other")]) as daemon:
        daemon.submit([file(2, retries=1, backoff="1h")], alice)
        state(daemon, alice, "1", "HELD")
        found = daemon.why("1", alice, runs=1)
        assert (found.reason, found.remedy.kind, found.others) == ("backoff", "wait", [])
        assert 3000 < found.remedy.starts_in_s <= 3600
        daemon.submit([file(1)], alice)
        state(daemon, alice, "2", "FAILED")
        assert daemon.why("2", alice).text == "it is over: exit code 3"


def test_a_guess_is_called_a_guess(busy, alice, file):
    make, fill = busy
    with make("fifo") as daemon:
        fill(daemon)
        found = daemon.why_new(file(1), alice, runs=9)
        assert found.remedy.kind == "wait"
        assert "a guess: nobody knows how long jobs run here" in found.remedy.text
        daemon.loop.driver.let_go()


def test_what_could_not_be_submitted_is_refused(daemon, alice, file):
    with pytest.raises(InputError):
        daemon.when_new(file(1, depends_on=("7",)), alice)
    for ask in (daemon.when_new, daemon.why_new):
        with pytest.raises(InputError, match="would be refused: it asks for 99 GPUs"):
            ask(file(99), alice)
    assert daemon.jobs(alice) == []


class ImagesDriver(PretendDriver):
    """Runs containers."""

    capabilities = Capabilities(measured=False, joins=False, logs=False, images=True)


def test_a_job_with_an_image_is_asked_of_nodes_that_run_containers(running, alice, file):
    image = "docker.io/library/python:3.12"
    with running(driver=ImagesDriver(), nodes=(2, 1)) as daemon:
        with pytest.raises(InputError, match="no node of this cluster runs it"):
            daemon.why_new(file(1, image=image), alice)
        able = Reconfigured(nodes=(NodeSpec("n0", 1, labels=("container",)),), by="join")
        daemon._do(lambda: ([able], lambda: None))
        assert daemon.why_new(file(1, image=image), alice).text == "it would start now"
        (first,) = daemon.submit([file(1, lasts=9e6, estimate="9h", image=image)], alice)
        state(daemon, alice, first.id, "RUNNING")
        ask = file(1, image=image, estimate=60)
        assert daemon.why_new(file(1, estimate=60), alice).text == "it would start now"
        found = daemon.why_new(ask, alice, runs=3)
        assert found.reason in ("constraint", "capacity")
        forecast = daemon.when_new(ask, alice, runs=3)
        assert forecast.starts_at is None or forecast.starts_at > time.time() + 3_600
        (waits,) = daemon.submit([ask], alice)
        assert daemon.job(waits.id, alice).state == "PENDING"
        daemon.cancel(first.id, alice)
