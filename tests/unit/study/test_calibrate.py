"""Costs are planted in simulated runs whose logs are made to look like live ones."""

import json
import math

import msgspec
import numpy as np
import polars as pl
import pytest
import yaml

from rota.core.errors import InputError, OptionError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.ports import TransitionCost
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.log import Log
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_costs, make_placement, make_policy
from rota.engine.source import WorkloadSource
from rota.metrics import fold_jobs
from rota.models.costs import CostModel
from rota.models.rates import make_rates
from rota.sim.cluster import SimCluster
from rota.study.calibration.calibrate import FILES, calibrate, foresee, report, write
from rota.study.calibration.samples import TOLD, observe
from rota.traces.cluster import parse_cluster
from rota.traces.read import read_workload
from rota.traces.write import write_workload

START_S, AGAIN_S, STOP_S = 2.0, 3.0, 1.0
CLUSTER = "4x4"
LAS = "las:limits=10/40/160"
RUNS = 5  # simulations for intervals: the tests look at few of them


class Planted(CostModel):
    """Starts and stops that take about as long as planted, each a little different."""

    def __init__(self, seed, *, start_s=START_S, again_s=AGAIN_S, stop_s=STOP_S, cv=0.2):
        super().__init__()
        self.instant_stop = False
        self._mean = (start_s, again_s, stop_s)
        self._rng = np.random.default_rng(seed)
        self._cv = cv

    def _about(self, seconds):
        return float(seconds * max(0.1, self._rng.normal(1.0, self._cv)))

    def start(self, job, new):
        first = job.preemptions == 0 and job.migrations == 0
        return TransitionCost(start_s=self._about(self._mean[0 if first else 1]))

    def stop(self, job):
        return TransitionCost(stop_s=self._about(self._mean[2]))


def jobs(count, *, seed, mean_s=60.0, every_s=9.0):
    """Return a workload for 16 GPUs that keeps them busy, with durations as declared."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(every_s, count))
    works = rng.lognormal(math.log(mean_s) - 0.5, 1.0, count)
    gpus = rng.choice([1, 2, 4, 8], count, p=[0.4, 0.3, 0.2, 0.1])
    specs = [
        JobSpec(str(i + 1), float(at_s[i]), Request.of(int(gpus[i])), estimate_s=float(works[i]))
        for i in range(count)
    ]
    return Workload(specs, [Behaviour(float(work)) for work in works])


def live_log(workload, policy, costs, *, seed=0, cv=0.05, slower=1.1):
    """Run it as a living cluster would: nobody knows in advance how long anything takes."""
    rng = np.random.default_rng(seed)
    declared = [behaviour.work for behaviour in workload.behaviours]
    factors = slower * np.maximum(0.2, rng.normal(1.0, cv, len(declared)))
    real = Workload(
        workload.specs,
        [Behaviour(work * float(f)) for work, f in zip(declared, factors, strict=True)],
    )
    topology, tenants = parse_cluster(CLUSTER)
    rates = make_rates("uniform", topology)
    scheduler = compose(
        make_policy(policy),
        make_placement("consolidate", topology, 0),
        make_admission("accept-all"),
    )
    engine = Engine(
        SimCluster(topology, costs, rates),
        scheduler,
        WorkloadSource(real),
        tenants=tenants,
        belief=lambda index: 1.0 / float(factors[index]),
    )
    while engine.view.active or engine.source.next_s < math.inf:
        assert engine.advance()
    engine.finish()
    begins_later = (
        pl.col("event").cast(pl.String).is_in(["start", "move"])
        & (pl.col("value") > pl.col("time_s"))
        & pl.col("value").is_finite()
    )
    value = pl.when(begins_later).then(TOLD).otherwise(pl.col("value")).alias("value")
    return engine.log.frame().with_columns(value)


def put(folder, log, workload=None, **config):
    """Make a folder as it comes from a daemon."""
    folder.mkdir()
    log.write_parquet(folder / "events.parquet")
    if workload is not None:
        write_workload(workload, folder / "workload.csv")
        config["trace"] = "workload.csv"
    if config:
        (folder / "manifest.json").write_text(json.dumps({"config": config}))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a live run under las, with many preemptions."""
    workload = jobs(150, seed=1)
    log = live_log(workload, LAS, Planted(seed=2), seed=3)
    folder = tmp_path_factory.mktemp("calibrate") / "run"
    return put(folder, log, workload, policy=LAS, cluster=CLUSTER)


@pytest.fixture(scope="module")
def found(run):
    return calibrate(run, runs=RUNS)


