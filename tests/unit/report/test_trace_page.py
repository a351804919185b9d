"""The page about a trace: every number of the report, and harmless whatever the names in it are."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rota.cli.app import run
from rota.core.errors import OptionError, OutputError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec
from rota.core.workload import Quality, Workload
from rota.report.trace_page import html, write_trace_page
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.tools.report import MOST_TENANTS, report

HOSTILE = '</style><script>alert("1")</script><img src=x onerror=alert(1)>&'


class Elements(HTMLParser):
    """Collects elements with their attributes, and the texts of headings and cells."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.rows = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        self.text = ""

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self.text)

    def named(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def imported(tenants=("a", "a", "b"), *, seen=(), cluster=(), **options):
    """Return jobs of one hour, the n-th on n + 1 GPUs, an hour apart."""
    specs = [
        JobSpec(str(n), 3600.0 * n, Request.of(n + 1), tenant=tenant)
        for n, tenant in enumerate(tenants)
    ]
    workload = Workload(specs, [Behaviour(3600.0)] * len(specs))
    return Imported(workload, observed=Observed.of(seen), cluster=cluster, **options)


def page_of(*args, **options):
    return html(report(imported(*args, **options)))


def rows_of(page):
    return Elements(page).rows


def test_everything_is_in_one_file_without_scripts():
    page = page_of()
    elements = Elements(page)
    addresses = [
        value for _, attrs in elements.found for key, value in attrs.items()
        if key in ("src", "href")
    ]  # fmt: skip

    assert [one for one in addresses if not one.startswith("#")] == ["data:,"]  # of no icon
    assert elements.named("script") == []
    assert "://" not in page
    assert "url(" not in page
    assert elements.named("meta")[1]["content"].startswith("default-src 'none'")


def test_every_row_is_accounted_for():
    quality = Quality(
        rows=9, kept=3, dropped={"never started": 6}, repaired={"duration raised to 1 s": 2}
    )
    seen = [Seen(0, 0.0, 3600.0), Seen(1, 4000.0, None, state="running")]
    rows = rows_of(page_of(quality=quality, seen=seen))

    assert ["read", "-", "9"] in rows
    assert ["kept", "-", "3"] in rows
    assert ["dropped", "never started", "6"] in rows
    assert ["repaired", "duration raised to 1 s", "2"] in rows
    assert ["censored", "still ran when the log was taken", "1"] in rows
    assert ["attempts", "2"] in rows
    assert ["attempts that ended as: running", "1"] in rows


def test_contradictions_and_notes_are_told():
    seen = [
        Seen(0, 0.0, 9.0, ("n1",), (9.0,)),
        Seen(2, 7200.0, 9000.0, ("n1", "n2")),  # asks for 3 GPUs, the nodes have 2
    ]
    cluster = [NodeSpec("n1", 1), NodeSpec("n2", 1)]
    page = page_of(seen=seen, cluster=cluster, notes=["a clock was set back"])

    assert ["a job on more GPUs than its node has", "1"] in rows_of(page)
    assert ["a job asks for more GPUs than its nodes have together", "1"] in rows_of(page)
    assert "<li>a clock was set back</li>" in page
    assert "None was found." not in page


@pytest.mark.parametrize("nodes", [("n1", "n2", "n3"), ("n1", "unlisted")])
def test_nodes_that_may_have_enough_contradict_nothing(nodes):
    cluster = [NodeSpec(name, 1) for name in ("n1", "n2", "n3")]
    page = page_of(seen=[Seen(2, 7200.0, 10800.0, nodes)], cluster=cluster)

    assert "None was found." in page


def test_bars_are_as_long_as_the_numbers_are_large():
    page = page_of(["a"] * 10)  # sizes 1 to 10: 1, 2-4, 5-8, 9-32
    lying = page.split('aria-label="Jobs by number of GPUs"')[1].split("</svg>")[0]
    widths = [float(text) for text in re.findall(r'width="([\d.]+)" height="16"', lying)]

    assert widths == pytest.approx([420 / 4, 420 * 3 / 4, 420, 420 / 2], abs=0.1)
    assert "4 (40.0 %)" in lying


def test_hours_have_a_bar_each_on_the_clock_of_the_trace():
    page = page_of(origin="2020-01-01 23:00:00")
    titles = re.findall(r"<title>(\d+:00: [\d.]+)</title>", page)

    assert len(titles) == 48
    assert {"22:00: 0", "23:00: 1", "0:00: 2"} <= set(titles)  # GPU-hours of the second job: 2


def test_tenants_with_most_gpu_hours_come_first():
    rows = rows_of(page_of())
    first = next(place for place, row in enumerate(rows) if row[0] == "tenant")

    assert rows[first + 1 : first + 3] == [
        ["a", "2", "-", "3", "50.0 %", "1h 00m"],
        ["b", "1", "-", "3", "50.0 %", "1h 00m"],
    ]


def test_many_tenants_are_cut_and_it_is_said():
    found = report(imported([f"t{n}" for n in range(MOST_TENANTS + 5)]))

    assert [row["tenant"] for row in found.tenants][:2] == ["t24", "t23"]
    assert len(found.tenants) == MOST_TENANTS
    assert "The 20 of 25 with most GPU-hours." in html(found)


def test_without_tenants_there_is_no_table_of_them():
    page = page_of(["", ""])

    assert report(imported(["", ""])).tenants == []
    assert "By tenant" not in page
    assert "does not say when jobs really started" in page


def test_names_cannot_break_out():
    quality = Quality(rows=1, kept=1, dropped={HOSTILE: 1}, repaired={HOSTILE: 1})
    page = page_of(
        [HOSTILE], quality=quality, name=HOSTILE, origin=HOSTILE, notes=[HOSTILE],
        cluster=[NodeSpec("n", 1, gpu_type=HOSTILE)],
    )  # fmt: skip
    elements = Elements(page)

    assert elements.named("script") == elements.named("img") == []
    assert page.count("</style>") == 1
    assert page.count("&lt;script&gt;") >= 7


def test_a_page_replaces_the_one_before_in_one_step(tmp_path, monkeypatch):
    page = tmp_path / "new" / "page.html"
    write_trace_page(report(imported(name="first")), page)
    assert "Quality of first" in page.read_text()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)  # what was written so far is removed
    with pytest.raises(OutputError, match="No space left on device"):
        write_trace_page(report(imported(name="second")), page)
    assert "Quality of first" in page.read_text()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_trace_is_not_overwritten_by_mistake(tmp_path):
    with pytest.raises(OptionError, match="that ends in"):
        write_trace_page(report(imported()), tmp_path / "jobs.csv")
    assert not (tmp_path / "jobs.csv").exists()


def test_the_command_writes_it_beside_what_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    jobs = "job_id,submit_s,num_gpus,duration_s,vc\n0,0,4,100,<a>\n1,10,4,20,b\n"
    (tmp_path / "jobs.csv").write_text(jobs)

    assert run(["trace", "inspect", "jobs.csv", "--html", "jobs.html", "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tenants"][0]["tenant"] == "<a>"
    assert err == "page: jobs.html\n"
    assert ["<a>", "1", "-", "0.1", "100.0 %", "1m 40s"] in rows_of(
        (tmp_path / "jobs.html").read_text()
    )
    assert run(["trace", "inspect", "jobs.csv", "--html", "jobs.csv"]) != 0
    assert (tmp_path / "jobs.csv").read_text() == jobs
