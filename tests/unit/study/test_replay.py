"""`rota replay`: what happened beside what would have."""

import json
import runpy
from time import process_time

import polars as pl
import pytest
from click.testing import CliRunner

from own_formats import DAY, HEADER, NODES, line
from rota.cli.replay import replay as command
from rota.core.errors import OptionError, TraceError
from rota.core.topology import NodeSpec
from rota.report.replay import html
from rota.study.pool import each
from rota.study.replay import replay as replay_module
from rota.study.replay.changes import ReplayChanges, changed, parse_quota
from rota.study.replay.replay import Asked, replay
from rota.study.rerun import rerun
from rota.traces.cluster import parse_cluster
from shared_data import CHECKOUT

MAKER = CHECKOUT / "examples" / "replay" / "make_history.py"
SPEED_CPU_S = 10.0


@pytest.fixture
def log(tmp_path):
    """Return a log of three jobs on n1 (4 GPUs): strictly one after the other; n2 was idle."""
    lines = [
        line("1", **span(0, 0, 100), **asks(4)),
        line("2", **span(10, 100, 200), **asks(4), User="bob", Account="speech"),
        line("3", **span(20, 200, 220), **asks(1), Account="speech"),
    ]
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    return tmp_path


def span(submit, start, end):
    times = {
        "Submit": submit, "Eligible": submit, "Start": start, "End": end,
    }  # fmt: skip
    clock = {key: f"{DAY}08:{s // 60:02d}:{s % 60:02d}" for key, s in times.items()}
    return {**clock, "ElapsedRaw": str(end - start)}


def asks(gpus):
    tres = f"cpu={gpus},gres/gpu={gpus},mem={gpus}G,node=1"
    return {"ReqTRES": tres, "AllocTRES": tres}


def run(log, out="out", workers=1, **options):
    out = log / out
    out.mkdir()
    defaults = {"nodes": str(log / "nodes.txt"), "policies": ("fifo",), "model": "fifo"}
    asked = Asked(log=str(log / "jobs.txt"), **{**defaults, **options})
    return replay(asked, out, out, workers=workers)


def waits(answer, by="all", group="all"):
    rows = answer.table.filter((pl.col("by") == by) & (pl.col("group") == group))
    return dict(rows.select("schedule", "mean_wait_s").rows())


def test_the_observed_schedule_stands_beside_policies(log):
    answer = run(log, policies=("fifo", "sjf"))
    assert answer.recorded.exact == 3
    assert waits(answer) == {"observed": 90.0, "fifo": pytest.approx(80 / 3), "sjf": 0.0 + 80 / 3}
    assert waits(answer, "user", "bob") == {"observed": 90.0, "fifo": 0.0, "sjf": 0.0}
    assert waits(answer, "tenant", "speech")["observed"] == 135.0
    assert waits(answer, "size", "1")["observed"] == 180.0
    used = answer.table.filter(pl.col("by") == "all")["use"].to_list()
    assert used[0] == pytest.approx((400 + 400 + 20) / (8 * 220))


