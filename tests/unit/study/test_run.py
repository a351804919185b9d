"""Whole runs of small workloads."""

import gc

import pytest

from rota.core.errors import ClusterSpecError, InputError, OptionError, PolicyError, TraceError
from rota.core.registry import POLICIES, names
from rota.engine.parts import policy_class
from rota.metrics.story import Stories
from rota.study import run
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.resume import Freeze
from rota.study.run import simulate


def ends(result):
    return dict(result.jobs.select("job_id", "end_s").iter_rows())


def test_first_in_first_out_by_hand(config):
    result = simulate(config())

    # 0 and 1 fill the node; 2 follows at 30; 3 needs everything, blocks and starts when 0 ends;
    # 4 follows it
    assert ends(result) == {"0": 100, "1": 30, "2": 60, "3": 110, "4": 170}
    assert result.summary["avg_jct_s"] == (100 + 20 + 40 + 85 + 140) / 5
    assert result.summary["delay"]["order"] == 5 + 70  # 3 behind 2, then 4 behind 3
    assert result.summary["delay"]["capacity"] == 10 + 70 + 10  # 2, then 3, then 4
    assert result.jobs["tenant"].to_list() == ["a", "b", "a", "b", "a"]


def test_another_policy_gives_another_order(config):
    assert ends(simulate(config(policy="fifo-skip")))["4"] == 90
    assert ends(simulate(config(policy="srtf")))["3"] == 40


def test_the_assumptions_state_everything(config):
    assumptions = simulate(config(policy="tiresias", seed=5)).assumptions

    assert assumptions["policy"] == {"name": "tiresias", "limits": [3250, 7200], "promote": 0}
    assert assumptions["placement"]["name"] == "consolidate"
    assert assumptions["admission"]["name"] == "accept-all"
    assert assumptions["costs"]["name"] == "zero"
    assert assumptions["rates"]["name"] == "uniform"
    assert assumptions["knowledge"] == "nothing"
    assert assumptions["seed"] == 5
    for key in ("dialect", "rounds", "estimate_error", "failures"):
        assert assumptions[key] is None
    assert assumptions["ignored"] == []


def test_the_assumptions_of_a_rough_run(config):
    assumptions = simulate(
        config(
            policy="srtf", costs="pollux30", round="50,refill=yes", estimate_error="cv=0.5",
            mtbf=100.0, mttr=1.0, placement="count",
        )
    ).assumptions  # fmt: skip

    assert assumptions["placement"]["name"] == "count"
    assert assumptions["costs"]["name"] == "pollux30"
    assert assumptions["knowledge"] == "remaining work"
    assert assumptions["rounds"]["every_s"] == 50
    assert assumptions["rounds"]["refill"] is True
    assert assumptions["estimate_error"] == {"cv": 0.5, "bias": 0}
    assert assumptions["failures"] == {"mtbf_h": 100, "mttr_h": 1}


def test_what_the_cluster_does_not_declare_is_ignored_and_said(config, trace):
    trace.write_text("job_id,submit_s,num_gpus,duration_s,cpus\n0,0,1,5,64\n")

    assert simulate(config()).assumptions["ignored"] == ["cpus"]


def test_rounds_hold_starts_back(config):
    result = simulate(config(round="50"))
    starts = dict(result.jobs.select("job_id", "first_start_s").iter_rows())

    assert starts == {"0": 0, "1": 50, "2": 100, "3": 150, "4": 200}


def test_rounds_can_let_arrivals_in_at_once(config):
    result = simulate(config(round="50,arrivals=now"))
    starts = dict(result.jobs.select("job_id", "first_start_s").iter_rows())

    assert starts["1"] == 10


def test_rounds_can_let_jobs_end_at_boundaries_only(config):
    result = simulate(config(round="50,finish=boundary"))

    assert all(end_s % 50 == 0 for end_s in ends(result).values())


def test_costs_delay_jobs(config):
    result = simulate(config(costs="custom:start_s=7"))

    assert ends(result)["0"] == 107
    assert result.summary["delay"]["overhead"] == 5 * 7
    assert result.summary["ledger"]["overhead_gpu_s"] == 7 * (4 + 4 + 1 + 8 + 2)


def test_a_dialect(config):
    result = simulate(config(policy="las", like="tiresias"))

    assert result.assumptions["dialect"]["name"] == "tiresias"
    assert "queues" in result.assumptions["dialect"]["notes"]
    assert result.assumptions["placement"]["name"] == "count"


