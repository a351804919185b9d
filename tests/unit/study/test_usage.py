"""GPU-hours by whom, when and at what price: they add up to what the log holds."""

import math
from datetime import date

import polars as pl
import pytest
from click.testing import CliRunner

from rota.cli.usage import usage as command
from rota.core.errors import OptionError
from rota.core.topology import NodeSpec
from rota.study.run import simulate
from rota.study.usage import UsageQuestion, fold_usage, over_budget
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.read import read_trace

HOUR = 3_600.0


def history(origin="2026-03-31 20:00:00"):
    """Return two users' jobs: one over the end of a month, one preempted, one that still runs."""
    jobs = pl.DataFrame(
        {
            "job_id": ["a", "b", "c"],
            "submit_s": [0.0, 0.0, 0.0],
            "num_gpus": [4.0, 2.0, 1.0],
            "duration_s": [8 * HOUR, 3 * HOUR, 10 * HOUR],
            "vc": ["vision", "speech", "vision"],
            "user": ["ann", "bob", ""],
            "gpu_type": [["a100"], [], []],
        }
    )
    seen = [
        Seen(0, 0.0, 8 * HOUR),
        Seen(1, 0.0, 1 * HOUR, ("v1",), (2.0,)),
        Seen(1, 2 * HOUR, 4 * HOUR, ("v1",), (2.0,), attempt=1),
        Seen(2, 0.0, None),
    ]
    cluster = [NodeSpec("v1", 4, "v100")]
    return Imported(jobs, observed=Observed.of(seen), cluster=cluster, origin=origin)


def hours(found, *by):
    return {tuple(row[key] for key in by): row["gpu_h"] for row in found.to_dicts()}


def test_every_gpu_hour_that_was_held_counts_once():
    found = fold_usage(history(), UsageQuestion())
    assert hours(found, "user") == {("ann",): 32.0, ("bob",): 6.0, ("(none)",): 10.0}
    assert found["share"].sum() == pytest.approx(1.0)
    assert dict(zip(found["user"], found["attempts"], strict=True))["bob"] == 2


def test_an_attempt_over_midnight_is_divided():
    found = fold_usage(history(), UsageQuestion(by=("queue", "month")))
    assert hours(found, "queue", "month") == {
        ("vision", "2026-03"): 16.0 + 4.0,
        ("vision", "2026-04"): 16.0 + 6.0,
        ("speech", "2026-03"): 6.0,
    }
    by_day = fold_usage(history(), UsageQuestion(by=("day",)))
    assert hours(by_day, "day") == {("2026-03-31",): 26.0, ("2026-04-01",): 22.0}


def test_only_what_lies_between_two_days_counts():
    found = fold_usage(history(), UsageQuestion(by=("user",), since=date(2026, 4, 1)))
    assert hours(found, "user") == {("ann",): 16.0, ("(none)",): 6.0}
    found = fold_usage(history(), UsageQuestion(by=("user",), until=date(2026, 4, 1)))
    assert found["gpu_h"].sum() == 26.0


def test_prices_are_those_of_the_gpus_that_were_held():
    prices = (("", 1.0), ("a100", 3.0), ("v100", 2.0))
    found = fold_usage(history(), UsageQuestion(by=("job",), prices=prices))
    assert dict(zip(found["job"], found["cost"], strict=True)) == {"a": 96.0, "b": 12.0, "c": 10.0}


def test_gpus_without_a_price_are_named():
    typed = history()
    typed.jobs = typed.jobs.filter(pl.col("job_id") != "c")
    asked = UsageQuestion(prices=(("v100", 2.0),))
    with pytest.raises(OptionError, match=r"type a100 have no price: add --price a100=PRICE or"):
        fold_usage(typed, asked)
    free = UsageQuestion(prices=(("v100", 2.0), ("a100", 0.0)))
    assert fold_usage(typed, free)["cost"].sum() == 12.0


