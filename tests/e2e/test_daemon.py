"""A real daemon, its embedded agent and real processes, from submission to end."""

import random
from itertools import product

import pytest

from agents_net import PATIENCE_S, alive, eventually
from live_logs import assert_sound, exported
from saving_job import script
from thinning import first

WAIT_FOR_FILE = "while [ ! -e {} ]; do sleep 0.05; done"


def waves(folder, size, seed=3):
    """Return three waves of jobs: long wide jobs first, so that whoever preempts has a reason to.

    None ends before the file `go` is there: each wave finds the one before it.
    """
    dice = random.Random(seed)  # noqa: S311
    found = []
    kinds = (((4, 4, 2), 0.9, 1.5), ((1, 2, 4), 0.3, 0.8), ((1, 1, 2), 0.2, 0.5))
    for gpus, least_s, most_s in kinds:
        wave = []
        for number in range(size):
            work_s = round(dice.uniform(least_s, most_s), 2)
            wave.append(
                {
                    "run": script(work_s, folder, after=folder / "go"),
                    "queue": ("red", "green", "blue")[number % 3],
                    "estimate": work_s,
                    "resources": {"gpus": dice.choice(gpus)},
                }
            )
        found.append(wave)
    return found


PREEMPTS = {"fifo": False, "tiresias:limits=0.4/2": True, "srtf": True}


@pytest.mark.parametrize(("size", "policy"), first(2, product([7, 20], PREEMPTS)))
def test_all_jobs_in_three_queues_finish(daemons, tmp_path, size, policy, capsys, record_property):
    daemon = daemons("--nodes", "4x4", "--policy", policy, "--check", "--log-level", "warning")
    jobs = []
    for wave in waves(tmp_path, size):
        jobs += daemon.client.submit_many(wave)
        eventually(
            lambda: any(job.state == "RUNNING" for job in daemon.client.jobs(active=True)),
            every_s=0.1,
        )
    (tmp_path / "go").touch()
    found = daemon.all_over()
    assert [job.id for job in found] == [job.id for job in jobs]
    assert {job.state for job in found} == {"SUCCEEDED"}
    assert {job.queue for job in found} == {"red", "green", "blue"}

    runs = (tmp_path / "runs").read_text().split()
    assert len(set(runs)) == len(runs)
    for job in found:
        assert len((tmp_path / f"{job.id}.done").read_text().split()) == 1

    log = exported(daemon)
    counts = dict(log["event"].value_counts().iter_rows())
    assert counts["done"] == 3 * size
    assert sum(job.starts for job in found) == counts["run"] >= 3 * size
    assert bool(counts.get("stop")) == PREEMPTS[policy]
    assert sum(job.preemptions for job in found) == counts.get("stop", 0)
    assert_sound(log, capacity=4)

    status = daemon.client.status()
    decision, start = status["decision_s"], status["start_s"]
    line = (
        f"{policy}: {counts.get('stop', 0)} preemptions; "
        f"decision p50 {1e3 * decision['p50']:.1f} ms, p99 {1e3 * decision['p99']:.1f} ms; "
        f"job start p50 {1e3 * start['p50']:.0f} ms, p99 {1e3 * start['p99']:.0f} ms"
    )
    record_property("latency", line)
    with capsys.disabled():
        print(f"\n{line}")  # noqa: T201 - to be seen in the output of the tests
    assert decision["count"] >= 3 * size


# --- what a job gets ------------------------------------------------------------------------------


