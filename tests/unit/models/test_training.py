import msgspec
import pytest

from rota.core.allocation import Allocation
from rota.core.errors import InputError, OptionError
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.models.profiles import MeasuredTraining, alone_s, divided
from rota.models.rates import make_rates
from rota.models.training import GoodputRates, GoodputRatesParams
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.traces.cluster import parse_cluster
from typed_profile_files import CLUSTER, write_profiles


@pytest.fixture
def profiles(tmp_path):
    return str(write_profiles(tmp_path))


@pytest.fixture
def topology():
    return parse_cluster(CLUSTER)[0]


def job_of(profiles, *, batch=128, tuned=True, work=12000.0):
    spec = JobSpec("net-0", 0.0, Request.of(2, min_gpus=1, max_gpus=8), model="net")
    training = MeasuredTraining(profiles, "net", batch, tuned)
    return Job(spec, Behaviour(work, training=training), 0, Shape(0, spec.request))


def run(rates, job, allocation, done, now_s, until_s):
    """The phases up to a time: (rate, end, told)."""
    found = []
    while now_s < until_s:
        phase = rates.phase(job, allocation, (), done, now_s)
        found.append(phase)
        done += phase.rate * (phase.until_s - now_s)
        now_s = phase.until_s
    return found, done


def test_batches_are_divided():
    assert divided(128, 2, 256, 32) == (64, 0)
    assert divided(1000, 2, 256, 32) == (250, 1)
    assert divided(64, 1, 256, 32) == (32, 1)  # a single GPU makes two passes
    assert divided(32, 1, 256, 32) == (32, 0)


def test_phases_end_with_epochs_at_whole_seconds_and_with_intervals(profiles, topology):
    rates = GoodputRates(topology, GoodputRatesParams(rounded=True))
    job = job_of(profiles)
    found, done = run(rates, job, Allocation([(topology.nodes[0].id, 2)]), 0.0, 17.0, 240.0)
    ends = [phase.until_s for phase in found]
    assert {60.0, 120.0, 180.0, 240.0} <= set(ends)
    assert all(end == int(end) for end in ends)
    levels = [1000.0 * epoch for epoch in range(13)]
    assert sum(any(abs(level - at) < 1e-6 for level in levels) for at in _levels(found, 17.0)) >= 1
    assert 0 < done < 12000


def _levels(phases, now_s):
    done = 0.0
    for phase in phases:
        done += phase.rate * (phase.until_s - now_s)
        now_s = phase.until_s
        yield done


def test_a_job_tells_what_it_measured_before(profiles, topology):
    rates = GoodputRates(topology)
    job = job_of(profiles)
    (first, second, *_), _ = run(rates, job, Allocation([(topology.nodes[0].id, 2)]), 0, 0, 300)
    assert first.told is None
    told = second.told
    # it began with the least batch that two GPUs can have
    assert (told["batch"], told["accumulation"]) == (16.0, 0.0)
    assert told["step_s"] == pytest.approx(0.1 + 0.016 + 0.01)
    assert told["sync_s"] == pytest.approx(0.01)
    assert (told["grad_sqr"], told["grad_var"]) == (1.0, 2.5)
    assert (told["init_batch"], told["max_batch"]) == (32.0, 512.0)


def test_an_adaptive_job_chooses_its_batch_and_another_keeps_it(profiles, topology):
    told = {}
    for tuned in (True, False):
        rates = GoodputRates(topology)
        job = job_of(
            profiles,
            tuned=tuned,
        )
        phases, _ = run(rates, job, Allocation([(topology.nodes[0].id, 2)]), 0, 0, 600)
        told[tuned] = [phase.told["batch"] for phase in phases if phase.told]
    assert len(set(told[True])) > 1
    assert set(told[False]) == {64.0}


def test_fast_gpus_are_faster_and_calibration_is_slower(profiles, topology):
    slow, fast = topology.nodes[0].id, topology.nodes[2].id
    rates = {}
    for name, text, node in (
        ("slow", "goodput", slow),
        ("fast", "goodput", fast),
        ("calibrated", "goodput:slower=net:2", slow),
        ("all", "goodput:slower=other:3/*:2", slow),
    ):
        model = make_rates(text, topology)
        job = job_of(profiles, tuned=False)
        # an interval without the end of an epoch: the rate is not rounded
        rates[name] = model.phase(job, Allocation([(node, 2)]), (), 0.0, 59.0).rate
    assert rates["fast"] > 2.5 * rates["slow"]
    assert rates["calibrated"] == rates["all"] == pytest.approx(rates["slow"] / 2)


def test_lost_work_is_done_again(profiles, topology):
    rates = GoodputRates(topology)
    job = job_of(profiles)
    allocation = Allocation([(topology.nodes[0].id, 2)])
    run(rates, job, allocation, 0.0, 0.0, 120.0)
    rates.phase(job, allocation, (), 50.0, 200.0)
    trainee = rates._jobs[0]
    assert (trainee.progress, trainee.epoch) == (50.0, 0)


def test_a_stop_loses_nothing(profiles, topology):
    """Whether a job is stopped at the end of an interval or not, it needs as long."""
    allocation = Allocation([(topology.nodes[0].id, 2)])
    rates = GoodputRates(topology)
    _, through = run(rates, job_of(profiles), allocation, 0.0, 0.0, 240.0)
    rates = GoodputRates(topology)
    job = job_of(profiles)
    _, half = run(rates, job, allocation, 0.0, 0.0, 120.0)
    rates.phase(job, allocation, (), half, 120.0)  # and it is stopped at once
    _, done = run(rates, job, allocation, half, 6000.0, 6120.0)
    assert done == pytest.approx(through)


