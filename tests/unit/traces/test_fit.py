"""Models of traces: what is drawn from them has the quantiles of the trace (Q-Q)."""

from collections import Counter

import msgspec
import numpy as np
import polars as pl
import pytest

from rota.core.errors import OptionError, OutputError, TraceError
from rota.traces.imported import Imported
from rota.traces.synth.fit import ArrivalModel, expected, fit, load_fit, save_fit, times, weekly
from rota.traces.synth.generate import generate, offered_load
from rota.traces.synth.sampling import split_kind

GPUS = 128
JOBS = 20_000
WEEK_S = 604_800


def source(kind="philly-like", *, jobs=JOBS, seed=5, **options):
    given = {"max_s": "200000", "vcs": "3", "users": "5", **options}
    return generate(kind, jobs=jobs, gpus=GPUS, load=0.8, seed=seed, options=given)


def drawn(path, *, jobs=JOBS, load=0.8, seed=9, **options):
    given = {"file": str(path), **options}
    return generate("fit", jobs=jobs, gpus=GPUS, load=load, seed=seed, options=given)


def fitted(workload, path, **options):
    save_fit(fit(Imported(workload), **options), path, force=True)
    return path


def durations(workload, size=None):
    return np.array([b.work for s, b in workload if size in {None, gpus(s)}])


def gpus(spec):
    return sum(group.count * group.gpus for group in spec.request.groups)


def sizes(workload):
    return np.array([gpus(spec) for spec in workload.specs])


