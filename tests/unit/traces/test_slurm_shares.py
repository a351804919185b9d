"""GPUs on each node: what the accounting of Slurm tells, and what stays open."""

import json

import pytest

from own_formats import HEADER, NODES, line
from rota.study.replay.recorded import replay_recorded
from rota.traces.formats.slurm.records import asked_each, shares
from rota.traces.formats.slurm.sacct import FORMAT


@pytest.fixture
def read(tmp_path):
    """Return `read(*lines, **options)`: what is imported."""

    def run(*lines, header=HEADER, **options):
        (tmp_path / "jobs.txt").write_text("\n".join([header, *lines]) + "\n")
        return FORMAT.load(tmp_path / "jobs.txt", options)

    return run


def wide(gpus, nodes="n[1-2]", job="1", **more):
    tres = f"cpu=4,gres/gpu={gpus},mem=8G,node=2"
    return line(job, ReqTRES=tres, AllocTRES=tres, NNodes="2", NodeList=nodes, **more)


def batch(gpus, job="1", node="n1", **more):
    held = f"cpu=2,gres/gpu={gpus},mem=4G,node=1"
    return line(f"{job}.batch", ReqTRES="", AllocTRES=held, NodeList=node, **more)


def held(imported):
    return imported.observed.frame["gpus"].to_list()


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("sbatch --gres=gpu:4 x.sh", 4.0),
        ("sbatch --gres gpu:a100:2 -N2", 2.0),
        ("srun --gres=shard:1,gpu:3 x", 3.0),
        ("sbatch --gres=gpu -N2", 1.0),
        ("sbatch --gpus-per-node=a100:4", 4.0),
        ("sbatch --gpus-per-node 2 x", 2.0),
        ("sbatch --gpus=4", None),
        ("sbatch --gpus-per-task=2", None),
        ("", None),
    ],
)
def test_submit_lines_that_say_gpus_per_node(text, each):
    assert asked_each(text) == each


@pytest.mark.parametrize(
    ("gpus", "count", "known", "expected"),
    [
        (3, 1, {}, (3,)),
        (0, 2, {}, (0, 0)),
        (4, 2, {}, ()),
        (4, 2, {"each": 2.0}, (2, 2)),
        (5, 2, {"each": 2.0}, ()),  # the request was changed since
        (12, 2, {"sizes": {"n0": 8, "n1": 4}}, (8, 4)),
        (5, 2, {"batch": ("n0", 4.0)}, (4, 1)),
        (5, 2, {"batch": ("n1", 4.0)}, (1, 4)),
        (5, 2, {"batch": ("n7", 4.0)}, ()),
        (5, 2, {"batch": ("n0", 9.0)}, ()),
        (6, 3, {"batch": ("n0", 2.0)}, (2, 2, 2)),
        (7, 3, {"batch": ("n0", 4.0)}, ()),
    ],
)
def test_shares_are_told_or_left_open(gpus, count, known, expected):
    assert shares(gpus, [f"n{i}" for i in range(count)], **known) == expected


def test_the_batch_step_tells_an_uneven_split(read):
    imported = read(wide(5), batch(4))
    assert held(imported) == [[4.0, 1.0]]
    assert not [note for note in imported.notes if "guesses" in note]
    assert imported.quality.dropped == {"step of a job": 1}


def test_every_attempt_has_its_own_batch_step(read):
    first = {"State": "NODE_FAIL"}
    later = {"Start": "2026-03-02T09:00:00", "End": "2026-03-02T09:01:00", "ElapsedRaw": "60"}
    imported = read(wide(5, **first), batch(4), wide(5, **later), batch(2))
    assert held(imported) == [[4.0, 1.0], [2.0, 3.0]]


def test_what_stays_open_is_counted(read, tmp_path):
    (tmp_path / "nodes.txt").write_text(NODES)
    later = {"Start": "2026-03-02T09:00:00", "End": "2026-03-02T09:01:30"}
    imported = read(wide(5), wide(8, job="2", **later), nodes=str(tmp_path / "nodes.txt"))
    assert held(imported) == [[], [4.0, 4.0]]  # all GPUs of both nodes
    assert imported.notes == [
        "1 jobs on several nodes: how many GPUs they held on each is not told, a replay guesses it"
    ]
    replayed = replay_recorded(imported, imported.cluster)
    assert (replayed.guessed, replayed.exact, replayed.counted) == (1, 2, False)


def test_the_gres_of_older_versions_is_per_node(read):
    header = HEADER.replace("ReqTRES", "ReqGRES")
    imported = read(
        line(ReqTRES="gpu:3", AllocTRES="", NNodes="2", NodeList="n[1-2]"), header=header
    )
    assert imported.jobs["num_gpus"].to_list() == [6.0]
    assert held(imported) == [[3.0, 3.0]]


@pytest.mark.parametrize("nodes", ["n1", {"list": ["n1"], "range": "n1", "count": 1}])
def test_json_has_the_batch_step_inside_its_job(tmp_path, nodes):
    def tres(gpus):
        return [{"type": "gres", "name": "gpu", "id": 1001, "count": gpus}]

    time = {"submission": 100, "eligible": 100, "start": 110, "end": 200, "elapsed": 90}
    step = {"step": {"name": "batch"}, "nodes": nodes, "tres": {"allocated": tres(4)}}
    job = {
        "job_id": 1, "nodes": "n[1-2]", "state": {"current": "COMPLETED"}, "time": time,
        "tres": {"allocated": tres(5), "requested": tres(5)},
        "steps": [{"step": {"name": "extern"}}, step],
    }  # fmt: skip
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": [job]}))
    assert held(FORMAT.load(path, {})) == [[4.0, 1.0]]
    step["nodes"] = "n[1-"
    path.write_text(json.dumps({"jobs": [job]}))
    assert held(FORMAT.load(path, {})) == [[]]
