"""The small languages of the options."""

import math

import pytest

from rota.core import events as ev
from rota.core.errors import OptionError
from rota.study.config import (
    EstimateError,
    RunConfig,
    parse_estimate_error,
    parse_rounds,
)


def test_rounds_by_default_wait_for_the_boundary():
    rounds = parse_rounds("300")

    assert rounds.wake.every_s == 300
    assert rounds.wake.on == frozenset()
    assert rounds.finish_round_s == 0


def test_rounds_with_switches():
    rounds = parse_rounds("60,refill=yes,arrivals=now,finish=boundary")

    assert rounds.finish_round_s == 60
    assert ev.JOB_SUBMIT in rounds.wake.on
    assert ev.JOB_DONE in rounds.wake.on


def test_refilling_does_not_look_at_arrivals():
    assert ev.JOB_SUBMIT not in parse_rounds("60,refill=yes").wake.on


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "inf", "nan", "abc", "60,finish=later", "60,arrivals=soon", "60,refil=yes",
     "60,refill", "60,refill=maybe"],
)  # fmt: skip
def test_rounds_that_are_not_understood(text):
    with pytest.raises(OptionError, match="round"):
        parse_rounds(text)


def test_estimate_errors():
    assert parse_estimate_error("cv=0.5,bias=0.1") == EstimateError(0.5, 0.1)
    assert parse_estimate_error("bias=-0.5") == EstimateError(0.0, -0.5)


def test_the_lognormal_has_the_mean_and_the_variation_that_were_asked_for():
    error = EstimateError(cv=0.5, bias=0.1)
    mean = math.exp(error.mu + error.sigma**2 / 2)

    assert mean == pytest.approx(1.1)
    assert math.sqrt(math.exp(error.sigma**2) - 1) == pytest.approx(0.5)


@pytest.mark.parametrize("text", ["", "0.5", "cv=-1", "bias=-1", "cv=x", "cw=1", "cv=inf"])
def test_estimate_errors_that_are_not_understood(text):
    with pytest.raises(OptionError, match="estimate-error"):
        parse_estimate_error(text)


def test_a_configuration_survives_being_plain_data():
    config = RunConfig(trace="t", cluster="1x1", policy="fifo", seed=3, mtbf=2.5, check=True)

    assert RunConfig.from_dict(config.as_dict()) == config
    assert config.as_dict() == {
        "trace": "t", "cluster": "1x1", "policy": "fifo", "seed": 3, "mtbf": 2.5, "check": True,
    }  # fmt: skip
