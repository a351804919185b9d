"""Job files of other simulators: Pollux, Sia, Gavel, Chronus, Batsim."""

import json
import zipfile

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Request
from rota.traces.formats import batsim, chronus, gavel, pollux, pollux_results, sia
from rota.traces.observed import Seen
from rota.traces.sniff import first_look
from trace_readers import counted


@pytest.fixture
def file(tmp_path):
    """Return `file(text)`: the path of a file with this text."""

    def write(text, name="trace"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


# --- Pollux and Sia ---------------------------------------------------------------------------

POLLUX = "name,time,application,num_replicas,batch_size\n"


def test_pollux_has_no_run_times_so_they_are_said_to_be_guessed(file):
    path = file(POLLUX + "bert-1,20,bert,3,12\nncf-0,10,ncf,1,32768\nnew-2,30,mystery,1,1\n")
    imported = pollux.FORMAT.load(path, {})
    assert [(spec.id, spec.submit_s, spec.model) for spec in imported.workload.specs] == [
        ("ncf-0", 0.0, "ncf"),
        ("bert-1", 10.0, "bert"),
    ]
    assert [behaviour.work for behaviour in imported.workload.behaviours] == [1800, 3600]
    assert imported.quality.repaired == {pollux.GUESSED: 2}
    assert counted(imported.quality)
    own = pollux.FORMAT.load(path, {"hours": "bert:6/mystery:1"})
    assert [behaviour.work for behaviour in own.workload.behaviours] == [1800, 7200, 3600]
    assert own.quality.repaired == {pollux.GUESSED: 1, pollux.GIVEN: 2}
    with pytest.raises(OptionError, match="hours=bert is not NAME:HOURS"):
        pollux.FORMAT.load(path, {"hours": "bert"})


def test_a_duration_in_the_file_is_used(file):
    path = file(POLLUX.strip() + ",duration,num_task\na-1,0,infer-ncf-1,1,1,7.0,530\n")
    imported = pollux.FORMAT.load(path, {})
    assert imported.workload.behaviours[0].work == 7.0
    assert imported.quality.repaired == {}


def test_only_its_own_column_tells_sia(file):
    plain = first_look(file(POLLUX + "a,0,ncf,1,1\n"))
    own = first_look(file(POLLUX.strip() + ",category\na,0,ncf,1,1,rigid\n"))
    assert (pollux.FORMAT.recognises(plain), sia.FORMAT.recognises(plain)) == (1.0, 0.0)
    assert (pollux.FORMAT.recognises(own), sia.FORMAT.recognises(own)) == (0.0, 1.0)
    path = file(POLLUX.strip() + ",category\na,0,ncf,1,1,rigid\n")
    assert len(sia.FORMAT.load(path, {"statuses": "rigid"})) == 1


def looks(*allocations):
    """Return a log with a look per minute; the job is complete at the last one."""
    last = len(allocations) - 1
    return "\n".join(
        json.dumps(
            {
                "timestamp": 1000.0 + 60 * number,
                "submitted_jobs": [
                    {
                        "name": "imagenet-3",
                        "creationTimestamp": "1970-01-01T00:15:00Z",
                        "completionTimestamp": "1970-01-01T00:19:50+00:00"
                        if number == last
                        else None,
                        "phase": "Succeeded" if number == last else "Running",
                        "allocation": list(allocation),
                        "train": {"epoch": number},
                    }
                ],
            }
        )
        for number, allocation in enumerate(allocations)
    )


def test_pollux_results_show_allocations_over_time(tmp_path):
    path = tmp_path / "pollux.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pollux/pollux.log", looks("", ["n1"], ["n1", "n2"], ["n2", "n1"], ""))
    imported = pollux_results.FORMAT.load(path, {})
    assert imported.observed.rows() == [
        Seen(0, 160.0, 220.0, ("n1",), (1.0,), "preempted", 0),
        Seen(0, 220.0, 290.0, ("n1", "n2"), (1.0, 1.0), "done", 1),
    ]
    spec = imported.workload.specs[0]
    assert (spec.request, spec.model) == (Request.of(2), "imagenet")
    assert imported.workload.behaviours[0].work == (60 * 1 + 70 * 2) / 2


