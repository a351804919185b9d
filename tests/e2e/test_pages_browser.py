"""The smaller reports in a real browser: one design, readable by everybody, asking for nothing."""

import pytest

from js_tools import tool
from rota.cli.app import run
from shared_data import CHECKOUT

AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}"""
EXAMPLE = CHECKOUT / "examples" / "replay"
JOBS = "job_id,submit_s,num_gpus,duration_s,vc\n" + "".join(
    f"{i},{i * 20},{1 + i % 4},{60 + i * 97 % 900},t{i % 3}\n" for i in range(60)
)
LOADS = (
    "name: loads\nworkloads: [{name: gavel, generate: gavel-like, jobs: 30}]\nclusters: [2x4]\n"
    "policies: [fifo, srtf]\nbaseline: fifo\nloads: [1.5]\nseeds: 3\nkeep: jobs\n"
)
TUNE = "workloads: [jobs.csv]\nclusters: [1x4]\npolicies: [fifo, srtf, las]\ntune: {min_jobs: 20}\n"
MADE = {
    "trace": (["trace", "inspect", "jobs.csv", "--html", "trace.html"], "trace.html"),
    "replay": (
        ["replay", str(EXAMPLE / "jobs.txt"), "--nodes", str(EXAMPLE / "nodes.txt"), "--policy",
         "easy", "-o", "replay"], "replay/report.html",
    ),
    "sweep": (["sweep", "loads.yaml", "-o", "loads", "--jobs", "1"], "loads/report.html"),
    "robust": (
        ["robust", "jobs.csv", "--cluster", "2x4", "--policy", "srtf", "--estimate-error",
         "cv=0,1", "--repeat", "2", "--jobs", "1", "-o", "robust"], "robust/report.html",
    ),
    "plan": (
        ["plan", str(EXAMPLE / "jobs.txt"), "--nodes", str(EXAMPLE / "nodes.txt"), "--model",
         "easy", "--target", "p95 wait < 1h", "-o", "plan"], "plan/plan.html",
    ),
    "tune": (["tune", "tune.yaml", "-o", "tuned", "--jobs", "1"], "tuned/report.html"),
    "predict": (["predict", "jobs.csv", "--cluster", "2x4", "-o", "predict"],
                "predict/report.html"),
    "run": (["report", "out", "--figures", "none"], "out/report.html"),
    "job": (["explain", "out", "40", "--html", "job.html"], "job.html"),
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the pages that commands write, by command."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "loads.yaml").write_text(LOADS)
    (folder / "tune.yaml").write_text(TUNE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        simulate = ["simulate", "jobs.csv", "--cluster", "2x4", "--policy", "fifo", "-o", "out"]
        assert run(simulate) == 0
        for name, (words, _) in MADE.items():
            patch.setattr("sys.argv", ["rota", *words])
            assert run(words) == 0, name
    return {name: folder / file for name, (_, file) in MADE.items()}


@pytest.mark.parametrize("name", ["sweep", "tune", "robust", "predict"])
def test_a_page_of_a_study_is_made_anew(pages, name, tmp_path):
    made = pages[name]
    assert run(["report", str(made.parent), "-o", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == made.read_text()
    assert run(["report", str(made.parent), "--measures", "avg_jct_s"]) != 0


@pytest.mark.parametrize(("name", "command"), [("plan", "plan"), ("replay", "replay")])
def test_pages_that_cannot_be_made_anew_are_named(pages, name, command, capsys):
    assert run(["report", str(pages[name].parent)]) != 0
    told = capsys.readouterr().err
    assert f"is what `rota {command}` wrote, and its page is {pages[name].name}" in told


@pytest.mark.parametrize("name", MADE)
def test_every_report_has_the_design(browser, pages, name):
    said, asked = [], []
    for scheme, width in (("light", 1280), ("dark", 390)):
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        page.on("console", lambda message: message.type == "error" and said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(pages[name].as_uri())
        assert page.locator(".verdict").inner_text().endswith(".")
        assert 4 <= page.locator(".tile").count() <= 5 or name in ("replay", "robust")
        assert page.locator(".toc a").count() == page.locator("section.card").count() + 1
        words = MADE[name][0]
        if name != "run":  # that is told by its manifest
            assert all(word in page.locator("#command").inner_text() for word in words)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(tool("axe-core/axe.min.js").read_text())
        assert page.evaluate(AXE) == [], scheme
        page.close()
    assert said == []
    assert set(asked) == {pages[name].as_uri()}
