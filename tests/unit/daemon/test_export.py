"""A run folder from a daemon, on a scripted world."""

import json

import msgspec
import polars as pl
import pytest
from click.testing import CliRunner
from msgspec import structs

from rota.cli.export import _write_folder
from rota.cli.usage import usage
from rota.core.errors import InputError
from rota.core.topology import NodeSpec
from rota.daemon.export import (
    Export,
    ExportCut,
    ExportedJob,
    counts_of,
    export_stored,
    write_export,
)
from rota.daemon.settings import Queue, Scheduling
from rota.daemon.store import StoredJob
from rota.jobfile.model import Checkpoint, GpuRange
from rota.live.inputs import Reconfigured, Submitted
from rota.live.mailbox import PendingCall
from rota.traces.cluster import parse_cluster
from rota.traces.read import read_trace, read_workload
from scripted import ScriptedWorld, job_file, make_loop

WORK_S = {"1": 3.0, "2": 2.0, "3": 1.0, "4": 1.0}


def run(folder, *files, policy="fifo-skip", nodes=(2, 2)):
    """Run these jobs to their end; the loop."""
    world = ScriptedWorld(WORK_S)
    loop = make_loop(folder / "rota.db", world, policy=policy, nodes=nodes)
    loop.go_live()

    def submit():
        loop.journal.accept([StoredJob(i, "me", 0.0, file) for i, file in enumerate(files, 1)])
        return [Submitted(1, len(files))], lambda: None

    loop.mailbox._calls.append(PendingCall(submit))
    loop.step()
    while loop.state.engine.view.active and world.due:
        loop.step()
    return loop


def exported(loop):
    return ExportCut.of(loop).export(loop.store)


@pytest.fixture
def three(tmp_path):
    """Return a loop that ran three jobs."""
    files = [
        job_file(
            1,
            estimate=4,
            queue="a",
            name="one",
            envs={"TOKEN": "hidden"},
            notify=("https://hooks.example.org/hidden",),
        ),
        job_file(GpuRange(1, 4), depends_on=("1",), model="resnet", group="g", priority=3),
        job_file(1, nodes=2),
    ]
    stop = Checkpoint(grace_s=5.0, pre_stop="hidden")
    files[0] = structs.replace(files[0], checkpoint=stop)
    return run(tmp_path, *files)


def test_a_file_holds_the_log_and_what_it_was_made_with(three):
    export = exported(three)
    again = Export.from_parquet(export.parquet(), "here")
    assert again.log.equals(export.log)
    assert again.made == export.made
    assert again.log["event"][-1] == "end"
    assert again.log["other"][-1] == three.state.engine.decisions
    assert [job.file.name for job in again.made.jobs] == ["one", "", ""]
    assert b"hidden" not in export.parquet()
    assert b"hidden" not in msgspec.json.encode(again.made.jobs)
    assert {job.file.run for job in again.made.jobs} == {"-"}


def test_another_file_is_refused(three, tmp_path):
    with pytest.raises(InputError, match="is not the event log of a daemon"):
        Export.from_parquet(b"something else", "there")
    export = exported(three)
    export.log.write_parquet(tmp_path / "plain.parquet")
    with pytest.raises(InputError, match="is not the event log of a daemon"):
        Export.from_parquet((tmp_path / "plain.parquet").read_bytes(), "there")


def test_a_stopped_daemon_says_the_same(three, tmp_path):
    live = exported(three)
    three.close()
    three.store.close()
    stored = export_stored(tmp_path)
    assert stored.log.equals(live.log)
    assert stored.made.jobs == live.made.jobs
    assert stored.made.nodes == live.made.nodes
    assert stored.made.scheduling == live.made.scheduling


def test_what_was_changed_after_the_last_snapshot_is_followed(three, tmp_path):
    more = NodeSpec("late", 8)
    three.reconfigure(Reconfigured(Scheduling(policy="srtf").as_dict(), by="me"))
    three.reconfigure(Reconfigured(nodes=(more,), by="join"))
    three.store.close()  # without a last snapshot, as if it were killed
    made = export_stored(tmp_path).made
    assert made.scheduling.policy == "srtf"
    assert made.nodes[-1] == more
    assert len(made.nodes) == 3


def test_a_folder_without_a_store_is_refused_and_stays_as_it_is(tmp_path):
    with pytest.raises(InputError, match="not the state folder of a daemon"):
        export_stored(tmp_path)
    assert list(tmp_path.iterdir()) == []


def written(export, folder):
    folder.mkdir()
    return write_export(export, folder), json.loads((folder / "manifest.json").read_text())


def test_the_workload_says_what_csv_can_hold(three, tmp_path):
    notes, manifest = written(exported(three), tmp_path / "run")
    jobs = {spec.id: (spec, how) for spec, how in read_workload(str(tmp_path / "run/workload.csv"))}
    assert [how.work for _, how in jobs.values()] == [3.0, 2.0, 1.0]
    assert jobs["1"][0].estimate_s == 4.0
    assert jobs["1"][0].user == "me"
    second = jobs["2"][0]
    assert (second.depends_on, second.model, second.group, second.priority) == (
        ("1",), "resnet", "g", 3,
    )  # fmt: skip
    assert second.request.groups[0].max_count == 4
    assert jobs["3"][0].request.groups[0].count == 2
    assert notes == ["1 jobs asked for several nodes: workload.csv has only how many GPUs"]
    assert manifest["live"]["notes"] == notes
    assert manifest["config"]["cluster"] == "2x2"
    assert not (tmp_path / "run" / "cluster.yaml").exists()


