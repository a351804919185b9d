"""Slurm's accounting as text: a test per quirk, on lines that we made up."""

import pytest

from own_formats import DAY, HEADER, NODES, line
from rota.core.errors import OptionError, TraceError
from rota.traces.formats.slurm.sacct import FORMAT
from rota.traces.sniff import first_look
from trace_readers import counted


@pytest.fixture
def read(tmp_path):
    """Return `read(*lines, header=..., **options)`: what is imported."""

    def run(*lines, header=HEADER, **options):
        path = tmp_path / "jobs.txt"
        path.write_text("\n".join([header, *lines] if header else lines) + "\n")
        imported = FORMAT.load(path, options)
        assert counted(imported.quality)
        return imported

    return run


def jobs(imported, *columns):
    return imported.jobs.select("job_id", *columns).rows()


def seen(imported, *columns):
    return imported.observed.frame.select("job", *columns).rows()


def test_a_job_is_what_it_asked_for_and_what_happened_to_it(read):
    imported = read(line())
    assert jobs(
        imported, "submit_s", "num_gpus", "duration_s", "vc", "user", "cpus", "mem_gib",
        "estimate_s", "gpu_type",
    ) == [("1", 0.0, 2.0, 90.0, "vision", "ann", 4.0, 8.0, 3600.0, [])]  # fmt: skip
    assert seen(imported, "start_s", "end_s", "nodes", "gpus", "state") == [
        (0, 10.0, 100.0, ["n1"], [2.0], "done")
    ]
    assert imported.origin == "2026-03-02 08:00:00"


def test_steps_are_skipped_and_counted(read):
    imported = read(line(), line("1.batch"), line("1.extern"), line("1.0"))
    assert len(imported) == 1
    assert imported.quality.dropped == {"step of a job": 3}


def test_tasks_of_an_array_are_jobs_and_those_that_wait_are_left_out(read):
    imported = read(
        line("123_4", JobIDRaw="124"),
        line("123_5", JobIDRaw="125"),
        line("123_[6-9]", JobIDRaw="123", State="PENDING", Start="Unknown", End="Unknown",
             ElapsedRaw="0", NodeList="None assigned", AllocTRES=""),
    )  # fmt: skip
    assert [name for (name,) in jobs(imported)] == ["123_4", "123_5"]
    assert imported.quality.dropped == {"pending at the end of the log": 1}


def test_attempts_of_a_requeued_job_are_one_job(read):
    imported = read(
        line(State="NODE_FAIL", Start=DAY + "08:00:10", End=DAY + "08:00:40", ElapsedRaw="30"),
        line(State="PREEMPTED", Submit=DAY + "08:00:40", Eligible=DAY + "08:02:40",
             Start=DAY + "08:03:00", End=DAY + "08:03:20", ElapsedRaw="20", NodeList="n2"),
        line(Submit=DAY + "08:03:20", Eligible=DAY + "08:03:20", Start=DAY + "08:04:00",
             End=DAY + "08:05:00", ElapsedRaw="60"),
    )  # fmt: skip
    assert jobs(imported, "submit_s", "duration_s") == [("1", 0.0, 60.0)]
    assert seen(imported, "attempt", "start_s", "end_s", "nodes", "state") == [
        (0, 0, 10.0, 40.0, ["n1"], "node-fail"),
        (0, 1, 180.0, 200.0, ["n2"], "preempted"),
        (0, 2, 240.0, 300.0, ["n1"], "done"),
    ]


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [("sum", 5400.0), ("last", 1800.0), ("span", 6600.0), ("longest", 3600.0), (None, 1800.0)],
)
def test_the_run_time_of_attempts_is_chosen_and_the_choice_is_quantified(read, runtime, expected):
    at = {"Start": DAY + "09:00:00", "Submit": DAY + "08:00:00"}
    imported = read(
        line("1", State="REQUEUED", End=DAY + "10:00:00", ElapsedRaw="3600", **at),
        line("1", Submit=DAY + "10:00:00", Eligible=DAY + "10:00:00", Start=DAY + "10:20:00",
             End=DAY + "10:50:00", ElapsedRaw="1800"),
        line("2"),
        **({"runtime": runtime} if runtime else {}),
    )  # fmt: skip
    assert jobs(imported, "duration_s") == [("1", expected), ("2", 90.0)]
    hours = {"last": "1.0", "longest": "2.0", "sum": "3.0", "span": "3.7"}  # of 2 GPUs
    chosen = runtime or "last"
    rest = ", ".join(f"{key} {hours[key]} (1 differ)" for key in hours if key != chosen)
    assert imported.notes == [
        f"1 job has several attempts; GPU-hours with runtime={chosen} {hours[chosen]}; with {rest}"
    ]