def test_partitions_of_a_log_are_queues_of_their_own(log):
    """Job 3 of the debug partition started at once, and so it does under `fifo` and `easy`."""
    lines = [
        line("1", **span(0, 0, 100), **asks(4)),
        line("2", **span(10, 100, 200), **asks(4)),
        line("3", **span(20, 20, 40), **asks(1), Partition="debug", NodeList="n2"),
        line("4", **span(30, 200, 220), **asks(1)),
    ]
    (log / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    first, second = NODES.replace("=gpu,debug", "=gpu").split("\n\n")
    second = second.replace("Partitions=gpu", "Partitions=debug")
    (log / "nodes.txt").write_text(f"{first}\n\n{second}")
    answer = run(log, policies=("fifo", "easy"))
    assert waits(answer, "partition", "debug") == {"observed": 0.0, "fifo": 0.0, "easy": 0.0}
    expected = pytest.approx((0 + 90 + 170) / 3)
    assert waits(answer, "partition", "gpu")["fifo"] == expected
    assert waits(answer, "partition", "gpu")["observed"] == expected


def test_more_nodes_fewer_nodes_and_quotas(log):
    changes = ReplayChanges(add=("1x4",), remove=("n2",), quotas=(("speech", 4.0),))
    answer = run(log, changes=changes)
    name = "fifo (+1x4, -n2, speech<=4)"
    assert [(s.name, s.gpus) for s in answer.schedules] == [("observed", 8), ("fifo", 8), (name, 8)]
    assert answer.other_nodes[1] == NodeSpec("new1", 4, "a100", 16.0, 64.0, (), ("gpu",))
    assert waits(answer, "tenant", "speech")[name] == 45.0  # its second job is held 90 s
    summary = json.loads((log / "out" / "fifo-changed" / "summary.json").read_text())
    assert summary["delay"]["quota"] == 90.0


def test_the_files_say_it_all(log):
    answer = run(log, changes=ReplayChanges(add=("1x8",)))
    out = log / "out"
    facts = json.loads((out / "replay.json").read_text())
    assert facts["recorded"] == {
        "exact": 3, "worst_s": 0.0, "counted": False, "guessed_splits": 0, "contradictions": {},
    }  # fmt: skip
    assert (facts["jobs"], facts["cluster"]["changed_gpus"]) == (3, 16)
    assert len(facts["rows_by_group"]) == answer.table.height
    assert pl.read_csv(out / "replay.csv").height == answer.table.height
    assert rerun(out / "fifo-changed").same
    page = html(answer)
    assert "Check of the books: with the recorded starts, the waiting times of 3 of 3" in page
    assert "fifo (+1x8)" in page
    assert "<script" not in page


def test_without_a_list_nodes_are_as_large_as_was_seen(log):
    answer = run(log, nodes=None)
    assert [(node.name, node.gpus) for node in answer.nodes] == [("n1", 4)]
    assert answer.seen
    assert waits(answer)["fifo"] == 90.0


def test_what_the_machines_cannot_run_is_told(log):
    answer = run(log, nodes=None, cluster="4x2")
    row = answer.table.row(by_predicate=(pl.col("by") == "all") & (pl.col("schedule") == "fifo"))
    assert "a job on more GPUs than its node has: 2 times" in " ".join(answer.warnings)
    assert answer.recorded.counted
    assert answer.recorded.exact == 3
    assert row[3] == 3
    small = Asked(log=str(log / "jobs.txt"), cluster="1x2", model="fifo")
    (log / "small").mkdir()
    answer = replay(small, log / "small", log / "small")
    refused = dict(answer.table.filter(pl.col("by") == "all").select("schedule", "refused").rows())
    assert refused == {"observed": 0, "fifo": 2}
    assert any("was rejected (and 1 more)" in text for text in answer.warnings)


def test_who_waits_for_a_maintenance_without_an_end_is_not_refused(log):
    answer = run(log, changes=ReplayChanges(maintenance=("nodes=n[1-2],start=0",)))
    rows = answer.table.filter(pl.col("by") == "all").select("role", "refused", "waiting")
    assert {role: rest for role, *rest in rows.rows()}["what-if"] == [0, 3]
    assert any("3 jobs still wait for a maintenance or reser" in text for text in answer.warnings)
    assert "jobs that wait for a maintenance or reservation without an end" in html(answer)
    assert "without an end" not in html(run(log, "as-it-was"))


def test_a_trace_without_a_schedule_is_refused(log):
    (log / "jobs.txt").write_text("job_id,submit_s,num_gpus,duration_s\n1,0,1,1\n")
    with pytest.raises(OptionError, match="format 'csv' has no list of nodes"):
        run(log)
    (log / "out").rmdir()
    with pytest.raises(TraceError, match="does not say when jobs started"):
        run(log, nodes=None)


@pytest.mark.parametrize("text", ["vision", "vision=", "=4", "vision=-1", "vision=inf", "v=x"])
def test_quotas_are_understood_or_refused(text):
    assert parse_quota("a=b=64") == ("a=b", 64.0)
    with pytest.raises(OptionError, match="TENANT=GPUS"):
        parse_quota(text)


def test_changes_of_machines_that_make_no_sense_are_refused():
    nodes = [NodeSpec("a", 4), NodeSpec("b", 8, cpus=32.0)]
    with pytest.raises(OptionError, match="remove 'c': matches no node: there are a, b"):
        changed(nodes, ReplayChanges(remove=("c",)))
    with pytest.raises(OptionError, match="no node is left"):
        changed(nodes, ReplayChanges(remove=("a", "b")))
    assert changed(nodes, ReplayChanges(add=("1x16",)))[2].cpus in (0.0, 64.0)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_tables_and_writes_a_page(log):
    out = log / "answer"
    args = [str(log / "jobs.txt"), "--nodes", str(log / "nodes.txt"), "--policy", "fifo",
            "--model", "fifo", "--add-nodes", "1x4", "-o", str(out)]  # fmt: skip
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    assert "check of the books: with the recorded starts" in done.output
    assert "the waits of 3 of 3 jobs come out to the second" in done.output
    assert "fifo (+1x4)" in done.output
    for measure in ("mean wait", "mean JCT", "GPU utilisation"):
        for by in ("user", "tenant", "size"):
            assert f"{measure} by {by}" in done.output
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    again = CliRunner().invoke(command, args)
    assert "is not empty" in str(again.exception)
    assert CliRunner().invoke(command, [*args, "--force"]).exit_code == 0


def test_the_command_takes_the_machines_from_one_place(log):
    args = [str(log / "jobs.txt"), "--nodes", "x", "--cluster", "1x4", "-o", str(log / "answer")]
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 2
    assert "give one of them" in done.output


# --- histories that we make ----------------------------------------------------------------------


def test_the_shipped_history_is_what_its_maker_makes():
    maker = runpy.run_path(str(MAKER))
    lines = [maker["FIELDS"], *maker["history"](400, 16, 1.0, 1)]
    assert (MAKER.parent / "jobs.txt").read_text() == "\n".join(lines) + "\n"


@pytest.mark.soak
def test_five_thousand_jobs_under_three_policies_are_quick(tmp_path, record_property):
    maker = runpy.run_path(str(MAKER))
    lines = [maker["FIELDS"], *maker["history"](5_000, 32, 0.8, 1)]
    (tmp_path / "jobs.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "nodes.txt").write_text("\n".join(maker["node"](n) for n in range(1, 33)))
    took_s = []
    while not took_s or (took_s[0] >= SPEED_CPU_S and len(took_s) < 2):  # others share the machine
        begun_s = process_time()
        answer = run(tmp_path, out=f"out{len(took_s)}", policies=("fifo", "easy", "tiresias"))
        html(answer)
        took_s.append(process_time() - begun_s)
        assert answer.recorded.exact == 5_000
    record_property("latency", f"{min(took_s):.1f} CPU-seconds for 5,000 jobs under 3 policies")
    assert min(took_s) < SPEED_CPU_S


def test_several_processes_give_the_same_bytes_as_one(log, monkeypatch):
    """The policies run in other processes, which read the log for themselves."""
    policies = ("fifo", "srtf", "easy")
    changes = ReplayChanges(add=("1x4",))
    run(log, "alone", policies=policies, changes=changes)
    monkeypatch.setattr(replay_module, "each", forked := Counted())
    run(log, "together", policies=policies, changes=changes, workers=2)
    assert forked.items == [3, 3]  # as it was, and with the changes
    files = sorted(path.relative_to(log / "alone") for path in (log / "alone").rglob("*.*"))
    assert len(files) > 20
    for name in files:
        ours, theirs = log / "alone" / name, log / "together" / name
        if name.name == "summary.json":
            assert timeless(ours) == timeless(theirs)
        elif name.name not in ("manifest.json", "replay.json"):  # they name the folder, and when
            assert ours.read_bytes() == theirs.read_bytes(), name


class Counted:
    """`each`, and how many items it was given."""

    def __init__(self, workers=None):
        self.items = []
        self._workers = workers

    def __call__(self, work, items, workers, **more):
        self.items.append(len(items))
        return each(work, items, self._workers or workers, **more)


def timeless(path):
    """Return a summary without what the run took."""
    summary = json.loads(path.read_text())
    return {key: value for key, value in summary.items() if "cpu_s" not in key}


@pytest.mark.parametrize(("worth", "asked"), [(0, [3]), (10**9, [])])
def test_only_a_long_log_is_worth_other_processes(log, monkeypatch, worth, asked):
    monkeypatch.setattr(replay_module, "WORTH", worth)
    monkeypatch.setattr(replay_module, "cores", lambda: 2)
    monkeypatch.setattr(replay_module, "each", counted := Counted(workers=1))
    run(log, policies=("fifo", "srtf", "easy"), workers=None)
    assert counted.items == asked


SHARED = """nodes: [{name: n1, gpus: 4}, {name: n2, gpus: 4}]
tenants: [{name: vision, quota: 4, limit: 4}, {name: speech, quota: 1, limit: 1}]
priority_classes: [{name: usual, value: 0, min_runtime_s: 60}]
"""


def test_queues_of_a_cluster_file_are_in_force(log):
    (log / "shared.yaml").write_text(SHARED)
    options = {"nodes": None, "cluster": str(log / "shared.yaml")}
    answer = run(log, policies=("capacity",), **options)
    assert {one.name: one.limit for one in answer.site} == {"vision": 4, "speech": 1}
    written = parse_cluster(str(log / "out" / "cluster.yaml"))[1]
    assert [*written] == [*answer.site]
    assert written.classes == answer.site.classes
    rows = answer.schedules[-1]
    assert rows.jobs.filter(pl.col("state") == "rejected").height == 1  # it may not have 4
    changes = ReplayChanges(quotas=(("speech", 4.0),))
    run(log, "more", policies=("capacity",), changes=changes, **options)
    changed_site = parse_cluster(str(log / "more" / "cluster-changed.yaml"))[1]
    assert {one.name: one.limit for one in changed_site} == {"vision": 4, "speech": 4}
    with pytest.raises(OptionError, match="have quotas of their own"):
        run(log, "kept", changes=ReplayChanges(guarantees=(("speech", 2.0),)), **options)
