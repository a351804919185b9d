"""The driver over a pretended Slurm: what is rare or takes long with a real one."""

import threading

import msgspec
import pytest

from rota.core.errors import ClusterError
from rota.live.driver import NodeStatus
from rota.live.drivers.slurm import SlurmDriver, SlurmOptions
from rota.live.drivers.slurm import runs as slurm_runs_module
from rota.live.drivers.slurm.commands import SlurmCommands
from rota.live.drivers.slurm.layout import SeenJob, SeenNode
from rota.live.drivers.slurm.preflight import check
from slurm_runs import Ears, order


def node(name, gpus=4, **fields):
    known = {"state": "idle", "flags": frozenset(), "reason": "", "partitions": ("main",), **fields}
    return SeenNode(
        name, name, known["state"], known["flags"], known["reason"], gpus, "a100", 16.0, 64.0,
        known["partitions"],
    )  # fmt: skip


class Pretended(SlurmCommands):
    """Knows jobs and nodes by itself; every order is noted and carried out at once."""

    def __init__(self):
        super().__init__()
        self.known = {}
        self.machines = {name: node(name) for name in ("n1", "n2")}
        self.calls = []
        self.away = False
        self.next = 1
        self.lock = threading.RLock()
        self.settings = {
            "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CORE_MEMORY",
            "SchedulerType": "sched/backfill", "DefMemPerCPU": "100", "MinJobAge": "300 sec",
        }  # fmt: skip
        self.partition = {"PartitionName": "main", "Default": "YES", "State": "UP"}

    def change(self, number, **fields):
        with self.lock:
            self.known[number] = msgspec.structs.replace(self.known[number], **fields)

    def note(self, *call):
        if self.away:
            raise ClusterError("Unable to contact slurm controller", retryable=True)
        self.calls.append(call)

    def verbs(self):
        return [call[0] for call in self.calls]

    # --- what Slurm is asked and told ---

    def version(self):
        return (22, 5)

    def config(self):
        return self.settings

    def partitions(self):
        return {self.partition["PartitionName"]: self.partition}

    def jobs(self):
        self.note("jobs")
        self.calls.pop()
        with self.lock:
            return list(self.known.values())

    def nodes(self):
        return list(self.machines.values())

    def would_accept(self, options):
        self.note("test", *options)

    def submit(self, options, script):
        self.note("submit", *options)
        with self.lock:
            number, self.next = self.next, self.next + 1
            comment = next(o for o in options if o.startswith("--comment="))[10:]
            self.known[number] = SeenJob(
                id=number, state="PENDING", held=True, reason="JobHeldUser", comment=comment
            )
        return number

    def release(self, job):
        self.note("release", job)
        self.change(job, held=False, reason="None")

    def hold(self, job):
        self.note("hold", job)
        self.change(job, held=True, reason="JobHeldAdmin")

    def update(self, job, **settings):
        self.note("update", job, settings)
        self.change(job, comment=settings["Comment"])

    def requeue_held(self, job):
        self.note("requeue", job)
        self.change(job, state="PENDING", held=True, restarts=self.known[job].restarts + 1)

    def signal(self, job, name, whom):
        self.note("signal", job, name, whom)

    def cancel(self, job):
        self.note("cancel", job)
        self.change(job, state="CANCELLED", held=False)


@pytest.fixture
def slurm():
    return Pretended()


@pytest.fixture
def drive(slurm, tmp_path, monkeypatch):
    """Return `drive()`: an open driver and its ears."""
    monkeypatch.setattr(slurm_runs_module, "LATE_S", 0.1)
    monkeypatch.setattr(slurm_runs_module, "BIRTH_S", 0.05)
    monkeypatch.setattr(slurm_runs_module, "PARKING_S", 60.0)
    opened = []

    def start(runs=(), halting=(), **options):
        driver = SlurmDriver("s", tmp_path / "shared", SlurmOptions(poll_s=0.02, **options))
        driver.commands = driver._carrier._commands = slurm
        ears = Ears()
        driver.open(ears)
        driver.adopt(runs, frozenset(halting))
        opened.append(driver)
        return driver, ears

    yield start
    for driver in opened:
        driver.close()


