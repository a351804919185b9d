"""The page: complete in itself, and harmless whatever the names in it are."""

import base64
import json
import re
from hashlib import sha256
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

from packed_columns import unpacked
from rota.core.errors import InputError, OptionError, OutputError
from rota.metrics.delay import REASONS
from rota.report import payload, style, write, write_report
from rota.report.frame import embedded
from rota.report.page import html
from rota.report.source import read_source
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate

HOSTILE = '</script><script>alert("1")</script><img src=x onerror=alert(1)>&{{css}}'


class Elements(HTMLParser):
    """Collects elements, attributes and texts."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.text = {}
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data):
        self.text[self._inside] = self.text.get(self._inside, "") + data


def page_of(folder):
    return html(read_source(folder))


def data_of(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_everything_is_in_one_file(folder):
    page = page_of(folder)
    elements = Elements(page).found
    addresses = [
        value for _, attrs in elements for key, value in attrs.items() if key in ("src", "href")
    ]

    assert [one for one in addresses if not one.startswith("#")] == ["data:,"]  # of no icon
    assert "://" not in page
    assert "@import" not in page
    assert "url(" not in page
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert ("meta", {
        "http-equiv": "Content-Security-Policy",
        "content": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:",
    }) in elements  # fmt: skip


def test_contents_lead_to_every_section(folder):
    elements = Elements(page_of(folder)).found
    leads = [attrs["href"] for tag, attrs in elements if tag == "a" and attrs["href"] != "#main"]
    cards = [attrs["id"] for tag, attrs in elements if attrs.get("class") == "card"]

    assert leads == [f"#{key}" for key in cards]
    assert {"policies", "groups", "why", "time", "lanes", "jobs"} <= set(cards)


def test_the_tables_tell_who_is_better(folder):
    page = page_of(folder)

    assert re.search(
        r'<td class="number better best">[^<]+<small>\u2713 0\.500 \[0\.475, 0\.525\]', page
    )
    assert "a warning about las" in page
    assert "a note" in page
    assert '<td colspan="2">pollux30</td>' in page
    assert "<td>is las</td>" in page
    assert "interval: by hand." in page


def test_nobody_is_best_without_a_clear_interval(compare_as):
    page = page_of(compare_as("a", "b", "c", "d"))
    every = page.split("<summary>All measures</summary>")[1]
    cells = re.findall(r'<td class="number ?([a-z ]*)">', every)

    assert cells[:4] == ["", "better", "unclear", "worse"]  # the best mean is of d, by chance


def one_run(folder):
    """Take all verdicts away, as of a comparison of one run per policy."""
    data = msgspec.json.decode((folder / "compare.json").read_bytes())
    for row in data["rows"]:
        for one in row["measures"].values():
            one["verdict"] = None
    (folder / "compare.json").write_bytes(msgspec.json.encode(data))
    return folder


def test_one_run_marks_no_winner(folder):
    page = page_of(one_run(folder))

    assert page.count("One run: nothing is proven, so no winner is marked.") == 2
    assert "\u2713" not in page.partition("<script")[0]
    assert not re.search(r'class="[^"]*\b(better|worse)\b', page)


def test_a_trace_that_was_cut_has_jobs_per_window(compare_as):
    assert "jobs <b>120 per window</b>" in page_of(compare_as("a", "b", windows=[1, 2]))


def test_measures_can_be_chosen(folder):
    page = write_report(folder, formats=(), measures=["gpu_utilisation"]).read_text()

    assert page.count(">GPU utilisation</th>") == 2
    assert ">mean JCT</th>" not in page
    with pytest.raises(OptionError, match="measure 'x' is not there: use avg_jct_s, gpu_util"):
        write_report(folder, formats=(), measures=["x"])


def test_a_page_is_the_same_where_runs_were_drawn_before(folder, tmp_path):
    comparison = read_source(folder).comparison
    drawn = {
        run.folder: write.draw_run(folder / run.folder, run.policy, run.summary)
        for run in comparison.runs
    }
    before = write_report(folder, formats=(), comparison=comparison).read_text()

    def page_with(pictures):
        to = tmp_path / "again.html"
        return write_report(folder, to=to, formats=(), comparison=comparison, pictures=pictures)

    assert page_with(drawn).read_text() == before
    other = {name: one | {"until_s": 4711} for name, one in drawn.items()}
    looks = data_of(page_with(other).read_text())["looks"]
    assert [look["until_s"] for look in looks] == [4711] * len(drawn)


def test_the_chart_and_the_table_of_waits_say_the_same(folder):
    page = page_of(folder)
    texts = re.findall(r"</span><span>([^<]+)</span></div>", page)

    assert len(texts) == 2
    assert all(f'<td class="number">{text}</td></tr>' in page for text in texts)


def test_outages_are_in_the_picture_of_the_jobs(folder):
    lanes = data_of(page_of(folder))["looks"][0]["lanes"]

    assert lanes["down"]
    assert all(0 <= node < len(lanes["nodes"]) and a < b for node, a, b in lanes["down"])


def test_hostile_names_are_texts(compare_as):
    folder = compare_as(HOSTILE, "las", trace=HOSTILE, cluster="<b>", method=HOSTILE)
    page = page_of(folder)
    elements = Elements(page)
    tags = [tag for tag, _ in elements.found]

    assert tags.count("script") == 2  # the data and ours
    assert "img" not in tags
    assert "b" in tags  # our own; the cluster's is a text:
    assert not any("onerror" in attrs for _, attrs in elements.found)
    assert HOSTILE in elements.text["b"]
    assert data_of(page)["policies"] == [HOSTILE, "las"]


def test_data_cannot_leave_their_element():
    text = embedded({"name": "</script><!--&\u2028"})

    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": "</script><!--&\u2028"}


def test_the_data_are_those_of_the_run(folder, run_of):
    data = data_of(page_of(folder))
    look, lanes = data["looks"][1], data["looks"][1]["lanes"]
    bars = unpacked(lanes["bars"])
    fates = unpacked(look["fates"])
    summary = run_of().summary
    jobs = unpacked(data["jobs"][look["jobs"]]["columns"])

    assert look["policy"] == "las"
    assert len(bars["job"]) == lanes["count"] == lanes["all"]
    area = float((bars["length"].astype(float) * bars["lanes"]).sum())
    assert area == pytest.approx(summary["ledger"]["allocated_gpu_s"], rel=1e-4)
    assert unpacked(look["cdf"]["jct_s"])["share"][-1] == 1
    assert data["jobs"][look["jobs"]]["ids"][:2] == ["0", "1"]
    assert jobs["submit"][:3].tolist() == [0, 37, 74]
    assert len(data["jobs"]) == 1  # both policies ran the same jobs
    done = fates["done"] == 1
    assert fates["jct"][done].mean() == pytest.approx(summary["avg_jct_s"], rel=1e-4)


def test_the_reasons_of_a_job_add_up_to_its_wait(folder):
    fates = unpacked(data_of(page_of(folder))["looks"][1]["fates"])
    known = fates["done"] == 1
    parts = sum(fates[name] for name in REASONS if name in fates)

    assert known.sum() > 100
    assert np.allclose(parts[known], fates["wait"][known], atol=0.01)


def test_long_series_are_thinned(folder, monkeypatch):
    monkeypatch.setattr(payload, "POINTS", 50)
    monkeypatch.setattr(payload, "BARS", 60)
    look = data_of(page_of(folder))["looks"][0]

    assert len(unpacked(look["queue"])["time"]) <= 50
    assert 40 <= len(unpacked(look["cdf"]["jct_s"])["time"]) <= 50
    assert unpacked(look["cdf"]["jct_s"])["share"][-1] == 1
    assert look["lanes"]["count"] == 60 < look["lanes"]["all"]


def test_the_page_is_always_the_same(folder):
    assert page_of(folder) == page_of(folder)


def test_a_report_is_a_page_and_its_figures(folder):
    page = write_report(folder, formats=("svg",))
    names = {path.name for path in (folder / "figures").iterdir()}

    assert page == folder / "report.html"
    assert set(write.figure_files(folder)) == {f"figures/{name}" for name in names}
    assert {"cdf-jct.svg", "gantt-run0.svg", "ratios.svg"} <= names
    assert not list(folder.rglob("*.part"))


def test_one_run_has_a_report_too(run_of, tmp_path):
    write_run(run_of(), tmp_path)
    page = write_report(tmp_path, formats=("png",)).read_text()

    assert "las:limits=100/400 on jobs.csv, cluster 4x4" in page
    assert "Who wins" not in page
    assert (tmp_path / "figures" / "gantt.png").exists()
    assert not (tmp_path / "figures" / "ratios.png").exists()


def test_without_matplotlib_there_is_a_page_that_says_so(folder, monkeypatch):
    monkeypatch.setattr(write, "has_matplotlib", lambda: False)
    page = write_report(folder)

    assert "pip install -e &#x27;.[plot]&#x27;" in page.read_text()
    assert not (folder / "figures").exists()


def test_several_runs_per_policy_are_said_to_be(compare_as):
    folder = compare_as("fifo", "las", seeds=[0, 1, 2])

    assert "show the first run of each policy (seed 0)" in page_of(folder)


def test_a_run_that_is_gone_has_no_pictures(folder):
    (folder / "run1" / "events.parquet").unlink()
    page = page_of(folder)

    assert "las: no pictures, run1/events.parquet cannot be read" in page
    assert [look["policy"] for look in data_of(page)["looks"]] == ["fifo"]


def test_a_comparison_cannot_lead_out_of_its_folder(folder):
    data = json.loads((folder / "compare.json").read_text())
    data["runs"][1]["folder"] = "../elsewhere"
    (folder / "compare.json").write_text(json.dumps(data))

    with pytest.raises(InputError, match=r"the run '\.\./elsewhere' is not inside the folder"):
        write_report(folder)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has neither compare\.json nor summary\.json"):
        write_report(tmp_path)
    with pytest.raises(InputError, match=r"has neither compare\.json nor summary\.json"):
        write_report(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_other_kinds_of_figures_are_refused(folder):
    with pytest.raises(OptionError, match="figures as 'gif': use svg, png, pdf, or none"):
        write_report(folder, formats=("gif",))


def test_a_place_that_cannot_be_written_is_said(folder):
    with pytest.raises(OutputError, match="name another file with -o"):
        write_report(folder, formats=(), to=folder / "compare.json" / "page.html")


def test_numbers_that_do_not_exist_are_left_out(folder):
    data = msgspec.json.decode((folder / "compare.json").read_bytes())
    for row in data["rows"]:
        row["measures"]["avg_jct_s"]["mean"] = None
    (folder / "compare.json").write_bytes(msgspec.json.encode(data))

    assert ">mean JCT</th>" not in page_of(folder)


def test_fragments_are_told_where_a_run_knows_them(folder):
    look = data_of(page_of(folder))["looks"][0]
    nodes, bins = len(look["fragments"]["nodes"]), look["fragments"]["bins"]
    (folder / "run1" / "manifest.json").write_text("{}")

    assert nodes == 4
    assert len(unpacked(look["fragments"]["cells"])["cell"]) == nodes * bins
    assert style.LEAST_SHARE <= look["fragments"]["top"] <= 1
    assert look["heat"]["top"] == 1
    assert data_of(page_of(folder))["looks"][1]["fragments"] is None


def test_elastic_jobs_have_their_sizes_over_time(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus\n"
        "<long>,0,1,4000,1,8\nshort,100,1,400,1,8\n"
    )
    made = {"trace": str(trace), "cluster": "1x8", "rates": "scaling", "costs": "custom:start_s=36"}
    for policy in ("afs", "fifo"):
        folder = tmp_path / policy
        folder.mkdir()
        write_run(simulate(RunConfig(policy=policy, **made)), folder)
    page = page_of(tmp_path / "afs")

    assert '<h2 id="h-elastic">Elastic jobs</h2>' in page
    assert '<a href="#elastic">' in page
    assert "1 of 2 jobs were resized, 2 times in all; 0.1 GPU-hours went into it." in page
    assert "<th scope='row'>&lt;long&gt;</th><td>1</td>" in page
    assert "<title>8 → 4 → 8 GPUs</title>" in page
    assert "<td>100%</td><td>-</td><td>1m 12s</td>" in page
    assert "Elastic jobs" not in page_of(tmp_path / "fifo")
