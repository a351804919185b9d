"""When a job starts, told from a snapshot of a run."""

from collections import Counter
from random import Random

import pytest

from forecast_worlds import KINDS, Kind, errors
from rota.core.errors import InputError
from rota.core.jobs import JobSpec, Request
from rota.core.registry import POLICIES, names
from rota.study.config import RunConfig
from rota.study.forecast import Oracle, forecast, why
from rota.study.resume import Freeze
from rota.study.run import simulate
from thinning import first


def write_trace(path, jobs=60, seed=1, *, load=1.3, gpus=8, estimates=False):
    """Random sizes, exponential durations; estimates are one to three times too long."""
    dice = Random(seed)  # noqa: S311 - not a secret
    lines = ["job_id,submit_s,num_gpus,duration_s" + (",estimate_s" if estimates else "")]
    at_s = 0.0
    for number in range(jobs):
        size = dice.choice([1, 1, 2, 4])
        at_s += dice.expovariate(load * gpus / (2 * 1000))
        duration_s = 1 + dice.expovariate(1 / 1000)
        told = f",{duration_s * dice.uniform(1, 3):.3f}" if estimates else ""
        lines.append(f"j{number},{at_s:.3f},{size},{duration_s:.3f}{told}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def frozen(tmp_path, at_s, **changes):
    """Run it, with a snapshot on the way; returns its file and when every job really started."""
    config = RunConfig(**{"cluster": "2x4", "policy": "fifo"} | changes)
    file = tmp_path / f"{config.policy}-{at_s}.rota"
    result = simulate(config, freeze=Freeze(at_s, file))
    return file, result


def waiting_at(result, at_s):
    """Jobs that have been submitted and not started."""
    rows = result.jobs.select("job_id", "submit_s", "first_start_s").iter_rows()
    return {job: start for job, submit, start in rows if submit <= at_s < (start or 0)}


def test_in_fifo_order_nobody_who_comes_later_matters(tmp_path):
    trace = write_trace(tmp_path / "jobs.csv")
    file, result = frozen(tmp_path, 5000.0, trace=trace)
    truth = waiting_at(result, 5000.0)
    assert len(truth) > 5
    for job, start_s in truth.items():
        found = forecast(file, job, exact=True)
        assert (found.starts_s, found.earliest_s, found.latest_s) == (start_s,) * 3
        assert (found.runs, found.never, found.state) == (1, 0, "waiting")


@pytest.mark.parametrize("policy", names(POLICIES))
def test_who_knows_everything_foresees_the_run_itself(tmp_path, policy):
    trace = write_trace(tmp_path / "jobs.csv", estimates=True)
    file, result = frozen(
        tmp_path, 5000.0, trace=trace, policy=policy, costs="suspend", mtbf=5.0, mttr=0.5
    )
    truth = waiting_at(result, 5000.0)
    oracle = Oracle(file, exact=True, arrivals=True)
    assert truth or policy == "gittins"  # which starts everybody early
    for job, start_s in list(truth.items())[:3]:
        assert oracle.starts(oracle.index(job), 1) == [start_s]


ROUGH = [
    {"policy": policy, "costs": "suspend", "mtbf": 5.0, "mttr": 0.5} for policy in names(POLICIES)
] + [
    {"policy": "las", "costs": "pollux30", "rates": "locality", "round": "60,finish=boundary"},
    {"policy": "las", "like": "tiresias"},
    {"policy": "srtf", "like": "blox"},
    {"policy": "srtf", "like": "helios"},
]


@pytest.mark.parametrize("options", ROUGH, ids=lambda options: "-".join(map(str, options.values())))
def test_whatever_the_run_is_like_it_goes_on_with_other_durations(tmp_path, options):
    trace = write_trace(tmp_path / "jobs.csv", estimates=True)
    file, result = frozen(tmp_path, 5000.0, **{"trace": trace, **options})
    truth = waiting_at(result, 5000.0)
    assert truth or options["policy"] == "gittins"
    oracle = Oracle(file, arrivals=True)
    for job in list(truth)[:1]:
        starts = oracle.starts(oracle.index(job), 3)
        assert all(5000.0 <= start_s < 1e6 for start_s in starts), starts
        assert oracle.starts(oracle.index(job), 3) == starts


def test_the_snapshot_is_the_present(tmp_path):
    trace = write_trace(tmp_path / "jobs.csv")
    file, result = frozen(tmp_path, 5000.0, trace=trace)
    job, start_s = next(iter(waiting_at(result, 5000.0).items()))
    found = forecast(file, job, exact=True)
    assert found.now_s == 5000.0
    assert found.text.startswith("is expected to start in ")
    assert "%" not in found.text  # nothing is uncertain
    assert found.reason in ("order", "capacity", "fragmentation")
    assert found.why.startswith("waited ")
    assert found.assumptions["durations"] == "exact, of the trace"
    assert start_s > 5000.0


@pytest.mark.parametrize("estimates", first(1, ["", "truth x noise"]))
def test_the_interval_holds_the_truth_as_often_as_it_says(estimates):
    # 80 % is meant; four standard deviations of 70 worlds on either side
    found = list(errors(Kind(estimates=estimates), 70, runs=9))
    assert 0.61 <= found.count(0) / len(found) <= 0.97, Counter(found)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_interval_holds_the_truth_in_a_thousand_worlds(kind):
    found = list(errors(kind, 1000))
    assert 0.76 <= found.count(0) / len(found) <= 0.84, Counter(found)


def test_draws_are_seeded(tmp_path):
    trace = write_trace(tmp_path / "jobs.csv")
    file, result = frozen(tmp_path, 5000.0, trace=trace)
    job = list(waiting_at(result, 5000.0))[3]
    calls = []
    found = [
        forecast(file, job, runs=5, seed=seed, told=lambda *done: calls.append(done))
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1]
    assert found[0].starts_s != found[2].starts_s
    assert calls[:5] == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert found[0].earliest_s <= found[0].starts_s <= found[0].latest_s
    assert "% between" in found[0].text


def test_an_oracle_without_error_needs_no_luck(tmp_path):
    trace = write_trace(tmp_path / "jobs.csv")
    for policy, error in (("sjf", None), ("sjf", "cv=1")):
        file, result = frozen(tmp_path, 5000.0, trace=trace, policy=policy, estimate_error=error)
        oracle = Oracle(file, arrivals=True)
        job = list(waiting_at(result, 5000.0))[-1]
        starts = set(oracle.starts(oracle.index(job), 8))
        if error is None:
            assert min(starts) == pytest.approx(waiting_at(result, 5000.0)[job])
            assert max(starts) == pytest.approx(min(starts))
        else:
            assert len(starts) > 3
        assert "the policy's oracle" in oracle.assumptions()["durations"]


SMALL = "job_id,submit_s,num_gpus,duration_s\na,0,4,100\nb,10,8,20\nc,40,2,5\nd,90,8,1\n"


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return str(path)


def test_what_needs_no_forecast(tmp_path, small):
    file, _ = frozen(tmp_path, 50.0, trace=small, cluster="1x8", policy="fifo-skip")
    assert forecast(file, "a").text == "has started already, at second 0"
    assert forecast(file, "a").starts_s == 0.0
    over = forecast(file, "c")
    assert (over.state, over.text) == ("done", "is over: done at second 45")
    assert (over.starts_s, over.runs) == (None, 0)


def test_who_is_still_to_come(tmp_path, small):
    file, _ = frozen(tmp_path, 50.0, trace=small, cluster="1x8", policy="fifo-skip")
    with pytest.raises(InputError, match=r"submitted at second 90.*--with-arrivals"):
        forecast(file, "d")
    found = forecast(file, "d", exact=True, arrivals=True)
    assert (found.state, found.starts_s) == ("to come", 120.0)
    with pytest.raises(InputError, match="there is no job 'x'"):
        forecast(file, "x")


def test_a_preempted_job_waits_for_its_next_start(tmp_path, small):
    file, _ = frozen(tmp_path, 15.0, trace=small, cluster="1x8", policy="srtf")
    found = forecast(file, "a", exact=True)  # b has taken all GPUs at 10
    assert found.starts_s == 30.0
    assert found.text == "is expected to start again in 15 s"
    assert forecast(file, "a", exact=True, arrivals=True).starts_s == 30.0


def test_a_job_that_waits_for_ever(tmp_path):
    path = tmp_path / "for-ever.csv"
    path.write_text("job_id,submit_s,num_gpus,duration_s,depends_on\na,0,1,5,b\nb,50,1,5,\n")
    file, _ = frozen(tmp_path, 10.0, trace=str(path))
    found = forecast(file, "a", runs=3)
    assert (found.starts_s, found.latest_s, found.never) == (None, None, 3)
    assert found.text == "is not expected to start with what is known now"
    assert forecast(file, "a", exact=True, arrivals=True).starts_s == 55.0


def test_non_gang_jobs_start_with_their_first_task(tmp_path):
    path = tmp_path / "tasks.csv"
    path.write_text(
        "job_id,submit_s,num_gpus,duration_s,gang\na,0,4,100,1\nb,0,3,50,1\nc,10,3,20,0\n"
        "d,11,2,20,0\n"
    )
    file, result = frozen(tmp_path, 20.0, trace=str(path), cluster="1x8")
    started = dict(result.jobs.select("job_id", "first_start_s").iter_rows())
    assert forecast(file, "c").text == "has started already, at second 10"
    assert forecast(file, "d", exact=True).starts_s == started["d"]


def test_a_changed_trace_is_refused(tmp_path, small):
    file, _ = frozen(tmp_path, 15.0, trace=small)
    (tmp_path / "small.csv").write_text(SMALL.replace("100", "99"))
    with pytest.raises(InputError, match="cannot be resumed"):
        forecast(file, "a")


# --- jobs that are not in the run -----------------------------------------------------------------


def proposed(gpus, estimate_s=500.0):
    return JobSpec("x", 0.0, Request.of(gpus), estimate_s=estimate_s)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "easy", "las", "srtf"])
