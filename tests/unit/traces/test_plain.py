"""The plain csv format: every column, and every way in which a file can be wrong."""

import math

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.traces.read import read_trace, read_workload
from rota.traces.synth.generate import KINDS, generate
from rota.traces.write import write_workload
from trace_readers import quoted

HEADER = "job_id,submit_s,num_gpus,duration_s"


@pytest.fixture
def trace(tmp_path):
    """Return `trace(text)`: the path of a csv file with this content."""

    def write(text):
        path = tmp_path / "jobs.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def problem(path, format_text="csv"):
    """Return the message with which the file is refused; it must start with the file's path."""
    with pytest.raises(TraceError) as caught:
        read_workload(path, format_text)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_required_columns_give_jobs_in_the_order_of_the_file(trace):
    workload = read_workload(trace(f"{HEADER}\nb,20,4,7.5\na,10,1,3\n"))
    assert workload.specs == [
        JobSpec("b", 20.0, Request.of(4)),
        JobSpec("a", 10.0, Request.of(1)),
    ]
    assert workload.behaviours == [Behaviour(7.5), Behaviour(3.0)]
    assert workload.name == "jobs"
    assert (workload.quality.rows, workload.quality.kept) == (2, 2)


def test_every_optional_column(trace):
    text = (
        f"{HEADER},vc,user,group,name,model,gpu_type,cpus,mem_gib,priority,deadline_s,estimate_s,"
        "gang,min_gpus,max_gpus,depends_on\n"
        "1,5,4,60,vc9,ann,g1,first,vgg,A|B,8,16.5,-3,500,90,false,2,8,\n"
        "2,6,1,61,,,,,,,,,,,,,,,1; 1\n"
    )
    first, second = read_workload(trace(text)).specs
    request = Request.of(
        4, gpu_types=("A", "B"), cpus=8, mem_gib=16.5, gang=False, min_gpus=2, max_gpus=8
    )
    assert first == JobSpec(
        "1", 5.0, request, "vc9", "ann", "first", "g1", "vgg", -3, 500.0, 90.0, ()
    )  # fmt: skip
    assert type(first.priority) is int
    assert second == JobSpec("2", 6.0, Request.of(1), depends_on=("1", "1"))
    assert second.deadline_s == second.estimate_s == math.inf


def test_sizes_list_what_an_elastic_job_takes(trace, tmp_path):
    path = trace(f"{HEADER},sizes\n1,0,4,60,8; 1;4\n2,0,1,60,\n")
    workload = read_workload(path)
    first, second = (spec.request for spec in workload.specs)
    assert (first.only, first.sizes, first.within(7)) == ((1.0, 4.0, 8.0), (1.0, 8.0), 4.0)
    assert second == Request.of(1)
    again = write_workload(workload, tmp_path / "again.csv")
    assert again.read_text() == f"{HEADER},sizes\n1,0,4,60,1;4;8\n2,0,1,60,\n"
    assert list(read_workload(again).specs) == list(workload.specs)


def test_sizes_and_a_range_are_too_much(trace):
    message = problem(trace(f"{HEADER},min_gpus,sizes\n1,0,4,60,2,2;4\n"))
    assert message.startswith("line 2, column 'sizes': '2;4' stands beside min_gpus or max_gpus")


@pytest.mark.parametrize("title", ["vc", "queue", "tenant"])
def test_the_tenant_has_three_titles(trace, title):
    (job,) = read_workload(trace(f"{HEADER},{title}\n1,0,1,9,team\n")).specs
    assert job.tenant == "team"


