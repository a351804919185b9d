"""Generated workloads: determinism, exact load, and the distributions that were asked for.

Statistical bounds hold for the fixed seeds; they are about four standard errors wide.
"""

import hashlib
from collections import Counter

import numpy as np
import pytest

from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.traces.synth.generate import KINDS, carried, generate, offered_load
from rota.traces.write import write_workload


def make(kind="poisson", *, jobs=20_000, gpus=64, load=0.9, seed=3, **options):
    return generate(kind, jobs=jobs, gpus=gpus, load=load, seed=seed, options=options)


def durations(workload):
    return np.array([behaviour.work for behaviour in workload.behaviours])


def submits(workload):
    return np.array([spec.submit_s for spec in workload.specs])


def sizes(workload):
    return Counter(spec.request.groups[0].count for spec in workload.specs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path, kind):
    def digest(seed):
        made = make(kind, jobs=500, seed=seed, vcs="3", users="4", estimate_factor="2")
        path = write_workload(made, tmp_path / "jobs.csv", force=True)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("jobs", "gpus", "load"), [(60, 8, 0.5), (2_000, 128, 0.95), (900, 512, 1.5)]
)
def test_the_load_is_met_within_one_percent(kind, jobs, gpus, load):
    made = make(kind, jobs=jobs, gpus=gpus, load=load)
    assert len(made) == jobs
    assert offered_load(made, gpus) == pytest.approx(load, rel=0.01)
    work = sum(s.request.groups[0].count * b.work for s, b in made)
    assert offered_load(made, gpus) == work / gpus / submits(made)[-1]


def test_exact_seconds_meet_the_load_exactly():
    made = make(jobs=50, gpus=10_000, exact="yes")
    assert offered_load(made, 10_000) == pytest.approx(0.9, rel=1e-12)
    assert submits(made)[-1] < 51
    assert any(spec.submit_s % 1 for spec in made.specs)
    assert all(durations(made) % 1)


def test_the_load_counts_fractions_of_gpus_and_needs_a_span():
    specs = [JobSpec("a", 10.0, Request.of(0.5)), JobSpec("b", 30.0, Request.of(4))]
    made = Workload(specs, [Behaviour(100.0), Behaviour(50.0)])
    assert offered_load(made, 5) == (0.5 * 100 + 4 * 50) / (5 * 20)
    assert offered_load(Workload(specs[:1], [Behaviour(1.0)]), 5) == float("inf")


def test_too_short_a_span_is_refused_with_the_way_out():
    with pytest.raises(OptionError, match=r"jobs=50 at load=0.9 on gpus=10000 .*exact=yes"):
        make(jobs=50, gpus=10_000)


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_are_numbered_in_order_of_submission_in_whole_seconds(kind):
    made = make(kind, jobs=300)
    assert [spec.id for spec in made.specs] == [str(i) for i in range(300)]
    times = submits(made)
    assert times[0] == 0.0
    assert (np.diff(times) >= 0).all()
    assert (times % 1 == 0).all()
    assert (durations(made) % 1 == 0).all()
    assert durations(made).min() >= 1


def test_poisson_durations_are_exponential_and_arrivals_uniform():
    made = make(mean_s="500")
    assert durations(made).mean() == pytest.approx(500, rel=0.03)
    assert durations(made).std() == pytest.approx(500, rel=0.05)
    assert (durations(made) > 500 * np.log(2)).mean() == pytest.approx(0.5, abs=0.015)
    assert sizes(made) == {1: 20_000}
    gaps = np.diff(submits(make(mean_s="500", exact="yes")))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_gavel_like_durations_and_sizes():
    made = make("gavel-like")
    worked = durations(made)
    assert worked.min() >= 60 * 10**1.5 - 1
    assert worked.max() <= 60 * 10**4 + 1
    assert (worked < 60_000).mean() == pytest.approx(0.8, abs=0.012)
    short = np.log10(worked[worked < 60_000] / 60)
    assert short.mean() == pytest.approx(2.25, abs=0.02)
    share = {size: count / 20_000 for size, count in sizes(made).items()}
    assert share == pytest.approx({1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}, abs=0.013)