def test_setup_environment_and_folders_of_a_job(daemon):
    job = daemon.submit(
        "echo run $GREETING $MADE; pwd; cat made; env | grep -c ^ROTA_TOKEN",
        setup="echo setup ${RANK-none}; echo 7 > made",
        envs={"GREETING": "hello", "MADE": "$(false) `x` \"quoted\" 'too'"},
        gpus=2,
    )
    daemon.until(job, "FAILED")  # grep finds no token
    work = daemon.state / "jobs" / job / "work"
    said = daemon.output(job).splitlines()
    assert said == [
        "setup none",
        "run hello $(false) `x` \"quoted\" 'too'",
        str(work),
        "7",
        "0",
    ]
    assert daemon.client.job(job).message == "exit code 1"
    assert (work.parent.stat().st_mode & 0o077, work.stat().st_mode & 0o077) == (0, 0)


def test_a_job_on_two_nodes_with_a_process_for_each_gpu(daemon):
    job = daemon.submit(
        "echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $ROTA_NUM_NODES"
        " $MASTER_ADDR $CUDA_VISIBLE_DEVICES",
        nodes=2,
        gpus=3,
        per="gpu",
    )
    assert daemon.until(job, "SUCCEEDED").gpus == 6
    lines = [daemon.output(job, node_rank=rank).split("\n")[:-1] for rank in (0, 1)]
    assert [len(part) for part in lines] == [3, 3]
    fields = sorted(line.split() for part in lines for line in part)
    assert [f[0] for f in fields] == list("012345")
    assert [f[1] for f in fields] == list("012012")
    assert [f[2] for f in fields] == list("000111")
    assert {tuple(f[3:6]) for f in fields} == {("6", "3", "2")}
    assert {f[6] for f in fields} == {"127.0.0.1"}
    devices = {f[7] for f in fields}
    assert len(devices) == 2
    assert len({d for text in devices for d in text.split(",")}) == 6


def test_jobs_that_share_a_gpu_and_jobs_without_one(daemons):
    daemon = daemons("--nodes", "1x1", "--check")
    go = daemon.folder / "go"
    halves = [daemon.submit(WAIT_FOR_FILE.format(go), gpus=0.5) for _ in range(3)]
    none = daemon.submit("echo devices=[$CUDA_VISIBLE_DEVICES]", gpus=0)
    daemon.until(none, "SUCCEEDED")
    assert daemon.output(none) == "devices=[]\n"
    for job in halves[:2]:
        daemon.until(job, "RUNNING")
    assert daemon.state_of(halves[2]) == "PENDING"
    go.touch()
    assert {job.state for job in daemon.all_over()} == {"SUCCEEDED"}


def test_dependencies_wait_and_fail_together(daemon):
    go = daemon.folder / "go"
    first = daemon.submit(WAIT_FOR_FILE.format(go), name="first")
    second = daemon.submit("true", depends_on=["first"])
    third = daemon.submit("false", depends_on=[second])
    fourth = daemon.submit("true", depends_on=[third])
    daemon.until(first, "RUNNING")
    waiting = daemon.client.job(second)
    assert (waiting.state, waiting.reason) == ("HELD", "dependency")
    go.touch()
    daemon.until(second, "SUCCEEDED")
    daemon.until(third, "FAILED")
    last = daemon.until(fourth, "REJECTED")
    assert f"depends on job {third}" in last.message


def test_a_group_and_a_failing_setup(daemon):
    members = [daemon.submit("sleep 0.1", group="search") for _ in range(3)]
    broken = daemon.submit("echo never", setup="exit 3")
    assert {daemon.until(job, "SUCCEEDED").group for job in members} == {"search"}
    failed = daemon.until(broken, "FAILED")
    assert failed.message == "setup failed: exit code 3"
    assert daemon.output(broken) == ""


# --- what people do -------------------------------------------------------------------------------


def test_cancelling_ends_all_processes_of_a_job(daemon):
    job = daemon.submit(
        "setsid sleep 300 & (trap '' TERM; sleep 301) & sleep 302", checkpoint={"grace_s": 0.5}
    )
    daemon.until(job, "RUNNING")
    eventually(lambda: len(daemon.processes()) >= 4)
    waiting = daemon.submit("true", gpus=16)
    assert daemon.client.cancel(waiting).state == "CANCELLED"
    assert daemon.client.cancel(job).state == "CANCELLED"
    daemon.assert_no_orphans()
    assert daemon.client.cancel(job).state == "CANCELLED"
    again = daemon.submit("true", gpus=16)
    daemon.until(again, "SUCCEEDED")


