"""Recognising formats, limits, and files that are not traces at all."""

import gc

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.traces import read
from rota.traces.format import Format
from rota.traces.read import read_workload, recognise
from rota.traces.sniff import first_look

PLAIN = "job_id,submit_s,num_gpus,duration_s\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"


@pytest.fixture
def trace(tmp_path):
    """Return `trace(content)`: the path of a file with this content."""

    def write(content):
        path = tmp_path / "trace"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (PLAIN, "csv"),
        ("\ufeff" + PLAIN.replace("\n", ",colour\r\n"), "csv"),
        (TIRESIAS, "tiresias"),
        ("user," + TIRESIAS, "tiresias"),
        (PHILLY, "philly"),
        ('[{"status": "Pass", "vc": "a", "jobid": "x", "attempts": []}]', "philly"),
        ('\n [\n {"attempts"', "philly"),
    ],
)
def test_formats_are_recognised(trace, content, name):
    assert recognise(trace(content)).name == name


@pytest.mark.parametrize(
    ("content", "start"),
    [
        ("a,b,c\n1,2,3\n", "the columns a, b, c"),
        ('{"SpotPriceHistory": []}', "'{\"SpotPriceHistory\": []}'"),
        ("just some words\n", "the columns just some words"),
    ],
)
def test_what_nobody_recognises_is_shown_with_the_formats(trace, content, start):
    path = trace(content)
    with pytest.raises(TraceError) as caught:
        read_workload(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: its format is not recognised (it starts with {start})")
    assert "name it with --format, known: " in message
    assert "csv" in message.partition("known: ")[2]


def test_two_equal_claims_are_refused(trace, monkeypatch):
    monkeypatch.setattr(read, "names", lambda group: ["csv", "tiresias"])
    path = trace("job_id,submit_s,num_gpu\n1,2,3\n")
    with pytest.raises(TraceError, match="could be of format csv or tiresias: name one"):
        read_workload(path)


def test_a_wrong_format_name_is_refused_with_the_closest(trace):
    with pytest.raises(OptionError, match=r"unknown format 'phily': did you mean 'philly'\? known"):
        read_workload(trace(PLAIN + "1,0,1,9\n"), "phily")


def test_an_option_without_a_value_is_refused(trace):
    with pytest.raises(OptionError, match="'ignore' is not key=value: write csv:key=value"):
        read_workload(trace(PLAIN + "1,0,1,9\n"), "csv:ignore")


def test_a_missing_file(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere\.csv: there is no such file: check the path"):
        read_workload(tmp_path / "nowhere.csv")
    with pytest.raises(TraceError, match="there is no such file"):
        read_workload(str(tmp_path / "nowhere.csv"), "csv")


def test_a_folder(tmp_path):
    with pytest.raises(TraceError, match="is a folder: name a file in it"):
        read_workload(tmp_path)


def test_a_path_through_a_file_cannot_be_read(trace):
    path = trace(PLAIN)
    with pytest.raises(TraceError, match=r"there is no such file: .* is no archive and no folder"):
        read_workload(path / "inner")


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff", "  \r\n"])
@pytest.mark.parametrize("format_text", [None, "csv", "tiresias", "philly"])
def test_an_empty_file(trace, content, format_text):
    with pytest.raises(TraceError, match="is empty: it needs a header line and at least one row"):
        read_workload(trace(content), format_text)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00\x00\x00", b"PK\x03\x04\x00"])
def test_a_broken_archive(trace, content):
    with pytest.raises(TraceError, match=r"cannot be unpacked \(.*\): fetch it again"):
        read_workload(trace(content))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89PNG\r\n\x1a\n", "byte 0x89 at position 0"),
        ("job_id,naïve\n".encode("latin-1"), "byte 0xef at position 9"),
        (PLAIN.encode("utf-16"), "a zero byte at position 3"),
    ],
)
@pytest.mark.parametrize("format_text", [None, "csv", "philly"])
def test_binary_garbage(trace, content, what, format_text):
    with pytest.raises(TraceError) as caught:
        read_workload(trace(content), format_text)
    assert f"is not UTF-8 text ({what})" in str(caught.value)
    assert "save it as UTF-8" in str(caught.value)


