"""A real Slurm's accounting, imported and replayed: waiting times come out to the second."""

import time

import polars as pl
import pytest

from rota.study.replay.changes import ReplayChanges
from rota.study.replay.recorded import replay_recorded
from rota.study.replay.replay import Asked, replay
from rota.traces.formats.slurm.sacct import FORMAT
from slurm_accounting import AccountingCluster, newest, require_accounting
from trace_readers import counted

require_accounting()

FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,State,ElapsedRaw,"
    "TimelimitRaw,ReqTRES,AllocTRES,NNodes,NodeList,SubmitLine"
)
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Return a folder with what sacct and scontrol say after 18 jobs of many kinds."""
    folder = tmp_path_factory.mktemp("history")
    with AccountingCluster(folder / "slurm", nodes=2, gpus=4) as slurm:
        names = submit_all(slurm)
        finish_all(slurm, names)
        (folder / "jobs.txt").write_text(slurm.sacct("-D", "-P", "-o", FIELDS))
        bare = slurm.sacct("-X", "-P", "--noheader", "-o", FIELDS)
        (folder / "bare.txt").write_text(bare)
        (folder / "jobs.json").write_text(slurm.sacct("-D", "--json"))
        (folder / "nodes.txt").write_text(slurm.call("scontrol", "show", "node").stdout)
        (folder / "nodes.json").write_text(slurm.call("sinfo", "--json").stdout)
        (folder / "names").write_text("\n".join(f"{key}={value}" for key, value in names.items()))
    return folder


def submit_all(slurm):
    """Submit jobs; their numbers by what they are."""

    def sbatch(*args, run="sleep 1"):
        done = slurm.call("sbatch", "--parsable", "-o", "/dev/null", *args, "--wrap", run)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    names = {"first": sbatch("-N1", "--gpus=2", "-t", "5", run="sleep 2")}
    names["wide"] = sbatch("-N2", "--gpus-per-node=a100:4", run="sleep 2")
    names["array"] = sbatch("--array=1-4%2", "--gres=gpu:1")
    names["after"] = sbatch(f"--dependency=afterok:{names['first']}", "--gpus=1")
    names["held"] = sbatch("--hold", "--gpus=1")
    once = 'if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then sleep 2; else sleep 600; fi'
    names["again"] = sbatch("--gpus=1", "--requeue", run=once)
    names["gone"] = sbatch("--hold", "--gpus=1")
    names["killed"] = sbatch("--gpus=1", run="sleep 600")
    names["fails"] = sbatch("-c", "2", run="exit 3")
    names["both"] = sbatch("--gpus=1", "-n1", ":", "-n1", "--gpus=2")
    names["uneven"] = sbatch("-N2", "--gpus=3")
    for number in range(4):
        names[f"more{number}"] = sbatch("--gpus=3")
    return names


def finish_all(slurm, names):
    """Release, requeue and cancel what is to be, then wait until all is over and stored."""
    until(slurm, lambda: all(has_run(slurm, names[job]) for job in ("again", "killed")))
    slurm.call("scontrol", "release", names["held"])
    slurm.call("scontrol", "requeue", names["again"])
    # its node refuses what was signed within the second in which it ended the run before
    until(slurm, lambda: state(slurm, names["again"]) == "PENDING")
    slurm.call("scontrol", "update", f"JobId={names['again']}", "StartTime=now+1")
    slurm.call("scancel", names["killed"], names["gone"])
    until(slurm, lambda: not slurm.call("squeue", "-h").stdout.strip())
    until(slurm, lambda: "Unknown" not in slurm.sacct("-X", "-P", "-o", "End"))


def state(slurm, number):
    return slurm.call("squeue", "-h", "-j", number, "-o", "%T").stdout.strip()


def has_run(slurm, number):
    """For at least a second: accounting counts whole ones."""
    lasted = slurm.call("squeue", "-h", "-j", number, "-o", "%M").stdout.strip()
    return state(slurm, number) == "RUNNING" and lasted != "0:00"


def until(slurm, holds):
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, (slurm.call("squeue").stdout, newest(slurm.base))
        time.sleep(0.2)


def load(folder, file, **options):
    imported = FORMAT.load(folder / file, {"nodes": str(folder / "nodes.txt"), **options})
    assert counted(imported.quality)
    return imported


def test_text_and_json_tell_the_same_jobs(history):
    text, data = load(history, "jobs.txt"), load(history, "jobs.json")
    columns = ["job_id", "submit_s", "num_gpus", "duration_s", "vc", "user", "cpus", "gpu_type"]
    assert text.jobs.select(columns).sort("job_id").rows() == (
        data.jobs.select(columns).sort("job_id").rows()
    )
    assert len(text.observed) == len(data.observed)
    assert text.cluster == data.cluster
    fields = FIELDS.replace(",", "/")
    assert len(load(history, "bare.txt", fields=fields)) == len(text)


def test_jobs_are_what_was_submitted(history):
    names = dict(row.split("=") for row in (history / "names").read_text().splitlines())
    imported = load(history, "jobs.txt", since="submit")
    jobs = {row["job_id"]: row for row in imported.jobs.iter_rows(named=True)}
    assert jobs[names["wide"]]["num_gpus"] == 8.0
    assert jobs[names["wide"]]["gpu_type"] == ["a100"]
    assert jobs[names["first"]]["estimate_s"] == 300.0
    assert jobs[names["both"]]["num_gpus"] == 3.0
    assert jobs[names["fails"]]["num_gpus"] == 0.0
    assert jobs[names["after"]]["depends_on"] == [names["first"]]
    assert {f"{names['array']}_{task}" for task in range(1, 5)} <= set(jobs)
    assert names["gone"] not in jobs
    order = imported.jobs["job_id"].to_list()
    attempts = imported.observed.frame["job"].to_list()
    assert attempts.count(order.index(names["again"])) == 2
    states = dict(imported.observed.per_job().select("job", "state").rows())
    assert states[order.index(names["killed"])] == "cancelled"
    assert states[order.index(names["fails"])] == "failed"


@pytest.mark.parametrize("file", ["jobs.txt", "jobs.json"])
def test_the_share_of_each_node_is_told_also_where_it_is_uneven(history, file):
    names = dict(row.split("=") for row in (history / "names").read_text().splitlines())
    imported = load(history, file)
    order = imported.jobs["job_id"].to_list()
    seen = {order[row.job]: row for row in imported.observed.rows()}
    assert seen[names["uneven"]].nodes == ("n1", "n2")
    assert sorted(seen[names["uneven"]].gpus) == [1.0, 2.0]
    assert seen[names["wide"]].gpus == (4.0, 4.0)
    assert not [note for note in imported.notes if "guesses" in note]


@pytest.mark.parametrize("file", ["jobs.txt", "jobs.json"])
@pytest.mark.parametrize("since", ["eligible", "submit"])
def test_recorded_starts_replay_exactly(history, file, since):
    imported = load(history, file, since=since)
    replayed = replay_recorded(imported, imported.cluster)
    assert replayed.contradictions == {}
    assert not replayed.counted
    assert (replayed.exact, replayed.worst_s) == (len(imported), 0.0)
    assert replayed.result.jobs["wait_s"].max() > 0


def test_nodes_of_both_commands_are_the_same(history):
    text = load(history, "jobs.txt").cluster
    data = load(history, "jobs.txt", nodes=str(history / "nodes.json")).cluster
    assert [(n.name, n.gpus, n.gpu_type, n.cpus) for n in text] == [
        ("n1", 4, "a100", 16.0),
        ("n2", 4, "a100", 16.0),
    ]
    assert text == data


def test_the_whole_command_on_a_real_log(history, tmp_path):
    asked = Asked(
        log=str(history / "jobs.txt"), nodes=str(history / "nodes.txt"), model="easy",
        changes=ReplayChanges(add=("1x4",)),
    )  # fmt: skip
    answer = replay(asked, tmp_path, tmp_path)
    odd = [text for text in answer.warnings if not text.startswith("hardly anybody waited")]
    assert set(odd) <= set(answer.imported.notes)
    rows = answer.table.filter(pl.col("by") == "all")
    assert rows["schedule"].to_list() == ["observed", "easy", "easy (+1x4)"]
    assert rows["refused"].to_list() == [0, 0, 0]
    assert rows["mean_wait_s"][2] <= rows["mean_wait_s"][0]
