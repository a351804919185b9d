"""Jobs with an image: engines are told exactly what to do, and jobs are as without."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from agents_net import eventually, marked, order
from fake_engines import fake_engine
from needs import ROOT, need
from rota.core.errors import InputError, OptionError
from rota.core.launch import image_labels
from rota.core.topology import NodeSpec, Topology
from rota.daemon.submissions import refuse_impossible, refuse_unlabelled
from rota.jobfile.check import check
from rota.jobfile.convert import to_request
from rota.jobfile.model import JobFile
from rota.live.agent import containers
from rota.live.agent.containers import HOLD, Apptainer, Podman, find_engine, mounts_for
from rota.live.agent.messages import AgentOrders, LaunchPart
from rota.live.agent.sandbox import JobAccount
from rota.live.calls import OpenChannel
from rota.live.drivers.local.embedded import nodes_here
from rota.live.drivers.pretend import PretendDriver
from sandboxes import UIDS, account_of, need_sandboxes, sandbox
from shared_data import CHECKOUT

ENGINES = ["podman", "apptainer"]
IMAGE = "docker.io/library/python:3.12"


@pytest.fixture(params=ENGINES)
def engine(request, tmp_path):
    """Return an engine that notes its calls, and its calls."""
    return fake_engine(request.param, tmp_path / "engine")


@pytest.fixture
def held(engine, make_bench):
    """Return a driver with one machine that has an engine, and the engine's calls."""
    bench = make_bench()
    bench.add(gpus=2, containers=engine[0])
    bench.kind = engine[0].kind
    return bench, engine[1]


def test_a_job_runs_in_its_image_with_its_own_folders_and_exit_code(held):
    bench, calls = held
    script = (
        "echo $FROM_IMAGE $MINE $RANK; test -e /etc/passwd || echo no passwd; pwd\n"
        "echo kept > $ROTA_CHECKPOINT_DIR/point; echo wrong >&2; exit 7"
    )
    bench.launch("1.0", script, image=IMAGE, envs={"MINE": "set"})
    end = bench.told.end("1.0")
    assert (end.state, end.code, end.why) == ("ended", 7, "exit code 7")
    shown = IMAGE if bench.kind == "podman" else f"docker://{IMAGE}"
    work = bench.root / "m0/jobs/1/work"
    assert bench.output("1").splitlines() == [f"{shown} set 0", "no passwd", str(work)]
    assert bench.output("1", "err") == "wrong\n"
    assert (bench.root / "m0/jobs/1/checkpoint/point").read_text() == "kept\n"
    eventually(lambda: not marked(bench.key("1.0")))
    assert calls()[0][0] == ("run" if bench.kind == "podman" else "exec")


def test_setup_and_every_process_are_in_the_same_container(held):
    bench, calls = held
    bench.launch("1.0", "echo $RANK $(cat /tmp/made)", setup="echo both > /tmp/made",
                 image=IMAGE, processes=2, gpus=2)  # fmt: skip
    assert bench.told.end("1.0").code == 0
    assert sorted(bench.output("1").splitlines()) == ["0 both", "1 both"]
    assert [call[0] for call in calls()].count(calls()[0][0]) == 1


def test_signals_reach_a_job_in_a_container(held):
    bench, _ = held
    script = "trap 'echo told; exit 3' TERM; touch ready; while :; do sleep 0.1; done"
    bench.launch("1.0", script, image=IMAGE)
    eventually((bench.root / "m0/jobs/1/work/ready").exists)
    bench.driver.halt("1.0")
    end = bench.told.end("1.0")
    assert (end.code, end.asked) == (3, True)
    assert bench.output("1") == "told\n"
    bench.launch("2.0", "trap '' TERM; touch ready; sleep 1000 & wait; wait", image=IMAGE)
    eventually((bench.root / "m0/jobs/2/work/ready").exists)
    bench.driver.kill("2.0")
    assert bench.told.end("2.0").state == "ended"
    assert not marked(bench.key("2.0"))


