"""The scripts on the nodes, run by bash without a Slurm; requests and names."""

import json
import os
import signal
import subprocess
import time

import pytest
from msgspec.structs import replace

from rota.core.errors import ClusterError
from rota.live.drivers.slurm.folders import SlurmFolders
from rota.live.drivers.slurm.layout import read_nodes
from rota.live.drivers.slurm.names import Mark, fingerprint, job_name, plain, read_mark
from rota.live.drivers.slurm.options import SlurmOptions
from rota.live.drivers.slurm.request import make_request
from slurm_runs import order

TYPES = {
    node.name: node
    for node in read_nodes(
        json.dumps(
            {
                "nodes": [
                    {"name": "n1", "gres": "gpu:a100:4(S:0-1)"},
                    {"name": "n2", "gres": "gpu:a100:4(S:0-1),shard:a100:16(S:0-1)"},
                    {"name": "n3", "gres": "gpu:v100:4"},
                    {"name": "n5", "gres": "gpu:a100_1g.5gb:7"},
                    {"name": "n6", "gres": "gpu:4,shard:10"},
                ]
            }
        )
    )
}


@pytest.fixture
def folders(tmp_path):
    return SlurmFolders(tmp_path / "it's a $(root)")


def begin(folders, asked, node="n1"):
    """Start what Slurm would start on the node of a run on one node."""
    folders.write(asked, make_request(asked, SlurmOptions(), TYPES), "10.0.0.1")
    folders.link(5, asked.run)
    env = {
        **os.environ,
        "SLURM_JOB_ID": "5",
        "SLURMD_NODENAME": node,
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    return subprocess.Popen(["bash", folders.bootstrap], env=env, stderr=subprocess.PIPE)


def finish(process):
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors.decode()


def until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Both processes shall have spoken when one of them fails: that ends the other.
AND_FAIL = """
echo "$RANK $local_gpu_id"
touch "spoke.$RANK"
until [ -e spoke.0 ] && [ -e spoke.1 ]; do sleep 0.02; done
exit 3
"""


def test_a_run_is_claimed_once(folders):
    asked = order("1.0", [("n1", 2)], run=AND_FAIL, per="gpu")
    assert not folders.started("1.0")
    assert finish(begin(folders, asked)) == (3, "")
    assert folders.started("1.0")
    (end,) = folders.ends(asked)
    assert (end.code, end.asked, end.phase) == (3, False, "run")
    code, errors = finish(begin(folders, asked))
    assert code == 0
    assert "was started before" in errors
    lines = folders.read_log("1", "out", 0, 0, 1000).decode().split("\n")
    assert sorted(lines) == ["", "0 2", "1 3"]


def test_setup_comes_first_and_its_failure_is_the_end(folders):
    asked = order("1.0", [("n1", 1)], run="echo ran", setup="echo set up; exit 4")
    assert finish(begin(folders, asked))[0] == 4
    assert [(end.code, end.phase) for end in folders.ends(asked)] == [(4, "setup")]
    assert not folders.ready(asked)
    assert folders.read_log("1", "out", 0, 0, 1000) == b"set up\n"


def test_one_process_that_fails_ends_the_others(folders):
    asked = order(
        "1.0", [("n1", 3)], per="gpu", grace_s=0.5,
        run="[ $RANK = 1 ] && exit 6; trap '' TERM; while :; do sleep 0.05; done",
    )  # fmt: skip
    assert finish(begin(folders, asked))[0] == 6  # the others would go on for ever


def test_sigterm_is_passed_on_once_and_noted(folders):
    asked = order(
        "1.0", [("n1", 1)],
        run="trap 'echo saved; sleep 0.3; exit 0' TERM; touch trapped; "
        "while :; do sleep 0.05; done",
    )  # fmt: skip
    process = begin(folders, asked)
    until((folders.job("1") / "work" / "trapped").exists)
    until(lambda: folders.ready(asked))  # which the shell says after it has started the process
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0
    (end,) = folders.ends(asked)
    assert (end.code, end.asked) == (0, True)
    assert folders.read_log("1", "out", 0, 0, 1000) == b"saved\n"


def test_values_of_users_are_never_shell(folders, tmp_path):
    evil = tmp_path / "evil"
    text = f"'; touch {evil}; $(touch {evil}) `touch {evil}` \\ \n\""
    asked = order("1.0", [("n1", 1)], run='printf %s "$X" >x', envs={"X": text, "ROTA_RUN_ID": "9"})
    assert finish(begin(folders, asked))[0] == 0
    assert (folders.job("1") / "work" / "x").read_text() == text
    assert not evil.exists()
    assert "export ROTA_RUN_ID=1.0" in (folders.run("1.0") / "nodes/n1.sh").read_text()


@pytest.mark.parametrize("name", ["A B", "A;touch x", "1A", "", "A\n"])
def test_strange_names_of_variables_are_refused(folders, name):
    asked = order("1.0", [("n1", 1)], run="true", envs={name: "x"})
    with pytest.raises(ClusterError, match="cannot be the name of a variable"):
        begin(folders, asked)
    assert not folders.run("1.0").exists()


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../x", "a/b", "a b", "-x", "x\n", "$(x)", "n" * 101]
)
def test_names_cannot_leave_their_folder(folders, text):
    with pytest.raises(ClusterError, match="cannot be used with Slurm"):
        folders.job(text)
    with pytest.raises(ClusterError, match="cannot be used with Slurm"):
        folders.read_log(text, "out", 0, 0, 10)
    with pytest.raises(ClusterError):
        make_request(order("1.0", [(text, 1)], run="true"), SlurmOptions(), TYPES)


