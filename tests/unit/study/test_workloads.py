"""Generated workloads and windows of traces."""

import pytest

from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.study import workloads
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.study.workloads import cut, draw_ahead, draw_seed, jobs_of, load_again, load_workload
from rota.traces.read import read_workload
from rota.traces.synth.generate import generate, offered_load

INF = float("inf")


def generated(options="jobs=50,load=0.8", seed=0, **changes):
    trace = f"generate:gavel-like:{options}"
    return load_workload(RunConfig(trace=trace, cluster="2x8", policy="", seed=seed, **changes))


def works(workload):
    return [behaviour.work for behaviour in workload.behaviours]


def test_the_seed_of_the_run_draws_the_workload():
    assert works(generated()) == works(generated())
    assert works(generated(seed=1)) != works(generated())


def test_a_workload_may_be_the_same_for_all_seeds():
    fixed = "jobs=50,load=0.8,seed=7"

    assert works(generated(fixed, seed=1)) == works(generated(seed=7))


def test_the_load_is_for_the_cluster_unless_told_otherwise():
    assert offered_load(generated(), 16) == pytest.approx(0.8, rel=0.01)
    assert offered_load(generated("jobs=50,load=0.8,gpus=32"), 32) == pytest.approx(0.8, rel=0.01)


def test_options_of_the_generator_and_a_limit():
    workload = generated("jobs=50,load=0.8,sizes=2,users=3", limit=20)

    assert len(workload) == 20
    assert {spec.request for spec in workload.specs} == {Request.of(2)}
    assert len({spec.user for spec in workload.specs}) == 3


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("generate:nope:jobs=5", "no generator 'nope'"),
        ("generate:poisson:jobs=many", "jobs=many"),
        ("generate:poisson:jobs=50,color=red", "color"),
        ("generate:poisson:jobs", "not key=value"),
    ],
)
def test_generators_that_are_not_understood(trace, message):
    with pytest.raises(OptionError, match=message):
        load_workload(RunConfig(trace=trace, cluster="2x8", policy=""))


def test_a_generated_workload_has_no_format():
    with pytest.raises(OptionError, match="leave --format out"):
        generated(format="csv")


def test_a_trace_that_is_cut_is_read_once(config, monkeypatch):
    reads = []

    def read(*args, **options):
        reads.append(args)
        return read_workload(*args, **options)

    monkeypatch.setattr(workloads, "read_workload", read)
    windows = [jobs_of(config(window=f"{i}/3")) for i in (1, 2, 3)]
    found = [works(load_again(window)) for window in (*windows, *windows)]

    assert found == [works(load_workload(window)) for window in windows] * 2
    assert len(reads) == 1 + len(windows)  # `load_workload` keeps nothing


@pytest.mark.parametrize(
    ("options", "seeds", "draws"), [("seed=3", (0, 1), 1), ("load=1", (0, 0), 1), ("", (0, 1), 2)]
)
def test_jobs_that_all_runs_share_are_drawn_ahead(monkeypatch, options, seeds, draws):
    drawn = []

    def draw(*args, **wanted):
        drawn.append(args)
        return generate(*args, **wanted)

    monkeypatch.setattr("rota.traces.synth.generate.generate", draw)
    trace = f"generate:poisson:jobs=31,{options}".removesuffix(",")
    configs = [RunConfig(trace=trace, cluster="1x8", policy="las", seed=seed) for seed in seeds]
    draw_ahead(configs)
    ahead = len(drawn)
    found = [load_again(jobs_of(config)) for config in configs]

    assert ahead == (draws == 1)
    assert len(drawn) == draws
    assert all(found)


def test_what_is_kept_depends_on_the_jobs_only(config):
    one, other = (jobs_of(config(policy=p, seed=s)) for p, s in (("las", 1), ("fifo", 2)))

    assert one == other
    assert load_again(one) is load_again(other)
    drawn = [RunConfig(trace="generate:poisson", cluster="1x8", policy="", seed=s) for s in (1, 2)]
    assert jobs_of(drawn[0]) != jobs_of(drawn[1])