def test_records_of_exports_that_overlap_count_once(read):
    runs = line("1", State="RUNNING", End="Unknown", ElapsedRaw="30")
    waits = line("2", State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0",
                 NodeList="None assigned", AllocTRES="")  # fmt: skip
    imported = read(runs, waits, line("3"), line("1"), line("2"), line("3"))
    assert jobs(imported, "duration_s") == [("1", 90.0), ("2", 90.0), ("3", 90.0)]
    assert seen(imported, "nodes", "gpus", "state") == [
        (0, ["n1"], [2.0], "done"), (1, ["n1"], [2.0], "done"), (2, ["n1"], [2.0], "done"),
    ]  # fmt: skip
    assert imported.quality.dropped == {"record of what another record tells, too": 3}
    array = line("5_[3-9]", JobIDRaw="5", State="PENDING", Start="Unknown", End="Unknown",
                 ElapsedRaw="0", NodeList="None assigned", AllocTRES="")  # fmt: skip
    assert [name for (name,) in jobs(read(array, line("5_9", JobIDRaw="5")))] == ["5_9"]
    backwards = read(line("1"), runs)
    assert seen(backwards, "end_s", "state") == [(0, 100.0, "done")]


def test_a_heterogeneous_job_is_in_the_partition_of_its_gpus(read):
    both = {"JobIDRaw": "8", "Partition": "cpu", "ReqTRES": "cpu=8,node=1",
            "AllocTRES": "cpu=8,node=1"}  # fmt: skip
    imported = read(line("7+0", JobIDRaw="7"), line("7+1", **both), line("9", Partition="cpu"),
                    partitions="label")  # fmt: skip
    assert jobs(imported, "partition", "labels") == [("7", "gpu", ["gpu"]), ("9", "cpu", ["cpu"])]


def node_events(imported):
    return imported.events.select("time_s", "kind", "subject").rows()


def failed(job, at, **cells):
    return line(job, State="NODE_FAIL", End=DAY + at, ElapsedRaw="", **cells)


def test_node_fail_is_an_outage_until_a_job_is_seen_there_again(read):
    again = {"Start": DAY + "10:00:00", "End": DAY + "11:00:00", "ElapsedRaw": "3600"}
    rows = (
        failed("1", "08:30:00"),
        line("1", Submit=DAY + "08:30:00", Eligible=DAY + "08:30:00", NodeList="n2", **again),
        failed("2", "08:30:00"),  # went down with it
        line("3", Start=DAY + "09:15:00", End=DAY + "09:30:00", ElapsedRaw="900"),
        failed("4", "08:45:00", NodeList="n3"),  # nobody is seen there again
    )
    imported = read(*rows)
    assert node_events(imported) == [
        (1800.0, "node_down", "n1"), (2700.0, "node_down", "n3"), (4500.0, "node_up", "n1"),
        (6300.0, "node_up", "n3"),
    ]  # fmt: skip
    assert len(imported) == 4  # the requeued job is one
    note = next(note for note in imported.notes if "NODE_FAIL" in note)
    assert note == (
        "2 outages of nodes from NODE_FAIL, 1.8 node-hours, each until the next job was seen to "
        "start there; 1 not seen again: taken to be down for 1h 00m (outage=)"
    )
    assert imported.workload.failures[0] == (1800.0, "n1", False)
    assert node_events(read(*rows, outage="60"))[-2] == (2760.0, "node_up", "n3")
    assert not node_events(read(*rows, failures="none"))


