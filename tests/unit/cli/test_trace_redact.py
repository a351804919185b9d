"""`rota trace redact`."""

import json
import re

import polars as pl

from rota.core.topology import NodeSpec
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.read import read_trace
from rota.traces.schema import CAPACITY, NODE_DOWN, events_frame
from rota.traces.tools.convert import convert
from rota.traces.tools.redact import redact

SECRET = re.compile("ann|bob|vision|speech|zeta|rack|gpu-a|lab|oops|resnet", re.IGNORECASE)
JOBS = pl.DataFrame({
    "job_id": ["zeta-1", "zeta-2", "zeta-3"],
    "submit_s": [0.0, 5.0, 9.0],
    "num_gpus": [1.0, 2.0, 4.0],
    "duration_s": [60.0, 70.0, 80.0],
    "vc": ["vision/lab", "speech", "vision"],
    "user": ["ann", "bob", "ann"],
    "name": ["zeta train", "", "zeta train"],
    "model": ["resnet", "", "resnet"],
    "partition": ["gpu-a", "", "gpu-a"],
    "labels": [["gpu-a"], [], ["gpu-a"]],
    "depends_on": [[], ["zeta-1"], ["zeta-2", "zeta-1"]],
    "gpu_type": [["v100"], [], []],
})  # fmt: skip


def told():
    """A trace that has names in every place."""
    return Imported(
        JOBS,
        observed=Observed.of([Seen(0, 1.0, 61.0, ("rack1-n1",), (1.0,), "done")]),
        events=events_frame([
            (3.0, CAPACITY, "vision", 8.0, "oops"), (4.0, NODE_DOWN, "rack1-n1", 0.0, "oops"),
        ]),
        cluster=[NodeSpec("rack1-n1", 8, "v100", path=("rack1",), labels=("gpu-a",))],
        name="lab",
        notes=["a note about ann"],
    )  # fmt: skip


def test_the_same_name_is_replaced_by_the_same_everywhere():
    made, names = redact(told(), models=True)
    jobs = made.jobs
    assert jobs["job_id"].to_list() == ["1", "2", "3"]
    assert jobs["depends_on"].to_list() == [[], ["1"], ["2", "1"]]
    assert jobs["user"].to_list() == ["user-1", "user-2", "user-1"]
    assert jobs["vc"].to_list() == ["queue-1/queue-2", "queue-3", "queue-1"]
    assert jobs["name"].to_list() == ["name-1", "", "name-1"]
    assert jobs["partition"].to_list() == ["label-1", "", "label-1"]
    assert jobs["labels"].to_list() == [["label-1"], [], ["label-1"]]
    assert made.observed.rows()[0].nodes == ("node-1",)
    assert made.events["subject"].to_list() == ["queue-1", "node-1"]
    (node,) = made.cluster
    assert (node.name, node.labels, node.gpus) == ("node-1", ("label-1",), 8)
    assert names["user"] == {"ann": "user-1", "bob": "user-2"}
    kept = ["submit_s", "num_gpus", "duration_s", "gpu_type"]
    assert jobs.select(kept).equals(told().jobs.select(kept))


def test_no_name_is_left_in_what_is_written(tmp_path, rota):
    convert(told(), tmp_path / "lab")
    out, secret = tmp_path / "given", tmp_path / "secret.json"
    call = ("trace", "redact", str(tmp_path / "lab"), "--models", "--names", str(secret), "-o")
    code, _, err = rota(*call, str(out))
    assert code == 0, err
    assert json.loads(secret.read_text())["queue"]["speech"] == "queue-3"
    assert secret.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(
        path.name for path in (tmp_path / "lab").iterdir()
    )
    for path in out.iterdir():
        text = path.read_text() if path.suffix != ".parquet" else str(pl.read_parquet(path).rows())
        assert not SECRET.search(text.replace("label", "")), path.name
    assert read_trace(out).jobs["user"].to_list() == ["user-1", "user-2", "user-1"]
    code, _, err = rota(*call, str(tmp_path / "again"))
    assert code == 2
    assert "secret.json: is there already" in err
    assert not (tmp_path / "again").exists()


def test_names_and_trace_are_written_both_or_neither(tmp_path, rota):
    convert(told(), tmp_path / "lab")
    before = set(tmp_path.iterdir())
    for names, out in (("none/secret.json", "given"), ("secret.json", "none/given.txt")):
        words = ("--names", str(tmp_path / names), "-o", str(tmp_path / out))
        assert rota("trace", "redact", str(tmp_path / "lab"), *words)[0] == 1
        assert set(tmp_path.iterdir()) == before


def test_models_stay_unless_asked():
    assert redact(told())[0].jobs["model"].to_list() == ["resnet", "", "resnet"]
