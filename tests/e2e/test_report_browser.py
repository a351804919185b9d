"""The report of a large comparison in a real browser."""

import json
import re
import shutil
from statistics import median

import pytest

from rota.report import write_report
from rota.study.compare import compare
from rota.study.config import RunConfig

JOBS = 5_000
BARS = 10_000
POLICIES = ("fifo", "las", "srtf")
CHARTS = (
    "ratios", "delay", "cdf-jct_s", "cdf-wait_s", "queue", "utilisation", "tenants", "heat",
    "fragments", "gantt",
)  # fmt: skip
MOMENT = r"\d+d \d\d:\d\d(:\d\d)?"
LEFTS = "Object.values(rotaReport.charts).filter(c => c.x === rotaReport.time).map(c => c.left)"
COLOURS = """name => {
  const canvas = document.querySelector(`[data-chart="${name}"] canvas`);
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""
PIXELS = """name => {
  const canvas = document.querySelector(`[data-chart="${name}"] canvas`);
  return canvas.toDataURL();
}"""
REDRAW = """() => Array.from({length: 9}, (_, i) => {
  const {charts: {gantt}, time} = rotaReport;
  time.at = [0, time.full[1] * (1 - i / 50)];
  const begun = performance.now();
  gantt.draw();
  gantt.c.getImageData(0, 0, 1, 1); // waits until it is really drawn
  return performance.now() - begun;
})"""


@pytest.fixture(scope="module")
def report(shared, tmp_path_factory):
    """Return the page of a comparison of three policies on 5,000 jobs."""
    folder = tmp_path_factory.mktemp("report")
    trace = shared("reference/common/philly5k.csv")
    config = RunConfig(trace=str(trace), cluster="18x8", policy=POLICIES[0], costs="pollux30")
    compare(config, POLICIES, folder)
    return write_report(folder, formats=())


@pytest.fixture
def opened(browser, report):
    """Return `opened(**options)`: a page with the report; no error, no request may occur."""
    pages, said, asked = [], [], []

    def make(**options):
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | options)
        pages.append(page)
        page.on("console", lambda message: message.type == "error" and said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(report.as_uri())
        settled(page)
        return page

    yield make
    for page in pages:
        page.close()
    assert said == []
    assert set(asked) == {report.as_uri()}


def settled(page):
    """Wait until what was to be drawn is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")


def box_of(page, chart):
    canvas = page.locator(f'[data-chart="{chart}"] canvas')
    canvas.scroll_into_view_if_needed()
    return canvas.bounding_box()


def test_it_opens_quickly_and_asks_for_nothing(opened, record_property):
    times = []
    for _ in range(3):
        page = opened()
        timing = json.loads(page.evaluate("JSON.stringify(performance.timing)"))
        times.append(timing["loadEventEnd"] - timing["navigationStart"])
        page.close()
    record_property("latency", f"the report of {JOBS} jobs opens in {min(times)} ms")

    assert min(times) > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_picture_is_empty(opened, scheme):
    page = opened(color_scheme=scheme)

    for chart in CHARTS:
        assert page.evaluate(COLOURS, chart) > 10, chart
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_hovering_tells_the_values(opened):
    page = opened()
    box = box_of(page, "cdf-jct_s")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = page.locator("#tip").inner_text().splitlines()

    assert told[0].startswith("within ")
    assert [line.split()[-1] for line in told[1:]] == list(POLICIES)
    box = box_of(page, "gantt")
    page.mouse.move(box["x"] + 250, box["y"] + 60)
    assert page.locator("#tip").inner_text().startswith(("job ", "n"))
    assert re.search(MOMENT, page.locator("#tip").inner_text())
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_dragging_zooms_all_pictures_over_time(opened):
    page = opened()
    before = {chart: page.evaluate(PIXELS, chart) for chart in ("queue", "heat", "gantt")}
    box = box_of(page, "queue")
    page.mouse.move(box["x"] + 300, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=3)
    page.mouse.up()
    settled(page)
    at, full = page.evaluate("[rotaReport.time.at, rotaReport.time.full]")

    assert 0 < at[0] < at[1] < full[1]
    assert re.fullmatch(rf"{MOMENT} to {MOMENT}", page.locator("#range").inner_text())
    assert all(page.evaluate(PIXELS, chart) != pixels for chart, pixels in before.items())
    page.get_by_role("button", name="Whole time").click()
    settled(page)
    assert page.evaluate("rotaReport.time.at") == full
    assert page.evaluate(PIXELS, "heat") == before["heat"]


