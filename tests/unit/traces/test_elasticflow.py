"""The trace format of ElasticFlow's simulator."""

import pytest

from rota.core.errors import OptionError, TraceError
from rota.traces.formats.elasticflow import FORMAT
from rota.traces.sniff import first_look

HEAD = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
SPEEDS = "global_batch_size,1,2,4,8\n64,2.0,3.0,nan,0\n128,1.0,1.5,2.0,\n"


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "tables" / "throughputs_T4"
    folder.mkdir(parents=True)
    (folder / "net.csv").write_text(SPEEDS)
    trace = tmp_path / "trace.csv"
    trace.write_text(HEAD + "a,100,600,net,500,64,2,0,0\nb,160,60,net,900,128,4,0,1\n")
    return trace, {"throughputs": str(tmp_path / "tables"), "gpu": "T4"}


def test_run_times_and_sizes_follow_from_the_table(files):
    trace, options = files
    workload = FORMAT.load(trace, options).workload
    a, b = workload.specs

    assert FORMAT.recognises(first_look(trace)) == 1.0
    assert (a.name, a.model, a.deadline_s - a.submit_s) == ("net@64", "net", 400)
    assert b.deadline_s == float("inf")
    assert workload.origin_s == 100
    assert [how.work for how in workload.behaviours] == [200, 30]
    assert a.request.sizes == (1, 2)
    assert b.request.sizes == (1, 4)
    assert [list(point) for point in workload.behaviours[1].scaling] == [
        [1, 0.5], [2, 0.75], [4, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"throughputs": ""}, "elasticflow:throughputs=DIR,gpu=T4"),
        ({"gpu": "V100"}, "gpu=V100: "),
        ({"gpu": "V100"}, "has throughputs of T4: name one of them with gpu=T4"),
        ({"gpu": ""}, "throughputs of T4: name one of them with gpu=T4"),
        ({"throughputs": "nowhere"}, "is no folder"),
    ],
)
def test_missing_tables_are_named(files, options, said):
    trace, given = files
    with pytest.raises(OptionError) as error:
        FORMAT.load(trace, {**given, **options})
    assert said in str(error.value)
    assert "nothing" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("c,1,6,other,9,64,1,0,0\n", "has net"),
        ("c,1,6,net,9,64,4,0,0\n", "no throughput of batch 64 on 4 GPUs"),
    ],
)
def test_what_the_tables_do_not_have_is_named(files, row, said):
    trace, options = files
    trace.write_text(HEAD + row)
    with pytest.raises(TraceError) as error:
        FORMAT.load(trace, options)
    assert said in str(error.value)