def test_a_node_on_which_others_went_on_was_not_down(read):
    imported = read(
        failed("1", "08:30:00"),
        line("2", End=DAY + "09:00:00", ElapsedRaw="3590"),
        failed("3", "08:40:00", NodeList="n[1-3]", AllocTRES="cpu=4,gres/gpu=3,node=3"),
        line("4", NodeList="n2", Start=DAY + "09:15:00", End=DAY + "09:30:00", ElapsedRaw="900"),
        line("5", NodeList="n3", Start=DAY + "09:45:00", End=DAY + "09:50:00", ElapsedRaw="300"),
    )
    assert node_events(imported) == [(2400.0, "node_down", "n3"), (6300.0, "node_up", "n3")]
    note = next(note for note in imported.notes if "NODE_FAIL" in note)
    assert "1 of several nodes of a job the one that stayed empty for longest" in note
    assert "1 no outage, since another job ran on there" in note


@pytest.mark.parametrize("outage", ["-1", "inf", "nan"])
def test_an_outage_lasts_some_seconds(read, outage):
    with pytest.raises(OptionError, match="outage"):
        read(line(), outage=outage)


def test_a_number_that_comes_again_is_another_job(read):
    imported = read(
        line(),
        line(Submit="2026-04-02T08:00:00", Eligible="2026-04-02T08:00:00",
             Start="2026-04-02T08:00:00", End="2026-04-02T09:00:00"),
    )  # fmt: skip
    assert [name for (name,) in jobs(imported)] == ["1", "1#2"]
    assert imported.observed.frame["attempt"].to_list() == [0, 0]


def test_waiting_counts_from_when_a_job_could_start(read):
    held = line(Eligible=DAY + "08:00:07")
    imported = read(held, line("2"))
    assert jobs(imported, "submit_s") == [("2", 0.0), ("1", 7.0)]
    assert sum(imported.quality.repaired.values()) == 1
    imported = read(held, line("2"), since="submit")
    assert jobs(imported, "submit_s") == [("1", 0.0), ("2", 0.0)]


@pytest.mark.parametrize("eligible", ["Unknown", "None", "", DAY + "09:00:00"])
def test_an_eligible_time_that_makes_no_sense_is_not_used(read, eligible):
    imported = read(line(Eligible=eligible))
    assert jobs(imported, "submit_s")[0][1] in (0.0, 10.0)
    assert imported.observed.frame["start_s"][0] - imported.jobs["submit_s"][0] in (0.0, 10.0)


def test_dependencies_come_from_the_submit_line(read):
    lines = [
        line("1"), line("2_1", JobIDRaw="2"), line("2_2", JobIDRaw="3"),
        line("4", SubmitLine="sbatch -d afterok:1:2,singleton x.sh | tee"),
        line("5", SubmitLine="sbatch --dependency=after:1 x.sh"),
        line("6", SubmitLine="sbatch --dependency=afterany:77 x.sh"),
    ]  # fmt: skip
    depends = dict(jobs(read(*lines, since="submit"), "depends_on"))
    assert depends == {
        "1": [], "2_1": [], "2_2": [], "4": ["1", "2_1", "2_2"], "5": [], "6": [],
    }  # fmt: skip
    assert not any(others for _, others in jobs(read(*lines), "depends_on"))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"AllocTRES": "cpu=4,gres/gpu:a100=8,mem=1G"}, 8.0),
        ({"AllocTRES": "cpu=4,gres/gpu:a100=2,gres/gpu:v100=1"}, 3.0),
        ({"AllocTRES": ""}, 2.0),
        ({"AllocTRES": "cpu=4,mem=1G,node=1", "ReqTRES": "cpu=4"}, 0.0),
    ],
)
def test_gpus_come_from_tres(read, cells, expected):
    assert jobs(read(line(**cells)), "num_gpus") == [("1", expected)]