def test_a_wrong_line_of_pollux_results(file):
    path = file(looks("", ["n1"], "") + "\n{oops\n")
    with pytest.raises(TraceError, match="line 4: is not a line of the log"):
        pollux_results.FORMAT.load(path, {})
    imported = pollux_results.FORMAT.load(path, {"bad": "drop"})
    assert imported.quality.dropped == {"not a line of the log": 1}
    assert counted(imported.quality)


# --- Gavel ------------------------------------------------------------------------------------

RATES = {
    "v100": {"('A (batch size 2)', 1)": {"null": 10.0, "('B', 1)": [5.0, 5.0]}},
    "k80": {"('A (batch size 2)', 1)": {"null": 2.5}},
    "v100_unconsolidated": {"('A (batch size 2)', 1)": {"null": 9.0}},
}
TRACE = "A (batch size 2)\tpython a.py\tdir\t-n\t1\t1000\t1\t5\t200\t7.5\n"


def test_gavel_turns_steps_into_seconds_on_a_reference_type(file):
    rates = file(json.dumps(RATES), "rates.json")
    imported = gavel.FORMAT.load(file(TRACE + TRACE), {"throughputs": str(rates)})
    spec, behaviour = imported.workload.specs[1], imported.workload.behaviours[1]
    assert (spec.id, spec.request, spec.priority, spec.deadline_s) == ("1", Request.of(1), 5, 200.0)
    assert (behaviour.work, behaviour.speeds) == (100.0, {"v100": 1.0, "k80": 0.25})
    slow = gavel.FORMAT.load(file(TRACE), {"throughputs": str(rates), "reference": "k80"})
    assert slow.workload.behaviours[0].work == 400.0


def test_traces_of_shockwave_have_two_more_columns(file):
    rates = file(json.dumps(RATES), "rates.json")
    path = file(TRACE.strip("\n") + "\tstatic\t100\n")
    assert gavel.FORMAT.recognises(first_look(path)) == 1.0
    assert len(gavel.FORMAT.load(path, {"throughputs": str(rates)})) == 1


@pytest.mark.parametrize(
    ("rates", "options", "problem"),
    [
        (None, {}, "give the table of steps per second with gavel:throughputs=FILE"),
        ({"v100": {}}, {}, "has no throughput of 'A .batch size 2.' on 1 GPUs"),
        ({"v100": {"A": {"null": 1}}}, {}, "is not a table of throughputs"),
        ({"v100": 3}, {}, "is not a table of throughputs"),
        (RATES, {"reference": "p100"}, "name another GPU type with reference=TYPE"),
    ],
)
def test_gavel_without_a_usable_table(file, rates, options, problem):
    if rates is not None:
        options = {**options, "throughputs": str(file(json.dumps(rates), "rates.json"))}
    with pytest.raises((OptionError, TraceError), match=problem):
        gavel.FORMAT.load(file(TRACE), options)


# --- Chronus ----------------------------------------------------------------------------------


def test_chronus_counts_minutes_and_deadlines_after_the_submission(file):
    path = file(
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
        "expect_time_list,expect_value_list,best_effort,job_type\n"
        "7,a,1,11,9,vgg16,5,1,20,10,0,strict\n8,b,0,10,9,vgg16,5,1,20,10,0,strict\n"
        "9,b,2,10,9,vgg16,5,1,1,10,1,best\n"
    )
    imported = chronus.FORMAT.load(path, {})
    best, strict = imported.workload.specs
    assert (best.id, best.submit_s, best.deadline_s) == ("9", 0.0, float("inf"))
    assert (strict.id, strict.submit_s, strict.deadline_s) == ("7", 60.0, 1260.0)
    assert imported.workload.behaviours[0].work == 300.0
    assert imported.quality.dropped == {"asks for nothing": 1}
    assert chronus.FORMAT.load(path, {"unit": "1"}).workload.specs[1].submit_s == 1.0
    assert chronus.FORMAT.recognises(first_look(path)) == 1.0


CHRONUS = "job_id,num_gpu,submit_time,duration,expect_time_list,best_effort\n"


@pytest.mark.parametrize("times", ["x", "-5", "1e300", "20x", "20--40"])
def test_expected_times_of_chronus_that_cannot_be_read_are_no_other_deadline(file, times):
    path = file(f"{CHRONUS}7,1,10,5,{times},0\n8,1,10,5,20-40,0\n")
    with pytest.raises(TraceError, match=f"job '7', column 'expect_time_list': '{times}'"):
        chronus.FORMAT.load(path, {})
    imported = chronus.FORMAT.load(path, {"bad": "drop"})
    assert [(job.id, job.deadline_s) for job in imported.workload.specs] == [("8", 2400.0)]
    assert imported.quality.dropped == {"expect_time_list is no list of times": 1}


