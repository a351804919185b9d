"""How predictable a log is: what is planted is found, and nothing of the future is used."""

import json
import math

import msgspec
import numpy as np
import polars as pl
import pytest

import rota
from rota.cli.app import run
from rota.core.errors import InputError, OptionError
from rota.study.predict.errors import ENOUGH_REPEATS, Repeats, errors_of
from rota.study.predict.history import (
    NEVER_RAN,
    NO_TIME,
    STILL_RAN,
    JobHistory,
    LoggedJob,
    kinds_of,
    read_job_history,
)
from rota.study.predict.predict import (
    NOT_YET,
    REPEATS,
    PredictQuestion,
    foresee_log,
    load_answer,
    predict,
)
from rota.study.predict.predictors import make_predictors
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen

TOLERANCE = 0.06
"""Of a planted spread: three standard errors of one from 2,000 steps between repeats."""


def job(number, submit_s, run_s, *, user="u", name="n", gpus=1.0, estimate_s=math.inf, end_s=None):
    end_s = submit_s + run_s if end_s is None else end_s
    return LoggedJob(number, submit_s, user, name, "", gpus, estimate_s, run_s, end_s)


def planted(count, sigmas, *, seed=0, drift=0.0):
    """Return jobs of some users, each with a spread of its own around a centre for each name."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(math.log(100), math.log(50_000), (len(sigmas), 4))
    jobs = []
    for number in range(count):
        user, name = int(rng.integers(len(sigmas))), int(rng.integers(4))
        centres[user, name] += drift * rng.normal()
        run_s = math.exp(centres[user, name] + sigmas[user] * rng.normal())
        said_s = math.exp(1 + math.log(run_s) + rng.normal())
        jobs.append(
            job(number, 600.0 * number, run_s, user=f"u{user}", name=f"n{name}",
                gpus=float(2**name), estimate_s=said_s)
        )  # fmt: skip
    return jobs


def csv_of(jobs, *, users=True):
    heads = "job_id,submit_s,num_gpus,duration_s,user,name,estimate_s\n"
    return heads + "".join(
        f"{one.number},{one.submit_s:.0f},{one.gpus:g},{one.run_s:.3f},"
        f"{one.user if users else ''},{one.name if users else ''},{one.estimate_s:.0f}\n"
        for one in jobs
    )


def repeats_of(jobs):
    return Repeats(np.array([one.run_s for one in jobs]), kinds_of(jobs))


# --- what nobody can avoid ------------------------------------------------------------------------


@pytest.mark.parametrize("sigmas", [(0.2,), (1.0,), (0.1, 0.4, 1.2)])
def test_the_planted_spread_is_what_nobody_can_avoid(sigmas):
    found = repeats_of(planted(2_000, sigmas)).measure()
    true = math.sqrt(np.mean(np.square(sigmas)))
    assert found.log_error.value == pytest.approx(true, rel=TOLERANCE)
    assert found.log_error.low < true < found.log_error.high
    assert found.share == 1
    assert found.kinds == 4 * len(sigmas)
    if len(sigmas) == 1:  # half of a normal distribution is within 0.6745 standard deviations
        assert math.log(found.median_factor.value) == pytest.approx(0.6745 * true, rel=TOLERANCE)
        assert found.within_2.value == pytest.approx(
            math.erf(math.log(2) / true / math.sqrt(2)), abs=0.03
        )


def test_few_repeats_of_each_kind_hide_nothing():
    """With two of each kind, deviations from their mean are too small by half."""
    rng = np.random.default_rng(1)
    logs = rng.normal(8, 2, 1_500).repeat(2) + 0.7 * rng.normal(size=3_000)
    jobs = [job(i, float(i), math.exp(x), name=f"n{i // 2}") for i, x in enumerate(logs)]
    assert repeats_of(jobs).measure().log_error.value == pytest.approx(0.7, rel=TOLERANCE)


def test_drift_is_not_taken_for_noise():
    steady, drifting = (planted(2_000, (0.3,), drift=drift) for drift in (0.0, 0.2))
    around = np.log([one.run_s for one in drifting])
    found = repeats_of(drifting).measure().log_error.value
    assert found < 0.4 < around.std()
    assert found > repeats_of(steady).measure().log_error.value


def test_what_is_not_known_is_said():
    jobs = [job(i, 10.0 * i, 5.0 + i, name=f"n{i // 2}") for i in range(2 * ENOUGH_REPEATS - 2)]
    found = repeats_of(jobs).measure()
    assert found.log_error is None
    assert found.why_not.startswith(f"only {ENOUGH_REPEATS - 1} jobs repeat an earlier one")
    assert repeats_of(jobs).curve() == []


# --- causality ------------------------------------------------------------------------------------


def foreseen(jobs):
    return foresee_log(JobHistory(jobs, {}, told_ends=True), make_predictors())


def test_nothing_of_the_future_is_used():
    jobs = planted(400, (0.5, 1.0))
    now_s = jobs[250].submit_s
    other = [
        one if one.end_s < now_s else one._replace(run_s=one.run_s * 7, end_s=one.end_s + 1e6)
        for one in jobs[:251]
    ]
    before, after = foreseen(jobs), foreseen(other)
    assert any(one.end_s >= now_s for one in jobs[:250]), "some still run"
    for key, values in before.predicted.items():
        np.testing.assert_array_equal(values[:251], after.predicted[key], err_msg=key)
    assert np.isfinite(before.predicted["lucid"][before.judged]).all()


def test_a_job_is_known_only_after_its_end():
    jobs = [job(0, 0.0, 10.0), job(1, 10.0, 30.0), job(2, 10.5, 5.0), job(3, 99.0, 1.0)]
    found = foreseen(jobs)
    assert found.judged.tolist() == [False, False, True, True]
    assert found.predicted["last"].tolist()[2:] == [10.0, 30.0]
    assert found.predicted["mean"].tolist()[2:] == [10.0, 17.5]
    assert found.predicted["median"].tolist()[2:] == [10.0, 10.0]
    assert found.predicted["qssf"].tolist()[2:] == [10.0, 15.0]


def test_who_has_no_past_is_foreseen_by_others():
    jobs = [
        job(0, 0.0, 10.0, user="a"), job(1, 1.0, 100.0, user="a", gpus=8.0),
        job(2, 500.0, 1.0, user="b", gpus=8.0), job(3, 501.5, 1.0, user="a", gpus=2.0),
    ]  # fmt: skip
    found = foreseen(jobs).predicted
    assert found["median"].tolist()[2:] == [100.0, 10.0], "those of its size, then all"
    assert found["last"].tolist()[2:] == [100.0, 100.0], "anybody's, then its user's"
    assert np.isnan(found["estimate"]).all()


# --- errors ---------------------------------------------------------------------------------------


def test_errors_are_factors():
    true = np.array([10.0, 100.0, 1000.0, 10.0])
    found = errors_of("p", np.array([20.0, 50.0, 1000.0, math.nan]), true)
    assert found.jobs == 3
    assert found.median_factor.value == pytest.approx(2)
    assert found.mean_factor.value == pytest.approx(5 / 3)
    assert found.log_error.value == pytest.approx(math.log(2) * math.sqrt(2 / 3))
    assert found.bias_factor.value == pytest.approx(1)
    assert found.within_2.value == 1
    assert found.spearman.value == pytest.approx(1)
    assert found.median_factor.low is None, "too few for an interval"
    assert errors_of("p", np.ones(4), true).spearman is None


def test_who_says_the_truth_is_the_best(tmp_path):
    jobs = [one._replace(estimate_s=one.run_s) for one in planted(300, (1.0,))]
    (tmp_path / "jobs.csv").write_text(csv_of(jobs).replace(".000", ""))
    answer, table = predict(PredictQuestion(log=str(tmp_path / "jobs.csv")))
    assert answer.best == "estimate"
    assert answer.whole.of("estimate").median_factor.value < 1.01
    assert answer.whole.of("corrected").spearman.value > 0.999
    assert "Half of the run times are predicted within 1.00x (estimate). Their" in answer.verdict
    assert "it knows more than that" in answer.verdict
    assert table.height == 300
    assert table.filter("judged").height == answer.judged


def test_predictors_learn_what_is_there_to_learn(tmp_path):
    (tmp_path / "jobs.csv").write_text(csv_of(planted(1_500, (0.4,))))
    answer, _ = predict(PredictQuestion(log=str(tmp_path / "jobs.csv")))
    errors = {one.predictor: one for one in answer.whole.errors}
    nobody = answer.irreducible
    assert answer.best in ("median", "qssf")
    repeats = next(group for group in answer.groups if group.group == REPEATS)
    for one in repeats.errors:
        assert one.log_error.value > nobody.log_error.value
    assert errors["median"].log_error.value < 1.5 * nobody.log_error.value
    assert errors["corrected"].log_error.value < errors["estimate"].log_error.value
    assert 0.5 < errors["corrected"].bias_factor.value < 1.5 < errors["estimate"].bias_factor.value
    assert [group.told for group in answer.groups] == [
        "all jobs", "jobs that have repeats", "jobs of 1 GPU", "jobs of 2-4 GPUs",
        "jobs of 5-8 GPUs",
    ]  # fmt: skip


# --- what counts ----------------------------------------------------------------------------------


def test_only_jobs_that_ended_count():
    frame = pl.DataFrame(
        {
            "job_id": list("abcde"),
            "submit_s": [0.0, 5.0, 6.0, 7.0, 900.0],
            "num_gpus": [1.0] * 5,
            "duration_s": [10.0, 20.0, 30.0, 0.0, 0.25],
        }
    )
    seen = [Seen(0, 400.0, 410.0), Seen(1, 5.0), Seen(3, 8.0, 8.0), Seen(4, 900.0, 900.25)]
    found = read_job_history(Imported(frame, observed=Observed.of(seen)))
    assert [(one.number, one.end_s, one.run_s) for one in found.jobs] == [
        (0, 410.0, 10.0), (4, 900.25, 1.0),
    ]  # fmt: skip
    assert found.left_out == {STILL_RAN: 1, NEVER_RAN: 1, NO_TIME: 1}
    alone = Imported(frame.head(2), observed=Observed.of(seen[1:2]), name="log")
    with pytest.raises(InputError, match=r"log: no job has a run time \(1 never started, 1 still"):
        read_job_history(alone)
    with pytest.raises(InputError, match=r"^http://cluster:7842: no job has a run time"):
        read_job_history(alone, "http://cluster:7842")


def test_a_short_log_is_not_judged(tmp_path):
    (tmp_path / "jobs.csv").write_text(csv_of(planted(20, (0.5,))))
    question = PredictQuestion(log=str(tmp_path / "jobs.csv"))
    answer, _ = predict(question)
    assert answer.verdict == (
        f"Not known: {answer.judged} jobs could be foreseen from earlier ones, 30 are needed."
    )
    assert answer.left_out == {NOT_YET: 20 - answer.judged}
    with pytest.raises(InputError, match="too few to say what that is worth"):
        predict(msgspec.structs.replace(question, cluster="1x8"))


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Return a log of 300 jobs that have to queue on one node."""
    monkeypatch.chdir(tmp_path)
    jobs = [
        one._replace(submit_s=one.submit_s / 4, estimate_s=3600.0 * (1 + one.number % 5))
        for one in planted(300, (0.3, 0.6))
    ]
    (tmp_path / "jobs.csv").write_text(csv_of(jobs))
    return tmp_path / "jobs.csv"