def test_philly_like_durations_and_sizes():
    made = make("philly-like", jobs=100_000, gpus=2_048)
    worked = durations(made)
    assert np.median(worked) == pytest.approx(1_144, rel=0.05)
    assert np.quantile(worked, 0.25) == pytest.approx(115, rel=0.15)
    assert np.quantile(worked, 0.9) == pytest.approx(11_265, rel=0.06)
    assert np.quantile(worked, 0.99) == pytest.approx(254_884, rel=0.08)
    assert worked.max() <= 4_628_226
    share = {size: count / 100_000 for size, count in sizes(made).items()}
    assert share[1] == pytest.approx(0.9317, abs=0.004)
    assert share[8] == pytest.approx(0.01998, abs=0.002)
    assert set(share) <= {1, 2, 4, 8, 12, 16, 24, 32, 64, 128}


def test_philly_like_is_like_the_real_one(shared):
    from rota.traces.read import read_workload

    real = durations(read_workload(shared("data/philly/philly.csv")))
    ours = durations(make("philly-like", jobs=82_247, gpus=2_048))
    points = np.quantile(real, np.linspace(0.01, 0.99, 50))
    ranks = [(sample[:, None] <= points).mean(axis=0) for sample in (real, ours)]
    assert np.abs(ranks[0] - ranks[1]).max() < 0.06


def test_a_diurnal_day_has_its_peak_in_the_first_half():
    made = make("diurnal", period_s="86400", swing="0.8", mean_s="40000")
    assert submits(made)[-1] > 5 * 86_400
    days = submits(made) // 86_400
    whole = submits(made)[days < days.max()]
    share = (whole % 86_400 < 43_200).mean()
    # The rate is 1 + 0.8 sin: its mean over the first half of a day is 1 + 0.8 * 2 / pi.
    assert share == pytest.approx(0.5 + 0.8 / np.pi, abs=0.02)


def test_no_swing_is_steady():
    made = make("diurnal", swing="0", mean_s="40000")
    assert (submits(made) < submits(made)[-1] / 2).mean() == pytest.approx(0.5, abs=0.015)


def spread(workload, parts=400):
    """Return the index of dispersion of arrivals per part: 1 for a Poisson process."""
    counts, _ = np.histogram(submits(workload), bins=parts)
    return counts.var() / counts.mean()


def test_bursts_alternate_between_two_loads():
    calm = spread(make("poisson", sizes="gavel"))
    even = spread(make("bursts", ratio="1"))
    wild = spread(make("bursts", ratio="10"))
    assert calm == pytest.approx(1.0, abs=0.3)
    assert even == pytest.approx(1.0, abs=0.3)
    assert wild > 10


def test_bursts_have_the_ratio_of_the_two_rates():
    # On for about 1 part in 4 of the time: the medians of the two rates are at 3/8 and 7/8.
    made = make("bursts", jobs=50_000, gpus=8, on_s="500000", off_s="1500000", ratio="5")
    counts, _ = np.histogram(submits(made), bins=2_000)
    low, high = np.quantile(counts, [3 / 8, 7 / 8])
    assert high / low == pytest.approx(5, rel=0.15)


def test_sizes_are_weights_and_only_those_that_fit():
    made = make(sizes="1:1/2:2/16:5/64:0", gpus=8)
    share = {size: count / 20_000 for size, count in sizes(made).items()}
    assert share == pytest.approx({1: 1 / 3, 2: 2 / 3}, abs=0.015)
    assert set(sizes(make("philly-like", gpus=4))) == {1, 2, 4}


def test_durations_can_be_cut():
    assert durations(make("philly-like", max_s="86400")).max() == 86_400


def test_users_tenants_and_estimates_are_extra():
    plain = make(jobs=5_000)
    rich = make(jobs=5_000, vcs="4", users="10", estimate_factor="3")
    assert (submits(plain) == submits(rich)).all()
    assert (durations(plain) == durations(rich)).all()
    assert {(spec.tenant, spec.user) for spec in plain.specs} == {("", "")}
    tenants = Counter(spec.tenant for spec in rich.specs)
    assert set(tenants) == {"vc0", "vc1", "vc2", "vc3"}
    assert tenants["vc0"] / tenants["vc3"] == pytest.approx(4, rel=0.2)
    assert len({spec.user for spec in rich.specs}) == 10
    factors = np.array([spec.estimate_s for spec in rich.specs]) / durations(rich)
    assert factors.min() >= 1
    long = factors[durations(rich) > 1_000]
    assert long.max() <= 3.001
    assert long.mean() == pytest.approx(2, abs=0.05)