def test_reports_are_read_by_whole_lines(folders):
    asked = order("1.0", [("n1", 1)], run="true")
    finish(begin(folders, asked))
    report = folders.run("1.0") / "report"
    assert folders.reports("1.0", 0) == ({}, 0)
    report.write_bytes(b'{"step":1,"loss":2}\nnonsense\n{"step":2}\n{"st')
    values, offset = folders.reports("1.0", 0)
    assert values == {"step": 2.0, "loss": 2.0}
    report.write_bytes(report.read_bytes() + b'ep":3}\n')
    assert folders.reports("1.0", offset)[0] == {"step": 3.0}


def test_forgetting_keeps_the_output(folders):
    asked = order("1.0", [("n1", 1)], run="echo x")
    finish(begin(folders, asked))
    folders.forget("1.0", 5)
    assert not folders.run("1.0").exists()
    assert folders.read_log("1", "out", 0, 0, 10) == b"x\n"
    assert folders.read_log("1", "out", 0, 1, 10) == b"\n"
    assert folders.read_log("1", "err", 3, 0, 10) == b""
    with pytest.raises(ClusterError, match="no such output"):
        folders.read_log("1", "x", 0, 0, 10)


# --- requests ------------------------------------------------------------------------------------


def test_an_even_run_is_one_component():
    asked = order("1.0", [("n2", 2), ("n1", 2)], run="true", per="gpu")
    request = make_request(asked, SlurmOptions(partition="gpu", qos="high"), TYPES)
    assert request.argv(["--x"]) == [
        "--requeue", "--x", "--partition=gpu", "--qos=high", "--nodes=2", "--ntasks-per-node=1",
        "--cpus-per-task=2", "--gres=gpu:a100:2", "--nodelist=n2,n1",
    ]  # fmt: skip
    other = make_request(
        order("1.1", [("n1", 2), ("n2", 2)], run="true", per="gpu"),
        SlurmOptions(partition="gpu", qos="high"), TYPES,
    )  # fmt: skip
    assert other.shape == request.shape


def test_an_uneven_run_has_a_component_for_each_number():
    asked = order("1.0", [("n1", 3), ("n2", 1), ("n3", 3), ("n4", 0)], run="true")
    request = make_request(asked, SlurmOptions(), TYPES)
    assert not request.reusable
    text = " ".join(request.argv([]))
    parts = [part.split() for part in text.split(" : ")]
    assert parts[0][0] == "--no-requeue"
    found = [(p[-1], [o for o in p if "gres" in o]) for p in parts]
    assert found == [
        ("--nodelist=n1,n3", ["--gres=gpu:3"]),
        ("--nodelist=n2", ["--gres=gpu:a100:1"]),
        ("--nodelist=n4", []),
    ]


def gres(node, gpus):
    made = order("1.0", [(node, 1)], run="true")
    made = replace(made, parts=(replace(made.parts[0], slices=((0, gpus),)),))
    (component,) = make_request(made, SlurmOptions(), TYPES).components
    return [option for option in component.options if "gres" in option]


def test_parts_of_gpus_are_shards_and_instances_of_mig_types():
    assert [(node.shards, node.spec.sharing) for node in TYPES.values()] == [
        (0, ""), (4, "fraction"), (0, ""), (0, ""), (2, "fraction"),
    ]  # fmt: skip
    assert gres("n2", 0.25) == ["--gres=shard:1"]
    assert gres("n2", 0.3) == ["--gres=shard:2"]
    assert gres("n2", 1.0) == ["--gres=gpu:a100:1"]
    assert gres("n5", 2.0) == ["--gres=gpu:a100_1g.5gb:2"]
    assert (TYPES["n5"].spec.gpus, TYPES["n5"].spec.gpu_type) == (7, "a100_1g.5gb")


def test_what_slurm_cannot_give_is_refused():
    for node, gpus in (("n1", 0.5), ("n2", 1.5), ("n9", 0.5)):
        with pytest.raises(ClusterError, match="whole GPUs there only"):
            gres(node, gpus)
    with pytest.raises(ClusterError, match="names no node"):
        make_request(order("1.0", [], run="true"), SlurmOptions(), TYPES)


def test_marks():
    mark = Mark("s1", "17.2", 3, fingerprint("x"))
    assert read_mark(mark.text(), "s1") == mark
    assert mark.job == "17"
    for text in ("", "rota:s2:17.2:3:x", "rota:s1:17.2:x:y", "my own comment", "rota:s1:17.2:3"):
        assert read_mark(text, "s1") is None


def test_names_of_jobs_are_tame():
    assert job_name("my job; rm -rf /", "3") == "my-job-rm--rf"
    assert job_name("äöü", "3") == "rota-3"
    assert plain("node", "gpu-01.cluster_a") == "gpu-01.cluster_a"
