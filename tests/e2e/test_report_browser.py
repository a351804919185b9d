"""The report of a large comparison in a real browser."""

import json
import re
import shutil
from io import BytesIO
from statistics import median

import pytest
from PIL import Image

from agents_net import eventually
from daemon_process import PATIENCE_S
from js_tools import tool
from rota.report import write_report
from rota.study.compare import compare
from rota.study.config import RunConfig

JOBS = 5_000
BARS = 10_000
LARGEST = 3_000_000
POLICIES = ("fifo", "las", "srtf", "tiresias", "fifo-skip")
CHARTS = ("cdf-jct_s", "cdf-wait_s", "queue-0", "use-4", "lanes", "tenants", "heat", "fragments")
MOMENT = r"(\d+d )?\d\d:\d\d(:\d\d)?"
COLOURS = """name => {
  const canvas = document.querySelector(`[data-chart="${name}"] canvas`);
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""
PIXELS = """name => document.querySelector(`[data-chart="${name}"] canvas`).toDataURL()"""
REDRAW = """() => Array.from({length: 9}, (_, i) => {
  const {charts: {lanes}} = rotaReport;
  lanes.to *= 1 - i / 500;
  const begun = performance.now();
  lanes.draw();
  lanes.context.getImageData(0, 0, 1, 1); // waits until it is really drawn
  return performance.now() - begun;
})"""
AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}"""


@pytest.fixture(scope="module")
def report(shared, tmp_path_factory):
    """Return the page of a comparison of five policies on 5,000 jobs."""
    folder = tmp_path_factory.mktemp("report")
    trace = shared("reference/common/philly5k.csv")
    config = RunConfig(trace=str(trace), cluster="18x8", policy=POLICIES[0], costs="pollux30")
    compare(config, POLICIES, folder, command=["rota", "compare", "a b.csv"])
    return write_report(folder, formats=())


@pytest.fixture
def opened(browser, report):
    """Return `opened(**options)`: a page with the report; no error, no request may occur."""
    pages, said, asked = [], [], []

    def make(address="", **options):
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | options)
        pages.append(page)
        page.on("console", lambda message: message.type == "error" and said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url.partition("#")[0]))
        page.goto(report.as_uri() + address)
        ready(page)
        return page

    yield make
    for page in pages:
        page.close()
    assert said == []
    assert set(asked) == {report.as_uri()}


def ready(page):
    """Wait until all numbers are unpacked, and what was to be drawn is drawn."""
    page.wait_for_selector("html[data-ready]", state="attached")
    settled(page)


