"""The dialect of Gavel's simulator: its rounds, its renewals, and what it refuses."""

import msgspec
import pytest

from rota.core.errors import InputError, OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.registry import parse_params, split
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.gavel.dialect import GavelDialect
from rota.reproduce.gavel.loop import LeaseRates
from rota.sim.cluster import SimCluster
from rota.study.dialect import create

POLICIES = [
    *GavelDialect.policies,
    "gavel-max-min:aware=false",
    "gavel-ftf:aware=false",
    "allox:alpha=0.5",
]
SPEEDS = {"fast": 1.0, "slow": 0.5}
ROWS = [(0, 3000), (10, 500), (20, 4000), (3000, 100), (3100, 2500), (9000, 700)]


def nodes():
    return Topology([NodeSpec("a", 1, "fast"), NodeSpec("b", 1, "slow"), NodeSpec("c", 1, "slow")])


def jobs(rows, gpus=1, speeds=SPEEDS):
    return Workload(
        [JobSpec(str(i), float(at), Request.of(gpus)) for i, (at, _) in enumerate(rows)],
        [Behaviour(float(work), speeds) for _, work in rows],
    )


def engine(policy, workload, *, like="gavel", topology=None, outages=()):
    topology = topology or nodes()
    dialect = GavelDialect(parse_params("dialect 'gavel'", GavelDialect.Parameters, split(like)[1]))
    scheduler = dialect.build(policy, None, topology, seed=0)
    scheduler.trusted = policy.startswith("gandiva")  # guests have no GPUs of their own
    dialect.meet(scheduler, workload, topology)
    down = [(at, kind, topology.nodes[node]) for at, kind, node in outages]
    cluster = SimCluster(topology, Zero(), LeaseRates(topology), outages=down)
    return Engine(
        cluster, scheduler, WorkloadSource(workload), wake=dialect.wake, checker=Invariants()
    )


def ends(policy, workload, **options):
    made = engine(policy, workload, **options)
    made.run()
    found = [made.jobs[index] for index in sorted(made.jobs)]
    assert all(job.phase == Phase.DONE for job in found)
    return [job.end_s for job in found]


@pytest.mark.parametrize("policy", POLICIES)
def test_everything_ends(policy):
    found = ends(policy, jobs(ROWS))
    for end_s, (at_s, work) in zip(found, ROWS, strict=True):
        assert end_s >= at_s + work - 1e-6  # nobody is faster than on the fast GPU


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_s", [1, 400, 3050, 5000])
def test_a_resumed_run_is_the_uninterrupted_one(policy, at_s):
    whole = engine(policy, jobs(ROWS))
    whole.run()
    first = engine(policy, jobs(ROWS))
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine(policy, jobs(ROWS))
    snapshot.restore(second, state)
    second.run()
    for made in (whole, second):
        made.log.pack()
    same = second.log._packed == whole.log._packed
    assert same


def test_a_round_ends_with_its_last_lease_and_renewals_wait():
    """The second job comes in the first round and is known from the renewal after 1920 s on."""
    alone = Topology([NodeSpec("a", 1, "fast"), NodeSpec("b", 1, "fast")])
    found = ends(
        "gavel-fifo", jobs([(100, 5000), (110, 100)], speeds={"fast": 1.0}), topology=alone
    )
    # rounds of 360 s: the first that begins 1920 s after the first renewal begins at 2260
    assert found == pytest.approx([5100, 2360])


def test_a_new_job_holds_gpus_without_running():
    """Both GPUs are free, but the job waits for the renewal on a GPU that stays idle."""
    alone = Topology([NodeSpec("a", 1, "fast"), NodeSpec("b", 1, "fast")])
    made = engine("gavel-isolated", jobs([(100, 5000), (110, 100)], speeds=None), topology=alone)
    made.run(2000)
    assert made.jobs[1].phase == Phase.WAITING


def test_steps_come_from_the_table(tmp_path):
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode({"a": {"('m', 1)": {"null": 1 / 250}}}))
    alone = Topology([NodeSpec("a", 1, "a")])
    two = Workload(
        [JobSpec(str(i), 0.0, Request.of(1), model="m") for i in range(2)],
        [Behaviour(500.0, {"a": 1.0}), Behaviour(250.0, {"a": 1.0})],
    )
    found = ends("gavel-isolated", two, like=f"gavel:throughputs={path}", topology=alone)
    # one step in a round, the jobs take turns: rounds of 250 s instead of 360
    assert sorted(found) == pytest.approx([500, 750])