def test_the_first_look_may_cut_a_character(trace):
    path = trace("[" + '"ä", ' * 40_000)
    assert len(path.read_bytes()) > 2 * 65_536
    assert first_look(path).is_json


def test_limits_keep_the_first_jobs_and_count_the_rest(trace):
    path = trace(PLAIN + "".join(f"{i},{9 - i},1,5\n" for i in range(6)))
    workload = read_workload(path, limit=2)
    assert [spec.id for spec in workload.specs] == ["0", "1"]
    assert len(workload.behaviours) == 2
    assert (workload.quality.rows, workload.quality.kept) == (6, 2)
    assert workload.quality.dropped == {"beyond the limit": 4}
    assert len(read_workload(path, "csv:limit=3")) == 3
    assert len(read_workload(path, "csv:limit=3", limit=5)) == 3
    assert len(read_workload(path, ":limit=3", limit=1)) == 1
    assert read_workload(path, limit=6).quality.dropped == {}


def test_a_limit_removes_dependencies_on_what_it_cut(trace):
    path = trace(PLAIN.replace("\n", ",depends_on\n") + "1,0,1,5,2;3\n2,0,1,5,\n3,0,1,5,\n")
    workload = read_workload(path, limit=2)
    assert workload.specs[0].depends_on == ("2",)
    assert workload.quality.repaired == {"dependency on a job beyond the limit removed": 1}


@pytest.mark.parametrize("limit", ["0", "-1", "two"])
def test_a_useless_limit_is_refused(trace, limit):
    with pytest.raises(OptionError, match=f"limit={limit} "):
        read_workload(trace(PLAIN + "1,0,1,9\n"), f"csv:limit={limit}")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(trace, enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        read_workload(trace(PLAIN + "1,0,1,9\n"))
        assert gc.isenabled() is enabled
        with pytest.raises(TraceError):
            read_workload(trace(PLAIN + "1,0,1,x\n"))
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_format_of_another_package_needs_to_know_jobs_only(trace, monkeypatch):
    class Two(Format):
        name, description = "two", "Two jobs."

        def recognises(self, head):
            return 1.0

        def read(self, path, options):
            specs = [
                JobSpec("a", 0.0, Request.of(1)),
                JobSpec("b", 0.0, Request.of(1), depends_on=("a",)),
            ]
            return Workload(specs, [Behaviour(1.0), Behaviour(1.0)])

    monkeypatch.setattr(read, "load_format", lambda name: Two())
    path = trace("x")
    assert [spec.id for spec in read_workload(path, "two").specs] == ["a", "b"]
    assert read.read_trace(path, "two").first(1).jobs["job_id"].to_list() == ["a"]
    assert read.files_of(path, "two") == [path]
    assert Two().verified_forms == {"": False}


def registered(monkeypatch, made):
    monkeypatch.setattr(read, "load", lambda group, name: made)


def test_a_format_that_is_none_names_the_base_class(monkeypatch):
    class Own:
        name = "own"

    registered(monkeypatch, Own)
    with pytest.raises(OptionError, match=r"format 'own': .*Own.*rota\.traces\.format\.Format"):
        read.load_format("own")


def test_a_format_that_lacks_a_method_is_told_which(monkeypatch):
    class Own(Format):
        name, description = "own", "My own."

        def recognises(self, head):
            return 0.0

    monkeypatch.setattr(read, "load", lambda group, name: Own())  # as its module would
    with pytest.raises(OptionError, match=r"'own': .*\bread\b.*rota\.traces\.format\.Format"):
        read.load_format("own")


def test_a_format_that_lacks_a_member_is_told_which(monkeypatch):
    class Own(Format):
        name = "own"

        def recognises(self, head):
            return 0.0

        def read(self, path, options):
            raise NotImplementedError

    registered(monkeypatch, Own())
    with pytest.raises(OptionError, match=r"'own': Own lacks description: every rota.*Format has"):
        read.load_format("own")