def test_a_dialect_with_rounds(config):
    result = simulate(config(policy="fifo", like="blox:round=60"))

    assert result.assumptions["rounds"]["every_s"] == 60
    assert all(end_s % 60 == 0 for end_s in ends(result).values())


def test_wrong_estimates_change_what_an_oracle_does(trace, config):
    rows = [f"{i},0,8,{100 + i}" for i in range(20)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    exact = simulate(config(policy="srtf"))
    none = simulate(config(policy="srtf", estimate_error="cv=0,bias=0"))
    wrong = simulate(config(policy="srtf", estimate_error="cv=2"))

    assert ends(none) == ends(exact)
    assert wrong.summary["avg_jct_s"] > exact.summary["avg_jct_s"]
    assert ends(simulate(config(policy="srtf", estimate_error="cv=2"))) == ends(wrong)
    assert ends(simulate(config(policy="srtf", estimate_error="cv=2", seed=9))) != ends(wrong)


def test_failures_interrupt_jobs_and_the_run_ends_with_the_last_job(config):
    result = simulate(config(mtbf=0.02, mttr=0.005))

    assert result.summary["completed"] == 5
    assert (result.log["event"] == "evicted").any()
    assert result.summary["delay"]["down"] > 0
    last_s = result.jobs["end_s"].max()
    assert result.log["time_s"][-1] == last_s


def test_tasks_of_a_non_gang_job_start_as_they_fit(trace, config):
    trace.write_text("job_id,submit_s,num_gpus,duration_s,gang\n0,0,6,10,true\n1,0,4,10,false\n")
    result = simulate(config())

    # two of its four tasks fit beside job 0, the others follow at 10
    assert ends(result) == {"0": 10, "1": 20}
    assert result.jobs["wait_s"].to_list() == [0, 0]
    assert result.jobs["service_gpu_s"].to_list() == [60, 40]


def test_a_gang_that_never_fits_is_rejected_and_the_run_goes_on(trace, config):
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n0,0,9,10\n1,0,1,10\n")
    result = simulate(config())

    assert result.jobs["state"].to_list() == ["rejected", "done"]
    assert "9 GPUs" in result.log.filter(result.log["event"] == "rejected")["text"][0]


def test_the_check_option_runs_the_invariants(config, monkeypatch):
    looks = []
    monkeypatch.setattr("rota.engine.invariants.Invariants.after", lambda *args: looks.append(args))
    simulate(config())
    assert looks == []
    simulate(config(check=True))
    assert looks


def test_the_limit(config):
    assert simulate(config(limit=2)).jobs.height == 2


def test_cpu_times_are_told(config):
    summary = simulate(config()).summary

    assert 0 < summary["engine_cpu_s"] < 60
    assert summary["jobs_per_cpu_s"] == 5 / summary["engine_cpu_s"]


def test_the_collector_is_on_again_afterwards(config):
    assert gc.isenabled()
    simulate(config())
    assert gc.isenabled()
    with pytest.raises(OptionError):
        simulate(config(policy="none"))
    assert gc.isenabled()


def test_progress_is_told(config, monkeypatch):
    monkeypatch.setattr("rota.study.run.BATCHES", 1)
    seen = []
    simulate(config(), lambda *args: seen.append(args))

    assert seen[-1] == (5, 5, 170.0)
    assert [time_s for _, _, time_s in seen] == sorted(time_s for _, _, time_s in seen)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policy": "nope"}, OptionError, "unknown policy"),
        ({"placement": "nope"}, OptionError, "unknown placement"),
        ({"admission": "nope"}, OptionError, "unknown admission"),
        ({"costs": "nope"}, OptionError, "unknown cost"),
        ({"rates": "nope"}, OptionError, "unknown rate"),
        ({"like": "nope"}, OptionError, "unknown dialect"),
        ({"format": "nope"}, OptionError, "unknown format"),
        ({"cluster": "lots"}, ClusterSpecError, "lots"),
        ({"trace": "nowhere.csv"}, TraceError, "nowhere.csv"),
        ({"mtbf": 5.0}, OptionError, "belong together"),
        ({"measure": "ids=9:"}, OptionError, "no job of the trace"),
        ({"measure": "all"}, OptionError, "not understood"),
        ({"like": "tiresias", "admission": "quota"}, OptionError, "leave --admission out"),
        ({"like": "blox", "round": "60"}, OptionError, "rounds of its own"),
    ],
)
def test_wrong_options_are_refused(config, changes, error, message):
    with pytest.raises(error, match=message):
        simulate(config(**changes))