def test_a_command_in_a_job_is_in_its_container(held):
    bench, _ = held
    bench.launch("1.0", "touch ready; exec sleep 1000", image=IMAGE)
    bench.told.run("1.0", "running")
    answer = bench.driver.reach("1", 0, OpenChannel("c1", ("sh", "-c", "echo $FROM_IMAGE > found")))
    assert answer is not None
    found = bench.root / "m0/jobs/1/work/found"
    assert "python:3.12" in eventually(lambda: found.exists() and found.read_text().strip())


def test_an_image_that_cannot_be_had_is_the_failure_of_the_job(held):
    bench, _ = held
    bench.launch("1.0", "true", image="example.org/broken:1")
    end = bench.told.end("1.0")
    assert (end.state, end.code) == ("ended", 125 if bench.kind == "podman" else 255)
    assert re.search(r"image example.org/broken:1 cannot be started .* manifest unknown", end.why)
    assert "manifest unknown" in bench.output("1", "err")


def test_a_job_whose_image_is_still_fetched_can_be_cancelled(held):
    bench, _ = held
    bench.launch("1.0", "true", image="example.org/slow:1")
    eventually((bench.root / "engine/noted.slow").exists)
    bench.driver.halt("1.0")
    end = bench.told.end("1.0")
    assert (end.state, end.asked) == ("ended", True)
    assert not marked(bench.key("1.0"))


def test_a_killed_shim_leaves_nothing_of_its_container(held):
    bench, calls = held
    bench.launch("1.0", "touch ready; exec sleep 1000", image=IMAGE)
    eventually((bench.root / "m0/jobs/1/work/ready").exists)
    os.kill(bench.shim("1.0"), 9)
    assert bench.told.end("1.0").state == "lost"
    eventually(lambda: not marked(bench.key("1.0")))
    if bench.kind == "podman":
        assert eventually(lambda: [c for c in calls() if c[0] == "rm"])


@pytest.mark.parametrize("kind", ENGINES)
def test_a_job_of_another_user_is_that_user_in_its_container(kind, make_bench, tmp_path):
    need_sandboxes()
    engine, calls = fake_engine(kind, tmp_path / "engine")
    bench = make_bench(account=account_of)
    bench.add(gpus=1, sandbox=sandbox(tmp_path / "m0"), containers=engine)
    script = "id -u; grep -e NoNewPrivs -e CapBnd /proc/self/status; stat -c %u .; echo $USER"
    bench.launch("1.0", script, user="ann", image=IMAGE)
    assert bench.told.end("1.0").code == 0, bench.output("1", "err")
    uid = UIDS["ann"]
    found = [line.split()[-1] for line in bench.output("1").splitlines()]
    assert found == [uid, "0000000000000000", "1", uid, f"rota{uid}"]
    assert (f"--user={uid}:{uid}" in calls()[0]) == (kind == "podman")