def test_two_titles_of_one_column_are_refused(trace):
    message = problem(trace(f"{HEADER},vc,tenant\n1,0,1,9,a,b\n"))
    assert message == "line 1: columns 'vc' and 'tenant' mean the same: keep one"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\r\n1,0,1,9\r\n2,5,2,8\r\n",
        b"\xef\xbb\xbf" + f"{HEADER}\n1,0,1,9\n2,5,2,8\n".encode(),
        '"job_id","submit_s",num_gpus,duration_s\n"1","0",1,9\n2,5,"2",8\n',
        f"{HEADER}\n\n1,0,1,9\n\n2,5,2,8",
        "job_id, submit_s, num_gpus, duration_s\n1, 0, 1, 9\n 2 , 5 , 2 , 8 \n",
        "duration_s,num_gpus,submit_s,job_id\n9,1,0,1\n8,2,5,2\n",
        f"{HEADER}\n1,0e0,1.0,9.\n2,+5,2,.8e1\n",
    ],
    ids=["crlf", "bom", "quotes", "blank lines", "blanks", "column order", "numbers"],
)
def test_harmless_variants_mean_the_same(trace, text):
    workload = read_workload(trace(text))
    assert workload.specs == [JobSpec("1", 0.0, Request.of(1)), JobSpec("2", 5.0, Request.of(2))]
    assert workload.behaviours == [Behaviour(9.0), Behaviour(8.0)]


def test_a_quoted_cell_may_hold_commas_quotes_and_lines(trace):
    text = f'{HEADER},name\n1,0,1,9,"a, ""b""\nc"\n2,0,1,9,d\n'
    assert [job.name for job in read_workload(trace(text)).specs] == ['a, "b"\nc', "d"]


def test_fractions_of_a_gpu_and_jobs_without_gpus(trace):
    text = f"{HEADER},cpus,mem_gib\n1,0,0.5,9,,\n2,0,0,9,4,\n3,0,0,9,,8\n"
    half, cpus, memory = (job.request for job in read_workload(trace(text)).specs)
    assert half == Request.of(0.5)
    assert cpus == Request.of(0, cpus=4)
    assert memory == Request.of(0, mem_gib=8)


def test_a_deadline_may_be_the_submission_itself(trace):
    (job,) = read_workload(trace(f"{HEADER},deadline_s\n1,5,1,9,5\n")).specs
    assert job.deadline_s == 5.0


def test_equal_requests_and_texts_are_shared(trace):
    text = f"{HEADER},vc,gpu_type\n1,0,2,9,team,A\n2,0,2,9,team,A\n"
    first, second = read_workload(trace(text)).specs
    assert first.request is second.request
    assert first.tenant is second.tenant


