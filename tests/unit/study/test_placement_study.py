"""Runs that study placements, and placements that know what is usual."""

import polars as pl
import pytest

from decisions import engine, job
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.engine.snapshot import freeze, restore
from rota.placement.fgd import Fgd
from rota.policies.fifo_skip import FifoSkip
from rota.study.build import build
from rota.study.output import write_run
from rota.study.resume import Freeze
from rota.study.run import simulate

MIXED = """\
job_id,submit_s,num_gpus,duration_s,cpus
0,0,0.5,100,2
1,10,4,20,4
2,20,1,30,1
3,25,2,10,8
4,30,0.5,60,2
5,31,0.3,60,2
6,32,8,25,8
7,33,1,5,1
8,34,0,15,3
9,40,0.7,15,1
"""
PLACEMENTS = ("fgd", "dot-product", "gpu-packing", "gpu-clustering", "kubernetes")
NODES = "nodes: [{name: a, gpus: 4, cpus: 16}, {name: b, gpus: 4, cpus: 8}, {name: c, gpus: 2}]\n"


@pytest.fixture
def mixed(config, trace):
    """Return `mixed(**changes)`: a run of jobs with parts of GPUs and CPUs."""
    trace.write_text(MIXED)
    cluster = trace.with_name("cluster.yaml")
    cluster.write_text(NODES)

    def make(**changes):
        return config(cluster=str(cluster), **changes)

    return make


def test_a_study_ends_with_the_last_arrival_and_writes_its_table(mixed, tmp_path):
    result = simulate(mixed(policy="fifo-skip", placement="fgd", like="fgd"))
    assert result.log["time_s"].max() == 40.0
    assert result.summary["states"]["done"] == 0
    assert not any("never finished" in warning for warning in result.warnings)
    (tmp_path / "out").mkdir()
    write_run(result, tmp_path / "out")
    table = pl.read_csv(tmp_path / "out" / "allocation.csv")
    assert table.columns == ["arrived_pct", "alloc_pct", "frag_amount_pct", "frag_ratio_pct"]
    assert table["arrived_pct"].to_list()[:3] == [5, 45, 55]
    assert table["alloc_pct"].is_between(0, 100).all()


def test_other_runs_have_no_such_table(mixed, tmp_path):
    result = simulate(mixed(placement="fgd"))
    (tmp_path / "out").mkdir()
    write_run(result, tmp_path / "out")
    assert not (tmp_path / "out" / "allocation.csv").exists()
    assert 0 <= result.summary["frag_amount"] <= result.summary["frag_ratio"] <= 1


@pytest.mark.parametrize("policy", ["srtf", "easy"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_resumed_run_has_the_same_log(mixed, tmp_path, placement, policy):
    run = mixed(policy=policy, placement=placement, mtbf=0.05, mttr=0.01, seed=3, check=True)
    whole = simulate(run)
    simulate(run, freeze=Freeze(33.5, tmp_path / "snap"))
    resumed = simulate(run, resume=tmp_path / "snap")
    assert whole.summary["completed"] == 10
    assert resumed.log.equals(whole.log)


def test_placements_are_told_what_is_usual(mixed):
    run = build(mixed(placement="fgd"))
    target = run.engine.scheduler.placement.target
    assert (2000, 500, 1) in {(each.cpu, each.part, each.gpus) for each in target.classes}
    assert len(target.classes) == 8


def test_what_fgd_learns_survives_a_restart():
    sizes = [0.5, 1, 0.5, 2, 0.3, 4, 0.5, 1, 0.7, 2] * 4
    jobs = [job(str(i), gpus, 7.0, at=float(i)) for i, gpus in enumerate(sizes)]

    def made():
        return engine(FifoSkip(), jobs, (3, 4), placement=Fgd)

    whole, first, second = made(), made(), made()
    first.run(until_s=17.0)
    restore(second, freeze(first))
    for one in (whole, second):
        one.run()
        one.finish()
    assert second.log.frame().equals(whole.log.frame())
    assert second.scheduler.placement.snapshot() == whole.scheduler.placement.snapshot()
    assert len(whole.scheduler.placement.target.classes) > 3


def test_usual_requests_are_counted_or_told():
    half, whole = Request.of(0.5), Request.of(1)
    specs = [JobSpec(str(i), 0.0, request) for i, request in enumerate([half, whole, half])]
    counted = Workload(specs, [Behaviour(1.0)] * 3)
    assert dict(counted.usual) == {half: 2, whole: 1}
    equal = [JobSpec("x", 0.0, Request((*half.groups,))), specs[0]]
    assert dict(Workload(equal, [Behaviour(1.0)] * 2).usual) == {half: 2}
    told = Workload(specs, [Behaviour(1.0)] * 3, name="t", usual=[(whole, 7)])
    assert dict(told.like(specs[:1], [Behaviour(1.0)]).usual) == {whole: 7}
    assert told.like(specs[:1], [Behaviour(1.0)]).name == "t"