@pytest.mark.parametrize(
    ("question", "origin", "message"),
    [
        ({"by": ("usr",)}, "", "--by usr: unknown; there are: user, queue"),
        ({"by": ("month",)}, "12 s", "does not tell its date"),
        ({"prices": (("a100", 3.0),)}, "", "v100 and of a type that the log does not tell have no"),
        ({"since": date(2027, 4, 1), "by": ("month",)}, "2026-03-31", "nothing ran between"),
        ({"since": date(2026, 4, 1), "until": date(2026, 4, 1)}, "2026-03-31", "nothing lies"),
    ],
)
def test_questions_without_an_answer_are_refused(question, origin, message):
    with pytest.raises(OptionError, match=message):
        fold_usage(history(origin), UsageQuestion(**question))


def test_the_sum_is_that_of_the_ledger(config, tmp_path):
    result = simulate(config(policy="srtf"))
    result.log.write_parquet(tmp_path / "events.parquet")
    found = fold_usage(read_trace(tmp_path, "rota-log"), UsageQuestion(by=("queue",)))
    served = dict(result.jobs.group_by("tenant").agg(pl.col("service_gpu_s").sum()).iter_rows())
    for (queue,), gpu_h in hours(found, "queue").items():
        assert math.isclose(gpu_h * HOUR, served[queue], abs_tol=1e-6)


def test_the_command_prints_a_table_and_a_csv(trace, config, tmp_path):
    simulate(config()).log.write_parquet(tmp_path / "events.parquet")
    words = [str(tmp_path), "--format", "rota-log", "--by", "queue", "--price", "2"]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    assert "GPU-hours" in result.output
    result = CliRunner().invoke(command, [*words, "-o", "csv"])
    assert result.stdout.splitlines()[0] == "queue,jobs,attempts,gpu_h,cost,share"
    result = CliRunner().invoke(command, [*words, "--budget", "nosuch=5"])
    assert result.exit_code == 0, result.output
    assert "nosuch: used nothing: is it the right name?" in result.stderr
    result = CliRunner().invoke(command, [*words, "--budget", "nosuch=-5"])
    assert "--budget 'nosuch=-5' is not understood: write NAME=GPU_H" in str(result.exception)


def test_what_a_log_does_not_name_is_said(trace, config, tmp_path):
    simulate(config()).log.write_parquet(tmp_path / "events.parquet")
    result = CliRunner().invoke(command, [str(tmp_path), "--format", "rota-log", "--by", "user"])
    assert result.exit_code == 0, result.output
    assert "--by user: this log names no user of any job" in result.stderr
    assert "what it names: queue" in result.stderr


def test_budgets_warn_and_shares_of_a_period_add_up():
    question = UsageQuestion(by=("queue", "month"), budgets=(("vision", 30.0), ("speech", 100.0)))
    found = fold_usage(history(), question)
    for month in found["month"].unique():
        of_month = found.filter(pl.col("month") == month)
        assert of_month["period_share"].sum() == pytest.approx(1.0)
    assert (found["left"] == found["budget"] - found["gpu_h"]).all()
    whole = fold_usage(history(), UsageQuestion(by=("queue",), budgets=(("vision", 42.0),)))
    assert over_budget(whole) == [("vision: 42.0 of 42.0 GPU-hours are used (100%)", False)]
    less = fold_usage(history(), UsageQuestion(by=("queue",), budgets=(("vision", 41.0),)))
    assert [exceeded for _, exceeded in over_budget(less)] == [True]
    with pytest.raises(OptionError, match="--budget needs one key"):
        fold_usage(history(), UsageQuestion(by=("queue", "user"), budgets=(("vision", 1.0),)))


@pytest.mark.parametrize(
    ("option", "value", "example"),
    [("--month", "2026-13", "2026-03"), ("--since", "1.3.2026", "2026-03-01")],
)
def test_an_error_shows_how_a_day_is_written(option, value, example):
    done = CliRunner().invoke(command, [option, value])
    assert done.exit_code == 2
    assert f"'{value}' is not in the calendar: write {example}\n" in done.output
