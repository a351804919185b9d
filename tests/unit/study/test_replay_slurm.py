"""A log that a small Slurm of its own made: which policy comes closest to it, and how close."""

import ast
import json
from pathlib import Path

import pytest

import slurm_world
from rota.study.replay.replay import Asked, replay


def replayed(folder, *, jobs, **options):
    world = folder / "world"
    out = folder / "out"
    world.mkdir()
    out.mkdir()
    slurm_world.write(world, jobs=jobs)
    conf, qos, assoc = (world / name for name in ("slurm.conf", "qos.txt", "assoc.txt"))
    asked = Asked(
        log=str(world / "jobs.txt"),
        nodes=str(world / "nodes.txt"),
        slurm=f"slurm:conf={conf},qos={qos},assoc={assoc}",
        **options,
    )
    return replay(asked, out, out), json.loads((out / "replay.json").read_text())


def test_the_world_knows_nothing_of_rota():
    source = Path(slurm_world.__file__).read_text()
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    assert found
    assert not [name for name in found if name.split(".")[0] == "rota"]
    assert "__import__" not in source
    assert "importlib" not in source


def test_one_seed_gives_one_log(tmp_path):
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        slurm_world.write(tmp_path / name, jobs=60)
        texts.append([path.read_text() for path in sorted((tmp_path / name).iterdir())])
    assert texts[0] == texts[1]


def test_of_all_policies_slurm_comes_closest(tmp_path):
    """A cut: a few jobs with long waits make up the means of so short a log."""
    answer, facts = replayed(tmp_path, jobs=600)
    assert facts["model"]["policy"] == answer.model.policy == "slurm"
    distances = {found.policy: found.distance_s for found in answer.fidelity}
    others = [distance for policy, distance in distances.items() if policy != "slurm"]
    assert len(others) == 4
    assert distances["slurm"] < min(others) / 2
    whole = answer.model.whole
    assert (whole.jobs, whole.refused) == (600, 0)
    assert answer.model.verdict in ("close", "rough")
    assert whole.ks <= 0.15
    assert whole.rank_correlation >= 0.7
    assert "slurm" in facts["model"]["sentence"]


PARTITIONS = ("a100", "v100", "debug", "scavenge")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """6,000 jobs, four partitions, two GPU types, fair share, backfill, QOS preemption."""
    answer, facts = replayed(tmp_path_factory.mktemp("whole"), jobs=6_000)
    assert facts["model"]["policy"] == answer.model.policy == "slurm"
    assert facts["model"]["sentence"].startswith("slurm is a close model of today")
    return {group.group: group for group in answer.model.groups if group.by == "partition"}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_slurm_reproduces_the_mean_wait_of_a_partition(whole, partition):
    assert set(whole) == set(PARTITIONS)
    assert sum(group.jobs for group in whole.values()) == 6_000
    assert whole[partition].refused == 0
    assert abs(whole[partition].bias) <= 0.15


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_world_is_as_close_to_itself_as_it_says():
    """Only the timers differ: what is left is what no model can know."""
    runs = [
        slurm_world.Controller(1, 6_000, phases).run()
        for phases in (slurm_world.PHASES, (25, 120, 7), (18, 200, 3), (4, 60, 9))
    ]
    assert all(run.preemptions >= 100 and run.backfilled >= 1_000 for run in runs)
    waits = [run.mean_waits() for run in runs]
    for partition in PARTITIONS:
        mine = [found[partition] for found in waits]
        mean = sum(mine) / len(mine)
        assert all(abs(one - mean) <= 0.08 * mean for one in mine), (partition, mine)