def asked(capsys, *args):
    code = run(["predict", *map(str, args)])
    return code, capsys.readouterr()


def test_better_knowledge_is_worth_more(log, capsys):
    code, said = asked(capsys, log, "--cluster", "2x8", "--json")
    found = json.loads(said.out)
    worth = found["worth"]
    assert code == 0
    nothing, users, mine, everything = (row["avg_jct_s"] for row in worth["rows"])
    assert [row["knows"] for row in worth["rows"]] == [
        "nothing", "users' estimates", f"predictions of {found['best_order']}", "everything",
    ]  # fmt: skip
    assert everything < mine < nothing
    assert everything < users
    assert worth["gain"] == pytest.approx((nothing - mine) / (nothing - everything))
    assert worth["rows"][0]["ratio"] == 1
    assert worth["rows"][2]["high"] < 1
    assert f"they gain {worth['gain']:.0%} of what there is to gain" in found["verdict"]
    assert found["verdict"] == " ".join(found["sentences"])


def test_files_and_a_page_that_is_made_anew(log, capsys):
    code, said = asked(capsys, log, "-o", "out")
    assert code == 0
    assert "Half of the run times are predicted within" in said.out
    assert "assumed: the log does not tell when jobs ended" in said.err
    folder = log.parent / "out"
    assert sorted(path.name for path in folder.iterdir()) == [
        "predict.csv", "report.html", "summary.json",
    ]  # fmt: skip
    table = pl.read_csv(folder / "predict.csv")
    assert table.columns == [
        "job_id", "submit_s", "gpus", "run_s", "judged", "kind", "repeats", "estimate_s",
        "corrected_s", "last_s", "mean_s", "median_s", "qssf_s", "lucid_s",
    ]  # fmt: skip
    answer = load_answer(folder)
    true, said_s = table["run_s"].to_numpy(), table["estimate_s"].to_numpy()
    chosen = table["judged"].to_numpy()
    off = np.abs(np.log(said_s[chosen] / true[chosen]))
    assert answer.whole.of("estimate").median_factor.value == pytest.approx(
        math.exp(np.median(off)), rel=1e-6
    )
    page = (folder / "report.html").read_bytes()
    assert run(["report", "out"]) == 0
    assert (folder / "report.html").read_bytes() == page
    assert asked(capsys, log, "-o", "out")[0] != 0, "not empty"
    assert asked(capsys, log, "-o", "out", "--force")[0] == 0