def test_what_podman_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = JobAccount(1000, 100, (100,), "ann", "/home/ann")
    devices = ["--device=/dev/nvidia0"]
    made = Podman("/usr/bin/podman").box(
        IMAGE, account, ["/work", "/home/ann"], devices, key="k1", folder=tmp_path
    )
    argv = made["argv"]
    assert argv[:2] == ["/usr/bin/podman", "run"]
    assert argv[-4:] == ["--entrypoint=/bin/sh", IMAGE, "-c", HOLD]
    assert {
        "--rm", "--interactive", "--name=rota-k1", f"--pidfile={tmp_path}/container.pid",
        "--pull=missing", "--cgroups=disabled", "--network=host", "--cap-drop=all",
        "--security-opt=no-new-privileges", "--env=ROTA_RUN_KEY=k1", "--user=1000:100",
        "--volume=/work:/work", "--volume=/home/ann:/home/ann", "--device=/dev/nvidia0",
    } <= set(argv)  # fmt: skip
    assert made["remove"][1:] == ["rm", "--force", "--ignore", "--time=0", "rota-k1"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    made = Podman("podman").box("/images/root", account, [], [], key="k", folder=tmp_path)
    assert "--userns=keep-id" in made["argv"]
    assert made["argv"][-4:] == ["--rootfs", "/images/root:O", "-c", HOLD]


def test_what_apptainer_is_told(tmp_path):
    account = JobAccount(1000, 100, (100, 7), "ann", "/home/ann")
    engine = Apptainer("/usr/bin/apptainer")
    made = engine.box(IMAGE, account, ["/work"], ["--nv"], key="k1", folder=tmp_path)
    assert made["argv"] == [
        "/usr/bin/apptainer", "exec", "--containall", "--no-home", "--writable-tmpfs",
        "--env=ROTA_RUN_KEY=k1", "--bind=/work:/work", "--nv", f"docker://{IMAGE}", "/bin/sh",
        "-c", HOLD,
    ]  # fmt: skip
    made = engine.box("/images/a.sif", account, [], [], key="k", folder=tmp_path)
    assert "/images/a.sif" in made["argv"]


def a_machine_with_gpus(root, *, cdi):
    (root / "dev").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (root / "dev" / name).touch()
    for number in range(2):
        info = root / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"
        info.parent.mkdir(parents=True)
        info.write_text(f"Device Minor: \t {number}\n")
    if cdi:
        (root / "etc/cdi").mkdir(parents=True)
        (root / "etc/cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")


def test_gpus_of_a_container(tmp_path):
    a_machine_with_gpus(tmp_path / "plain", cdi=False)
    a_machine_with_gpus(tmp_path / "cdi", cdi=True)
    plain, by_cdi = (Podman("p", root=tmp_path / name) for name in ("plain", "cdi"))
    assert plain.devices(["1"]) == (["--device=/dev/nvidia1", "--device=/dev/nvidiactl"], True)
    assert by_cdi.devices(["1"]) == (["--device=nvidia.com/gpu=1"], True)
    assert plain.devices([]) == by_cdi.devices([]) == ([], False)
    assert Apptainer("a", root=tmp_path / "plain").devices(["1"]) == (["--nv"], False)
    assert Apptainer("a", root=tmp_path / "plain").devices([]) == ([], False)


def test_folders_of_the_host_in_a_container(tmp_path):
    home, shared = tmp_path / "home", tmp_path / "shared"
    home.mkdir()
    shared.mkdir()
    engine = Podman("podman", [str(shared)])
    uid = home.stat().st_uid or 4321
    os.chown(home, uid, -1) if os.geteuid() == 0 else None
    own = JobAccount(uid, 1, (), "ann", str(home), own=True)
    work = tmp_path / "elsewhere"
    work.mkdir()
    assert mounts_for(engine, own, [tmp_path / "w"], work) == [
        str(tmp_path / "w"), str(home), str(shared), str(work),
    ]  # fmt: skip
    other = JobAccount(uid + 1, 1, (), "bob", str(home))
    assert mounts_for(engine, other, [tmp_path / "w"], work) == [str(tmp_path / "w"), str(shared)]


def test_podman_mounts_folders_as_images_only_where_they_may_be_seen(tmp_path):
    engine = Podman("podman", [str(tmp_path)])
    own, other = JobAccount(0, 0, own=True), JobAccount(1000, 1000)
    assert engine.refusal(f"{tmp_path}/image", other) == ""
    assert engine.refusal("/somewhere", own) == ""
    assert "a folder that --visible names" in engine.refusal("/somewhere", other)
    assert engine.refusal(IMAGE, other) == ""


def test_a_node_without_an_engine_never_runs_a_job_with_an_image(make_agent, tmp_path):
    agent = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)]))
    assert agent.nodes["n0"].spec.labels == ()
    made = order("1.0", "true", image=IMAGE)
    agent.obey(AgentOrders(launch=(
        LaunchPart("1.0", "1", "", made.launch, made.parts[0], 1, 1, "127.0.0.1", 1),
    )))  # fmt: skip
    (part,) = agent.report().parts
    assert part.state == "lost"
    assert "runs no containers: install podman" in part.why


