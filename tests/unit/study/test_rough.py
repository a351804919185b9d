"""Failures of nodes and wrong estimates."""

import msgspec
import numpy as np
import pytest

from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.study.config import EstimateError, RunConfig
from rota.study.rough import draw_beliefs, draw_outages, failure_horizon_s
from rota.study.run import simulate

HOUR_S = 3600.0


def workload(work_s=100 * HOUR_S, count=10):
    specs = [JobSpec(str(i), i * HOUR_S, Request.of(2)) for i in range(count)]
    return Workload(specs, [Behaviour(work_s)] * count)


def outages(nodes=50, seed=1, mtbf_h=20.0, mttr_h=2.0):
    topology = Topology.uniform(nodes, 8)
    return draw_outages(topology, workload(), mtbf_h=mtbf_h, mttr_h=mttr_h, seed=seed)


def test_every_node_goes_down_and_up_in_turn():
    by_node = {}
    for time_s, kind, node in outages():
        by_node.setdefault(node.name, []).append((time_s, kind))
    for history in by_node.values():
        assert [kind for _, kind in history] == [NODE_DOWN, NODE_UP] * (len(history) // 2)
        assert history == sorted(history)


def test_times_are_exponential_with_the_means_that_were_asked_for():
    down_s, up_s = [], []
    found = outages()
    for node in {node.name for _, _, node in found}:
        times = [time_s for time_s, _, other in found if other.name == node]
        gaps = np.diff([0.0, *times])
        up_s += gaps[0::2].tolist()
        down_s += gaps[1::2].tolist()

    assert np.mean(up_s) == pytest.approx(20 * HOUR_S, rel=0.15)
    assert np.mean(down_s) == pytest.approx(2 * HOUR_S, rel=0.15)


def test_the_same_seed_gives_the_same_failures_and_other_nodes_do_not_matter():
    def of_first(found):
        return [(time_s, kind) for time_s, kind, node in found if node.name == "n0"]

    horizon_s = failure_horizon_s(Topology.uniform(50, 8), workload())
    few = [(t, k) for t, k in of_first(outages(nodes=3)) if t < horizon_s]
    assert of_first(outages()) == of_first(outages())
    assert of_first(outages()) == few[: len(of_first(outages()))]
    assert of_first(outages(seed=2)) != of_first(outages())


def test_failures_end_so_that_every_run_ends():
    horizon_s = failure_horizon_s(Topology.uniform(50, 8), workload())

    downs = [time_s for time_s, kind, _ in outages() if kind == NODE_DOWN]
    assert max(downs) < horizon_s
    assert horizon_s == 9 * HOUR_S + 2 * 10 * 2 * 100 * HOUR_S / 400 + 10 * 100 * HOUR_S


def test_rounds_too_short_for_the_time_that_jobs_take_are_refused(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,100\n")
    config = RunConfig(trace=str(trace), cluster="1x1", policy="fifo", round="1e-9")
    with pytest.raises(OptionError, match=r"round 1e-09 s is too short .* give 1e-07 s or more"):
        simulate(config)
    config = msgspec.structs.replace(config, round="1e-3")
    assert simulate(config).jobs["first_start_s"].to_list() == [0]


@pytest.mark.parametrize(("mtbf_h", "told"), [(0.02, True), (1000.0, False)])
def test_a_run_that_lasts_longer_than_failures_were_drawn_says_so(mtbf_h, told, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,3600\n")
    config = RunConfig(trace=str(trace), cluster="1x1", policy="fifo", mtbf=mtbf_h, mttr=1.0)
    found = [text for text in simulate(config).warnings if "no failures are drawn" in text]
    assert bool(found) == told
    if told:
        assert "after 12h 00m (mtbf 0.02 h), but 1 of 1 jobs ended later" in found[0]


@pytest.mark.parametrize(("mtbf_h", "mttr_h"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0)])
def test_senseless_times_are_refused(mtbf_h, mttr_h):
    with pytest.raises(OptionError, match="hours above 0"):
        outages(mtbf_h=mtbf_h, mttr_h=mttr_h)


def test_absurdly_many_failures_are_refused():
    with pytest.raises(OptionError, match="give more"):
        outages(mtbf_h=1e-7, mttr_h=1e-7)


def test_without_error_nothing_is_believed_wrongly():
    assert draw_beliefs(EstimateError(), 10, 1) is None


def test_a_bias_alone_is_the_same_for_all():
    belief = draw_beliefs(EstimateError(bias=0.25), 10, 1)

    assert {belief(i) for i in range(10)} == {1.25}


def test_factors_have_the_mean_and_variation_that_were_asked_for():
    belief = draw_beliefs(EstimateError(cv=0.5, bias=0.1), 50_000, 1)
    factors = np.array([belief(i) for i in range(50_000)])

    assert factors.mean() == pytest.approx(1.1, rel=0.02)
    assert factors.std() / factors.mean() == pytest.approx(0.5, rel=0.03)
    assert factors.min() > 0


def test_the_factor_of_a_job_depends_on_the_seed_and_its_number_only():
    few, many = (draw_beliefs(EstimateError(cv=1.0), count, 7) for count in (5, 500))
    other = draw_beliefs(EstimateError(cv=1.0), 5, 8)

    assert [few(i) for i in range(5)] == [many(i) for i in range(5)]
    assert few(0) != other(0)