@pytest.mark.parametrize(
    ("name", "planted"), [("first", START_S), ("again", AGAIN_S), ("stop", STOP_S)]
)
def test_planted_costs_are_recovered(found, name, planted):
    estimate = getattr(found.fit, name)
    assert estimate.samples > 40
    assert abs(estimate.value - planted) <= 0.15 * planted
    assert estimate.low <= planted <= estimate.high
    assert estimate.low < estimate.value < estimate.high
    assert estimate.note == ""


def test_the_noise_of_durations_is_recovered(found):
    rate = found.fit.rate
    assert rate.samples == 150
    assert rate.low <= 1.1 <= rate.high
    assert found.fit.rate_cv == pytest.approx(0.05, rel=0.25)


def test_the_same_jobs_come_out_the_same(found):
    errors = {error.metric: error for error in found.errors}
    assert set(errors) == {"mean JCT", "p95 JCT", "mean wait", "makespan"}
    assert abs(errors["mean JCT"].error) < 0.05
    assert abs(errors["makespan"].error) < 0.05
    for error in found.errors:
        assert error.low <= error.high
        assert error.error == pytest.approx(error.simulated / error.live - 1)
    assert found.jobs.height == 150
    assert found.jobs["error_s"].null_count() == 0


def test_another_workload_under_another_policy_is_predicted(found, tmp_path):
    other = jobs(120, seed=11, mean_s=90.0, every_s=13.0)
    really = fold_jobs(live_log(other, "srtf", Planted(seed=12), seed=13))["jct_s"].mean()
    trace = str(write_workload(other, tmp_path / "other.csv"))
    seen = foresee(found, trace, policy="srtf", runs=10)
    predicted = {p.metric: p for p in seen.metrics}["mean JCT"]
    assert predicted.value == pytest.approx(really, rel=0.05)
    assert predicted.low <= predicted.value <= predicted.high
    assert seen.jobs.height == 120
    free = fold_jobs(live_log(other, "srtf", make_costs("zero"), cv=0, slower=1))["jct_s"].mean()
    assert abs(free - really) > 0.05 * really  # without calibration it would be wrong


def test_the_same_seed_gives_the_same_result(found, run):
    again = calibrate(run, runs=RUNS)
    assert again.errors == found.errors
    assert again.fit.named == found.fit.named
    other = calibrate(run, runs=RUNS, seed=1)
    assert other.fit.first.value == found.fit.first.value
    theirs, ours = other.fit.first, found.fit.first
    assert (theirs.low, theirs.high) != (ours.low, ours.high)


def test_everything_is_written(found, tmp_path):
    write(found, None, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES) - {"predicted-jobs.csv"}
    costs = make_costs(str(tmp_path / "costs.yaml"))
    assert costs.name == "calibrated"
    assert costs.params.first_s == pytest.approx(found.fit.first.value, rel=1e-5)
    assert costs.params.start_s == pytest.approx(found.fit.again.value, rel=1e-5)
    assert costs.params.stop_s == pytest.approx(found.fit.stop.value, rel=1e-5)
    workload = read_workload(tmp_path / "workload.csv")
    assert [b.work for b in workload.behaviours] == found.jobs["work_s"].to_list()
    data = json.loads((tmp_path / "calibration.json").read_text())
    assert len(data["jobs"]) == 150
    assert data["fit"]["stop"]["samples"] == found.fit.stop.samples
    text = (tmp_path / "report.md").read_text()
    assert text == report(found)
    assert "lost work per stop: cannot be seen" in text


def test_the_intervals_hold_the_truth_as_often_as_they_say():
    """Of 95 % intervals of a known mean, most of 40 hold it."""
    from rota.study.calibration.fit import _estimate
    from rota.study.calibration.samples import Timings

    rng = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        job = np.repeat(np.arange(40), 3)
        of_job = rng.normal(0.0, 0.3, 40)  # times of a job resemble each other
        seconds = 2.0 + of_job[job] + rng.normal(0.0, 0.1, 120)
        estimate, _ = _estimate(Timings(seconds, job), rng, "")
        held += estimate.low <= 2.0 <= estimate.high
    assert 34 <= held <= 40


# --- less information ----------------------------------------------------------------------------


def test_without_a_manifest_the_log_has_to_do(run, found, tmp_path):
    bare = put(tmp_path / "bare", pl.read_parquet(run / "events.parquet"))
    with pytest.raises(OptionError, match="say it with --run-policy"):
        calibrate(bare)
    again = calibrate(bare, policy=LAS, runs=RUNS)
    assert again.setting.cluster == CLUSTER
    assert again.fit.first == found.fit.first
    assert again.fit.rate.samples == 0
    assert again.errors[0].simulated == found.errors[0].simulated  # las is told no duration
    assert any("without a workload" in note for note in again.notes)