def test_hold_and_release_of_waiting_and_running_jobs(daemons, tmp_path):
    daemon = daemons("--nodes", "1x4", "--check")
    go = tmp_path / "go"
    big = daemon.submit(script(0.1, tmp_path, after=go), gpus=4)
    daemon.until(big, "RUNNING")
    waits = daemon.submit(script(0.1, tmp_path), gpus=1)
    assert daemon.client.hold(waits).state == "HELD"
    daemon.client.hold(big)
    daemon.until(big, "HELD")
    daemon.assert_no_orphans()
    assert daemon.client.release(waits).state in ("PENDING", "STARTING")
    daemon.until(waits, "SUCCEEDED")
    assert daemon.state_of(big) == "HELD"
    go.touch()
    daemon.client.release(big)
    info = daemon.until(big, "SUCCEEDED")
    assert info.starts == 2
    assert (tmp_path / f"{big}.done").read_text() == f"{big}.1\n"
    held = daemon.submit("true", hold=True)
    assert daemon.state_of(held) == "HELD"
    daemon.client.release(held)
    daemon.until(held, "SUCCEEDED")


def test_draining_a_node_moves_its_jobs_away(daemons, tmp_path):
    daemon = daemons("--nodes", "2x2", "--check")
    go = tmp_path / "go"
    jobs = [daemon.submit(WAIT_FOR_FILE.format(go), gpus=2) for _ in range(2)]
    for job in jobs:
        daemon.until(job, "RUNNING")
    assert daemon.client.drain("n0").state == "draining"
    assert daemon.client.drain("n0", stop=True).state in ("draining", "drained")
    eventually(lambda: daemon.client.nodes()[0].state == "drained")
    go.touch()
    found = daemon.all_over()
    assert {job.state for job in found} == {"SUCCEEDED"}
    assert sorted(job.starts for job in found) == [1, 2]
    later = daemon.submit("true", gpus=2, nodes=2)
    assert daemon.state_of(later) == "PENDING"  # decided before its submission was answered
    daemon.restart()  # it is remembered
    assert daemon.client.nodes()[0].state == "drained"
    assert daemon.client.undrain("n0").state == "up"
    daemon.until(later, "SUCCEEDED")


def test_jobs_run_on_while_no_daemon_is_there(daemon, tmp_path):
    go = tmp_path / "go"
    ends = daemon.submit(WAIT_FOR_FILE.format(go) + "; echo end")
    stays = daemon.submit("echo $$; exec sleep 300")
    fails = daemon.submit(WAIT_FOR_FILE.format(go) + "; exit 9")
    waits = daemon.submit("true", gpus=16)
    for job in (ends, stays, fails):
        daemon.until(job, "RUNNING")
    pid = int(eventually(lambda: daemon.output(stays)))
    daemon.stop()
    assert not (daemon.state / "server.json").exists()
    go.touch()
    eventually(lambda: len(daemon.processes()) == 3)  # one job, its shim and the guard
    daemon.start()
    assert daemon.until(ends, "SUCCEEDED").starts == 1
    assert daemon.until(fails, "FAILED").message == "exit code 9"
    assert daemon.output(ends) == "end\n"
    assert daemon.client.job(stays).state == "RUNNING"
    assert alive(pid)
    daemon.client.cancel(stays)
    daemon.until(waits, "SUCCEEDED")


