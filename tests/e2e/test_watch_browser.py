"""A run that can be watched, in a real browser."""

import shutil
import threading
from itertools import count

import numpy as np
import pytest

from agents_net import eventually
from daemon_process import PATIENCE_S
from js_tools import tool
from rota.report.data import queue
from rota.report.lanes import gantt
from rota.report.watch import read_runs, write_watch_page
from rota.report.watch_server import WatchServer
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.follow import LiveLog
from rota.study.output import write_run
from rota.study.run import simulate
from shared_gpus import shared_run

AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}"""
STATE = "({busy: play.busy, active: play.active, owned: play.owners.filter(Boolean).length, "
STATE += "line: play.line().length})"
PIXELS = "document.querySelector('.stage canvas').toDataURL()"


@pytest.fixture(scope="module")
def runs(shared, tmp_path_factory):
    """Return folders of two runs of a thousand jobs."""
    made = []
    for policy in ("fifo", "srtf"):
        folder = tmp_path_factory.mktemp(policy)
        trace = shared("reference/common/philly1000.csv")
        config = RunConfig(trace=str(trace), cluster="16x4", policy=policy, costs="pollux30")
        write_run(simulate(config), folder)
        made.append(folder)
    return made


@pytest.fixture
def opened(browser, runs, tmp_path):
    """Return `opened(count, **options)`: a page of so many runs; no error, no request may occur."""
    pages, said, asked = [], [], []

    def make(count=1, **options):
        file = write_watch_page(runs[-count:], tmp_path / f"watch{count}.html")
        page = browser.new_page(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        )
        pages.append(page)
        page.on("console", lambda message: message.type == "error" and said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url) if request.url
                != file.as_uri() else None)  # fmt: skip
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield make
    for page in pages:
        page.close()
    assert said == []
    assert asked == []


def until(page, condition):
    eventually(lambda: page.evaluate(condition), PATIENCE_S, 0.02)


def drawn(page):
    """Wait until the map shows the moment: it is drawn with the next frame."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def seek(page, at):
    script = (
        f"at => {{ rotaWatch.seek(at); const {{play}} = rotaWatch.stages[0]; return {STATE}; }}"
    )
    return page.evaluate(script, at)


def test_every_moment_is_as_the_log_says(opened, runs):
    page = opened()
    (source,) = read_runs(runs[1:])
    history = source.looks[0].history
    bars, steps = gantt(history), queue(history)
    origin_s, until_s = steps["time_s"][0], steps["time_s"][-1]
    start, end = (bars[name].to_numpy() - origin_s for name in ("start_s", "end_s"))
    moments = np.random.default_rng(5).uniform(0, until_s - origin_s, 12)  # forward and back
    for at in moments.tolist():
        there = (start <= at) & (end > at)
        seen = seek(page, at)
        gpus = float(bars["lanes"].to_numpy()[there].sum())
        assert (seen["busy"], seen["owned"]) == (pytest.approx(gpus), gpus)
        assert seen["active"] == len(set(bars["job"].to_numpy()[there].tolist()))
        row = int(np.searchsorted(steps["time_s"].to_numpy() - origin_s, at, side="right")) - 1
        assert seen["line"] == steps["waiting"][row]


def test_it_plays_pauses_and_ends(opened):
    page = opened(reduced_motion="no-preference")  # plays by itself
    until(page, "rotaWatch.frames > 5 && rotaWatch.at > 0")
    page.get_by_role("button", name="Pause").click()
    at = page.evaluate("rotaWatch.at")
    drawn(page)
    assert page.evaluate("rotaWatch.at") == at
    page.locator("body").press(" ")
    until(page, f"rotaWatch.at > {at}")
    page.evaluate("rotaWatch.at = rotaWatch.until - 1")
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("rotaWatch.at === rotaWatch.until")
    assert "1,000 over" in page.locator(".numbers").inner_text()


def test_a_frame_costs_what_happens(opened):
    page = opened()
    page.evaluate("rotaWatch.seek(0)")
    counts = page.evaluate("""() => {
      const {play} = rotaWatch.stages[0];
      const bars = play.bars.job.length;
      const steps = play.steps;
      for (let i = 1; i <= 1800; i += 1) rotaWatch.show(i / 1800 * rotaWatch.until, false);
      return [bars, play.steps - steps];
    }""")
    bars, steps = counts
    assert steps <= 2 * bars, "each begin and each end once, however many frames"


