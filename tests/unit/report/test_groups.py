"""Who wins and who loses: means of groups, judged only over replications that differ."""

import shutil

import msgspec
import pytest

from rota.report.groups import LEAST_JOBS, job_groups
from rota.report.source import read_source
from rota.study.compare import compare
from rota.study.config import RunConfig


def groups_of(folder):
    source = read_source(folder)
    return source, {found.by: found for found in job_groups(source, folder)}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return a comparison over four workloads, drawn anew for each."""
    folder = tmp_path_factory.mktemp("groups")
    config = RunConfig(trace="generate:gavel-like:jobs=60,load=1.5", cluster="2x4", policy="fifo")
    compare(config, ("fifo", "srtf"), folder, repeat=4)
    return folder


def test_means_are_of_the_jobs_of_a_group(folder):
    source, found = groups_of(folder)
    base, las = (look.jobs for look in source.looks)
    sizes = found["size"]
    one = (base["gpus"] <= 1).to_numpy()

    assert sizes.names == ["1 GPU or less", "2", "3-4", "5-8"]
    assert sizes.cells["fifo"][0].mean == pytest.approx(base.filter(one)["jct_s"].mean())
    assert sizes.cells["las"][0].ratio == pytest.approx(
        las.filter(one)["jct_s"].mean() / base.filter(one)["jct_s"].mean()
    )
    assert set(found["tenant"].names) == {"t0", "t1", "t2"}
    assert sum(found["duration"].jobs) == base.filter(base["state"] == "done").height


def test_one_run_judges_nobody(folder):
    _, found = groups_of(folder)
    cells = [one for each in found.values() for one in each.cells["las"]]
    assert cells
    assert all(one.verdict is None and one.low is None for one in cells)


def test_replications_judge_groups_that_are_large_enough(compared):
    _, found = groups_of(compared)
    sizes = found["size"]
    for jobs, one in zip(sizes.jobs, sizes.cells["srtf"], strict=True):
        assert (one.verdict is None) == (jobs < LEAST_JOBS)
    assert "better" in {one.verdict for one in found["duration"].cells["srtf"]}


def test_a_run_made_again_is_no_evidence(compared, tmp_path):
    data = msgspec.json.decode((compared / "compare.json").read_bytes())
    first = [run for run in data["runs"] if run["seed"] == 0]
    data["runs"] = [run | {"seed": seed} for run in first for seed in range(3)]
    (tmp_path / "compare.json").write_bytes(msgspec.json.encode(data))
    for run in first:
        shutil.copytree(compared / run["folder"], tmp_path / run["folder"])
    _, found = groups_of(tmp_path)
    assert all(one.verdict is None for each in found.values() for one in each.cells["srtf"])


def test_without_the_jobs_of_a_policy_there_are_no_groups(folder):
    (folder / "run1" / "events.parquet").unlink()
    (folder / "run1" / "jobs.csv").unlink()
    assert groups_of(folder)[1] == {}