# --- snapshots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias:limits=50/100"])
def test_a_resumed_run_has_the_log_of_an_uninterrupted_one(config, tmp_path, policy):
    run = config(policy=policy, mtbf=0.05, mttr=0.01, seed=3)
    whole = simulate(run)
    frozen = simulate(run, freeze=Freeze(40.0, tmp_path / "snap"))
    resumed = simulate(run, resume=tmp_path / "snap")

    assert frozen.log.equals(whole.log)
    assert resumed.log.equals(whole.log)


@pytest.mark.parametrize("at_s", [10.0, 40.0, 60.0], ids=["before", "during", "after"])
def test_a_run_with_a_maintenance_is_resumed(config, tmp_path, at_s):
    """One that was over when the snapshot was made stays over."""
    trace = tmp_path / "few.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s,time_limit_s\n0,0,8,5,9\n1,70,8,5,9\n")
    run = config(trace=str(trace), maintenance=("nodes=n0,start=20,for=30",))
    whole = simulate(run)
    simulate(run, freeze=Freeze(at_s, tmp_path / "snap"))
    resumed = simulate(run, resume=tmp_path / "snap")
    assert whole.jobs["first_start_s"].to_list() == [0.0, 70.0]
    assert resumed.log.equals(whole.log)


def test_a_snapshot_of_another_run_is_refused(config, tmp_path):
    simulate(config(), freeze=Freeze(40.0, tmp_path / "snap"))

    with pytest.raises(InputError, match="policy is 'srtf' and was 'fifo'"):
        simulate(config(policy="srtf"), resume=tmp_path / "snap")


def test_a_snapshot_of_another_trace_is_refused(config, trace, tmp_path):
    simulate(config(), freeze=Freeze(40.0, tmp_path / "snap"))
    trace.write_text(trace.read_text() + "5,40,1,1,a\n")

    with pytest.raises(InputError, match=r"jobs\.csv: has changed since"):
        simulate(config(), resume=tmp_path / "snap")


def test_what_is_no_snapshot_is_refused(config, tmp_path):
    (tmp_path / "snap").write_text("hello")

    with pytest.raises(InputError, match="not a snapshot"):
        simulate(config(), resume=tmp_path / "snap")


def test_a_policy_in_a_file_that_breaks_its_contract(config, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Mine(PriorityPolicy[Params]):\n"
        "    def key(self, job, now_s):\n"
        "        return job.remaining_s(now_s)\n"
    )

    with pytest.raises(PolicyError, match="without declaring"):
        simulate(config(policy=str(path)))


BUSY = "generate:philly-like:jobs=300,load=1.2,max_s=14400,vcs=3"


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "las", "qssf", "gittins", "easy"])
def test_a_run_that_lets_go_of_jobs_is_the_same_as_one_that_keeps_them(config, monkeypatch, policy):
    monkeypatch.setattr(run, "BATCHES", 5)  # so that it lets go of some between others
    asked = config(trace=BUSY, cluster="2x8", policy=policy)
    found = simulate(asked)
    monkeypatch.setattr(run, "_forgetful", lambda engine: False)
    kept = simulate(asked)
    assert found.log.equals(kept.log)
    assert found.jobs.equals(kept.jobs)
    for timed in ("engine_cpu_s", "jobs_per_cpu_s"):
        del found.summary[timed], kept.summary[timed]
    assert found.summary == kept.summary


@pytest.mark.parametrize(
    ("policy", "more", "lets_go"),
    [
        ("srtf", {}, True),
        ("gittins", {}, False),  # it reads the history
        ("easy", {}, False),  # what it reads is not known
        ("srtf", {"check": True}, False),
    ],
)
def test_jobs_that_are_over_are_kept_only_where_somebody_may_ask(config, policy, more, lets_go):
    made = build(config(trace=BUSY, cluster="2x8", policy=policy, **more))
    run._drive(made, None, forgetful=run._forgetful(made.engine))
    lifecycle = made.engine.lifecycle
    assert lifecycle.forgotten == (300 if lets_go else 0)
    assert len(lifecycle.jobs) == len(made.engine.view.finished) == (0 if lets_go else 300)


def test_progress_counts_jobs_that_were_let_go(config, monkeypatch):
    monkeypatch.setattr(run, "BATCHES", 5)
    told = []
    simulate(config(trace=BUSY, cluster="2x8", policy="srtf"), lambda *now: told.append(now))
    over = [done for done, _, _ in told]
    assert over == sorted(over)
    assert over[-1] >= 290