CELLS = {
    # column: (bad value, what the message says after the value)
    "negative submit": ("submit_s", "-5", "is less than 0: give 0 or more"),
    "negative duration": ("duration_s", "-1", "is not more than 0: give more than 0"),
    "no duration": ("duration_s", "0", "is not more than 0: give more than 0"),
    "negative gpus": ("num_gpus", "-1", "is less than 0: give 0 or more"),
    "one and a half": ("num_gpus", "1.5", "is neither whole nor below 1"),
    "no gpus": ("num_gpus", "0", "asks for nothing: give at least one GPU, or CPUs"),
    "word": ("duration_s", "soon", "is not a number: give a plain number"),
    "array id": ("submit_s", "12_3", "is not a number: give a plain number"),
    "nan": ("duration_s", "nan", "is not a number"),
    "inf": ("submit_s", "inf", "is not a finite number"),
    "too large": ("submit_s", "1e999", "is not a finite number"),
    "empty number": ("submit_s", "", "is missing: give a number"),
    "empty id": ("job_id", "", "is missing: give every row its own"),
    "twin": ("job_id", "1", "occurs twice (first on line 2): give every row its own"),
    "priority": ("priority", "1.5", "is not a whole number: give one"),
    "optional word": ("cpus", "many", "is not a number: give a plain number"),
    "optional negative": ("mem_gib", "-1", "is less than 0: give 0 or more"),
    "optional nan": ("estimate_s", "nan", "is not a number"),
    "no estimate": ("estimate_s", "0", "is not more than 0: give more than 0"),
    "gang": ("gang", "maybe", "is neither true nor false: give one of them"),
    "deadline": ("deadline_s", "6", "is before the submission: give it on the same clock"),
    "broken min": ("min_gpus", "1.5", "is not a whole number: give one"),
    "min": ("min_gpus", "3", "is more than num_gpus: give at most num_gpus"),
    "max": ("max_gpus", "1", "is less than num_gpus: give at least num_gpus"),
    "no sizes": ("sizes", "two", "is no list of sizes: write whole numbers of GPUs"),
    "size none": ("sizes", "0;2", "is no list of sizes: write whole numbers of GPUs"),
    "sizes without its own": ("sizes", "1;4", "lacks num_gpus, 2"),
    "dependency": ("depends_on", "1;7", "names '7', which is no job_id: correct it"),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_bad_cell_is_named_with_its_line(trace, case):
    column, value, says = CELLS[case]
    good = {"job_id": "3", "submit_s": "7", "num_gpus": "2", "duration_s": "9"}
    columns = list(dict.fromkeys([*good, column]))
    rows = [{**good, "job_id": "1"}, {**good, "job_id": "2"}, {**good, column: value}]
    lines = [",".join(row.get(name, "") for name in columns) for row in rows]
    message = problem(trace("\n".join([",".join(columns), *lines])))
    assert message.startswith(f"line 4, column {column!r}: {value!r} {says}")


def test_the_message_uses_the_title_of_the_file(trace):
    text = f"{HEADER}\n1,0,1,x\n"
    assert "column 'duration_s': 'x'" in problem(trace(text))


def test_lines_are_counted_through_quoted_line_ends_and_blank_lines(trace):
    text = f'{HEADER},name\n1,0,1,9,"a\nb\nc"\n\n2,0,1,9,d\n3,-1,1,9,e\n'
    assert problem(trace(text)).startswith("line 7, column 'submit_s': '-1'")


def test_jobs_that_wait_for_each_other_are_refused(trace):
    text = f"{HEADER},depends_on\n1,0,1,9,\n2,0,1,9,3\n3,0,1,9,2\n"
    message = problem(trace(text))
    assert message.startswith(("line 3, column 'depends_on'", "line 4, column 'depends_on'"))
    assert "wait for each other (" in message
    assert "remove one of these dependencies" in message


def test_a_column_that_is_missing_is_suggested_before_others(trace):
    message = problem(trace("job_id,submit_s,gpus,duration_s\n1,0,1,9\n"))
    assert message.startswith("line 1: unknown column 'gpus': did you mean 'num_gpus'? known: ")


def test_an_unknown_column_is_refused_with_the_closest_and_the_way_out(trace):
    message = problem(trace(f"{HEADER},priorty\n1,0,1,9,3\n"))
    assert message.startswith("line 1: unknown column 'priorty': did you mean 'priority'? known: ")
    assert message.endswith("or ignore unknown columns with --format csv:ignore=yes")


def test_unknown_columns_can_be_ignored(trace):
    path = trace(f"{HEADER},colour,vc\n1,0,1,9,red,team\n")
    (job,) = read_workload(path, "csv:ignore=yes").specs
    assert job.tenant == "team"


@pytest.mark.parametrize("missing", HEADER.split(","))
def test_a_missing_column_is_named_even_when_the_format_is_not(trace, missing):
    titles = [title for title in HEADER.split(",") if title != missing]
    path = trace(",".join(titles) + "\n1,2,3\n")
    assert problem(path, None).startswith(f"line 1: there is no column {missing!r}: add it")


def test_a_line_with_too_few_or_too_many_fields_is_named(trace):
    short = problem(trace(f"{HEADER}\n1,0,1,9\n2,0,1\n"))
    assert short.startswith("line 3: has 3 fields but the header has 4: complete the line")
    long = problem(trace(f"{HEADER}\n1,0,1,9,7\n2,0,1,9\n"))
    assert long.startswith("line 2: has 5 fields but the header has 4")


def test_an_open_quote_is_refused(trace):
    message = problem(trace(f'{HEADER}\n1,0,1,9\n2,"0,1,9\n'))
    assert message.startswith("line 3: is not CSV (unexpected end of data): close every quote")


def test_a_file_that_ends_inside_a_character_is_refused(trace):
    text = f"{HEADER},name\n1,0,1,9,ä".encode()[:-1]
    message = problem(trace(text), None)
    assert message.startswith(f"is not UTF-8 text (byte 0xc3 at position {len(text) - 1})")


def test_semicolons_are_refused_with_a_hint(trace):
    message = problem(trace("job_id;submit_s;num_gpus;duration_s\n1;0;1;9\n"))
    assert "line 1: columns seem to be separated by ';'" in message
    assert message.endswith("separate them by commas, and write numbers with a decimal point")


def test_only_a_header_is_refused(trace):
    assert problem(trace(HEADER)) == "has a header but no rows: add at least one"


def test_an_unknown_option_is_refused(trace):
    with pytest.raises(OptionError, match=r"format csv: unknown parameter 'ignored'.*'ignore'"):
        read_workload(trace(f"{HEADER}\n1,0,1,9\n"), "csv:ignored=yes")


def test_errors_beyond_the_first_chunk_have_the_right_line(trace):
    rows = [f"{i},{i},1,9" for i in range(30_000)]
    rows[25_000] += ",extra"
    assert problem(trace("\n".join([HEADER, *rows]))).startswith("line 25002: has 5 fields")
    rows[25_000] = "x,1,one,9"
    assert problem(trace("\n".join([HEADER, *rows]))).startswith("line 25002, column 'num_gpus'")


# --- both parsers of tables ----------------------------------------------------------------------


FULL = (
    "job_id,submit_s,num_gpus,duration_s,queue,user,gpu_type,cpus,mem_gib,priority,deadline_s,"
    "estimate_s,model,gang,min_gpus,max_gpus,depends_on\n"
    "a,5,0.5,10,t,None,v100 | p100|,4,,2,20,30,m,,,,\n"
    "b,0,0,1e3,,NA,,1,2.5,,,,,NO,,,a; c\n"
    "c,7 ,8,0.5,t,u,v100,,,-1,,,,true,4,16,\n"
)


def same(path):
    """Return the workload of a file, which both parsers read alike."""
    quick, careful = read_workload(path), read_workload(quoted(path))
    assert list(quick.specs) == list(careful.specs)
    assert list(quick.behaviours) == list(careful.behaviours)
    assert quick.quality == careful.quality
    return quick


def test_both_parsers_know_every_column(trace):
    first, second, third = same(trace(FULL)).specs
    assert (first.tenant, first.user, first.request.gpu_types) == ("t", "None", ("v100", "p100"))
    assert (second.user, second.depends_on, second.request.gang) == ("NA", ("a", "c"), False)
    assert (third.priority, third.request.groups[0].min_count) == (-1, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_both_parsers_read_generated_workloads(tmp_path, kind):
    workload = generate(kind, jobs=60, gpus=32, load=0.9, seed=2, options={})
    again = same(write_workload(workload, tmp_path / "jobs.csv"))
    assert list(again.specs) == list(workload.specs)
    assert list(again.behaviours) == list(workload.behaviours)


@pytest.mark.parametrize(
    "row",
    [
        "a,0,1.5,10", "a,0,1,0", "a,0,0,10", "a,0,1,10\na,0,1,10", "a,-1,1,10", "a,0,x,10",
        ",0,1,10", "a,0,1,inf", "a,0,1", "a,0,1,10,9",
    ],
)  # fmt: skip
def test_both_parsers_refuse_the_same(trace, row):
    path = trace(f"{HEADER}\n{row}\n")
    quick, careful = problem(path), problem(quoted(path))
    assert quick == careful
    assert quick.startswith(("line 2", "line 3"))


def test_a_row_that_is_too_short_is_refused_though_its_last_cell_is_optional(trace):
    message = problem(trace(f"{HEADER},cpus\n1,0,1,9,4\n2,0,1,9\n"))
    assert message.startswith("line 3: has 4 fields but the header has 5: complete the line")


def test_a_demand_of_an_unknown_kind_is_refused_with_a_suggestion(tmp_path):
    path = tmp_path / "jobs.csv"
    head = "job_id,submit_s,num_gpus,duration_s,demand\n"
    path.write_text(head + "a,0,1,10,compute=0.5;memory=0.2;pcie=0.1\n")
    assert read_trace(path, "csv").jobs["demand"].to_list() == [
        '{"compute":0.5,"memory":0.2,"pcie":0.1}'
    ]
    path.write_text(head + "a,0,1,10,compute=0.5\nb,0,1,10,computer=0.5\n")
    with pytest.raises(TraceError, match=r"line 3, column 'demand'.*'computer'.*mean 'compute'"):
        read_trace(path, "csv")