def test_a_folder_of_the_simulator_will_do(tmp_path, config, monkeypatch):
    from rota.study.output import write_run
    from rota.study.run import simulate

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(tmp_path)
    run = config(trace="jobs.csv", policy="srtf", costs="custom:start_s=2,stop_s=1")
    write_run(simulate(run), out)  # holds a jobs.csv of another kind
    again = calibrate(out, runs=1)
    assert again.fit.first.value == again.fit.again.value == 2
    assert again.fit.stop.value == 1
    assert again.fit.rate.value == pytest.approx(1)
    assert [error.error for error in again.errors] == pytest.approx([0] * 4)
    assert again.jobs["error_s"].abs().max() == pytest.approx(0)
    assert "only" in again.fit.stop.note


def test_free_runs_are_seen_as_free(tmp_path):
    workload = jobs(40, seed=5)
    folder = put(tmp_path / "run", live_log(workload, LAS, make_costs("zero"), cv=0, slower=1))
    free = calibrate(folder, policy=LAS, runs=1)
    assert free.fit.first.value == free.fit.again.value == free.fit.stop.value == 0
    assert free.fit.stop.samples > 5
    assert free.fit.costs().free
    assert free.errors[0].error == pytest.approx(0)


def test_without_restarts_the_first_start_stands_in(tmp_path):
    log = live_log(jobs(30, seed=6), "fifo", Planted(seed=7))
    again = calibrate(put(tmp_path / "run", log, policy="fifo"), runs=1)
    assert again.fit.again.samples == again.fit.stop.samples == 0
    assert again.fit.again.value == again.fit.first.value
    assert again.fit.params().stop_s == 0
    assert "no job was started again" in report(again)
    assert "no job was stopped" in report(again)


def test_a_folder_without_a_log_is_refused(tmp_path):
    with pytest.raises(InputError, match="name a folder with an event log"):
        calibrate(tmp_path)
    (tmp_path / "events.parquet").write_text("no")
    with pytest.raises(InputError, match="is not an event log"):
        calibrate(tmp_path)


def test_a_log_without_runs_is_refused(tmp_path):
    log = Log()
    log.topology(parse_cluster(CLUSTER)[0])
    with pytest.raises(InputError, match="no job of the log ever ran"):
        calibrate(put(tmp_path / "run", log.frame()), policy="fifo")


def test_other_simulators_are_not_calibrated(tmp_path, run):
    log = pl.read_parquet(run / "events.parquet")
    folder = put(tmp_path / "run", log, policy=LAS, cluster=CLUSTER, like="blox")
    with pytest.raises(OptionError, match="--like"):
        calibrate(folder)


def test_what_made_a_simulated_run_rougher_is_told(tmp_path, run):
    log = pl.read_parquet(run / "events.parquet")
    rough = {"rates": "locality", "mtbf": 20.0, "estimate_error": None}
    folder = put(tmp_path / "run", log, policy=LAS, cluster=CLUSTER, **rough)
    notes = calibrate(folder, runs=1).notes
    assert any("rates" in note for note in notes)
    assert not any("estimate_error" in note for note in notes)


def test_failures_of_nodes_are_simulated_again(tmp_path):
    from rota.study.config import RunConfig
    from rota.study.output import write_run
    from rota.study.run import simulate

    trace = write_workload(jobs(60, seed=8, mean_s=600, every_s=60), tmp_path / "jobs.csv")
    out = tmp_path / "out"
    out.mkdir()
    config = RunConfig(
        trace=str(trace), cluster=CLUSTER, policy="fifo", costs="custom:start_s=2",
        mtbf=2.0, mttr=0.5,
    )  # fmt: skip
    result = simulate(config)
    assert result.log.filter(pl.col("event") == "evicted").height > 3
    write_run(result, out)
    again = calibrate(out, runs=1)
    assert [error.error for error in again.errors] == pytest.approx([0] * 4, abs=1e-9)


# --- single rows ---------------------------------------------------------------------------------


def rows(*written):
    """Return a log: (time, event, job, ref, other, value[, text]) each."""
    from rota.core.log import Record

    log = Log()
    log.topology(parse_cluster("1x4")[0])
    for time_s, event, job, ref, other, value, *text in written:
        kind = Record[event.upper()]
        log.row(time_s, kind, job, ref, other, value)
        if event == "submit":
            log.names.append(text[0])
        elif text:
            log.text(text[0])
    return log.frame()


HEAD = (
    (0, "tenant", -1, 0, -1, 0, "default"),
    (0, "shape", -1, 0, -1, 1, "1 GPU"),
    (0, "allocation", -1, 0, 1, 1),
    (0, "submit", 0, 0, 0, 1, "a"),
)


def test_a_start_that_waits_for_others_begins_when_they_have_left():
    log = rows(
        *HEAD,
        (0, "start", 0, 0, 0, math.inf),
        (5, "start", 0, 0, 1, TOLD),
        (7, "run", 0, -1, -1, 1),
        (20, "done", 0, -1, -1, 0),
    )
    seen = observe(log)
    assert seen.live
    assert seen.first.seconds.tolist() == [2]
    assert len(seen.again) == 0
    assert seen.run_s.tolist() == [13]