def test_a_job_that_the_table_does_not_know_is_named(tmp_path):
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode({"fast": {"('m', 1)": {"null": 2.0}}}))
    with pytest.raises(OptionError, match=r"does not know job 0 \('' on 1 GPUs\)"):
        engine("gavel-fifo", jobs(ROWS), like=f"gavel:throughputs={path}")


def test_multi_gpu_jobs_with_few_steps_left_are_not_dropped(tmp_path):
    """One step for a gang of four: the simulator counts it as a failure and gives up."""
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode({"a": {"('m', 4)": {"null": 0.5}}}))
    four = Topology([NodeSpec(str(i), 1, "a") for i in range(4)])
    workload = Workload([JobSpec("0", 0.0, Request.of(4), model="m")], [Behaviour(2.0, {"a": 1.0})])
    found = ends("gavel-fifo", workload, like=f"gavel:throughputs={path}", topology=four)
    assert found == pytest.approx([2.0])


def test_a_gang_larger_than_every_type_is_rejected_and_nobody_waits_for_it():
    workload = Workload(
        [
            JobSpec(str(i), at, Request.of(gpus))
            for i, (at, gpus) in enumerate([(5.0, 1), (9.0, 3)])
        ],
        [Behaviour(1000.0, SPEEDS)] * 2,
    )
    made = engine("gavel-max-min", workload)
    made.run()
    assert [made.jobs[i].phase for i in range(2)] == [Phase.DONE, Phase.REJECTED]


def test_nodes_without_a_type_will_do():
    plain = Topology([NodeSpec("a", 2)])
    found = ends("gavel-max-min", jobs([(0, 700), (0, 300)], speeds=None), topology=plain)
    assert found == pytest.approx([700, 300])


@pytest.mark.parametrize("policy", ["gavel-max-min", "gavel-isolated", "gavel-fifo"])
def test_jobs_survive_a_node(policy):
    outages = [(500.0, NODE_DOWN, 0), (4000.0, NODE_UP, 0)]
    found = ends(policy, jobs(ROWS), outages=outages)
    assert sum(found) > sum(ends(policy, jobs(ROWS)))


@pytest.mark.parametrize(
    ("like", "policy", "placement", "message"),
    [
        ("gavel", "fifo", None, r"gavel-fifo \(their fifo_perf\)"),
        ("gavel", "gavel-fifo:aware=false", None, "no parameters"),
        ("gavel", "gavel-fifo", "spread", "leave --placement out"),
        ("gavel:round=0", "gavel-fifo", None, "round=0"),
        ("gavel:reset=-1", "gavel-fifo", None, "reset=-1"),
    ],
)
def test_what_it_cannot_honour_is_refused(like, policy, placement, message):
    with pytest.raises(OptionError, match=message):
        GavelDialect(
            parse_params("dialect 'gavel'", GavelDialect.Parameters, split(like)[1])
        ).build(policy, placement, nodes(), seed=0)


def test_it_says_what_it_is():
    dialect = GavelDialect()
    assert "OSDI 2020" in dialect.source
    assert all(dialect.notes.values())
    assert sum(name.startswith("departure") for name in dialect.notes) == 4
    assert LeaseRates(nodes()).describe() == {"name": "leases"}


def test_the_table_is_that_of_the_trace_unless_another_is_named():
    given = "gavel:throughputs=trace.json,limit=5"
    assert create("gavel", given).params.throughputs == "trace.json"
    assert create("gavel:throughputs=other.json", given).params.throughputs == "other.json"
    assert create("gavel").params.throughputs == ""


# --- pairs, and recorded allocations -------------------------------------------------------------

ALONE, BESIDE = 1.0, 0.8


def table_of_pairs(tmp_path, beside=BESIDE):
    pair = {"null": ALONE, "('m', 1)": [beside, beside]}
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode({"a": {"('m', 1)": pair}}))
    return path


def models(rows):
    return Workload(
        [JobSpec(str(i), float(at), Request.of(1), model="m") for i, (at, _) in enumerate(rows)],
        [Behaviour(float(work), {"a": ALONE}) for _, work in rows],
    )


PACKED = "gandiva-random:seed=1"