@pytest.mark.parametrize("policy", first(1, ["easy", "tiresias"]))
def test_restarts_in_which_nothing_happens_forget_nothing(daemons, policy):
    daemon = daemons("--nodes", "1x2", "--policy", policy, "--check")
    runs = daemon.submit("sleep 300", gpus=2, estimate=300)
    waits = daemon.submit("true", gpus=2, estimate=1)
    daemon.until(runs, "RUNNING")
    for _ in range(2):
        daemon.restart()
        assert daemon.client.status()["jobs"] == {"RUNNING": 1, "PENDING": 1}
    daemon.client.cancel(runs)
    daemon.until(waits, "SUCCEEDED")


# --- configuration --------------------------------------------------------------------------------


def test_the_policy_and_the_queues_are_changed_while_jobs_wait_and_run(daemons, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text("policy: fifo\ncluster: 1x4\ncheck: true\nqueues: {a: {}, b: {limit: 4}}\n")
    daemon = daemons("--config", config)
    runs = daemon.submit(script(900, tmp_path), gpus=4, estimate=30, queue="a")
    daemon.until(runs, "RUNNING")
    short = daemon.submit(script(0.2, tmp_path), gpus=4, estimate=0.2, queue="b")
    assert daemon.state_of(short) == "PENDING"

    config.write_text("policy: nonsense\n")
    refused = daemon.rota("reload", check=False)
    assert refused.returncode != 0
    assert "nonsense" in refused.stderr
    config.write_text("policy: [\n")
    daemon.hang_up()
    eventually(lambda: "reload failed" in daemon.log())
    assert daemon.client.status()["policy"] == "fifo"
    assert daemon.state_of(runs) == "RUNNING"

    config.write_text("policy: srtf\ncluster: 1x4\nqueues: {a: {}, c: {weight: 2}}\n")
    changes = daemon.client.reload()
    assert any(change.startswith("policy: fifo -> srtf") for change in changes)
    assert daemon.client.status()["policy"] == "srtf"
    daemon.until(short, "SUCCEEDED")  # it preempts
    assert daemon.client.job(runs).preemptions == 1
    assert {"a", "c"} <= {queue.name for queue in daemon.client.queues()}
    daemon.until(runs, "RUNNING")

    config.write_text("policy: fifo\ncluster: 1x4\n")
    daemon.hang_up()
    eventually(lambda: daemon.client.status()["policy"] == "fifo")
    daemon.kill()
    daemon.start()
    assert daemon.client.status()["policy"] == "fifo"
    assert daemon.state_of(runs) == "RUNNING"


def test_a_restart_with_another_policy_keeps_every_job(daemons, tmp_path):
    daemon = daemons("--nodes", "1x2", "--policy", "fifo", "--check")
    runs = daemon.submit(script(900, tmp_path), gpus=2, estimate=20)
    waits = daemon.submit(script(0.1, tmp_path), gpus=2, estimate=0.1)
    daemon.until(runs, "RUNNING")
    daemon.restart("--nodes", "1x2", "--policy", "srtf", "--check")
    daemon.until(waits, "SUCCEEDED")
    daemon.until(runs, "RUNNING")
    daemon.kill()
    daemon.start("--nodes", "1x2", "--policy", "tiresias", "--check")
    assert daemon.client.status()["policy"] == "tiresias"
    assert daemon.client.job(runs).starts == 2


def test_a_restart_with_more_and_with_fewer_nodes(daemons, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text("check: true\nlocal: {silent_s: 1, lost_s: 8}\n")
    daemon = daemons("--config", config, "--nodes", "1x2")
    wide = daemon.submit("true", gpus=2, nodes=2)
    assert daemon.until(wide, "REJECTED").message  # it could never run on one node
    runs = daemon.submit("sleep 300", gpus=2)
    daemon.until(runs, "RUNNING")
    daemon.restart("--config", config, "--nodes", "3x2")
    eventually(lambda: [n.state for n in daemon.client.nodes()] == ["up"] * 3)
    assert daemon.state_of(runs) == "RUNNING"
    wide = daemon.submit("true", gpus=2, nodes=2)
    daemon.until(wide, "SUCCEEDED")
    far = daemon.submit("sleep 300", gpus=2, nodes=2)
    daemon.until(far, "RUNNING")
    daemon.restart("--config", config, "--nodes", "2x2")
    eventually(lambda: daemon.client.nodes()[2].state == "down")
    daemon.until(far, "PENDING")
    assert daemon.client.job(far).starts == 1
    assert daemon.state_of(runs) == "RUNNING"
    daemon.client.cancel(far)
    daemon.client.cancel(runs)
    daemon.assert_no_orphans()
    daemon.until(daemon.submit("true", gpus=4, nodes=1, resources={"gpus": 2}), "SUCCEEDED")


def test_a_second_daemon_on_the_same_folder_is_refused(daemon):
    second = daemon.launch("--nodes", "4x4")
    assert second.process.wait(PATIENCE_S) == 1
    assert "another daemon uses this state folder" in second.text()
    assert daemon.client.status()["nodes"] == {"up": 4}


# --- hostile words --------------------------------------------------------------------------------

HOSTILE = "../../x;touch${IFS}pwned`touch pwned`$(touch pwned)\\'\"|&<>*?~"


def test_names_and_paths_cannot_escape(daemon):
    before = sorted(path.name for path in daemon.folder.iterdir())
    job = daemon.submit(
        'printf "%s\\n" "$ROTA_JOB_NAME" "$EVIL"; pwd',
        name=HOSTILE,
        queue=HOSTILE,
        group=HOSTILE,
        model=HOSTILE,
        envs={"EVIL": HOSTILE, "ROTA_RUN_ID": "999.9", "ROTA_RUN_KEY": "none"},
        checkpoint={"dir": "in side;touch pwned"},
        workdir="",
    )
    info = daemon.until(job, "SUCCEEDED")
    assert (info.name, info.queue) == (HOSTILE, HOSTILE)
    work = daemon.state / "jobs" / job / "work"
    assert daemon.output(job) == f"{HOSTILE}\n{HOSTILE}\n{work}\n"
    assert [path.name for path in work.iterdir()] == ["in side;touch pwned"]
    assert not list(daemon.folder.rglob("pwned"))
    assert sorted(path.name for path in daemon.folder.iterdir()) == before
    assert daemon.rota("show", job).returncode == 0


@pytest.mark.parametrize(
    "keys",
    [
        {"workdir": "../../../etc"},
        {"checkpoint": {"dir": "a/../../b"}},
        {"name": "two\nlines"},
        {"queue": "\x1b[2J"},
        {"group": "zero\0"},
        {"envs": {"LD_PRELOAD=x; y": "1"}},
        {"envs": {"A": "zero\0"}},
        {"depends_on": ["../1"]},
    ],
)
def test_hostile_job_files_are_refused(shared_daemon, keys):
    from rota.core.errors import InputError

    before = shared_daemon.client.status()["last_event"]
    with pytest.raises(InputError):
        shared_daemon.submit("true", **keys)
    assert shared_daemon.client.status()["last_event"] == before


@pytest.mark.parametrize("name", ["../etc", "a b", "x;y", "a/b", "", "a\nb", "$(x)"])
def test_hostile_names_of_tokens_are_refused(shared_daemon, name):
    from rota.core.errors import RotaError
    from rota.server import account_name

    with pytest.raises(RotaError):
        shared_daemon.client.create_token(name, "user")
    assert [actor.name for actor in shared_daemon.client.tokens()] == [account_name()]


@pytest.mark.parametrize("job", ["../1", "1/../../status", "%2e%2e", "-1", "1.0", "\u0663", " 1"])
def test_hostile_ids_find_nothing(shared_daemon, job):
    from rota.core.errors import RotaError

    for ask in (shared_daemon.client.job, shared_daemon.client.cancel, shared_daemon.output):
        with pytest.raises(RotaError):
            ask(job)
