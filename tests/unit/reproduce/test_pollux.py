"""The dialect `pollux` on applications made for it: phases, snapshots, failures, errors."""

import shutil

import pytest

from rota.core.errors import OptionError, TraceError
from rota.engine import snapshot
from rota.engine.replica import rows_from
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.run import simulate

JOBS = """name,time,application,num_replicas,batch_size
a,5,tiny,1,64
b,20,tiny,2,128
c,70,tiny,4,256
d,400,tiny,1,32
"""


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "profiles" / "tiny"
    folder.mkdir(parents=True)
    rows = ["placement,local_bsz,step_time,sync_time"]
    for placement in ("1", "2", "3", "4", "44"):
        gpus = sum(map(int, placement))
        for batch in (8, 16, 32, 64, 128, 256):
            sync = 0.02 * (gpus > 1) + 0.05 * (len(placement) > 1)
            rows.append(f"{placement},{batch},{0.05 + batch / 400 + sync},{sync}")
    (folder / "placements.csv").write_text("\n".join(rows) + "\n")
    (folder / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
        + "".join(
            f"{n},{r},{m},{0.1 + m / 400},{0.07}\n"
            for n in (2, 3, 4)
            for r in (n, 4 * n)
            for m in (8, 256)
        )
    )
    for batch in (32, 512):
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        lines += [f"{300 * (e + 1)},{300 * (e + 1) * 32 // batch},1,1.0,{2 + e}" for e in range(4)]
        (folder / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def config(files, policy="pollux", **more):
    options = {"like": "pollux", "cluster": "2x4", "check": True, **more}
    return RunConfig(
        trace=str(files / "jobs.csv"),
        format=f"pollux:profiles={files / 'profiles'}",
        policy=policy,
        **options,
    )


def log_of(engine):
    return rows_from(engine.log, 0)


@pytest.mark.parametrize("policy", ["tiresias", "optimus", "pollux", "pollux:search=genetic"])
@pytest.mark.parametrize("failures", [{}, {"mtbf": 0.05, "mttr": 0.02}])
def test_all_jobs_end_and_a_resumed_run_is_the_same(files, policy, failures):
    whole = build(config(files, policy, **failures)).engine
    whole.run(until_s=1e6)
    assert all(job.phase == 5 for job in whole.jobs.values())
    part = build(config(files, policy, **failures)).engine
    part.run(until_s=250.0)
    again = build(config(files, policy, **failures)).engine
    snapshot.save(part, files / "half", {})
    snapshot.restore(again, snapshot.load(files / "half").state)
    again.run(until_s=1e6)
    assert log_of(again) == log_of(whole)


def test_epochs_and_jobs_end_at_whole_seconds_and_starts_cost_30(files):
    result = simulate(config(files, "tiresias"))
    assert all(end_s % 1 == 0 for end_s in result.jobs["end_s"])
    assert result.jobs["first_start_s"].to_list() == [60.0, 60.0, 120.0, 420.0]


def test_a_job_tells_what_it_has_measured_and_grows_to_twice_that(files):
    engine = build(config(files)).engine
    engine.run(until_s=119.0)
    job = engine.jobs[0]
    assert (job.held_gpus, len(job.timings)) == (1, 0)
    engine.run(until_s=125.0)
    assert [shape.gpus for shape in job.timings] == [1]
    assert job.learning.get("max_batch") == 512
    assert job.held_gpus == 2
    engine.run(until_s=1e6)
    assert max(shape.gpus for j in engine.jobs.values() for shape in j.timings) > 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "pollux:hours=tiny:1"}, "job a has no profile: read the workload with"),
        ({"placement": "first-fit"}, "knows the placement 'emptiest'"),
        ({"cluster": "2x16"}, "its profiles know nodes of up to 9 GPUs"),
        ({"like": "pollux:interval_s=0"}, "interval_s"),
        ({"policy": "afs"}, "knows no policy 'afs'"),
    ],
)
def test_what_it_cannot_honour_is_refused(files, changes, message):
    given = {"format": f"pollux:profiles={files / 'profiles'}", "policy": "pollux", **changes}
    with pytest.raises(OptionError, match=message):
        build(
            RunConfig(
                trace=str(files / "jobs.csv"),
                **{"like": "pollux", "cluster": "2x4", **given},
            )
        )


def test_profiles_that_are_not_there_are_named(files):
    (files / "profiles" / "tiny").rename(files / "profiles" / "other")
    with pytest.raises(TraceError, match="no folder for the application 'tiny', only other"):
        build(config(files))


def test_a_folder_of_profiles_that_is_not_there_is_named(files):
    shutil.rmtree(files / "profiles")
    with pytest.raises(TraceError, match="profiles: is no folder: name the folder that has one"):
        build(config(files))
    (files / "profiles").mkdir()
    with pytest.raises(TraceError, match="profiles: has no folder of an application"):
        build(config(files))
