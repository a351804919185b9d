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


def test_ten_thousand_jobs_on_a_thousand_nodes(load, tmp_path, monkeypatch, record_property):
    monkeypatch.setenv("ROTA_STATE", "")  # restored afterwards: the benchmark sets it
    found = load.measure(10_000, 1_000, "tiresias", tmp_path / "state", settle_s=1.0)
    record_property("latency", ", ".join(f"{name} {found[name]:.1f}" for name in found))
    assert found["pending"] > 8_000
    assert found["running"] > 1_000
    assert found["bulk_jobs_per_s"] >= 500
    assert found["single_jobs_per_s"] >= 100
    assert found["decision_p99_ms"] < 250
    assert found["memory_mib"] < 1024