def test_names_do_not_matter(log, capsys):
    assert run(["trace", "redact", str(log), "-o", "redacted.csv"]) == 0
    capsys.readouterr()
    known, hidden = (
        json.loads(asked(capsys, name, "--json")[1].out) for name in (log, "redacted.csv")
    )
    for key in ("groups", "irreducible", "verdict", "curves", "left_out"):
        assert known[key] == hidden[key], key
    asked(capsys, log, "-o", "out")
    for name in ("predict.csv", "summary.json"):
        assert "u1" not in (log.parent / "out" / name).read_text(), "no user is named"


def test_an_order_that_nobody_knows_has_no_name(log, capsys):
    rows = (f"{number},{number * 100},{1 + number % 2},50" for number in range(60))
    log.write_text("\n".join(("job_id,submit_s,num_gpus,duration_s", *rows, "")))
    code, said = asked(capsys, log)
    assert code == 0
    assert "order is predictable is not known" in " ".join(said.out.split())
    assert "order" in said.out
    assert "None" not in said.out


def test_mistakes_are_named(log, capsys):
    for args, told in {
        (log, "--cluster", "1x8", "--nodes", "n.txt"): "give one of them",
        (log, "--nodes", "n.txt"): "format 'csv' has no list of nodes: give --cluster instead",
        ("no.csv",): "no.csv: there is no such file",
        (log, "--last", "1"): "Invalid value for '--last'",
    }.items():
        code, said = asked(capsys, *args)
        assert code == 2, args
        assert told in said.err


