"""Parts of GPUs and types of GPUs on a real daemon that places by fragmentation."""

import json

from rota.daemon.export import Export, write_export

NODES = """
nodes:
  - {name: old, gpus: 2, gpu_type: T4, cpus: 4}
  - {name: new, gpus: 1, gpu_type: V100, cpus: 4}
"""
WHERE = "echo $CUDA_VISIBLE_DEVICES; while [ ! -e {} ]; do sleep 0.05; done"


def test_halves_share_a_gpu_and_types_are_kept_apart(daemons, tmp_path):
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    daemon = daemons("--nodes", str(nodes), "--placement", "fgd", "--check")
    go = daemon.folder / "go"

    def submit(gpus, gpu_type):
        resources = {"gpus": gpus, "cpus": 0.5, "gpu_type": gpu_type}
        return daemon.client.submit({"run": WHERE.format(go), "resources": resources}).id

    running = [submit(0.5, "T4"), submit(0.5, "T4"), submit(0.75, "P100|T4"), submit(1, "V100")]
    for job in running:
        daemon.until(job, "RUNNING")
    waits = submit(0.25, "V100|A100")
    daemon.until(waits, "PENDING")
    assert daemon.client.job(waits).reason == "constraint"  # so much is left of a T4
    assert daemon.client.explain(waits).reason == "constraint"
    never = submit(1, "H100")
    assert "of type H100" in daemon.until(never, "REJECTED").message

    go.touch()
    assert [job.state for job in daemon.all_over()] == ["SUCCEEDED"] * 5 + ["REJECTED"]
    one, other, third, whole, last = (daemon.output(job).strip() for job in [*running, waits])
    assert one == other
    assert third != one
    assert whole == last

    folder = tmp_path / "run"
    folder.mkdir()
    write_export(Export.from_parquet(daemon.client.export(), "daemon"), folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert 0 < summary["frag_amount"] < summary["frag_ratio"] <= 1