def until(slurm, condition):
    done = threading.Event()
    for _ in range(500):
        with slurm.lock:
            if condition():
                return
        done.wait(0.01)
    raise TimeoutError(slurm.calls)


GUARD_S = 60.0  # against hanging


def released(slurm, number):
    until(slurm, lambda: number in slurm.known and not slurm.known[number].held)


def began(driver, slurm, number, run):
    """Slurm starts a released job, and its script claims the run."""
    released(slurm, number)
    slurm.change(number, state="RUNNING", nodes=("n1",))
    (driver._folders.run(run) / "claimed").mkdir()


def recorded(driver, run, code, *, asked=0):
    path = driver._folders.run(run) / "end.0"
    path.write_text(f"{code} {asked} 1.5 run\n")


ONE = order("1.0", [("n1", 1)], run="true")
AGAIN = order("1.1", [("n2", 1)], run="true")


def test_preempted_jobs_are_parked_and_used_again(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    driver.launch(ONE)  # once is enough
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    driver.halt("1.0")
    until(slurm, lambda: ("signal", 1, "TERM", "batch") in slurm.calls)
    recorded(driver, "1.0", 0, asked=1)
    slurm.change(1, state="COMPLETED")
    assert ears.ends("1.0").asked
    driver.forget("1.0")
    driver.launch(AGAIN)
    began(driver, slurm, 1, "1.1")
    ears.run("1.1", "running")
    assert slurm.verbs() == ["submit", "release", "signal", "requeue", "update", "release"]
    update = slurm.calls[-2][2]
    assert update["NodeList"] == "n2"
    assert update["StartTime"] == "now+1"  # its nodes refuse it in the second in which it ended
    assert update["Comment"].startswith("rota:s:1.1:1:")


def test_the_grace_is_followed_by_sigkill(drive, slurm):
    driver, ears = drive()
    driver.launch(order("1.0", [("n1", 1), ("n2", 1)], run="true", grace_s=0.1))
    began(driver, slurm, 1, "1.0")
    driver.halt("1.0")
    until(slurm, lambda: ("signal", 1, "KILL", "everyone") in slurm.calls)
    assert ("signal", 1, "TERM", "steps") in slurm.calls
    slurm.change(1, state="FAILED", code=-9)
    assert (ears.ends("1.0").code, ears.ends("1.0").asked) == (-9, True)


def test_an_answer_that_got_lost_is_looked_for(drive, slurm, monkeypatch):
    driver, ears = drive()
    real = slurm.submit

    def lost(*args):
        real(*args)
        monkeypatch.setattr(slurm, "submit", real)
        raise ClusterError("sbatch did not answer within 20 s", retryable=True)

    monkeypatch.setattr(slurm, "submit", lost)
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    assert slurm.verbs() == ["submit", "release"]


def test_a_refusal_is_told(drive, slurm, monkeypatch):
    def refuse(*args):
        raise ClusterError("sbatch: error: invalid account")

    driver, ears = drive()
    monkeypatch.setattr(slurm, "submit", refuse)
    driver.launch(ONE)
    status = ears.ends("1.0")
    assert (status.state, status.code) == ("ended", 125)
    assert "invalid account" in status.why
    driver.halt("1.0")  # too late: the news is told again
    assert len([s for s in (ears.ends("1.0"), *ears.of("1.0")) if s == status]) >= 2


def test_nothing_is_lost_while_the_controller_is_away(drive, slurm):
    slurm.away = True
    driver, ears = drive([ONE])
    driver.launch(order("2.0", [("n2", 1)], run="true"))
    threading.Event().wait(0.2)
    assert slurm.calls == []
    slurm.away = False
    began(driver, slurm, 1, "1.0")
    began(driver, slurm, 2, "2.0")
    ears.run("1.0", "running")
    ears.run("2.0", "running")


def test_a_controller_that_lost_its_memory_starts_nothing_twice(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    slurm.change(1, state="PENDING", held=False, nodes=())  # as it was before it was started
    assert ears.ends("1.0").state == "lost"
    assert slurm.verbs() == ["submit", "release", "hold", "cancel"]


def test_a_run_that_began_after_slurm_was_asked_is_not_taken_for_forgotten(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    released(slurm, 1)
    asked, go_on = threading.Event(), threading.Event()
    answer = slurm.jobs

    def late():  # what it answers was true when it was asked
        found = answer()
        if not go_on.is_set():
            asked.set()
            go_on.wait(GUARD_S)
        return found

    slurm.jobs = late
    assert asked.wait(GUARD_S)
    slurm.change(1, state="RUNNING", nodes=("n1",))
    (driver._folders.run("1.0") / "claimed").mkdir()
    go_on.set()
    ears.run("1.0", "running")
    assert slurm.verbs() == ["submit", "release"]


def test_a_number_that_now_belongs_to_another_job_is_left_alone(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    slurm.change(1, comment="somebody else's")
    assert ears.ends("1.0").state == "lost"
    assert slurm.verbs() == ["submit", "release"]


def test_a_release_that_was_forgotten_is_repeated(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    released(slurm, 1)
    slurm.change(1, held=True, reason="JobHeldUser")
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    assert slurm.verbs() == ["submit", "release", "release"]


def test_what_slurm_requeues_is_held_and_lost(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    slurm.change(1, state="PENDING", restarts=1, nodes=())
    assert ears.ends("1.0").state == "lost"
    assert slurm.verbs()[-1] == "hold"
    driver.forget("1.0")
    driver.launch(AGAIN)
    until(slurm, lambda: "update" in slurm.verbs())
    assert slurm.verbs().count("submit") == 1


def test_what_slurm_restarts_by_itself_is_cancelled(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    ears.run("1.0", "running")
    slurm.change(1, restarts=1)
    assert ears.ends("1.0").state == "lost"
    assert slurm.verbs()[-1] == "cancel"


def test_an_end_that_slurm_has_not_noticed(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    began(driver, slurm, 1, "1.0")
    recorded(driver, "1.0", 5)
    assert (ears.ends("1.0").state, ears.ends("1.0").code) == ("ended", 5)
    assert slurm.verbs()[-1] == "cancel"


def test_a_job_that_slurm_has_forgotten(drive, slurm):
    driver, ears = drive()
    for run in ("1.0", "2.0"):
        driver.launch(order(run, [("n1", 1)], run="true"))
    began(driver, slurm, 1, "1.0")
    began(driver, slurm, 2, "2.0")
    ears.run("2.0", "running")
    recorded(driver, "1.0", 7)
    with slurm.lock:
        slurm.known.clear()
    assert (ears.ends("1.0").state, ears.ends("1.0").code) == ("ended", 7)
    assert ears.ends("2.0").state == "lost"


def test_adoption_parks_kills_and_never_doubles(drive, slurm):
    driver, ears = drive()
    for number in range(1, 5):
        driver.launch(order(f"{number}.0", [("n1", 1)], run="true"))
        began(driver, slurm, number, f"{number}.0")
        ears.run(f"{number}.0", "running")
    driver.close()
    slurm.change(2, state="PENDING", held=True, restarts=1)  # parked before the end was told
    recorded(driver, "3.0", 0)
    with slurm.lock:
        del slurm.known[3]
    slurm.calls.clear()
    runs = [order(f"{n}.0", [("n1", 1)], run="true") for n in (1, 2, 3)]
    driver, ears = drive(runs, ["2.0"])
    assert (ears.ends("2.0").state, ears.ends("2.0").asked) == ("ended", True)
    assert ears.ends("3.0").code == 0
    ears.run("1.0", "running")
    until(slurm, lambda: ("cancel", 4) in slurm.calls)  # nobody wants it
    assert "submit" not in slurm.verbs()


def test_parked_jobs_are_let_go(drive, slurm):
    driver, ears = drive(parked_s=0.2)
    driver.launch(ONE)
    released(slurm, 1)
    driver.halt("1.0")
    ears.ends("1.0")
    until(slurm, lambda: slurm.known[1].state == "CANCELLED")


def test_a_kill_cancels_what_waits(drive, slurm):
    driver, ears = drive()
    driver.launch(ONE)
    released(slurm, 1)
    driver.kill("1.0")
    assert ears.ends("1.0").asked
    assert slurm.known[1].state == "CANCELLED"


def test_news_of_nodes(drive, slurm):
    _, ears = drive()
    ears.node("n1", "up")
    slurm.machines["n1"] = node("n1", state="down", reason="fire")
    assert ears.node("n1", "lost") == NodeStatus("n1", "lost", why="Slurm: fire")
    del slurm.machines["n2"]
    ears.node("n2", "lost")
    ears.messages.clear()
    slurm.machines["n1"] = node("n1")
    ears.node("n1", "up")


# --- start-up ------------------------------------------------------------------------------------


def test_a_good_slurm_passes(slurm):
    assert check(slurm, SlurmOptions()) == []
    assert slurm.verbs() == ["test"]


@pytest.mark.parametrize(
    ("settings", "partition", "match"),
    [
        ({"SelectType": "select/linear"}, {}, "needs SelectType=select/cons_tres"),
        ({"SchedulerType": "sched/builtin"}, {}, "need sched/backfill"),
        ({"DefMemPerCPU": "UNLIMITED"}, {}, "set DefMemPerCPU"),
        ({}, {"OverSubscribe": "EXCLUSIVE"}, "whole nodes only"),
        ({}, {"State": "DOWN"}, "is DOWN"),
        ({}, {"Default": "NO"}, "no partition that is the default: it has main"),
    ],
)
def test_an_unfit_slurm_is_refused(slurm, settings, partition, match):
    slurm.settings.update(settings)
    slurm.partition.update(partition)
    with pytest.raises(ClusterError, match=match):
        check(slurm, SlurmOptions())


def test_a_slurm_without_gpus_or_too_old_is_refused(slurm, monkeypatch):
    slurm.machines = {"n1": node("n1", gpus=0)}
    with pytest.raises(ClusterError, match="no node of this Slurm has GPUs"):
        check(slurm, SlurmOptions())
    slurm.machines = {"n1": node("n1", partitions=("other",))}
    slurm.partition["PartitionName"] = "gpu"
    with pytest.raises(ClusterError, match="no node in the partition 'gpu'"):
        check(slurm, SlurmOptions(partition="gpu"))
    monkeypatch.setattr(slurm, "version", lambda: (20, 11))
    with pytest.raises(ClusterError, match=r"20\.11 is too old"):
        check(slurm, SlurmOptions())


def test_what_is_worth_knowing_is_said(slurm):
    slurm.settings.update(MinJobAge="5 sec", PreemptType="preempt/qos")
    slurm.partition["MaxTime"] = "1-00:00:00"
    remarks = check(slurm, SlurmOptions())
    assert [word for word, r in zip(("1-00", "MinJobAge", "preempts"), remarks, strict=True)
            if word in r] == ["1-00", "MinJobAge", "preempts"]  # fmt: skip


def test_capabilities_are_honest(tmp_path):
    can = SlurmDriver("s", tmp_path).capabilities
    assert (can.preempt, can.several_nodes, can.per_gpu, can.logs) == (True, True, True, True)
    assert (can.fractions, can.devices, can.joins) == (False, False, False)