def settled(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")


def until(page, condition):
    """Wait until something is so; no script of the page may evaluate a string, we may."""
    eventually(lambda: page.evaluate(condition), PATIENCE_S, 0.05)


def unfold(page):
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    settled(page)


def box_of(page, chart):
    canvas = page.locator(f'[data-chart="{chart}"] canvas')
    canvas.scroll_into_view_if_needed()
    return canvas.bounding_box()


def tip(page):
    return page.locator(".tip:visible")


def test_it_is_small_and_opens_quickly(opened, report, record_property):
    times = []
    for _ in range(3):
        page = opened()
        timing = json.loads(page.evaluate("JSON.stringify(performance.timing)"))
        times.append(timing["loadEventEnd"] - timing["navigationStart"])
        page.close()
    record_property("latency", f"the report of {JOBS} jobs opens in {min(times)} ms")

    assert min(times) > 0
    assert report.stat().st_size <= LARGEST


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_picture_is_empty_and_everybody_can_read_it(opened, scheme):
    page = opened(color_scheme=scheme)
    unfold(page)

    for chart in CHARTS:
        assert page.evaluate(COLOURS, chart) > 5, chart
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(245, 246, 249)") == (scheme == "light")
    source = tool("axe-core/axe.min.js").read_text()
    page.evaluate(source)  # not an element of the page: its policy allows one script
    assert page.evaluate(AXE) == []


def test_it_begins_with_the_answer(opened):
    page = opened()

    verdict = page.locator(".verdict").inner_text()
    assert re.fullmatch(
        r"In this one run srtf has the lowest mean JCT: 6h 41m, against 6d 01h of fifo\.", verdict
    )
    assert "proves nothing" in page.locator(".answer").inner_text()
    tiles = page.locator(".tile")
    assert tiles.count() == 5
    assert all("not proven" in text for text in tiles.all_inner_texts())
    assert page.locator(".tile.better, td.better").count() == 0


def test_policies_are_sorted_by_a_heading(opened):
    page = opened()
    names = page.locator("table.policies tbody th")
    page.locator("table.policies").get_by_role("button", name="mean JCT", exact=True).click()
    assert names.all_inner_texts() == ["srtf", "tiresias", "las", "fifo-skip", "fifo"]
    page.locator("table.policies").get_by_role("button", name="GPU utilisation").click()
    assert names.first.inner_text() == "fifo-skip"
    page.keyboard.press("Enter")
    assert names.last.inner_text() == "fifo-skip"
    head = page.locator('table.policies th[aria-sort="ascending"]')
    assert head.inner_text().startswith("GPU utilisation")


def test_hovering_tells_the_values(opened):
    page = opened()
    box = box_of(page, "cdf-jct_s")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = tip(page).inner_text().splitlines()

    assert told[0].startswith("within ")
    assert [line.split(":")[0] for line in told[1:]] == list(POLICIES)
    box = box_of(page, "lanes")
    page.mouse.move(box["x"] + 150, box["y"] + 40)
    assert tip(page).inner_text().startswith("job ")
    assert re.search(MOMENT, tip(page).inner_text())
    page.mouse.move(5, 5)
    assert tip(page).count() == 0


def test_dragging_zooms_all_pictures_over_time(opened):
    page = opened()
    unfold(page)
    shown = ("queue-0", "use-3", "heat", "lanes")
    before = {chart: page.evaluate(PIXELS, chart) for chart in shown}
    box = box_of(page, "queue-0")
    page.mouse.move(box["x"] + 200, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 320, box["y"] + 60, steps=3)
    page.mouse.up()
    settled(page)
    at, full = page.evaluate("[[rotaReport.time.from, rotaReport.time.to], rotaReport.time.full]")

    assert 0 < at[0] < at[1] < full[1]
    assert re.fullmatch(rf"{MOMENT} to {MOMENT}", page.locator("#range").inner_text())
    assert all(page.evaluate(PIXELS, chart) != pixels for chart, pixels in before.items())
    page.get_by_role("button", name="Whole time").click()
    settled(page)
    assert page.evaluate("rotaReport.time.whole")
    assert page.evaluate(PIXELS, "heat") == before["heat"]


def test_everything_works_with_the_keyboard(opened):
    page = opened()
    page.locator('[data-chart="lanes"] canvas').focus()
    page.keyboard.press("+")
    zoomed = page.evaluate("rotaReport.time.from")
    page.keyboard.press("ArrowRight")
    moved = page.evaluate("rotaReport.time.from")
    page.locator('[data-chart="use-1"] canvas').focus()
    page.keyboard.press("0")

    assert zoomed < moved
    assert page.evaluate("rotaReport.time.whole")
    page.locator("#policy").focus()
    page.keyboard.press("ArrowDown")
    until(page, "rotaReport.now.look.policy === 'las'")


def test_a_legend_switches_curves_off_and_on(opened):
    page = opened()
    before = page.evaluate(PIXELS, "cdf-jct_s")
    button = page.locator("[data-legend]").first.get_by_role("button", name="fifo", exact=True)
    button.click()
    settled(page)

    assert page.evaluate(PIXELS, "cdf-jct_s") != before
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    page.mouse.move(5, 5)
    settled(page)
    assert page.evaluate(PIXELS, "cdf-jct_s") == before


def test_ten_thousand_bars_are_redrawn_at_once(opened, record_property):
    page = opened()
    bars = int(page.locator("#bars").inner_text().split()[0].replace(",", ""))
    medians = [median(page.evaluate(REDRAW)) for _ in range(3)]
    record_property("latency", f"{bars:,} bars are redrawn in {min(medians):.1f} ms")

    assert bars >= BARS
    assert min(medians) > 0
    assert page.evaluate("rotaReport.charts.lanes.drawn.bars") == bars


def test_colours_mean_something(opened):
    page = opened()
    seen = []
    for way in ("Tenant", "Size", "Slowdown", "Job"):
        page.locator("#ways").get_by_role("button", name=way).click()
        settled(page)
        seen.append(page.evaluate(PIXELS, "lanes"))
    assert len(set(seen)) == 4
    page.locator("#ways").get_by_role("button", name="Size").click()
    assert "8 GPUs" in page.locator('[data-keys="lanes"]').inner_text()


def test_every_job_leads_to_its_explanation(opened):
    page = opened()
    box = box_of(page, "lanes")
    page.mouse.click(box["x"] + 150, box["y"] + 40)
    dialog = page.get_by_role("dialog")
    name = re.fullmatch(r"Job (\S+)", dialog.get_by_role("heading").inner_text())[1]
    fates = dialog.locator(".fate")

    assert fates.count() == len(POLICIES)
    assert all(re.search(r"done after .* (waited|did not wait)", one, re.DOTALL)
               for one in fates.all_inner_texts())  # fmt: skip
    assert f" {name}" in dialog.locator("pre").inner_text()
    address = page.evaluate("location.hash")
    assert address == f"#job={name}"
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    again = opened(address)
    assert again.get_by_role("dialog").get_by_role("heading").inner_text() == f"Job {name}"
    again.keyboard.press("Escape")
    again.get_by_placeholder("id").fill("none such")
    again.get_by_role("button", name="Explain").click()
    assert again.locator("#job-said").inner_text() == "There is no job none such here."


def test_who_gained_and_who_lost(opened):
    page = opened()
    assert page.locator("#job-list tbody tr").count() == 20
    page.get_by_role("button", name="Lost most").click()
    page.locator("#job-list tbody td", has_text="later").first.wait_for()
    rows = page.locator("#job-list tbody tr").all_inner_texts()
    assert rows
    assert all("later" in row for row in rows)


def test_the_command_can_be_copied(opened):
    page = opened()
    copied = """() => new Promise((done) => {
      navigator.clipboard.writeText = async (text) => done(text);
      document.querySelector("[data-copy]").click();
    })"""
    assert page.evaluate(copied) == "rota compare 'a b.csv'"


@pytest.mark.parametrize("width", [360, 768])
def test_it_fits_small_screens(opened, width):
    page = opened(viewport={"width": width, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".verdict").bounding_box()["width"] <= width


PLACES = """() => {
  const all = (selector, of) => [...of.querySelectorAll(selector)];
  const text = (each) => each.outerHTML.slice(0, 90);
  const boxOf = (each) => each.getBoundingClientRect();
  const common = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
  const crosses = (a, b) => common(a, b, "left", "right") > 1 && common(a, b, "top", "bottom") > 1;
  const holds = (each) => getComputedStyle(each).overflowX !== "visible";
  const sticksOut = (each, card) => {
    if (boxOf(each).right <= innerWidth + 1) return false;
    let at = each.parentElement;
    while (at !== card && !holds(at)) at = at.parentElement;
    return !holds(at);
  };
  return all("section.card", document).filter((each) => each.offsetHeight).map((card) => {
    const {left, top, right, bottom} = boxOf(card);
    const parts = [...card.children].filter((each) => each.offsetHeight);
    return {
      key: card.id,
      box: [left, top + scrollY, right, bottom + scrollY],
      out: all("*", card).filter((each) => sticksOut(each, card)).map(text),
      over: parts.filter((a, i) => parts.slice(0, i).some(
        (b) => crosses(boxOf(a), boxOf(b)))).map(text),
    };
  });
}"""


@pytest.mark.parametrize(("media", "width"), [("screen", 1280), ("screen", 390), ("print", 720)])
def test_every_section_is_drawn_in_its_place(opened, media, width):
    page = opened(viewport={"width": width, "height": 900})
    page.emulate_media(media=media)
    unfold(page)
    places = page.evaluate(PLACES)
    pixels = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")

    keys = [place["key"] for place in places]
    shown = page.locator(".toc a").evaluate_all("all => all.map(each => each.hash.slice(1))")
    hidden = {"jobs"} if media == "print" else set()  # it is a dialogue
    assert keys == [key for key in shown if key in keys]
    assert set(shown) - set(keys) == {shown[0]} | hidden, "all but the top of the page"
    bottom, pictures = 0, set()
    for place in places:
        left, top, right, below = place["box"]
        assert (place["out"], place["over"]) == ([], []), place["key"]
        assert top >= bottom, f"{place['key']} lies over the section before it"
        assert (left >= 0, right <= width, below - top > 40) == (True, True, True), place["key"]
        part = pixels.crop((round(left), round(top), round(right), round(below)))
        colours = part.getcolors(part.width * part.height)
        ground = max(count for count, _ in colours)
        assert len(colours) > 15, f"{place['key']} has nothing in it"
        assert ground < 0.995 * part.width * part.height, f"{place['key']} is all but empty"
        pictures.add(part.tobytes())
        bottom = below
    assert len(pictures) == len(places)


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
    ready(page)
    buttons = page.locator("[data-legend]").first.get_by_role("button")

    assert buttons.all_inner_texts()[:3] == ["fifo", "by_size.py:beta=1", "by_size.py:beta=2"]
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
    ready(page)
    page.select_option("#policy", "1")
    until(page, "rotaReport.shown === 1")

    assert "broken" not in page.title()
    assert page.locator("img").count() == 0
    assert page.locator("table.policies tbody th").nth(1).inner_text() == evil
    page.close()