def test_seeking_stepping_and_reasons(opened):
    page = opened()
    page.get_by_role("button", name="Next decision").click()
    first = page.locator(".decisions li").first.inner_text()
    assert "starts on n" in first
    page.get_by_role("slider", name="Time").fill("500")
    told = page.locator(".decisions li").all_inner_texts()
    assert len(told) == 7
    reasons = ("without waiting", "of waiting (", "is stopped")
    assert all(any(reason in line for reason in reasons) for line in told)
    assert any("of waiting (" in line for line in told)
    drawn(page)
    before = page.evaluate(PIXELS)
    page.locator("body").press("Home")
    until(page, f"{PIXELS} !== {before!r}")


def test_colours_mean_something(opened):
    page = opened()
    seek(page, 200_000)
    seen = set()
    for way in ("Tenant", "Size", "Job"):
        page.get_by_role("button", name=way).click()
        drawn(page)
        seen.add(page.evaluate(PIXELS))
    assert len(seen) == 3


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_two_runs_share_a_clock_and_everybody_can_read_them(opened, width, scheme):
    page = opened(2, color_scheme=scheme, viewport={"width": width, "height": 800})
    seek(page, 300_000)
    names = page.locator(".stage h2").all_inner_texts()
    assert names == ["fifo", "srtf"]
    fifo, srtf = page.locator(".numbers").all_inner_texts()
    assert fifo != srtf
    assert page.evaluate("rotaWatch.stages.map((stage) => stage.play.at)") == [300_000] * 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(tool("axe-core/axe.min.js").read_text())
    assert page.evaluate(AXE) == []


def test_all_that_share_a_gpu_are_seen(browser, tmp_path):
    write_run(shared_run(tmp_path, "timeslice", "salus"), tmp_path)
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    page.goto(write_watch_page([tmp_path], tmp_path / "watch.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    page.get_by_role("button", name="Job", exact=True).click()
    sharers, colours = page.evaluate("""async () => {
      const [stage] = rotaWatch.stages;
      const found = () => [...stage.play.shared].find(([, each]) => each.length > 2);
      for (let at = 0; !found(); at += 5) rotaWatch.seek(at);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const [place, parts] = found();
      const [x, y] = stage.map.corner(place).map((each) => Math.round(each * stage.map.ratio));
      const {data} = stage.map.context.getImageData(x, y + 3, stage.map.size * stage.map.ratio, 1);
      stage.map.hover(stage.map.spotOf(place));
      const wanted = parts.map((i) => stage.colour(stage.play.bars.job[i]));
      const pen = document.createElement("canvas").getContext("2d");
      const seen = new Set(new Uint32Array(data.buffer));
      return [parts.length, wanted.filter((colour) => {
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        return seen.has(new Uint32Array(pen.getImageData(0, 0, 1, 1).data.buffer)[0]);
      }).length];
    }""")
    assert colours == sharers >= 3
    tip = page.locator(".tip:visible").inner_text().splitlines()
    assert tip[0].endswith(f"shared by {sharers} jobs")
    assert len(tip) == 1 + sharers
    page.close()


def test_a_run_is_followed_while_it_is_simulated(browser, runs, shared, tmp_path):
    trace = shared("reference/common/philly1000.csv")
    config = RunConfig(trace=str(trace), cluster="16x4", policy="srtf", costs="pollux30")
    engine = build(config).engine
    target, said, now_s = tmp_path / "out", [], count()
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="no-preference")
    page.on("console", lambda message: message.type == "error" and said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    with LiveLog(target, config, lambda: float(next(now_s))) as live:
        server = WatchServer([target])
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        page.goto(server.url)
        page.get_by_role("heading", name="not done yet").wait_for()
        engine.run(batches=200)
        live.look(engine.log)
        page.wait_for_selector("html[data-ready]", state="attached")
        known = page.evaluate("rotaWatch.until")
        page.evaluate("rotaWatch.at = rotaWatch.until")  # it plays, and has shown what is known
        until(page, "rotaWatch.idle")
        assert "so far" in page.locator("#about").inner_text()
        engine.run(batches=1_500)
        live.look(engine.log)
        until(page, f"rotaWatch.until > {known} && rotaWatch.at > {known}")
        shutil.copytree(runs[1], target)
    until(page, "rotaWatch.data.follow === null")
    assert page.locator("#about").inner_text() == "1,000 jobs, as they ran."
    until_s = page.evaluate("rotaWatch.until")
    assert seek(page, until_s) == {"busy": 0, "active": 0, "owned": 0, "line": 0}
    assert "1,000 over" in page.locator(".numbers").inner_text()
    server.shutdown()
    server.server_close()
    page.close()
    assert said == []