def test_parts_of_kinds_can_be_combined():
    made = make("philly-like", arrivals="diurnal", sizes="gavel", durations="exponential")
    assert set(sizes(made)) == {1, 2, 4, 8}
    assert durations(made).mean() == pytest.approx(3_600, rel=0.04)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "poison"}, "unknown kind of workload 'poison': did you mean 'poisson'?"),
        ({"jobs": 1}, "poisson: jobs=1 is out of range: give 2 or more"),
        ({"gpus": 0}, "poisson: gpus=0 is out of range: give 1 or more"),
        ({"load": 0.0}, "poisson: load=0 is out of range: give more than 0"),
        ({"load": float("nan")}, "poisson: load=nan is out of range"),
        ({"load": float("inf")}, "poisson: load=inf is out of range"),
        ({"seed": -1}, "poisson: seed=-1 is out of range: give 0 or more"),
        ({"mean": "5"}, "poisson: unknown parameter 'mean': did you mean 'mean_s'?"),
        ({"mean_s": "0"}, "poisson: mean_s=0 is out of range"),
        ({"mean_s": "long"}, "poisson: cannot use mean_s=long"),
        ({"swing": "1.5"}, "poisson: swing=1.5 is out of range: give at most 1"),
        ({"vcs": "-1"}, "poisson: vcs=-1 is out of range: give 0 or more"),
        ({"estimate_factor": "0.5"}, "poisson: estimate_factor=0.5 is out of range"),
        ({"durations": "short"}, "poisson: cannot use durations=short"),
        ({"sizes": "1:x"}, "poisson: sizes=1:x is not understood: write gpus:weight/gpus:weight"),
        ({"sizes": "0:1"}, "poisson: sizes=0:1 is not understood"),
        ({"sizes": "1:-1"}, "poisson: sizes=1:-1 is not understood"),
        ({"sizes": "1:0"}, "poisson: sizes=1:0 has no size up to gpus=64"),
        ({"sizes": "128"}, "poisson: sizes=128 has no size up to gpus=64: add one"),
    ],
)
def test_bad_arguments_are_refused(change, says):
    with pytest.raises(OptionError) as caught:
        make(**{"kind": "poisson", **change})
    assert says in str(caught.value)


# --- the load over time --------------------------------------------------------------------------


def window_loads(workload, gpus, windows=10):
    """The work that is submitted in each window of the arrivals, per GPU and second."""
    span_s = workload.specs[-1].submit_s
    loads = [0.0] * windows
    for spec, behaviour in workload:
        which = min(int(spec.submit_s / span_s * windows), windows - 1)
        loads[which] += behaviour.work * spec.request.groups[0].gpus * spec.request.groups[0].count
    return [load * windows / (gpus * span_s) for load in loads]


@pytest.mark.parametrize("seed", range(3))
def test_every_window_gets_its_share_of_the_load(seed):
    options = {"max_s": "86400"}
    made = generate("philly-like", jobs=5_000, gpus=64, load=0.9, seed=seed, options=options)
    chance = generate(
        "philly-like", jobs=5_000, gpus=64, load=0.9, seed=seed, options={**options, "even": "no"}
    )

    assert all(load == pytest.approx(0.9, rel=0.03) for load in window_loads(made, 64))
    assert max(window_loads(chance, 64)) > 0.99  # what it is for
    jobs = [sorted((s.request.groups[0].count, b.work) for s, b in one) for one in (made, chance)]
    assert jobs[0] == jobs[1]  # the same jobs, in another order


def test_a_load_that_a_few_jobs_hold_is_told():
    long = generate("philly-like", jobs=100, gpus=64, load=0.9, seed=1, options={})
    cut = generate("philly-like", jobs=2_000, gpus=64, load=0.9, seed=1, options={"max_s": "3600"})

    assert "a load of 0.90 is asked for, but while jobs arrive at most" in carried(long, 64)
    assert carried(cut, 64) == ""