@pytest.mark.parametrize("kind", ENGINES)
def test_what_a_node_can_do_is_tried_and_announced(kind, tmp_path, monkeypatch, make_agent):
    engine, calls = fake_engine(kind, tmp_path / "engine")
    monkeypatch.setenv("PATH", f"{tmp_path}/engine:/usr/bin:/bin")
    monkeypatch.setattr(containers, "KINDS", {kind: containers.KINDS[kind]})
    found, why = find_engine("auto")
    assert (type(found), why) == (type(engine), "")
    assert len(calls()) == 1  # it really ran something
    agent = make_agent(tmp_path / "a", nodes_here([NodeSpec("n0", 1)]), containers=found)
    labels = ("container",) if kind == "podman" else ("container", "sif")
    assert agent.nodes["n0"].spec.labels == labels
    (tmp_path / "engine" / kind).write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
    found, why = find_engine("auto")
    assert found is None
    assert why == f"{kind} cannot run a container here (no namespaces)"
    with pytest.raises(OptionError, match="no namespaces"):
        find_engine(kind)
    assert find_engine("off") == (None, "switched off")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_engine("auto") == (None, containers.MISSING)


def test_an_image_asks_for_nodes_that_can_run_it():
    for image, labels in (
        ("", ()), (IMAGE, ("container",)), ("/images/a.sif", ("container", "sif")),
    ):  # fmt: skip
        assert image_labels(image) == labels
        assert to_request(JobFile(run="true", image=image)).labels == labels
        assert to_request(JobFile(run="true", image=image, nodes=2)).labels == labels


def test_an_image_that_no_node_runs_is_refused_with_the_remedy():
    able = NodeSpec("n1", 1, labels=("container",))
    job, sif = JobFile(run="true", image=IMAGE), JobFile(run="true", image="/images/a.sif")
    for nodes in ([], [able], [NodeSpec("n0", 1), able]):
        refuse_unlabelled([job, JobFile(run="true")], Topology(nodes, growing=True))
    with pytest.raises(InputError, match=r"no node .* install podman or apptainer"):
        refuse_unlabelled([job], Topology([NodeSpec("n0", 1)]))
    with pytest.raises(InputError, match="install apptainer"):
        refuse_unlabelled([sif], Topology([able]))
    with pytest.raises(InputError, match="'pretend' makes no containers: leave it out"):
        refuse_impossible([job], PretendDriver())


@pytest.mark.soak
def test_jobs_in_containers_of_the_real_podman(tmp_path):
    need(os.geteuid() == 0, "root, to mount cgroups", ROOT)
    need(shutil.which("podman"), "podman", "apt-get install podman crun")
    script = 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"'
    program = CHECKOUT / "tests" / "real_podman.py"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, program, tmp_path],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    need("why" not in found, f"podman that runs ({found.get('why')})", "repair it")
    assert (found["code"], found["halted"], found["killed"], found["left"]) == (7, 3, "ended", [])
    lines = found["out"].splitlines()
    assert lines[0] == UIDS["ann"]
    assert "home" not in lines  # as in the image
    assert "home" not in found["inside"]
    assert "nowhere:1 cannot be started (podman: exit code 125)" in found["missing"]


@pytest.mark.parametrize("image", ["-v/etc:/etc", "a b", "a\nb", "/a/../b", "a" * 600])
def test_an_image_that_is_none_is_refused(image):
    with pytest.raises(InputError, match="image is"):
        check(JobFile(run="true", image=image))
