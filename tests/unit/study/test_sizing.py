"""How many nodes: the search equals trying every size, and the answer says how far to trust it."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from rota.cli.plan import plan as command
from rota.cli.simulate import simulate as simulation
from rota.core.errors import OptionError
from rota.study.config import RunConfig
from rota.study.replay.replay import Asked, replay
from rota.study.replay.sizing import (
    NEVER_S,
    PlanQuestion,
    ServiceTarget,
    parse_price,
    plan,
)
from rota.study.run import simulate

NODES = 4


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Return the log of a cluster of 4 nodes under fifo-skip, as users have it."""
    folder = tmp_path_factory.mktemp("history")
    rng = np.random.default_rng(3)
    jobs = 400
    gpus = rng.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1])
    pl.DataFrame(
        {
            "job_id": np.arange(jobs),
            "submit_s": np.cumsum(rng.exponential(300, jobs)).round(),
            "num_gpus": gpus,
            "duration_s": rng.lognormal(7.5, 1, jobs).round(),
            "vc": rng.choice(["vision", "speech"], jobs),
        }
    ).write_csv(folder / "jobs.csv")
    words = [
        folder / "jobs.csv", "--cluster", f"{NODES}x8", "--policy", "fifo-skip",
        "-o", folder / "run",
    ]  # fmt: skip
    result = CliRunner().invoke(simulation, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.fixture
def replayed(history, tmp_path):
    """Return the history, replayed under the policy that made it."""
    asked = Asked(log=str(history), cluster=f"{NODES}x8", model="fifo-skip")
    return replay(asked, tmp_path, tmp_path)


def waits_at(replayed, nodes):
    """Return the waits on so many nodes, by a run of its own."""
    config = RunConfig(
        trace=replayed.asked.log, format=replayed.asked.format, cluster=f"{nodes}x8",
        policy="fifo-skip",
    )  # fmt: skip
    return simulate(config).jobs["wait_s"].fill_null(NEVER_S).to_numpy()


@pytest.mark.parametrize("text", ["p95 wait < 30m", "mean wait < 5m", "p95 wait < 6h"])
def test_the_answer_is_that_of_trying_every_size(replayed, tmp_path, text):
    target = ServiceTarget.parse(text)
    answer = plan(PlanQuestion(target=target), replayed, tmp_path, workers=1)
    (found,) = answer.shapes
    statistic = target.of()
    met = {
        nodes - NODES: target.met(float(statistic(waits_at(replayed, nodes)[None, :])[0]))
        for nodes in range(1, 12)
    }
    assert met[found.nodes]
    assert not met.get(found.nodes - 1, False)
    assert found.nodes == min(size for size, good in met.items() if good)
    assert found.low <= found.nodes <= found.high
    assert len(found.sizes) < len(met)


def test_jobs_that_no_longer_fit_wait_for_ever(replayed, tmp_path):
    target = ServiceTarget("p99", "wait", 1e9)
    answer = plan(PlanQuestion(target=target, shapes=("8",)), replayed, tmp_path, workers=1)
    (found,) = answer.shapes
    assert found.nodes == 1 - NODES  # jobs of 8 GPUs need one node
    assert "3 fewer nodes" in answer.sentence(found)


def test_the_shape_that_costs_least_is_named(replayed, tmp_path):
    question = PlanQuestion(
        target=ServiceTarget.parse("p95 wait < 30m"), shapes=("8", "16"), prices=(("", 2.0),)
    )
    answer = plan(question, replayed, tmp_path, workers=1)
    costs = {one.shape: one.nodes * one.gpus * 2.0 * 720 for one in answer.shapes}
    assert {one.shape: one.price_per_month for one in answer.shapes} == costs
    assert answer.best.shape == min(costs, key=costs.get)


def test_only_the_jobs_that_are_named_count(replayed, tmp_path):
    question = PlanQuestion(target=ServiceTarget.parse("mean wait < 5m"), tenant="vision")
    answer = plan(question, replayed, tmp_path, workers=1)
    mine = (replayed.imported.jobs["vc"] == "vision").to_numpy()
    waits = waits_at(replayed, NODES)[mine]
    assert answer.shapes[0].at(0).value_s == pytest.approx(waits.mean())
    assert answer.observed_s == pytest.approx(waits.mean())


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"tenant": "visoin"}, "did you mean 'vision'"),
        ({"partition": "gpu"}, "--partition gpu: no job is of it"),
        ({"shapes": ("8", "8")}, "the same one twice"),
        ({"shapes": ("8x8",)}, "write GPUs of a node"),
        ({"shapes": ("8@gpu",)}, "no partition 'gpu'"),
    ],
)
def test_questions_that_cannot_be_meant_are_refused(replayed, tmp_path, question, message):
    asked = PlanQuestion(target=ServiceTarget.parse("mean wait < 5m"), **question)
    with pytest.raises(OptionError, match=message):
        plan(asked, replayed, tmp_path, workers=1)


@pytest.mark.parametrize("text", ["p95 wait", "p95 wait < 1", "max wait < 1h", "wait < 1h", ""])
def test_a_target_that_is_not_understood_is_refused(text):
    with pytest.raises(OptionError, match="p95 wait < 1h"):
        ServiceTarget.parse(text)


def test_no_time_is_below_zero():
    with pytest.raises(OptionError, match="no time is below 0: write <= 0s"):
        ServiceTarget.parse("p95 wait < 0h")
    assert ServiceTarget.parse("p95 wait <= 0h").met(0.0)


def test_a_price_of_other_gpus_is_warned_of(replayed, tmp_path):
    question = PlanQuestion(target=ServiceTarget.parse("mean wait < 5m"), prices=(("h900", 2.0),))
    answer = plan(question, replayed, tmp_path, workers=1)
    assert answer.shapes[0].price_per_month is None
    assert any("no --price is that of the GPUs of 8" in warning for warning in answer.warnings)


def test_targets_and_prices_are_read():
    assert ServiceTarget.parse("P95 Wait<=1.5h") == ServiceTarget("p95", "wait", 5400.0, True)
    assert ServiceTarget.parse("median jct < 2 d").describe() == "median JCT < 2d 00h"
    assert parse_price("a100=2.5") == ("a100", 2.5)
    with pytest.raises(OptionError, match=r"a100=2\.5"):
        parse_price("a100")


def test_the_command_answers_in_a_sentence(history, tmp_path):
    out = tmp_path / "plan"
    result = CliRunner().invoke(
        command,
        [str(history), "--cluster", f"{NODES}x8", "--model", "fifo-skip", "--target",
         "p95 wait < 30m", "--jobs", "1", "-o", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    facts = json.loads((out / "plan.json").read_text())
    (shape,) = facts["shapes"]
    assert facts["trusted"]
    assert f"{shape['nodes']} more nodes of 8 GPUs" in result.output
    assert shape["sentence"] in result.output
    assert shape["sentence"][1:] in (out / "plan.html").read_text().replace("&lt;", "<")
    assert pl.read_csv(out / "plan.csv").height == len(shape["sizes"])
