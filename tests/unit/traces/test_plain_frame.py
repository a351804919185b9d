"""The quick way to read plain csv gives what the careful way gives, or leaves it to that."""

import pytest

from rota.core.errors import TraceError
from rota.traces.formats.plain import FORMAT
from rota.traces.formats.plain_frame import quick_frame
from rota.traces.synth.generate import KINDS, generate
from rota.traces.write import write_workload

FULL = (
    "job_id,submit_s,num_gpus,duration_s,queue,user,gpu_type,cpus,mem_gib,priority,deadline_s,"
    "estimate_s,model\n"
    "a,5,0.5,10,t,None,v100 | p100|,4,,2,20,30,m\n"
    "b,0,0,1e3,,NA,,1,2.5,,,,\n"
    '"c,c", 7 ,8,0.5,t,u,v100,,,-1,,,\n'
)


def both(path):
    return FORMAT.load(path, {}).workload, FORMAT.read(path, {})


def test_every_column_of_the_quick_way(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(FULL)
    assert quick_frame(path, ignore=False) is not None
    quick, careful = both(path)
    assert quick.specs == careful.specs
    assert quick.behaviours == careful.behaviours
    assert quick.name == careful.name


@pytest.mark.parametrize("kind", KINDS)
def test_generated_workloads(tmp_path, kind):
    workload = generate(kind, jobs=60, gpus=32, load=0.9, seed=2, options={})
    quick, careful = both(write_workload(workload, tmp_path / "jobs.csv"))
    assert quick.specs == careful.specs == list(workload.specs)
    assert quick.behaviours == careful.behaviours


@pytest.mark.parametrize(
    "row",
    [
        "a,0,1.5,10", "a,0,1,0", "a,0,0,10", "a,0,1,10\na,0,1,10", "a,-1,1,10", "a,0,x,10",
        ",0,1,10", "a,0,1,inf", "a,0,1", "a,0,1,10,9",
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_the_careful_way(tmp_path, row):
    path = tmp_path / "jobs.csv"
    path.write_text(f"job_id,submit_s,num_gpus,duration_s\n{row}\n")
    assert quick_frame(path, ignore=False) is None
    with pytest.raises(TraceError) as quick:
        FORMAT.load(path, {})
    with pytest.raises(TraceError) as careful:
        FORMAT.read(path, {})
    assert str(quick.value) == str(careful.value)


def test_unusual_columns_are_left_to_the_careful_way(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,num_gpus,duration_s,gang\na,0,2,10,false\n")
    assert quick_frame(path, ignore=True) is None
    assert not FORMAT.load(path, {}).workload.specs[0].request.gang
