"""The folds know nothing of the engine: on random runs they must find what its jobs remember."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.jobs import Phase
from rota.metrics import fold_delay, fold_jobs, fold_ledger, fold_summary, read_history
from rota.policies.fifo import Fifo
from rota.policies.srtf import Srtf
from rota.policies.tiresias import Tiresias, TiresiasParams
from rota.testing.scenario import Fixed, Item, Outage, Scenario

STATES = {
    Phase.DONE: "done",
    Phase.FAILED: "failed",
    Phase.REJECTED: "rejected",
    Phase.CANCELLED: "cancelled",
}
POLICIES = [Fifo, Srtf, lambda: Tiresias(TiresiasParams(limits=(6.0, 15.0)))]


@st.composite
def scenarios(draw):
    seconds = st.integers(0, 12)
    items = st.builds(
        Item,
        submit_s=seconds.map(float),
        gpus=st.integers(1, 5),
        work=st.integers(1, 12).map(float),
        fails_at=st.sampled_from([float("inf")] * 4 + [3.0]),
    )
    nodes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    outages = []
    for _ in range(draw(st.integers(0, 2))):
        node = draw(st.integers(0, len(nodes) - 1))
        at_s = float(draw(seconds))
        outages += [Outage(at_s, node, up=False), Outage(at_s + draw(seconds) + 1, node, up=True)]
    return Scenario(
        jobs=tuple(draw(st.lists(items, min_size=1, max_size=8))),
        nodes=tuple(nodes),
        placement=draw(st.sampled_from(["count", "consolidate"])),
        costs=Fixed(
            start_s=draw(st.sampled_from([0.0, 2.0])),
            stop_s=draw(st.sampled_from([0.0, 1.0])),
            lost=draw(st.sampled_from([0.0, 0.5])),
            crash=draw(st.sampled_from([0.0, 1.0])),
        ),
        outages=tuple(outages),
    )


@given(scenario=scenarios(), make=st.sampled_from(POLICIES))
def test_jobs(scenario, make):
    engine = scenario.run(make(), check=False)
    table = fold_jobs(engine.log.frame())

    assert table.height == len(engine.jobs)
    for row, index in zip(table.iter_rows(named=True), sorted(engine.jobs), strict=True):
        job = engine.jobs[index]
        end_s = job.end_s if job.phase in STATES and job.phase != Phase.REJECTED else None
        assert row["job_id"] == job.id
        assert row["state"] == STATES.get(job.phase, "unfinished")
        assert row["first_start_s"] == (job.first_start_s if job.started else None)
        assert row["end_s"] == end_s
        now_s = engine.view.now_s
        assert row["service_gpu_s"] == pytest.approx(job.attained_gpu_s(now_s))
        assert (row["preemptions"], row["migrations"]) == (job.preemptions, job.migrations)
        if end_s is not None:
            assert row["wait_s"] == pytest.approx(row["jct_s"] - job.run_s, abs=1e-9)


@given(scenario=scenarios(), make=st.sampled_from(POLICIES))
def test_the_parts_add_up(scenario, make):
    history = read_history(scenario.run(make(), check=False).log.frame())
    jobs = fold_jobs(history)
    ledger = fold_ledger(history)
    summary = fold_summary(history)

    delays = fold_delay(history)
    assert delays.min(initial=0.0) >= 0
    for row, wait_s in zip(delays, jobs["wait_s"].to_list(), strict=True):
        assert wait_s is None or row.sum() == pytest.approx(wait_s, abs=1e-9)
    assert ledger["useful_gpu_s"] == pytest.approx(jobs["service_gpu_s"].sum())
    assert ledger["capacity_gpu_s"] == pytest.approx(
        ledger["useful_gpu_s"] + ledger["overhead_gpu_s"] + ledger["idle_gpu_s"]
    )
    assert ledger["idle_gpu_s"] >= -1e-6
    assert 0 <= ledger["fragmented_gpu_s"] <= ledger["idle_gpu_s"] + 1e-6
    wait_s = (summary["avg_wait_s"] or 0.0) * summary["completed"]
    assert sum(summary["delay"].values()) == pytest.approx(wait_s, abs=1e-6)