def test_a_gain_of_some_jobs_says_so(log, capsys):
    rows = log.read_text().splitlines()
    large = rows[0].split(",").index("num_gpus")
    cells = [row.split(",") for row in rows[1:]]
    for row in cells[::3]:
        row[large] = "16"
    log.write_text("\n".join([rows[0], *map(",".join, cells)]) + "\n")
    code, said = asked(capsys, log, "--cluster", "1x8")
    assert code == 0
    ended, of = len(cells) - len(cells[::3]), len(cells)
    assert f"{ended:,} of {of:,} jobs end there" in " ".join((said.out + said.err).split())


def test_a_mean_is_of_two_runs_at_least(log):
    with pytest.raises(OptionError, match="last=0"):
        rota.predict(str(log), last=0)


def test_from_python(log):
    found = rota.predict(pl.read_csv(log), limit=200)
    assert found.verdict == rota.predict(str(log), limit=200).verdict
    assert found.to_polars().height == 200
    assert found.errors.filter(group="all")["predictor"].to_list() == list(found.answer.predictors)
    assert repr(found).startswith(f"<Predictability of {found.answer.judged} jobs: Half of the")
    assert "<table" in found._repr_html_()
    rota.predict(str(log), output="out", cluster="2x8")
    assert (log.parent / "out" / "report.html").exists()