def test_what_is_kept_is_read_again_where_the_file_is_another(tmp_path, monkeypatch):
    config = RunConfig(trace="jobs.csv", cluster="1x8", policy="")
    numbers = []
    for folder, jobs in (("one", 1), ("other", 2), ("other", 3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        rows = "".join(f"{i},0,1,10\n" for i in range(jobs))
        (tmp_path / folder / "jobs.csv").write_text(f"job_id,submit_s,num_gpus,duration_s\n{rows}")
        numbers.append(len(load_again(config)))
    assert numbers == [1, 2, 3]


# --- windows -------------------------------------------------------------------------------------


def workload(submits_s, deadlines_s=None, depends_on=None):
    depends_on = depends_on or {}
    specs = [
        JobSpec(
            str(i),
            submit_s,
            Request.of(1),
            deadline_s=deadlines_s[i] if deadlines_s else INF,
            depends_on=depends_on.get(i, ()),
        )
        for i, submit_s in enumerate(submits_s)
    ]
    return Workload(specs, [Behaviour(float(i)) for i in range(len(specs))])


def test_windows_are_consecutive_and_hold_every_job_once():
    whole = workload([0, 10, 20, 30, 40, 50, 60])
    parts = [cut(whole, f"{i}/3") for i in (1, 2, 3)]

    assert [[spec.id for spec in part.specs] for part in parts] == [
        ["0", "1", "2"], ["3", "4"], ["5", "6"],
    ]  # fmt: skip
    assert [[spec.submit_s for spec in part.specs] for part in parts] == [
        [0, 10, 20], [0, 10], [0, 10],
    ]  # fmt: skip
    assert [works(part) for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [part.origin_s for part in parts] == [0, 30, 50]


def test_windows_follow_the_submissions_and_keep_the_order_of_the_file():
    part = cut(workload([50, 0, 40, 10]), "2/2")

    assert [(spec.id, spec.submit_s) for spec in part.specs] == [("0", 10), ("2", 0)]


def test_deadlines_move_along():
    part = cut(workload([0, 100, 200, 300], [50, 150, 250, INF]), "2/2")

    assert [spec.deadline_s for spec in part.specs] == [50, INF]


def test_recorded_failures_move_along():
    whole = workload([0, 100, 200, 300])
    whole.failures = [(50, "n0", False), (60, "n1", False), (90, "n1", True), (250, "n0", True)]
    same = whole.like(whole.specs, whole.behaviours)
    assert same.failures == whole.failures
    assert cut(whole, "1/2").failures == whole.failures
    assert cut(whole, "2/2").failures == [(0, "n0", False), (50, "n0", True)]


def test_nobody_waits_for_a_job_of_another_window():
    part = cut(workload([0, 10, 20, 30], depends_on={2: ("0",), 3: ("2", "1")}), "2/2")

    assert [spec.depends_on for spec in part.specs] == [(), ("2",)]
    assert part.quality.repaired == {"dependency on a job of another window removed": 2}


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "a/b", "1/0"])
def test_windows_that_are_not_understood(text):
    with pytest.raises(OptionError, match="write I/N"):
        cut(workload([0, 1]), text)


def test_more_windows_than_jobs():
    with pytest.raises(OptionError, match="ask for fewer windows"):
        cut(workload([0, 1]), "1/3")


# --- common random numbers -----------------------------------------------------------------------


def test_windows_do_not_share_their_fate(config):
    seeds = {draw_seed(config(seed=s, window=w)) for s in (0, 1) for w in (None, "1/2", "2/2")}

    assert len(seeds) == 6


def test_the_oracle_is_wrong_about_the_same_jobs_whoever_asks(config):
    def beliefs(policy, **changes):
        engine = build(config(policy=policy, estimate_error="cv=1", **changes)).engine
        while engine.advance():
            pass
        return {job.id: job.belief for job in engine.jobs.values()}

    assert beliefs("sjf") == beliefs("las", costs="pollux30")
    assert beliefs("sjf") != beliefs("sjf", seed=1)
    assert beliefs("sjf", window="1/2") != beliefs("sjf", window="2/2")


def test_the_random_place_of_a_job_is_its_own(config):
    rough = {"placement": "random", "cluster": "4x8", "seed": 3}
    one = simulate(config(policy="sjf", **rough))
    two = simulate(config(policy="fifo-skip", **rough))

    def first_place(result, job):
        start = result.log.filter((result.log["event"] == "start") & (result.log["job"] == job))
        number = start["ref"][0]
        slices = result.log.filter(
            (result.log["event"] == "allocation") & (result.log["ref"] == number)
        )
        return slices.select("other", "value").rows()

    assert first_place(one, 0) == first_place(two, 0)
    other = simulate(config(policy="sjf", **rough | {"seed": 4}))
    assert first_place(other, 0) != first_place(one, 0)