def test_everything_works_with_the_keyboard(opened):
    page = opened()
    page.locator('[data-chart="gantt"] canvas').focus()
    page.keyboard.press("+")
    zoomed = page.evaluate("rotaReport.time.at")
    page.keyboard.press("ArrowRight")
    moved = page.evaluate("rotaReport.time.at")
    page.keyboard.press("0")

    assert zoomed[0] < moved[0]
    assert page.evaluate("rotaReport.time.whole")
    page.locator("#policy").focus()
    page.keyboard.press("ArrowDown")
    settled(page)
    assert page.locator("b[data-policy]").first.inner_text() == POLICIES[1]


def test_a_legend_switches_curves_off_and_on(opened):
    page = opened()
    before = page.evaluate(PIXELS, "cdf-jct_s")
    button = page.locator("[data-legend]").first.get_by_role("button", name="fifo", exact=True)
    button.click()
    settled(page)

    assert page.evaluate(PIXELS, "cdf-jct_s") != before
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    settled(page)
    assert page.evaluate(PIXELS, "cdf-jct_s") == before


def test_ten_thousand_bars_are_redrawn_at_once(opened, record_property):
    page = opened()
    told = page.locator("#bars").inner_text()
    bars = int(told.split()[0].strip("(").replace(",", ""))
    medians = [median(page.evaluate(REDRAW)) for _ in range(3)]
    record_property("latency", f"{bars:,} bars are redrawn in {min(medians):.1f} ms")

    assert bars >= BARS
    assert min(medians) > 0
    assert page.evaluate(COLOURS, "gantt") > 10


def test_times_are_at_the_same_place_in_all_pictures(opened):
    lefts = opened().evaluate(LEFTS)

    assert len(lefts) == 6
    assert len(set(lefts)) == 1


def test_the_box_that_is_dragged_is_seen(opened):
    page = opened()
    box = box_of(page, "queue")
    page.mouse.move(box["x"] + 300, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=3)

    assert page.locator('[data-chart="queue"] .band').bounding_box()["width"] == pytest.approx(200)
    page.mouse.up()


def test_long_names_are_told_apart(browser, report, tmp_path):
    names = [f"policies/of/mine/by_size.py:alpha=0.125,beta={i}" for i in (1, 2)]
    folder = tmp_path / "copy"
    shutil.copytree(report.parent, folder)
    data = json.loads((folder / "compare.json").read_text())
    for number, name in enumerate(names, 1):
        data["rows"][number]["policy"] = data["runs"][number]["policy"] = name
    (folder / "compare.json").write_text(json.dumps(data))
    page = browser.new_page()
    page.goto(write_report(folder, formats=()).as_uri())
    buttons = page.locator("[data-legend]").first.get_by_role("button")

    assert buttons.all_inner_texts() == ["fifo", "by_size.py:beta=1", "by_size.py:beta=2"]
    assert buttons.nth(2).get_attribute("title") == names[1]
    page.close()


def test_names_are_shown_and_never_executed(browser, report, tmp_path):
    evil = "<img src=x onerror=document.title='broken'>"
    folder = tmp_path / "copy"
    shutil.copytree(report.parent, folder)
    data = json.loads((folder / "compare.json").read_text())
    data["rows"][1]["policy"] = data["runs"][1]["policy"] = evil
    (folder / "compare.json").write_text(json.dumps(data))
    page = browser.new_page()
    page.goto(write_report(folder, formats=()).as_uri())
    page.select_option("#policy", "1")
    settled(page)

    assert "broken" not in page.title()
    assert page.locator("img").count() == 0
    assert page.locator("b[data-policy]").first.inner_text() == evil
    page.close()
