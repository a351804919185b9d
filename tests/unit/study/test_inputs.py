"""Every file that a run reads is among its inputs, wherever it is."""

import json
import zipfile
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.study.config import RunConfig
from rota.study.folder import OutputFolder
from rota.study.inputs import changed, content, find_inputs, located, renamed
from rota.study.output import write_run
from rota.study.rerun import rerun
from rota.study.run import simulate
from rota.study.sweep.keys import Inputs, make_key
from rota.study.sweep.on_ray import unpack_inputs
from rota.study.sweep.plan import make_plan
from rota.study.sweep.source import parse_source
from rota.study.sweep.spec import parse_spec
from rota.study.workloads import load_workload
from rota.traces.formats.store import save
from rota.traces.imported import Imported
from rota.traces.read import read_trace
from rota.traces.synth.fit import fit, save_fit
from rota.traces.synth.generate import generate

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,vcA,2,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:30,2020-04-01 00:01:30,60,30\n"
    "2,u,vcA,2,4,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:30,2020-04-01 00:02:30,120,20\n"
)
BESIDE = {
    "helios": {"cluster_log.csv": HELIOS, "cluster_gpu_number.csv": "date,vcA\n2020-04-01,8\n"},
    "philly": {
        "cluster_job_log": json.dumps(
            [{"jobid": "a", "vc": "v", "status": "Pass", "submitted_time": "2017-10-09 07:00:00",
              "attempts": [{"start_time": "2017-10-09 07:00:10", "end_time": "2017-10-09 07:01:10",
                            "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]
        ),
        "cluster_machine_list": "machineId,number of GPUs,single GPU mem\nm1,2, 12GB\n",
    },
    "openb": {
        "pods.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\np0,4000,2048,1,460,LS,Succeeded,10,500,20\n",
        "openb_node_list_gpu_node.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,1024,8,A\n",
    },
    "spot": {
        "job_info_df.csv": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,"
        "submit_time,duration,job_type\nj1,o1,A100,8,8,1,0,100,HP\n",
        "node_info_df.csv": "node_name,gpu_model,gpu_capacity_num,cpu_num\nn1,A100,8,128\n",
    },
    "synergy": {
        "trace.csv": "0,net,0,10,1\n",
        "synergy_profiles.json": json.dumps(
            {"net_1": {"cpus": 6, "mem": 40, "iter_time": 0.5, "cpu_points": [3, 6],
                       "mem_points": [40], "tput": [[1.0], [2.0]]}}
        ),
    },
    "alibaba-2020": {
        "pai_job_table.csv": "j1,i1,u1,Terminated,1000,2000\n",
        "pai_task_table.csv": "j1,w,1,Terminated,1010,2000,600,10,100,T4\n",
        "pai_instance_table.csv": "j1,w,x,y,i1,Terminated,1020,2000,m1\n",
        "pai_group_tag_table.csv": "i1,u1,,g9,bert\n",
        "pai_machine_spec.csv": "m1,T4,96,512,8\n",
    },
}  # fmt: skip
"""The files of traces that are read together; the first is named."""


@pytest.fixture
def model(tmp_path):
    """Return the path of a fitted model."""
    drawn = generate("poisson", jobs=60, gpus=8, load=0.8, seed=1, options={"users": "2"})
    save_fit(fit(Imported(drawn)), tmp_path / "model.json")
    return tmp_path / "model.json"


@pytest.fixture
def opened(monkeypatch):
    """Return the names of files that were opened since."""
    names = set()
    original = Path.open

    def spy(self, *args, **options):
        names.add(self.name)
        return original(self, *args, **options)

    monkeypatch.setattr(Path, "open", spy)
    return names


def write_all(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / next(iter(files))


def run_of(trace, **options):
    return RunConfig(trace=str(trace), cluster="1x8", policy="fifo", **options)


def key_of(config):
    return make_key(config, Inputs().of(config))


def names_of(config):
    return [Path(file.path).name for file in find_inputs(config)]


# --- files beside --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_read_is_an_input_and_part_of_the_key(tmp_path, opened, name):
    files = BESIDE[name]
    config = run_of(write_all(tmp_path, files), format=name)
    read_trace(config.trace, name)
    assert opened == set(names_of(config)) == set(files)

    before, inputs = key_of(config), find_inputs(config)
    assert changed(inputs) == []
    for file in list(files)[1:]:
        (tmp_path / file).write_text(files[file] + "\n")
        assert changed(inputs) == [f"trace {tmp_path / file}: has changed since"]
        assert key_of(config) != before
        (tmp_path / file).write_text(files[file])
    assert key_of(config) == before


def test_what_an_option_turns_off_is_no_input(tmp_path):
    trace = write_all(tmp_path, BESIDE["helios"])

    assert names_of(run_of(trace)) == ["cluster_log.csv", "cluster_gpu_number.csv"]
    assert names_of(run_of(trace, format="helios:capacity=no")) == ["cluster_log.csv"]
    (tmp_path / "other.csv").write_text("date,vcA\n2020-04-01,4\n")
    other = run_of(trace, format=f"helios:capacity={tmp_path / 'other.csv'}")
    assert names_of(other) == ["cluster_log.csv", "other.csv"]


def test_a_file_of_no_known_format_is_an_input_all_the_same(tmp_path):
    (tmp_path / "odd.txt").write_text("what is this\n")

    assert names_of(run_of(tmp_path / "odd.txt")) == ["odd.txt"]
    assert names_of(run_of(tmp_path / "nothing.csv")) == []


# --- folders and archives ------------------------------------------------------------------------


def test_a_folder_is_its_files(trace, tmp_path):
    save(read_trace(trace), tmp_path / "stored")
    config = run_of(tmp_path / "stored")
    first, *files = find_inputs(config)
    names = ["trace.json", "jobs.parquet", "observed.parquet", "events.parquet"]

    assert (first.given, first.path) == (config.trace, config.trace)
    assert [Path(file.path).name for file in files] == names
    assert first.bytes == sum(file.bytes for file in files) > 0
    before = key_of(config)
    (tmp_path / "stored" / "notes.txt").write_text("not read")
    assert key_of(config) == before
    (tmp_path / "stored" / "trace.json").write_text("{}")
    assert key_of(config) != before
    assert changed([first, *files]) == [f"trace {files[0].path}: has changed since"]


def test_a_run_of_a_folder_is_made_again_from_anywhere(trace, tmp_path, monkeypatch):
    save(read_trace(trace), tmp_path / "stored")
    monkeypatch.chdir(tmp_path)
    with OutputFolder(tmp_path / "out") as output:
        write_run(simulate(run_of("stored")), output.path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert rerun(tmp_path / "out").same


def test_the_log_in_the_folder_of_a_run_is_an_input(config, tmp_path):
    with OutputFolder(tmp_path / "out") as output:
        write_run(simulate(config()), output.path)

    assert names_of(run_of(tmp_path / "out")) == ["out", "events.parquet"]


def test_members_of_an_archive_count_by_what_they_hold(tmp_path):
    files = BESIDE["helios"]

    def pack(name, **more):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member, text in {**files, **more}.items():
                archive.writestr(f"Venus/{member}", text)
        return run_of(tmp_path / name / "Venus" / "cluster_log.csv")

    config = pack("data.zip")
    inputs = find_inputs(config)
    before = key_of(config)
    assert [Path(file.path).name for file in inputs] == list(files)
    assert [content(file) for file in inputs] == [text.encode() for text in files.values()]
    assert [file.bytes for file in inputs] == [len(text) for text in files.values()]
    assert located(config, inputs).trace == config.trace
    assert key_of(pack("packed-again.zip", extra="not read")) == before
    pack("data.zip", **{"cluster_gpu_number.csv": "date,vcA\n2020-04-01,4\n"})
    assert changed(inputs) == [f"trace {inputs[1].path}: has changed since"]
    assert key_of(config) != before


# --- fitted models -------------------------------------------------------------------------------


def test_a_fitted_model_is_an_input(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = run_of("generate:fit:model.json,jobs=40,load=0.7")
    inputs = find_inputs(config)

    assert [(file.option, file.given, file.path) for file in inputs] == [
        ("trace", "model.json", str(model))
    ]
    assert located(config, inputs).trace == f"generate:fit:{model},jobs=40,load=0.7"
    assert len(load_workload(config)) == 40
    before = key_of(config)
    model.write_text(model.read_text() + "\n")
    assert key_of(config) != before
    assert changed(inputs) == [f"trace {model}: has changed since"]


def test_a_sweep_finds_the_model_beside_its_description(model, tmp_path):
    text = "workloads: ['fit:model.json,jobs=40', {name: m, generate: 'fit:model.json', jobs: 30}]"
    rest = "\nclusters: [1x8]\npolicies: [fifo]\nloads: [0.5, 0.9]\nseeds: 2\n"
    spec = parse_spec(parse_source(text + rest, tmp_path / "sweep.yaml"))
    tasks = make_plan(spec, tmp_path / "workloads").tasks

    assert tasks[0].config.trace == f"generate:fit:jobs=40,load=0.5,file={model}"
    assert {Path(file.path).name for task in tasks for file in task.inputs} == {"model.json"}
    assert len({task.key for task in tasks}) == 8


def test_a_model_that_is_not_there_is_told_before_the_first_run(tmp_path):
    text = "workloads: ['fit:nope.json,jobs=40']\nclusters: [1x8]\npolicies: [fifo]\n"
    spec = parse_spec(parse_source(text, tmp_path / "sweep.yaml"))

    with pytest.raises(RotaError, match=r"nope\.json"):
        make_plan(spec, tmp_path / "workloads")


# --- sweeps --------------------------------------------------------------------------------------


def test_a_sweep_takes_folders_and_members_and_notices_changes(trace, tmp_path):
    save(read_trace(trace), tmp_path / "stored")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("a/cluster_log.csv", HELIOS)
        archive.writestr("a/notes.txt", "")
    text = "workloads: [stored, data.zip/a/cluster_log.csv]\nclusters: [1x8]\npolicies: [fifo]\n"

    def keys():
        spec = parse_spec(parse_source(text + "loads: [1, 2]\n", tmp_path / "sweep.yaml"))
        return [task.key for task in make_plan(spec, tmp_path / "workloads").tasks]

    before = keys()
    assert keys() == before
    assert len(set(before)) == 4
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("a/cluster_log.csv", HELIOS.replace(",120,20", ",140,20"))
        archive.writestr("a/notes.txt", "")
    after = keys()
    assert after[:2] == before[:2]
    assert not set(after[2:]) & set(before)


def test_files_of_one_folder_stay_together_on_another_machine(trace, tmp_path):
    save(read_trace(trace), tmp_path / "stored")
    write_all(tmp_path, BESIDE["helios"])
    (tmp_path / "there").mkdir()
    for source in ("stored", "cluster_log.csv"):
        config = run_of(tmp_path / source)
        inputs = find_inputs(config)
        moved = unpack_inputs(inputs, [content(file) for file in inputs], tmp_path / "there")

        there = read_trace(moved[str(tmp_path / source)])
        assert there.jobs.equals(read_trace(tmp_path / source).jobs)
        assert there.events.equals(read_trace(tmp_path / source).events)


def test_names_are_replaced_where_they_stand_as_a_whole():
    names = {"a.csv": "/x/a.csv", "in/a.csv": "/y/a.csv", "fit": "/z/fit"}

    assert renamed("p:a=a.csv,b=in/a.csv,c=aa.csv", names) == "p:a=/x/a.csv,b=/y/a.csv,c=aa.csv"
    assert renamed("generate:fit:fit,jobs=3", {"fit": "F"}) == "generate:fit:F,jobs=3"
    assert renamed("any", {"": "x"}) == "any"