def gpus_and_types(read, tmp_path, tres, nodes="", **options):
    if nodes:
        (tmp_path / "nodes.txt").write_text(nodes)
        options["nodes"] = str(tmp_path / "nodes.txt")
    imported = read(line(ReqTRES=tres, AllocTRES=tres), **options)
    ((_, gpus, types),) = jobs(imported, "num_gpus", "gpu_type")
    return gpus, types, list(imported.quality.repaired)


SHARDED = "NodeName=n1 CPUTot=16 Gres=gpu:a100:4(S:0-1),shard:a100:16(S:0-1) Partitions=gpu\n"


@pytest.mark.parametrize(
    ("tres", "options", "gpus", "types", "told"),
    [
        ("gres/gpu:a100_1g.5gb=1,gres/gpu=1", {}, 1 / 7, ["a100"], "sevenths"),
        ("gres/gpu:nvidia_a100_3g.39gb=2,gres/gpu=2", {}, 6 / 7, ["nvidia_a100"], "sevenths"),
        ("gres/gpu:1g.10gb=1", {}, 1 / 7, [], "sevenths"),
        ("gres/gpu:a100=1,gres/gpu:a100_7g.40gb=1,gres/gpu=2", {}, 2.0, ["a100"], "sevenths"),
        ("gres/gpu:a100_1g.5gb=1,gres/gpu=1", {"mig": "whole"}, 1.0, ["a100"], "mig=whole"),
        ("gres/shard=1", {"shards": "4"}, 0.25, [], "shards: counted as parts"),
        ("gres/shard:a100=2,gres/shard=2", {"nodes": SHARDED}, 0.5, [], "shards: counted as parts"),
        ("gres/shard=3", {}, 1.0, [], "nobody says how many make a GPU"),
        ("gres/mps=25", {}, 0.25, [], "by MPS"),
        ("gres/shard=6", {"shards": "4"}, 2.0, [], "shards: counted as parts"),
    ],
)
def test_parts_of_gpus_are_never_nothing_nor_silently_a_whole_one(
    read, tmp_path, tres, options, gpus, types, told
):
    found = gpus_and_types(read, tmp_path, "cpu=4,mem=8G,node=1," + tres, **options)
    assert found[0] == pytest.approx(gpus, abs=1e-6)
    assert found[1] == types
    assert any(told in what for what in found[2])


def test_parts_are_counted_by_job_in_both_ways(read):
    mig = {"ReqTRES": "cpu=1,gres/gpu:a100_1g.5gb=1", "AllocTRES": "cpu=1,gres/gpu=1,node=1"}
    again = {"State": "REQUEUED", "End": DAY + "08:00:20", "ElapsedRaw": "10"}
    later = {"Submit": DAY + "08:00:20", "Start": DAY + "08:01:00", "End": DAY + "08:02:00"}
    imported = read(line("1", **mig), line("2", **mig, **again), line("2", **mig, **later))
    assert [round(size * 7, 5) for _, size in jobs(imported, "num_gpus")] == [1.0, 1.0]
    assert imported.quality.repaired == {"instances of MIG: counted as sevenths of a GPU": 2}


@pytest.mark.parametrize("shards", ["-1", "inf"])
def test_a_gpu_has_some_shards(read, shards):
    with pytest.raises(OptionError, match="shards"):
        read(line(), shards=shards)


def test_in_older_logs_gpus_come_from_gres_per_node(read):
    header = "JobID|User|Partition|ReqNodes|ReqGRES|AllocNodes|State|Submit|Start|End|NCPUS|NNodes"
    times = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00"
    imported = read(
        f"7|ann|gpu|2|gpu:8|2|COMPLETED|{times}|16|2",
        f"8|ann|gpu|1|gpu:tesla:4|1|COMPLETED|{times}|16|1",
        f"9|ann|cpu|1||1|COMPLETED|{times}|16|1",
        header=header,
    )
    assert jobs(imported, "num_gpus", "gpu_type", "cpus") == [
        ("7", 16.0, [], 16.0), ("8", 4.0, ["tesla"], 16.0), ("9", 0.0, [], 16.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("UNLIMITED", None), ("Partition_Limit", None), ("", None), ("90", 5400.0)],
)
def test_time_limits_are_estimates(read, limit, expected):
    assert jobs(read(line(TimelimitRaw=limit)), "estimate_s") == [("1", expected)]