def one_gpu():
    return Topology([NodeSpec("a", 1, "a")])


def test_a_pair_shares_its_gpu_and_its_lease_ends_with_the_later_one(tmp_path):
    like = f"gavel:throughputs={table_of_pairs(tmp_path)}"
    found = ends(PACKED, models([(0, 720), (0, 100)]), like=like, topology=one_gpu())
    # both in the first round at 0.8 steps/s; its end is the end of the short job as well; then the
    # long one still waits for the renewal after 1920 s, in a pair of which nobody else is left
    assert found[1] == pytest.approx(360)
    assert found[0] > 720 / ALONE


def test_pairs_that_are_not_worth_it_are_parted(tmp_path):
    """Nobody gains from a partner who takes nearly everything: equal parts are as good."""
    rows = [(0, 5000), (0, 5000)]
    slow = f"gavel:throughputs={table_of_pairs(tmp_path, beside=0.05)}"
    bad = ends(PACKED, models(rows), like=slow, topology=one_gpu())
    fast = f"gavel:throughputs={table_of_pairs(tmp_path, beside=0.9)}"
    good = ends(PACKED, models(rows), like=fast, topology=one_gpu())
    assert max(good) < 2 * 5000 < max(bad)


def test_without_a_table_nobody_is_packed():
    rows = [(0, 3000), (0, 3000), (5, 100), (5000, 1000)]
    packed = engine(PACKED, jobs(rows))
    packed.run()
    assert not any(number < 0 for number in packed.scheduler.dispatcher.jobs)
    assert all(packed.jobs[i].phase == Phase.DONE for i in range(len(rows)))


def test_seeds_draw_other_partners(tmp_path):
    like = f"gavel:throughputs={table_of_pairs(tmp_path)}"
    rows = [(10 * i, 1000 + 700 * i) for i in range(7)]
    found = {
        tuple(ends(f"gandiva-random:seed={seed}", models(rows), like=like, topology=one_gpu()))
        for seed in range(4)
    }
    assert len(found) > 1


@pytest.mark.parametrize("at_s", [100, 2500, 6000])
def test_a_resumed_run_with_pairs_is_the_uninterrupted_one(tmp_path, at_s):
    like = f"gavel:throughputs={table_of_pairs(tmp_path)}"
    rows = [(10 * i, 1000 + 700 * i) for i in range(6)]
    made = [engine(PACKED, models(rows), like=like, topology=one_gpu()) for _ in range(3)]
    whole, first, second = made
    whole.run()
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    snapshot.restore(second, state)
    second.run()
    assert {i: job.end_s for i, job in second.jobs.items()} == {
        i: job.end_s for i, job in whole.jobs.items()
    }


def test_a_node_takes_both_of_a_pair_with_it(tmp_path):
    like = f"gavel:throughputs={table_of_pairs(tmp_path)}"
    outages = [(100.0, NODE_DOWN, 0), (4000.0, NODE_UP, 0)]
    found = ends(PACKED, models([(0, 700), (0, 900)]), like=like, topology=one_gpu(),
                 outages=outages)  # fmt: skip
    assert min(found) >= 4000


def recorded(tmp_path, entries):
    path = tmp_path / "shares.json"
    path.write_bytes(msgspec.json.encode(entries))
    return f"gavel:recorded={path}"


def test_recorded_shares_take_the_place_of_the_policys(tmp_path):
    """Alone on the slow GPUs, although fairness would give it the fast one."""
    only = [(0.0, {"0": {"slow": 1.0, "fast": 0.0}})]
    like = recorded(tmp_path, only)
    made = engine("gavel-fifo", jobs([(0, 300)]), like=like)
    made.run()
    assert made.jobs[0].end_s == pytest.approx(600)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "has 0 allocations"),
        ([(5.0, {"0": {"fast": 1.0}})], "1 jobs at 5 s, and here are 1 at 0 s"),
        ([(0.0, {"7": {"fast": 1.0}})], "1 jobs at 0 s, and here are 1 at 0 s"),
        ({"no": "list"}, "no recorded allocations"),
    ],
)
def test_recorded_shares_of_another_run_are_refused(tmp_path, entries, message):
    like = recorded(tmp_path, entries)
    with pytest.raises(InputError, match=message):
        engine("gavel-fifo", jobs([(0, 300)]), like=like).run()
