"""What reports cost: how fast one opens, and what a frame of an animation takes.

Five policies on 5,000 jobs, and 1,000 jobs under two policies side by side, in a real browser.
Times are those of this machine with whatever else it does: the load is printed.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from rota.report import write_report
from rota.report.watch import write_watch_page
from rota.study.compare import compare
from rota.study.config import RunConfig

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
POLICIES = ("fifo", "las", "srtf", "tiresias", "fifo-skip")
OPENINGS = 5
PAINTED = "performance.getEntriesByType('paint').map((entry) => entry.startTime)"


def time_report(browser: Browser, folder: Path, jobs: int) -> None:
    trace = f"generate:philly-like:jobs={jobs},load=1,max_s=86400"
    config = RunConfig(trace=trace, cluster="18x8", policy=POLICIES[0], costs="pollux30")
    compare(config, POLICIES, folder, workers=None)
    file = write_report(folder, formats=())
    opened, painted = [], []
    for _ in range(OPENINGS):
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        timing = json.loads(page.evaluate("JSON.stringify(performance.timing)"))
        opened.append(timing["loadEventEnd"] - timing["navigationStart"])
        painted.append(max(page.evaluate(PAINTED)))
        page.close()
    print(
        f"report of {len(POLICIES)} policies on {jobs:,} jobs: {file.stat().st_size / 1e6:.2f} MB, "
        f"opens in {median(opened):.0f} ms, first painted after {median(painted):.0f} ms"
    )


def time_watch(browser: Browser, folder: Path, jobs: int, seconds: float) -> None:
    trace = f"generate:philly-like:jobs={jobs},load=1,max_s=86400"
    compare(RunConfig(trace=trace, cluster="16x8", policy="fifo"), ("fifo", "srtf"), folder)
    file = write_watch_page([folder / "fifo", folder / "srtf"], folder / "watch.html")
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    probe = page.context.new_cdp_session(page)
    probe.send("Performance.enable")

    def now() -> tuple[float, float]:
        metrics = probe.send("Performance.getMetrics")["metrics"]
        script = next(each["value"] for each in metrics if each["name"] == "ScriptDuration")
        return script, page.evaluate("rotaWatch.frames")

    before = now()
    page.wait_for_timeout(1_000 * seconds)
    script, frames = (b - a for a, b in zip(before, now(), strict=True))
    print(
        f"animation of {jobs:,} jobs, two policies: {file.stat().st_size / 1e6:.2f} MB, "
        f"{frames / seconds:.0f} frames/s, {1_000 * script / max(1, frames):.1f} ms of scripting "
        f"per frame"
    )
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for part in ("report", "watch"):
            (Path(name) / part).mkdir()
        time_report(browser, Path(name) / "report", options.jobs)
        time_watch(browser, Path(name) / "watch", options.jobs // 5, options.seconds)
        browser.close()


if __name__ == "__main__":
    main()
