"""Lucid: a pass of the profiler, readable models, and pairs by score."""

import msgspec
import pytest

from rota.core.allocation import host_of
from rota.core.errors import OptionError, PolicyError
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.plan import PairingPlan
from rota.core.policy import DecidePolicy
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_costs, make_placement, make_policy
from rota.engine.source import WorkloadSource
from rota.models.colocation import ColocatedParams, ColocatedRates
from rota.models.interpretable import AdditiveDurations, LabelTree
from rota.policies.lucid import Lucid, LucidPolicyParams
from rota.sim.cluster import SimCluster

SINGLE = """model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label
light,d,32,0,1,20,5,2000,0
middle,d,32,0,1,50,20,6000,1
heavy,d,32,0,1,95,70,9000,2
wide,d,32,0,1,20,5,23000,0
"""
PAIRS = """model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2
light,d,32,0,0.9,light,d,32,0,0.9
light,d,32,0,0.8,middle,d,32,0,0.5
"""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "single_profiles.csv").write_text(SINGLE)
    (folder / "pair_speeds.csv").write_text(PAIRS)
    return str(folder)


def engine_for(profiles, rows, *, gpus=1, policy=None, **params):
    """Rows are (submit, GPUs, duration, model)."""
    topology = Topology.uniform(1, gpus)
    policy = policy or Lucid(LucidPolicyParams(profiles=profiles, **({"profile_s": 0.0} | params)))
    scheduler = compose(
        policy, make_placement("consolidate", topology, 0), make_admission("accept-all")
    )
    jobs = Workload(
        [
            JobSpec(str(i), float(s), Request.of(n), model=model, user=model)
            for i, (s, n, _, model) in enumerate(rows)
        ],
        [Behaviour(float(d)) for _, _, d, _ in rows],
    )
    rates = ColocatedRates(topology, ColocatedParams(profiles=profiles))
    cluster = SimCluster(topology, make_costs("zero"), rates)
    return Engine(cluster, scheduler, WorkloadSource(jobs), checker=Invariants())


def run(profiles, rows, **params):
    """First start and end of each job."""
    engine = engine_for(profiles, rows, **params)
    engine.run()
    jobs = engine.jobs
    assert all(job.phase == Phase.DONE for job in jobs.values())
    return [(jobs[i].first_start_s, round(jobs[i].end_s, 6)) for i in sorted(jobs)]


# --- the binder -----------------------------------------------------------------------------------


def test_a_job_without_gpus_joins_one_that_it_does_not_disturb(profiles):
    rows = [(0, 1, 90, "light"), (0, 1, 90, "light")]
    assert run(profiles, rows, estimate="oracle") == [(0, 100), (0, 100)]


def test_both_run_as_fast_as_measured_and_the_rest_alone(profiles):
    rows = [(0, 1, 80, "light"), (0, 1, 80, "middle")]
    # light has 0.8 for 100 s, middle then 30 of 80 left
    assert run(profiles, rows, estimate="oracle") == [(0, 100), (0, 130)]


def test_free_gpus_are_better_unless_it_is_eager(profiles):
    rows = [(0, 1, 90, "light"), (0, 1, 90, "light")]
    assert run(profiles, rows, gpus=2, estimate="oracle") == [(0, 90), (0, 90)]
    assert run(profiles, rows, gpus=2, estimate="oracle", eager=True) == [(0, 100), (0, 100)]


@pytest.mark.parametrize(
    ("one", "two", "options", "shared"),
    [
        ("middle", "middle", {}, True),
        ("light", "heavy", {}, True),
        ("middle", "heavy", {}, False),  # scores of 3
        ("middle", "heavy", {"most_score": 3}, True),
        ("light", "wide", {}, False),  # 25,000 MiB
        ("light", "wide", {"gpu_mem_gib": 40.0}, True),
    ],
)
def test_who_may_share(profiles, one, two, options, shared):
    engine = engine_for(profiles, [(0, 1, 50, one), (1, 1, 50, two)], estimate="oracle", **options)
    engine.run(2)
    assert (host_of(engine.jobs[1].allocation) == 0) == shared


def test_the_least_disturbed_host_is_taken(profiles):
    rows = [(0, 1, 90, "middle"), (0, 1, 95, "light"), (1, 1, 80, "light")]
    engine = engine_for(profiles, rows, gpus=2, estimate="oracle")
    engine.run(2)
    assert host_of(engine.jobs[2].allocation) == 1


def test_a_guest_is_not_much_longer_than_its_host(profiles):
    engine = engine_for(profiles, [(0, 1, 40, "light"), (1, 1, 81, "light")], estimate="oracle")
    engine.run(2)
    assert engine.jobs[1].phase == Phase.WAITING


def test_pairs_that_nobody_measured_divide_the_gpu(profiles):
    rows = [(0, 1, 100, "light"), (0, 1, 100, "heavy")]
    # 20 % and 95 % of its time
    assert run(profiles, rows, estimate="oracle") == [(0, 115), (0, 115)]


# --- the profiler ---------------------------------------------------------------------------------