def test_time_limits_may_be_written_out(read):
    header = "JobID|Submit|Start|End|State|AllocTRES|Timelimit"
    row = f"1|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|COMPLETED|gres/gpu=1|"
    for text, expected in (("1-02:00:00", 93_600.0), ("00:05:00", 300.0), ("UNLIMITED", None)):
        assert jobs(read(row + text, header=header), "estimate_s") == [("1", expected)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("CANCELLED by 1000", "cancelled"), ("TIMEOUT", "timeout"), ("NODE_FAIL", "node-fail"),
        ("OUT_OF_MEMORY", "failed"), ("FAILED", "failed"), ("PREEMPTED", "preempted"),
        ("COMPLETED", "done"), ("DEADLINE", "timeout"), ("SOMETHING_NEW", ""),
    ],
)  # fmt: skip
def test_states(read, state, expected):
    assert seen(read(line(State=state)), "state") == [(0, expected)]


def test_a_job_that_was_cancelled_while_it_waited_never_started(read):
    gone = line("2", State="CANCELLED by 0", Start=DAY + "08:00:30", End=DAY + "08:00:30",
                ElapsedRaw="0", AllocTRES="", NodeList="None assigned")  # fmt: skip
    imported = read(line(), gone)
    assert len(imported) == 1
    assert imported.quality.dropped == {"cancelled before it started": 1}


def test_what_still_runs_is_cut_at_the_latest_time_or_left_out(read):
    running = line("2", State="RUNNING", End="Unknown", ElapsedRaw="600")
    imported = read(line(), running)
    assert jobs(imported, "duration_s") == [("1", 90.0), ("2", 600.0)]
    assert seen(imported, "end_s", "state")[1] == (1, None, "running")
    assert sum(imported.quality.repaired.values()) == 1
    assert len(read(line(), running, unfinished="drop")) == 1


def test_components_of_a_heterogeneous_job_are_one_job(read):
    imported = read(
        line("11+0", JobIDRaw="11"),
        line("11+1", JobIDRaw="12", NodeList="n2", AllocTRES="cpu=2,gres/gpu=6,node=1"),
    )
    assert jobs(imported, "num_gpus", "cpus") == [("11", 8.0, 6.0)]
    assert seen(imported, "nodes", "gpus") == [(0, ["n1", "n2"], [2.0, 6.0])]


def test_gpus_on_several_nodes_are_not_told_per_node(read):
    imported = read(line(NodeList="n[1-2]", AllocTRES="cpu=2,gres/gpu=3,node=2"))
    assert seen(imported, "nodes", "gpus") == [(0, ["n1", "n2"], [])]


def test_jobs_without_gpus_are_kept_or_left_out_by_an_option(read):
    lines = [line(), line("2", ReqTRES="cpu=4,mem=1G", AllocTRES="cpu=4,mem=1G")]
    assert len(read(*lines)) == 2
    assert len(read(*lines, gpu_only="yes")) == 1


def test_a_job_without_gpus_on_several_nodes_has_a_task_on_each(read):
    tres = "cpu=32,mem=100G,node=2"
    imported = read(line(ReqTRES=tres, AllocTRES=tres, NNodes="2", NodeList="n[1-2]"), line("2"))
    first, second = (spec.request for spec in imported.workload.specs)
    assert (first.apart, first.groups[0].count, first.groups[0].cpus) == (True, 2, 16.0)
    assert (second.apart, second.groups[0].count, second.groups[0].cpus) == (False, 2, 2.0)