def test_a_job_that_is_not_submitted_is_told_what_it_is_told_afterwards(tmp_path, policy):
    """The trace with one job more, submitted at the very second of the snapshot, is the judge."""
    plain = write_trace(tmp_path / "jobs.csv", estimates=True)
    lines = (tmp_path / "jobs.csv").read_text().splitlines()
    at = next(i for i, line in enumerate(lines[1:], 1) if float(line.split(",")[1]) > 5000.0)
    more = tmp_path / "more.csv"
    more.write_text("\n".join([*lines[:at], "x,5000,2,700,500", *lines[at:]]) + "\n")
    before, _ = frozen(tmp_path, 5000.0, trace=plain, policy=policy)
    (tmp_path / "after").mkdir()
    after, _ = frozen(tmp_path / "after", 5000.0, trace=str(more), policy=policy)
    if policy == "srtf":  # it knows how long the other one runs, and nothing of the new one
        assert forecast(before, proposed(2), runs=5).starts_s is not None
        return
    new, there = forecast(before, proposed(2), runs=9), forecast(after, "x", runs=9)
    assert new.id == "new"
    assert new.starts_s == there.starts_s
    if there.runs:
        assert (new.earliest_s, new.latest_s, new.never) == (
            there.earliest_s, there.latest_s, there.never,
        )  # fmt: skip


def test_a_job_that_would_be_refused_has_no_future(tmp_path, small):
    file, _ = frozen(tmp_path, 15.0, trace=small, cluster="1x8")
    heavy = JobSpec("x", 0.0, Request.of(1, gpu_mem_gib=20))
    for ask in (forecast, why):
        with pytest.raises(InputError, match=r"refused: it asks for 9 GPUs.* never find"):
            ask(file, proposed(9))
        with pytest.raises(InputError, match="no node says how much memory its GPUs have"):
            ask(file, heavy)


def test_why_and_what_would_start_it(tmp_path):
    file, result = frozen(tmp_path, 5000.0, trace=write_trace(tmp_path / "jobs.csv"))
    job = next(iter(waiting_at(result, 5000.0)))
    found = why(file, job)
    assert found.state == "waiting"
    assert found.reason in ("order", "capacity", "fragmentation")
    assert found.remedy is not None
    nothing = why(file, proposed(1))
    assert (nothing.id, nothing.reason) == ("new", "order")  # strictly in order
    assert nothing.ahead_count == len(waiting_at(result, 5000.0))
    with pytest.raises(InputError, match="after the snapshot"):
        why(file, "j59")