def test_jobs_are_profiled_first_the_smallest_ones_first(profiles):
    rows = [(0, 2, 500, "light"), (0, 1, 500, "light"), (0, 1, 60, "light"), (0, 1, 500, "light")]
    engine = engine_for(profiles, rows, gpus=4, profile_s=100.0, profile_gpus=2.0)
    engine.run(50)
    assert [engine.jobs[i].running for i in range(4)] == [False, True, True, False]
    engine.run(99)
    assert engine.jobs[2].phase == Phase.DONE  # it was over before its profile
    assert engine.jobs[3].running
    engine.run()
    assert [engine.jobs[i].preemptions for i in range(4)] == [1, 1, 0, 1]
    assert engine.jobs[0].first_start_s == 160


def test_nobody_joins_a_job_that_is_being_profiled(profiles):
    rows = [(0, 1, 500, "light"), (1, 1, 500, "light")]
    engine = engine_for(profiles, rows, profile_s=100.0, profile_gpus=1.0, estimate="oracle")
    engine.run(99)
    assert not engine.jobs[1].running
    engine.run(250)
    assert host_of(engine.jobs[1].allocation) == 0 or host_of(engine.jobs[0].allocation) == 1


def test_only_a_profiler_stops_jobs(profiles):
    assert Lucid(LucidPolicyParams(profiles=profiles, profile_s=0.0)).preemptive is False
    assert Lucid().preemptive is False
    assert Lucid(LucidPolicyParams(profiles=profiles)).preemptive is None


def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(profiles):
    models = ["light", "middle", "heavy"]
    rows = [(7 * i, 1 + i % 2, 40 + 13 * (i % 5), models[i % 3]) for i in range(30)]
    options = {"gpus": 4, "profile_s": 20.0, "profile_gpus": 2.0, "refit_s": 50.0}
    whole = engine_for(profiles, rows, **options)
    whole.run()
    first = engine_for(profiles, rows, **options)
    first.run(260)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine_for(profiles, rows, **options)
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same


# --- models that can be read ----------------------------------------------------------------------


def test_durations_are_a_product_of_effects():
    rows = [({"user": u, "GPUs": g}, 100.0 * (10 if u == "ann" else 1) * (4 if g == "8" else 1))
            for u in ("ann", "bob") for g in ("1", "8") for _ in range(200)]  # fmt: skip
    model = AdditiveDurations(rows)
    assert model.predict_s({"user": "ann", "GPUs": "8"}) == pytest.approx(4000, rel=0.05)
    assert model.predict_s({"user": "bob", "GPUs": "1"}) == pytest.approx(100, rel=0.05)
    assert model.predict_s({"user": "eve", "GPUs": "1"}) == pytest.approx(10**2.5, rel=0.05)
    lines = str(model).splitlines()
    assert lines[0] == "632 s, the geometric mean of 800 jobs"
    assert "  x 3.14 if user is ann" in lines
    assert "  x 1.99 if GPUs is 8" in lines


def test_a_rare_value_has_little_effect():
    rows = [({"user": "ann"}, 100.0)] * 50 + [({"user": "bob"}, 100_000.0)]
    assert AdditiveDurations(rows).predict_s({"user": "bob"}) < 1000


def test_a_tree_asks_what_tells_labels_apart():
    rows = [{"a": float(x), "b": float(y)} for x in range(4) for y in range(4)]
    labels = [2 if row["a"] > 1 else int(row["b"] > 2) for row in rows]
    tree = LabelTree(rows, labels)
    assert [tree.label(row) for row in rows] == labels
    assert str(tree).splitlines() == [
        "a <= 1.5?",
        "  b <= 2.5?",
        "    -> 0 (6 of 6)",
        "  else:",
        "    -> 1 (2 of 2)",
        "else:",
        "  -> 2 (8 of 8)",
    ]
    assert str(LabelTree(rows, labels, depth=0)) == "-> 2 (8 of 16)"


def test_its_models_can_be_printed(profiles):
    policy = Lucid(LucidPolicyParams(profiles=profiles))
    ((what, tree),) = policy.models().items()
    assert what == "sharing score by use of a GPU alone"
    assert "<=" in str(tree)
    assert Lucid().models() == {}


def test_durations_are_learnt_from_those_who_finish(profiles):
    rows = [(0, 1, 10, "light"), (0, 1, 100, "heavy"), (200, 1, 1, "light")]
    engine = engine_for(profiles, rows, gpus=2, refit_s=150.0)
    engine.run()
    assert "if user is light" in str(engine.scheduler.policy.models()["duration"])


@pytest.mark.parametrize("name", ["easy", "drf", "fifo-skip"])
def test_other_policies_run_where_jobs_could_share(profiles, name):
    rows = [(i, 1, 20, "light") for i in range(6)]
    engine = engine_for(profiles, rows, gpus=2, policy=make_policy(name))
    engine.run()
    assert [engine.jobs[i].end_s for i in range(6)] == [20, 21, 40, 41, 60, 61]


def test_a_host_has_one_guest(profiles):
    class Crowd(DecidePolicy):
        name = "crowd"
        plan_type = PairingPlan
        keeps_unnamed = True

        def decide(self, view):
            plan = view.plan(PairingPlan)
            for job in view.waiting:
                if not plan.place(job):
                    plan.place_beside(job, view.jobs[0])
            return plan

    engine = engine_for(profiles, [(i, 1, 50, "light") for i in range(3)], policy=Crowd())
    with pytest.raises(PolicyError, match="two jobs at most"):
        engine.run()
    assert host_of(engine.jobs[1].allocation) == 0


def test_rates_need_measurements():
    with pytest.raises(OptionError, match="colocated:profiles=DIR"):
        ColocatedRates(Topology.uniform(1, 1))
