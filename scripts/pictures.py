"""Make the pictures of the documentation from the real pages: `make pictures`.

A daemon with pretended jobs is started on this machine, and Debian's Chromium looks at its page and
at a report. The pictures go to docs/images.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 860}
PATIENCE_MS = 120_000
CONFIGURATION = """\
policy: capacity
queues:
  vision: {quota: 48}
  language: {quota: 48}
  speech: {quota: 32}
"""
ROTA = [sys.executable, "-m", "rota"]


def main() -> None:
    """All of them."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium: `make system-deps` installs it")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rota-pictures-") as place, sync_playwright() as play:
        folder = Path(place)
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        picture_report(browser, folder)
        with daemon(folder) as (rota, url):
            picture_page(browser, rota, url)
        browser.close()
    for file in sorted(IMAGES.glob("*.png")):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


# --- the report -----------------------------------------------------------------------------------


def picture_report(browser: Any, folder: Path) -> None:
    """How a comparison opens."""
    workload = "poisson:durations=philly,max_s=36000,sizes=1:80/2:10/4:8/8:2"
    call(folder, "trace", "generate", workload, "--jobs", "3200", "--cluster", "2x8", "--load",
         "1.2", "--seed", "1", "-o", "jobs.csv")  # fmt: skip
    policies = [part for name in ("fifo", "fifo-skip", "las", "tiresias", "srtf")
                for part in ("--policy", name)]  # fmt: skip
    call(folder, "compare", "jobs.csv", "--cluster", "2x8", *policies, "--windows", "8",
         "--figures", "none", "-o", "report")  # fmt: skip
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(PATIENCE_MS)
    page.goto((folder / "report" / "report.html").as_uri())
    page.locator("h1, h2").first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "report.png")
    page.close()


# --- the live page --------------------------------------------------------------------------------


@contextmanager
def daemon(folder: Path) -> Iterator[tuple[Any, str]]:
    """A daemon with jobs that pretend to run."""
    from rota.sdk import Client
    from rota.sdk.place import find_place

    config = folder / "rota.yaml"
    config.write_text(CONFIGURATION)
    state = folder / "state"
    command = [*ROTA, "serve", "--backend", "pretend", "--nodes", "16x8", "--config", str(config),
               "--state", str(state), "--listen", "127.0.0.1:0", "--owner", "ada"]  # fmt: skip
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own command
    try:
        os.environ["ROTA_STATE"] = str(state)
        while process.poll() is None and not (state / "server.json").exists():
            sleep(0.1)
        with Client(patience_s=60) as client:
            rng = Random(7)  # noqa: S311 - jobs of a picture
            client.submit_many([job(rng, number) for number in range(220)])
            yield client, find_place().server
    finally:
        process.terminate()
        process.wait()


def job(rng: Random, number: int) -> dict[str, Any]:
    """One of a busy day."""
    queue = rng.choice(["vision", "vision", "language", "speech"])
    model = {"vision": "resnet", "language": "llama", "speech": "whisper"}[queue]
    return {
        "run": f"python train.py --model {model} --seed {number}",
        "name": f"{model}-{number}",
        "queue": queue,
        "estimate": rng.choice([600, 3600, 14400]),
        "envs": {"PRETEND_S": str(rng.choice([2, 5, 3600, 3600, 14400, 14400]))},
        "resources": {"gpus": rng.choice([1, 1, 2, 4, 8])},
    }


def picture_page(browser: Any, rota: Any, url: str) -> None:
    """What an operator and a job's owner see."""
    context = browser.new_context(viewport=SIZE)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url + rota.web_code().path)
    page.get_by_role("link", name="Overview", exact=True).wait_for()
    page.wait_for_timeout(8_000)  # the shortest jobs have ended
    waiting = max(rota.jobs(states=["PENDING"]), key=lambda each: int(each.id))
    pictures = {
        "overview": "page-overview", "jobs": "page-jobs", "cluster": "page-map",
        "queues": "page-queues", f"jobs/{waiting.id}": "page-job",
    }  # fmt: skip
    for view, name in pictures.items():
        page.goto(f"{url}/#/{view}")
        page.get_by_role("heading", level=1).first.wait_for()
        page.wait_for_timeout(1_500)
        page.get_by_text("Simulating when it starts").wait_for(state="hidden")
        page.screenshot(path=IMAGES / f"{name}.png")
    context.close()


def call(folder: Path, *words: str) -> None:
    """A command of Rota."""
    subprocess.run([*ROTA, *words], check=True, capture_output=True, cwd=folder)  # noqa: S603 - ours


if __name__ == "__main__":
    main()