def gaps(workload):
    return np.diff([spec.submit_s for spec in workload.specs])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return a trace of 20,000 jobs and as many drawn from its model."""
    trace = source(exact="yes")
    path = fitted(trace, tmp_path_factory.mktemp("fit") / "model.json")
    return trace, drawn(path, exact="yes")


# --- Q-Q -----------------------------------------------------------------------------------------

SHARES = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]


@pytest.mark.parametrize("size", [None, 1, 8])
def test_durations_have_the_quantiles_of_the_trace(pair, size):
    """Within 10 %, or (8 GPUs, 400 jobs) as a share within 0.07: about four standard errors."""
    trace, made = (durations(each, size) for each in pair)
    if size == 8:
        for share in SHARES:
            assert (made <= np.quantile(trace, share)).mean() == pytest.approx(share, abs=0.07)
    else:
        assert np.quantile(made, SHARES) == pytest.approx(np.quantile(trace, SHARES), rel=0.1)


def test_sizes_have_the_shares_of_the_trace(pair):
    """Within one percentage point."""
    trace, made = (Counter(sizes(each)) for each in pair)
    assert set(made) <= set(trace)
    for size, count in trace.items():
        assert made[size] / JOBS == pytest.approx(count / JOBS, abs=0.01)


def test_gaps_have_the_quantiles_of_the_trace(pair):
    """Within 6 %, in units of the mean gap: the mean follows from the load."""
    trace, made = (gaps(each) / gaps(each).mean() for each in pair)
    assert np.quantile(made, SHARES) == pytest.approx(np.quantile(trace, SHARES), rel=0.06)


def test_owners_have_the_shares_of_the_trace(pair):
    trace, made = (Counter((s.tenant, s.user) for s in each.specs) for each in pair)
    assert set(made) == set(trace)
    for owner, count in trace.items():
        assert made[owner] / JOBS == pytest.approx(count / JOBS, abs=0.015)


def test_bursts_stay_bursts(tmp_path):
    trace = source("bursts", on_s="1800", off_s="5400", ratio="30", exact="yes")
    made = drawn(fitted(trace, tmp_path / "model.json"), exact="yes")
    steady, before, after = (gaps(w) for w in (source(exact="yes"), trace, made))
    assert steady.std() / steady.mean() == pytest.approx(1.0, abs=0.1)
    assert before.std() / before.mean() > 1.5
    assert after.std() / after.mean() == pytest.approx(before.std() / before.mean(), rel=0.15)
    follows = np.corrcoef(np.argsort(np.argsort(after))[:-1], np.argsort(np.argsort(after))[1:])
    assert follows[0, 1] > 0.1


# --- hours and days ------------------------------------------------------------------------------


def nightly():
    """Return three weeks of jobs, nine in ten of them at night, and none on Sundays."""
    rng = np.random.default_rng(2)
    days = rng.choice([0, 1, 2, 3, 4, 5], 6_000) + 7 * rng.integers(0, 3, 6_000)
    hours = np.where(rng.random(6_000) < 0.9, rng.uniform(0, 6, 6_000), rng.uniform(6, 24, 6_000))
    submits_s = np.sort(np.floor(days * 86_400 + hours * 3_600))
    return pl.DataFrame({"submit_s": submits_s}).with_columns(
        job_id=pl.int_range(6_000).cast(pl.String),
        num_gpus=pl.lit(1.0),
        duration_s=pl.lit(600.0),
    )


@pytest.mark.parametrize("load", [0.02, 0.05])
def test_nights_and_sundays_stay_where_they_are_at_any_load(tmp_path, load):
    model = fit(Imported(nightly(), origin="2024-01-01 00:00:00"))  # a Monday
    save_fit(model, tmp_path / "model.json")
    made = drawn(tmp_path / "model.json", jobs=4_000, load=load)
    clock_s = np.array([spec.submit_s for spec in made.specs]) + model.arrivals.starts_s
    assert (clock_s % 86_400 < 6 * 3_600).mean() == pytest.approx(0.9, abs=0.03)
    assert (clock_s % WEEK_S > 6 * 86_400).mean() < 0.02


def test_the_first_submission_is_placed_in_its_week():
    model = fit(Imported(nightly(), origin="2024-01-03 02:00:00"))
    first_s = float(nightly()["submit_s"][0])
    assert model.arrivals.starts_s == 2 * 86_400 + 7_200 + first_s


def test_a_short_trace_has_no_hours_and_days():
    short = nightly().with_columns(pl.col("submit_s") / 20)
    arrivals = fit(Imported(short)).arrivals
    assert arrivals.hours == [1.0] * 24
    assert arrivals.days == [1.0] * 7


def test_the_clock_of_a_week_and_back():
    rates = weekly(
        ArrivalModel(0.0, [0.0] * 6 + [2.0] * 18, [1.0, 1.0, 3.0, 1.0, 1.0, 0.0, 0.5], [])
    )
    moments_s = np.linspace(0, 3 * WEEK_S, 1_001)
    assert rates.mean() == pytest.approx(1.0)
    assert times(expected(moments_s, rates), rates) == pytest.approx(moments_s, abs=1e-3)
    assert expected(np.array([WEEK_S * 2.0]), rates) == pytest.approx(2 * WEEK_S)


# --- the file and the options --------------------------------------------------------------------


def test_the_same_seed_gives_the_same_and_the_load_is_met(tmp_path):
    path = fitted(source(jobs=2_000), tmp_path / "model.json")
    first, again, other = (drawn(path, jobs=1_000, load=1.2, seed=seed) for seed in (1, 1, 2))
    assert first.specs == again.specs
    assert first.behaviours == again.behaviours
    assert first.specs != other.specs
    assert offered_load(first, GPUS) == pytest.approx(1.2, rel=0.01)
    assert all(spec.submit_s % 1 == 0 for spec in first.specs)
    assert first.name == "model-1000-seed1"


def test_a_model_is_read_back_equal_and_small(tmp_path):
    model = fit(Imported(source(jobs=3_000)), source="mine")
    path = tmp_path / "model.json"
    save_fit(model, path)
    assert load_fit(path) == model
    assert path.stat().st_size < 50_000
    with pytest.raises(OutputError, match="is there already"):
        save_fit(model, path)


def test_names_can_be_hidden():
    owners = fit(Imported(nightly().with_columns(user=pl.lit("ann"))), anonymous=True).owners
    assert [(owner.vc, owner.user, owner.jobs) for owner in owners] == [("", "user0", 6_000)]


def test_what_cannot_be_fitted_is_counted():
    odd = nightly().with_columns(
        num_gpus=pl.when(pl.col("job_id") == "3").then(0.0).otherwise(0.5),
        duration_s=pl.when(pl.col("job_id") == "4").then(0.0).otherwise(9.0),
    )
    model = fit(Imported(odd))
    assert model.left_out == {"without GPUs": 1, "no duration": 1}
    assert model.classes[0].sizes == [(0.5, 5_998)]


@pytest.mark.parametrize("frame", [nightly().head(3), nightly().with_columns(submit_s=pl.lit(7.0))])
def test_too_little_to_fit(frame):
    with pytest.raises(TraceError, match="too few to fit"):
        fit(Imported(frame, name="few"))


def damaged(**changes):
    return lambda model: msgspec.structs.replace(model, **changes)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (damaged(rota_fit=2), "has version 2"),
        (damaged(levels=[0.0, 0.5]), "levels do not rise"),
        (damaged(levels=[0.0, 1.0]), "table of quantiles"),
        (damaged(classes=[]), "no sizes"),
        (damaged(owners=[]), "no owners"),
        (lambda m: msgspec.structs.replace(
            m, arrivals=msgspec.structs.replace(m.arrivals, hours=[])), "24 hours"),
        (lambda m: msgspec.structs.replace(
            m, arrivals=msgspec.structs.replace(m.arrivals, correlation=2.0)), "correlation"),
    ],
)  # fmt: skip
def test_a_damaged_model_is_refused(tmp_path, damage, named):
    path = tmp_path / "model.json"
    save_fit(damage(fit(Imported(source(jobs=100)))), path)
    with pytest.raises(TraceError, match=named):
        load_fit(path)


def test_something_else_is_no_model(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(TraceError, match="rota trace fit"):
        load_fit(tmp_path / "other.json")
    with pytest.raises(TraceError, match="nowhere"):
        load_fit(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("fit:a.json", {"file": "a.json"}),
        ("fit:a.json,max_s=9", {"file": "a.json", "max_s": "9"}),
        ("fit:file=a.json,exact=yes", {"file": "a.json", "exact": "yes"}),
        ("fit", {}),
    ],
)
def test_the_file_may_be_named_without_its_key(text, options):
    assert split_kind(text) == ("fit", options)
    assert split_kind("poisson:mean_s=9") == ("poisson", {"mean_s": "9"})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"load": 0.0}, "load=0"),
        ({"jobs": 1}, "jobs=1"),
        ({"max_s": "0"}, "max_s=0"),
        ({"mean_s": "5"}, "unknown parameter 'mean_s'"),
        ({"jobs": 2, "max_s": "1"}, "exact=yes"),
    ],
)
def test_bad_options_are_named(tmp_path, arguments, named):
    path = fitted(source(jobs=100), tmp_path / "model.json")
    with pytest.raises(OptionError, match=named):
        drawn(path, **{"jobs": 50, **arguments})


def test_a_file_and_a_size_that_fits_are_needed(tmp_path):
    with pytest.raises(OptionError, match="file is missing"):
        generate("fit", jobs=5, gpus=1, load=1.0, seed=0, options={})
    path = fitted(source(jobs=100, sizes="8"), tmp_path / "model.json")
    with pytest.raises(OptionError, match="no size up to gpus=4"):
        generate("fit", jobs=5, gpus=4, load=1.0, seed=0, options={"file": str(path)})
