"""A daemon with 10,000 and 50,000 queued jobs on 1,000 declared nodes (see benchmarks/load.py)."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "load.py"


@pytest.fixture(scope="module")
def load():
    spec = importlib.util.spec_from_file_location("load", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Processor time of the daemon, which other work on the machine hardly changes: what one core has
# for each of 200 submissions in a second, and of 3,000 in bulk; and for a decision, a list, and a
# start after kill -9.
MOST = {
    "single_job_cpu_ms": 1000 / 200,
    "bulk_job_cpu_ms": 1000 / 3000,
    "decision_cpu_ms": 50,
    "list_cpu_ms": 100,
    "ready_after_kill_cpu_ms": 3000,
}


@pytest.mark.soak
@pytest.mark.parametrize(("jobs", "times"), [(10_000, 1), (50_000, 2)])
def test_many_jobs_on_a_thousand_nodes(load, jobs, times, tmp_path, monkeypatch, record_property):
    monkeypatch.setenv("ROTA_STATE", "")  # restored afterwards: the benchmark sets it
    found = load.measure(jobs, 1_000, "tiresias", tmp_path / "state", settle_s=1.0)
    record_property("latency", ", ".join(f"{name} {found[name]:.1f}" for name in found))
    assert found["pending"] > 0.8 * jobs
    assert found["running"] > 1_000
    assert found["memory_mib"] < 1024
    assert {name: found[name] for name, most in MOST.items() if found[name] > most * times} == {}