def test_a_start_that_was_broken_off_tells_nothing():
    log = rows(
        *HEAD,
        (0, "start", 0, 0, 0, TOLD),
        (1, "stop", 0, 0, -1, 0),
        (1.5, "stopped", 0, -1, -1, 0),
        (4, "start", 0, 0, 1, TOLD),
        (7, "run", 0, -1, -1, 1),
        (20, "stop", 0, 0, -1, 0),
        (24, "stopped", 0, -1, -1, 0),
        (30, "cancelled", 0, -1, -1, 0),
    )
    seen = observe(log)
    assert len(seen.first) == 0
    assert seen.again.seconds.tolist() == [3]
    assert seen.stop.seconds.tolist() == [4]
    assert seen.run_s.tolist() == [13]
    assert seen.restarts.tolist() == [0]


def test_a_move_is_a_stop_and_a_start():
    log = rows(
        *HEAD,
        (0, "start", 0, 0, 0, TOLD),
        (1, "run", 0, -1, -1, 1),
        (10, "move", 0, 0, -1, math.inf),
        (12, "stopped", 0, -1, -1, 0),
        (12, "start", 0, 0, 1, TOLD),
        (15, "run", 0, -1, -1, 1),
        (16, "done", 0, -1, -1, 0),
    )
    seen = observe(log)
    assert seen.first.seconds.tolist() == [1]
    assert seen.again.seconds.tolist() == [3]
    assert seen.stop.seconds.tolist() == [2]
    assert seen.restarts.tolist() == [1]


def test_reports_of_steps_tell_what_was_lost():
    """One step takes 1 s; stopped at step 9.5 it goes on at 5 and needs 2 s to get going."""
    log = rows(
        *HEAD,
        (0, "start", 0, 0, 0, TOLD),
        (1, "run", 0, -1, -1, 1),
        (2, "report", 0, -1, -1, 1, "step"),
        (2, "report", 0, -1, -1, 0.5, "loss"),
        (10, "report", 0, -1, -1, 9, "step"),
        (10.5, "stop", 0, 0, -1, 0),
        (11, "stopped", 0, -1, -1, 0),
        (20, "start", 0, 0, 1, TOLD),
        (21, "run", 0, -1, -1, 1),
        (24, "report", 0, -1, -1, 6, "step"),
        (40, "done", 0, -1, -1, 0),
    )
    seen = observe(log)
    assert seen.lost.seconds.tolist() == [pytest.approx(4.5 + 2)]
    assert seen.lost.job.tolist() == [0]


def test_what_a_simulation_will_not_know_is_told():
    log = rows(
        *HEAD,
        (0, "start", 0, 0, 0, TOLD),
        (1, "run", 0, -1, -1, 1),
        (2, "evicted", 0, -1, -1, 0),
        (3, "start", 0, 0, 1, TOLD),
        (4, "run", 0, -1, -1, 1),
        (5, "done", 0, -1, -1, 0),
    )
    seen = observe(log)
    assert any("runs were lost or repeated" in note for note in seen.notes)
    assert len(seen.stop) == 0


# --- the command ----------------------------------------------------------------------------------


def test_the_command(run, tmp_path, capsys):
    import click

    from rota.cli.calibrate import calibrate as command

    def call(*args):
        try:
            command.main([str(arg) for arg in args], standalone_mode=False)
        finally:
            captured = capsys.readouterr()
        return captured.out, captured.err

    out, err = call(run, "-o", tmp_path / "out", "--runs", 1)
    assert "first start" in out
    assert "mean JCT" in out
    assert "warning: lost work per stop: cannot be seen" in err
    assert (tmp_path / "out" / "costs.yaml").exists()
    assert yaml.safe_load((tmp_path / "out" / "costs.yaml").read_text())["preset"] == "custom"
    trace = write_workload(jobs(10, seed=1), tmp_path / "other.csv")
    args = (run, "--predict", trace, "--policy", "srtf", "--runs", 2)
    assert f"{trace} under srtf:" in call(*args)[0]
    data = json.loads(call(*args, "--json")[0])
    assert {p["metric"] for p in data["prediction"]} == {e["metric"] for e in data["errors"]}
    call(*args, "-o", tmp_path / "out", "--force")
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(FILES)
    with pytest.raises(OptionError, match="--run-policy"):
        call(run, "--policy", "srtf")
    with pytest.raises(click.UsageError):
        call()


def test_settings_are_plain_data(found):
    assert msgspec.json.decode(msgspec.json.encode(found.setting))["policy"] == LAS