def test_without_a_header_the_fields_are_named_or_the_usual_ones(read):
    row = line().split("|")
    imported = read("|".join(row), header="", fields=HEADER.replace("|", "/"))
    assert jobs(imported, "num_gpus") == [("1", 2.0)]
    usual = [row[i] for i in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)]
    assert jobs(read("|".join(usual), header=""), "num_gpus", "user") == [("1", 2.0, "ann")]
    assert jobs(read("|".join([*usual, "5", "0:0"]), header=""), "num_gpus") == [("1", 2.0)]
    with pytest.raises(TraceError, match="fields="):
        read("1|2|3", header="")


def test_the_delimiter_may_stand_at_the_end_and_in_the_last_column(read):
    assert len(read(line() + "|", header=HEADER + "|")) == 1
    assert len(read(line(SubmitLine="sbatch --wrap 'a | b'"))) == 1
    assert len(read(line().replace("|", ";"), header=HEADER.replace("|", ";"), delimiter=";")) == 1


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (line(Start="yesterday"), r"line 3: column 'start': 'yesterday' is not a time"),
        (line("").replace("|", "|", 1), r"line 3: has no job id"),
        ("1|2", r"line 3: has another number of fields"),
        (line(NodeList="n[1-"), r"brackets do not match"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_or_dropped(read, bad, match):
    with pytest.raises(TraceError, match=match):
        read(line("9"), bad)
    imported = read(line("9"), bad, bad="drop")
    assert imported.quality.dropped == {"line that cannot be read": 1}


def test_a_delimiter_in_a_name_costs_nothing_or_its_line_but_never_the_file(read):
    torn = line("2", JobName="lr=0.1|bs=32", SubmitLine="sbatch --wrap 'a | b'")
    imported = read(line("1"), torn, line("3", SubmitLine="sbatch --wrap 'a | b'"))
    assert jobs(imported, "name", "user", "num_gpus") == [
        ("1", "train", "ann", 2.0), ("2", "lr=0.1|bs=32", "ann", 2.0), ("3", "train", "ann", 2.0),
    ]  # fmt: skip
    assert imported.quality.repaired == {"delimiter in a name: its line was put together again": 1}


@pytest.mark.parametrize("nodes", ["n1", "n[1-2]"])
def test_a_line_that_can_be_read_in_two_ways_is_left_out_with_its_number(read, nodes):
    header = HEADER.replace("User", "Comment").replace("|SubmitLine", "")
    whole = line("1", NodeList=nodes).rsplit("|", 1)[0]
    other = line("2", JobName="a|b|COMPLETED|0|x", NodeList=nodes).rsplit("|", 1)[0]
    imported = read(whole, other + "|x", whole.replace("1|1|", "3|3|"), header=header)
    assert [name for (name,) in jobs(imported)] == ["1", "3"]
    assert imported.quality.dropped == {
        "line with more fields than the header, as with the delimiter in a name": 1
    }
    assert "left out for more fields than the header has: line 3" in imported.notes
    without = header.replace("JobName", "Cluster").replace("Comment", "Flags")
    assert len(read(whole, other, header=without)) == 1


def test_columns_that_are_needed_are_named(read):
    for title in ("Start", "Submit"):
        header = HEADER.replace(f"|{title}|", "|X|").replace("|Eligible|", "|Y|")
        with pytest.raises(TraceError, match=f"no column '{title}'"):
            read(line(), header=header)


def test_the_hour_that_comes_twice_is_read_by_the_elapsed_time(read):
    night = {
        "Submit": "2026-10-25T01:30:00", "Eligible": "2026-10-25T01:30:00",
        "Start": "2026-10-25T02:30:00", "End": "2026-10-25T02:40:00", "ElapsedRaw": "4200",
    }  # fmt: skip
    imported = read(line(**night), tz="Europe/Berlin")
    assert seen(imported, "start_s", "end_s") == [(0, 3600.0, 7800.0)]
    imported = read(line(**night))
    assert seen(imported, "start_s", "end_s") == [(0, 3600.0, 4200.0)]


def test_the_clock_that_is_set_back_does_not_let_a_job_end_before_it_starts(read):
    night = {
        "Submit": "2026-10-25T02:50:00", "Eligible": "2026-10-25T02:50:00",
        "Start": "2026-10-25T02:10:00", "End": "2026-10-25T03:10:00", "ElapsedRaw": "3600",
    }  # fmt: skip
    imported = read(line(**night), tz="Europe/Berlin")
    assert seen(imported, "start_s", "end_s") == [(0, 1200.0, 4800.0)]


def night(start, end, elapsed, day="2025-10-26", **cells):
    """Return a job on a night on which clocks are changed, submitted the evening before."""
    before = "2025-03-29T20:00:00" if day < "2025-04" else "2025-10-25T20:00:00"
    times = {"Start": f"{day}T{start}", "End": f"{day}T{end}", "ElapsedRaw": str(elapsed)}
    return line(Submit=before, Eligible=before, **times, **cells)


@pytest.mark.parametrize(
    ("start", "end", "elapsed"),
    [
        ("02:30:00", "05:30:00", 10_800),  # the second 02:30
        ("02:30:00", "05:30:00", 14_400),  # the first
        ("01:30:00", "02:30:00", 3_600),
        ("01:30:00", "02:30:00", 7_200),
        ("02:10:00", "02:50:00", 2_400),
        ("02:10:00", "02:50:00", 6_000),
        ("02:50:00", "02:10:00", 1_200),
        ("01:30:00", "05:30:00", 18_000),
    ],
)
@pytest.mark.parametrize("nodes", ["n1", "n[1-2]"])  # column by column, and one by one
def test_a_run_takes_as_long_as_elapsed_when_the_clock_is_set_back(
    read, nodes, start, end, elapsed
):
    imported = read(night(start, end, elapsed, NodeList=nodes), tz="Europe/Berlin")
    assert jobs(imported, "duration_s") == [("1", float(elapsed))]
    assert not any("hour" in note for note in imported.notes)


@pytest.mark.parametrize("nodes", ["n1", "n[1-2]"])
@pytest.mark.parametrize(
    ("start", "end", "elapsed", "day"),
    [
        ("01:30:00", "05:30:00", 18_000, "2025-10-26"),
        ("01:30:00", "03:30:00", 3_600, "2025-03-30"),  # there is no 02:30
    ],
)
def test_a_zone_that_would_explain_an_hour_is_suggested(read, nodes, start, end, elapsed, day):
    row = night(start, end, elapsed, day, NodeList=nodes)
    assert any(
        "start and end of 1 run are an hour more or less apart" in note
        and note.endswith("e.g. tz=Europe/Berlin")
        for note in read(row).notes
    )
    imported = read(row, tz="Europe/Berlin")
    assert jobs(imported, "duration_s") == [("1", float(elapsed))]
    assert not any("an hour more" in note for note in imported.notes)


def test_a_zone_that_is_wrong_is_doubted(read):
    imported = read(night("01:30:00", "05:30:00", 14_400, "2025-03-30"), tz="Europe/Berlin")
    assert any(note.endswith("e.g. tz=UTC") for note in imported.notes)
    imported = read(night("02:30:00", "05:30:00", 10_800, "2025-03-30"), tz="Europe/Berlin")
    assert any("1 rows have a time that Europe/Berlin does not have" in n for n in imported.notes)


def test_an_hour_that_no_zone_explains_is_not_the_clock(read):
    suspended = line(ElapsedRaw="90", End=DAY + "09:01:40")
    assert not read(suspended).notes


def test_times_may_have_an_offset_or_be_seconds(read):
    cells = {"Start": "1772438410", "End": DAY + "09:01:40+01:00"}
    assert seen(read(line(**cells)), "start_s", "end_s") == [(0, 10.0, 100.0)]


def test_an_unknown_time_zone_is_refused(read):
    with pytest.raises(OptionError, match="tz=Mars/Base is not a known time zone"):
        read(line(), tz="Mars/Base")


@pytest.mark.parametrize(
    ("tenant", "expected"), [("account", "vision"), ("partition", "gpu"), ("user", "ann")]
)
def test_the_tenant_is_chosen(read, tenant, expected):
    assert jobs(read(line(), tenant=tenant), "vc") == [("1", expected)]


def test_qos_and_priority_are_kept_and_become_the_priority_of_a_job(read):
    rows = (
        line("1", QOS="low", Priority="12", Partition="debug", Account="vision"),
        line("2", QOS="high", Priority="4294901759"),
        line("3", QOS="", Priority=""),
    )
    imported = read(*rows)
    assert jobs(imported, "account", "partition", "qos", "priority") == [
        ("1", "vision", "debug", "low", 12),
        ("2", "vision", "gpu", "high", 4294901759),
        ("3", "vision", "gpu", "", 0),
    ]
    assert [(s.account, s.partition, s.qos, s.priority) for s in imported.workload.specs][:1] == [
        ("vision", "debug", "low", 12)
    ]
    assert any("priority=none" in note for note in imported.notes)
    assert jobs(read(*rows, priority="none"), "priority") == [("1", 0), ("2", 0), ("3", 0)]
    ranked = read(*rows, classes="low/normal/high")
    assert jobs(ranked, "priority") == [("1", 0), ("2", 2), ("3", 0)]
    assert not ranked.notes
    with pytest.raises(TraceError, match="classes=low/normal does not name the QOS high: give it"):
        read(*rows, classes="low/normal")


def test_nodes_make_a_cluster_and_partitions_bind_jobs_to_them(read, tmp_path):
    nodes = tmp_path / "nodes.txt"
    nodes.write_text(NODES)
    lines = [line(), line("2", Partition="debug"), line("3", Partition="gone", NodeList="n9")]
    imported = read(*lines, nodes=str(nodes))
    assert [(n.name, n.gpus, n.gpu_type, n.cpus, n.mem_gib) for n in imported.cluster] == [
        ("n1", 4, "a100", 16.0, 64.0), ("n2", 4, "a100", 16.0, 64.0),
    ]  # fmt: skip
    assert jobs(imported, "labels") == [("1", ["gpu"]), ("2", ["debug"]), ("3", [])]
    assert not any(labels for _, labels in jobs(read(*lines), "labels"))
    assert jobs(read(*lines, partitions="label"), "labels")[2] == ("3", ["gone"])


def test_a_gpu_type_that_no_node_has_is_not_asked_for(read, tmp_path):
    nodes = tmp_path / "nodes.txt"
    nodes.write_text(NODES)
    asked = [
        line(ReqTRES="cpu=1,gres/gpu:a100=2"),
        line("2", ReqTRES="cpu=1,gres/gpu:tesla=2"),
    ]
    imported = read(*asked, nodes=str(nodes))
    assert jobs(imported, "gpu_type") == [("1", ["a100"]), ("2", [])]
    assert sum(imported.quality.repaired.values()) == 1
    assert jobs(read(*asked), "gpu_type") == [("1", ["a100"]), ("2", ["tesla"])]


def test_nothing_left_is_said_with_reasons(read):
    with pytest.raises(TraceError, match="1 pending at the end of the log"):
        read(line(State="PENDING", Start="Unknown", End="Unknown", NodeList="", ElapsedRaw=""))


def test_steps_alone_are_no_jobs(read):
    with pytest.raises(TraceError, match="give the lines of the jobs too"):
        read(line("1.batch"), line("1.0"))


def test_the_format_is_recognised(tmp_path):
    path = tmp_path / "x"
    path.write_text(f"{HEADER}\n{line()}\n")
    assert FORMAT.recognises(first_look(path)) == 1.0
    path.write_text("job_id,submit_s,num_gpus,duration_s\n1,0,1,1\n")
    assert FORMAT.recognises(first_look(path)) == 0.0