def test_a_type_of_job_that_chronus_does_not_know_is_not_taken_as_strict(file):
    head = CHRONUS.strip() + ",job_type\n"
    path = file(f"{head}7,1,10,5,20,0,bestt\n8,1,10,5,20,0,soft\n9,1,10,5,20,0,\n")
    with pytest.raises(TraceError, match=r"job '7', column 'job_type': 'bestt' is no type: .*best"):
        chronus.FORMAT.load(path, {})
    imported = chronus.FORMAT.load(path, {"bad": "drop"})
    assert [job.id for job in imported.workload.specs] == ["8", "9"]
    assert imported.quality.dropped == {"job_type is no type": 1}


# --- Batsim -----------------------------------------------------------------------------------

PROFILES = {
    "wait": {"type": "delay", "delay": 20.5},
    "work": {"type": "parallel_homogeneous", "cpu": 5e9, "com": 1},
    "twice": {"type": "composed", "repeat": 2, "seq": ["wait", "work"]},
    "circle": {"type": "composed", "seq": ["circle"]},
}


def workload(*jobs):
    rows = [
        {"id": number, "subtime": 10 - number, "res": 4, "profile": profile, "walltime": 60}
        for number, profile in enumerate(jobs)
    ]
    return json.dumps({"nb_res": 8, "jobs": rows, "profiles": PROFILES})


def test_profiles_of_batsim_give_run_times(file):
    imported = batsim.FORMAT.load(file(workload("wait", "work", "twice", "circle", "none")), {})
    times = dict(zip(imported.jobs["job_id"], imported.jobs["duration_s"], strict=True))
    assert times == {"2": 51.0, "1": 5.0, "0": 20.5}
    assert imported.workload.specs[0].estimate_s == 60.0
    assert imported.quality.dropped == {"its profile has no run time": 2}
    cpus = batsim.FORMAT.load(file(workload("work")), {"unit": "cpu", "speed": "1e10"})
    assert cpus.workload.specs[0].request == Request.of(0, cpus=4.0)
    assert cpus.quality.repaired == {"duration below 1 s raised to 1 s": 1}


def test_nested_sequences_do_not_explode(file):
    profiles = {f"p{n}": {"type": "composed", "seq": [f"p{n + 1}"] * 9} for n in range(60)}
    profiles["p60"] = {"type": "delay", "delay": 1e-50}
    text = json.dumps(
        {
            "jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "p0"}],
            "profiles": profiles,
        }
    )
    imported = batsim.FORMAT.load(file(text), {})
    assert imported.workload.behaviours[0].work == pytest.approx(9.0**60 * 1e-50)


@pytest.mark.parametrize("text", ["{}", "[]", '{"jobs": 3, "profiles": {}}', '{"jobs": ['])
def test_what_is_not_a_workload_of_batsim(file, text):
    with pytest.raises(TraceError, match="is not a workload of Batsim"):
        batsim.FORMAT.load(file(text), {})


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"subtime": "NaN"}, "subtime nan is not a finite number"),
        ({"res": 10**400}, "job '1'"),
        ({"res": 10**12}, "res is more than 1,000,000,000"),
        ({"walltime": "inf"}, "walltime inf is not a finite number"),
    ],
)
def test_numbers_of_batsim_that_cannot_be(file, cells, says):
    good = {"id": 0, "subtime": 0, "res": 1, "profile": "p"}
    profiles = {"p": {"type": "delay", "delay": 5}}
    text = json.dumps({"jobs": [good, {**good, "id": 1, **cells}], "profiles": profiles})
    with pytest.raises(TraceError, match=says):
        batsim.FORMAT.load(file(text), {})
    assert batsim.FORMAT.load(file(text), {"bad": "drop"}).quality.dropped == {"not a job": 1}


def test_a_priority_of_gavel_beyond_all_numbers(file):
    rates = {"throughputs": str(file(json.dumps(RATES), "rates.json"))}
    fields = TRACE.rstrip("\n").split("\t")
    fields[7] = "9223372036854775808"
    with pytest.raises(TraceError, match=r"'priority_weight': .* is more than 1e\+15"):
        gavel.FORMAT.load(file("\t".join(fields) + "\n"), rates)