LABELLED = "nodes: [{count: 1, gpus: 4, labels: [gpu]}, {count: 1, gpus: 4, labels: [debug]}]\n"
SPLIT = "job_id,submit_s,num_gpus,duration_s,%s\na,0,4,9,debug\nb,1,4,9,debug\nc,1,4,9,gpu\n"


@pytest.mark.parametrize(
    ("column", "starts", "told"),
    [("labels", [0, 9, 1], False), ("partition", [0, 1, 9], True), ("qos", [0, 1, 9], False)],
)
def test_only_labels_bind_jobs_to_nodes(tmp_path, column, starts, told):
    (tmp_path / "jobs.csv").write_text(SPLIT % column)
    (tmp_path / "cluster.yaml").write_text(LABELLED)
    trace, cluster = (str(tmp_path / name) for name in ("jobs.csv", "cluster.yaml"))
    found = simulate(RunConfig(trace=trace, cluster=cluster, policy="fifo"))
    assert found.jobs["first_start_s"].to_list() == starts
    message = "3 jobs are in partitions (debug, gpu) that are labels of nodes, but ask for no label"
    assert any(text.startswith(message) for text in found.warnings) is told


def test_a_label_of_all_nodes_binds_nobody(tmp_path):
    (tmp_path / "jobs.csv").write_text(SPLIT.replace("debug", "gpu") % "partition")
    (tmp_path / "cluster.yaml").write_text(LABELLED.replace("[debug]", "[gpu, debug]"))
    trace, cluster = (str(tmp_path / name) for name in ("jobs.csv", "cluster.yaml"))
    found = simulate(RunConfig(trace=trace, cluster=cluster, policy="fifo"))
    assert not any("partitions" in text for text in found.warnings)


ELASTIC = """\
job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus
0,0,4,100,1,8
1,10,4,100,1,4
2,20,1,50,,
"""


def test_elastic_jobs_that_are_as_fast_with_any_number_of_gpus_are_warned_of(config, trace):
    trace.write_text(ELASTIC)

    (note,) = simulate(config(policy="afs")).notes
    assert note.startswith("2 elastic jobs ran with other numbers of GPUs than asked for")
    assert "rates 'uniform'" in note
    assert note.endswith("use --rates scaling")

    assert not simulate(config(policy="afs", rates="scaling")).notes
    assert not simulate(config(policy="afs", rates="types+scaling")).notes
    assert simulate(config(policy="afs", rates="types+locality")).notes
    assert not simulate(config(policy="fifo", cluster="2x8")).notes  # all get what they asked for


def test_pollux_lets_jobs_that_tell_nothing_grow(config, trace):
    trace.write_text(ELASTIC)
    jobs = simulate(
        config(policy="pollux:interval_s=10,restart_s=0", rates="scaling", cluster="2x8")
    ).jobs
    resizes = dict(jobs.select("job_id", "resizes").iter_rows())
    assert resizes["0"] > 0  # step by step, at most twice as many each time
    assert resizes["2"] == 0  # rigid
    assert dict(jobs.select("job_id", "mean_gpus").iter_rows())["0"] > 4


LARGE = """\
job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus
large,0,32,100,2,32
other,0,4,100,1,8
huge,5,64,10,32,64
"""
ELASTIC_POLICIES = [name for name in names(POLICIES) if policy_class(name).elastic]


def test_the_elastic_policies_say_so():
    known = {"afs", "deepboot", "elasticflow", "lyra", "optimus", "pollux", "sia"}
    assert known.issubset(ELASTIC_POLICIES)


@pytest.mark.parametrize("policy", ELASTIC_POLICIES)
def test_an_elastic_job_is_let_in_if_its_smallest_size_fits(config, trace, policy):
    trace.write_text(LARGE)
    result = simulate(config(policy=policy, rates="scaling", cluster="2x4", check=True))
    states = dict(result.jobs.select("job_id", "state").iter_rows())
    assert states == {"large": "done", "other": "done", "huge": "rejected"}
    assert result.refusal.startswith("job huge: even its smallest size asks for 32 GPUs")
    works = dict(result.jobs.select("job_id", "work_s").iter_rows())
    assert works == {"large": 100, "other": 100, "huge": 10}
    assert result.summary["avg_bounded_slowdown"] > 2  # 32 GPUs' work on at most 8


def test_a_rigid_policy_says_why_it_turns_an_elastic_job_away(config, trace):
    trace.write_text(LARGE)
    result = simulate(config(policy="fifo", rates="scaling", cluster="2x4"))
    assert "it takes 2 or more, but this policy gives what is asked" in result.refusal
    told = Stories(result.log).tell(0)
    assert told.text.startswith("rejected (asks for 32 GPUs, which placement")