def test_its_log_says_what_the_jobs_were_for_and_sacct_their_limits(three, tmp_path):
    export = exported(three)
    written(export, tmp_path / "run")
    jobs = read_trace(tmp_path / "run", "rota-log").jobs
    assert jobs["name", "group", "model"].rows()[:2] == [("one", "", ""), ("", "g", "resnet")]
    assert jobs["estimate_s"].to_list() == [4.0, None, None]
    made = structs.replace(
        export.made,
        jobs=[
            ExportedJob(1, "me", structs.replace(export.made.jobs[0].file, time_limit="90s")),
            *export.made.jobs[1:],
        ],
    )
    _write_folder(structs.replace(export, made=made), tmp_path / "out", force=False, sacct=True)
    head, *rows = [row.split("|") for row in (tmp_path / "out/sacct.txt").read_text().splitlines()]
    found = [(dict(zip(head, row, strict=True))) for row in rows]
    assert [(row["JobName"], row["TimelimitRaw"]) for row in found] == [
        ("one", "2"), ("2", "UNLIMITED"), ("3", "UNLIMITED"),
    ]  # fmt: skip


def test_usage_asks_the_daemon_where_no_log_is_named(three, monkeypatch):
    asked = []
    export = exported(three)
    monkeypatch.setattr("rota.cli.export.download", lambda *whom: asked.append(whom) or export)
    words = ["--server", "http://127.0.0.1:1", "--by", "group", "-o", "csv"]
    result = CliRunner().invoke(usage, words)
    assert result.exit_code == 0, result.output
    assert asked == [("http://127.0.0.1:1", None)]
    assert [line.split(",")[:2] for line in result.stdout.splitlines()] == [
        ["group", "jobs"], ["(none)", "2"], ["g", "1"],
    ]  # fmt: skip


def test_fragments_are_measured_by_what_was_asked_for(three, tmp_path):
    _, manifest = written(exported(three), tmp_path / "run")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert manifest["fragments"]["nodes"] == "0x2"
    assert manifest["fragments"]["kinds"] == [{"gpus": 2, "gpu_type": "", "cpus": 0.0}]
    assert [(job["gpus"], job["share"]) for job in manifest["fragments"]["jobs"]] == [
        (1, pytest.approx(2 / 3)),
        (2, pytest.approx(1 / 3)),
    ]
    assert 0 < summary["frag_amount"] < summary["frag_ratio"] < 1


def test_jobs_that_never_ran_or_did_not_finish_are_told(tmp_path):
    loop = run(tmp_path, job_file(1), job_file(4, hold=True), job_file(1, depends_on=("2",)))
    notes, _ = written(exported(loop), tmp_path / "run")
    assert notes == ["2 jobs never ran: left out of workload.csv"]
    assert [spec.id for spec, _ in read_workload(str(tmp_path / "run/workload.csv"))] == ["1"]


def test_machines_and_queues_that_a_short_text_cannot_say_become_a_file(three, tmp_path):
    export = exported(three)
    nodes = [
        NodeSpec("big", 8, "a100", 64.0, 512.0, ("r0",), ("fast",)),
        NodeSpec("login", 0, cpus=8.0, path=("r1",)),
    ]
    queues = (Queue("research", quota=4.0), Queue("vision", "research", 1.0, 6.0, 2.0))
    made = msgspec.structs.replace(
        export.made, levels=["rack"], nodes=nodes, scheduling=Scheduling(queues=queues)
    )
    _, manifest = written(Export(export.log, made), tmp_path / "run")
    assert manifest["config"]["cluster"] == "cluster.yaml"
    topology, tenants = parse_cluster(str(tmp_path / "run" / "cluster.yaml"))
    assert list(topology.specs) == nodes
    assert list(topology.levels) == ["rack"]
    assert [(t.name, t.parent, t.quota, t.limit, t.weight) for t in tenants] == [
        ("research", "", 4.0, float("inf"), 1.0),
        ("vision", "research", 1.0, 6.0, 2.0),
    ]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], ""),
        ([NodeSpec("n0", 8)], "1x8"),
        ([NodeSpec("n0", 8, "v100"), NodeSpec("n1", 8, "v100"), NodeSpec("n2", 4)], "2x8:v100+1x4"),
        ([NodeSpec("n0", 8), NodeSpec("n1", 0)], ""),
    ],
)
def test_nodes_as_a_short_text(nodes, text):
    assert counts_of(nodes) == text


def test_the_log_carries_its_version(three, tmp_path):
    written(exported(three), tmp_path / "run")
    notes = pl.read_parquet_metadata(tmp_path / "run" / "events.parquet")
    assert notes["rota_schema"] == "1"