def test_state_is_saved(profiles, topology):
    allocation = Allocation([(topology.nodes[0].id, 2)])
    rates = GoodputRates(topology)
    job = job_of(profiles)
    _, done = run(rates, job, allocation, 0.0, 0.0, 180.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(rates.snapshot()))
    again = GoodputRates(topology)
    again.restore(state, {0: job})
    moved = Allocation([(topology.nodes[1].id, 4), (topology.nodes[0].id, 1)])
    assert again.phase(job, moved, (), done, 180.0) == rates.phase(job, moved, (), done, 180.0)


def test_jobs_without_profiles_are_as_fast_as_their_gpus_are_many(topology):
    spec = JobSpec("plain", 0.0, Request.of(2))
    plain = Job(spec, Behaviour(100.0), 0, Shape(0, spec.request))
    rates = GoodputRates(topology)
    assert rates.phase(plain, Allocation([(topology.nodes[0].id, 1)]), (), 0.0, 0.0).rate == 0.5


@pytest.mark.parametrize("text", ["interval_s=0", "slower=net", "slower=net:-1"])
def test_options_are_refused(topology, text):
    with pytest.raises(OptionError, match="goodput"):
        make_rates(f"goodput:{text}", topology)


def test_how_long_a_job_takes_alone(profiles):
    training = MeasuredTraining(profiles, "net", 64, tuned=False)
    slow = training.alone_s(2, "slow")
    assert slow > 2 * training.alone_s(2, "fast")
    assert training.alone_s(64, "slow") == 0  # nothing was measured there


# --- without a dialect ----------------------------------------------------------------------------

PLACEMENTS = """\
placement,local_bsz,step_time,sync_time
1,16,0.10,0.0
1,64,0.34,0.0
2,16,0.12,0.02
2,64,0.36,0.02
4,16,0.12,0.02
4,64,0.36,0.02
44,16,0.16,0.06
44,64,0.40,0.06
"""
CSV = """\
job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus,model
a,0,2,1800,1,8,own
b,300,2,900,1,8,own
c,600,4,600,1,8,own
d,700,1,50,,,other
"""


@pytest.fixture
def own(tmp_path):
    """Return a folder of profiles as `rota profile` writes it, and a workload of such jobs."""
    (tmp_path / "profiles" / "own").mkdir(parents=True)
    (tmp_path / "profiles" / "own" / "placements.csv").write_text(PLACEMENTS)
    (tmp_path / "jobs.csv").write_text(CSV)
    return tmp_path / "profiles", tmp_path / "jobs.csv"


def elastic_run(own, **options):
    made = {"trace": str(own[1]), "cluster": "2x4", "rates": f"goodput:profiles={own[0]}"}
    return simulate(RunConfig(**(made | {"policy": "pollux", "check": True} | options)))


def test_a_job_with_what_it_asked_for_begins_at_the_speed_of_its_workload(own):
    topology = parse_cluster("2x4")[0]
    rates = make_rates(f"goodput:profiles={own[0]}", topology)
    spec = JobSpec("a", 0.0, Request.of(2, min_gpus=1, max_gpus=8), model="own")
    job = Job(spec, Behaviour(1800.0), 0, Shape(0, spec.request))
    node = topology.nodes[0].id
    assert rates.phase(job, Allocation([(node, 2)]), (), 0.0, 0.0).rate == pytest.approx(1)
    assert rates.speed_with(job, 2, 0, "") == pytest.approx(1)
    # 16 samples on each GPU: 0.12 s a step, with a single one two passes of 0.1 s
    assert rates.speed_with(job, 1, 0, "") == pytest.approx(0.12 / 0.2)


def test_pollux_shares_by_measured_goodput_without_a_dialect(own):
    result = elastic_run(own)
    jobs = {row["job_id"]: row for row in result.jobs.iter_rows(named=True)}
    assert {row["state"] for row in jobs.values()} == {"done"}
    assert jobs["a"]["resizes"] > 0
    assert jobs["a"]["end_s"] < 1800  # with a larger batch than its workload knows
    assert not result.notes
    assert result.jobs.equals(elastic_run(own).jobs)
    assert elastic_run(own, costs="pollux30").summary["completed"] == 4


def test_epochs_end_when_they_do(profiles, topology):
    """Unless they are rounded, a job with its user's batch takes what its profile says."""
    rates = make_rates("goodput", topology)
    job = job_of(profiles, tuned=False)
    allocation = Allocation([(topology.nodes[0].id, 2)])
    done = now_s = 0.0
    while done < job.true_work * (1 - 1e-9):
        phase = rates.phase(job, allocation, (), done, now_s)
        done += phase.rate * (phase.until_s - now_s)
        now_s = phase.until_s
    assert now_s == pytest.approx(alone_s(job.truth.training, 2, "slow"), rel=1e-9)


def test_a_size_that_was_not_measured_is_refused(own):
    own[1].write_text(CSV.replace("c,600,4,600,1,8,own", "c,600,7,600,7,7,own"))
    with pytest.raises(InputError, match="'own' was not measured on 7 GPUs"):
        elastic_run(own)
