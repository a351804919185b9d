"""What the live page costs: 8,000 GPUs twice in a second, 50,000 jobs in a list, 500 open pages.

The daemon's backend is `pretend`; everything else is real, the browser too. Prints the bytes and
the scripting of an update of the map, how long the list takes until its first rows are painted, and
the processor time and the decisions of the daemon with and without 500 readers. Times are those of
this machine with whatever else it does: the load is printed.
"""

import argparse
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from load import PATIENCE_S, Loaded, job
from playwright.sync_api import Browser, Page, sync_playwright

from rota.jobfile.model import JobFile
from rota.sdk import Client

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
TICKS = os.sysconf("SC_CLK_TCK")
PAINTED = """() => new Promise((done) => {
  const look = () => document.querySelector(".rows a") ? requestAnimationFrame(
    () => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def log_in(page: Page, rota: Client, view: str) -> None:
    page.goto(rota.place.server + rota.web_code().path)
    page.get_by_role("link", name="Overview", exact=True).wait_for()
    page.goto(f"{rota.place.server}/#/{view}")


def watch_map(page: Page, seconds: float) -> dict[str, float]:
    """Updates of the map: how many, their bytes, and the scripting for each."""
    page.locator("canvas").wait_for()
    page.evaluate("rotaLive.largest = 0")
    probe = page.context.new_cdp_session(page)
    probe.send("Performance.enable")

    def now() -> tuple[float, float, float]:
        metrics: list[Any] = probe.send("Performance.getMetrics")["metrics"]
        script = next(each["value"] for each in metrics if each["name"] == "ScriptDuration")
        messages, received = page.evaluate("[rotaLive.messages, rotaLive.bytes]")
        return script, messages, received

    before = now()
    page.wait_for_timeout(1_000 * seconds)
    script, updates, received = (b - a for a, b in zip(before, now(), strict=True))
    count = max(1.0, updates)
    return {
        "updates/s": updates / seconds,
        "bytes/update": received / count,
        "largest update": page.evaluate("rotaLive.largest"),
        "scripting ms/update": 1_000 * script / count,
    }


@contextmanager
def readers(rota: Client, token: str, count: int) -> Iterator[dict[str, int]]:
    """Open pages: streams of the board that are read by one thread; what they got."""
    parts = urlsplit(rota.place.server)
    head = (
        f"GET /api/v1/board HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    chosen = selectors.DefaultSelector()
    got = {"bytes": 0, "closed": 0}
    for number in range(count):  # from several addresses: one may have 400 connections
        line = socket.create_connection(
            (parts.hostname, parts.port), timeout=PATIENCE_S,
            source_address=(f"127.0.0.{2 + number % 4}", 0),
        )  # fmt: skip
        line.sendall(head)
        line.settimeout(0)
        chosen.register(line, selectors.EVENT_READ)
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            for key, _ in chosen.select(0.1):
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]  # a socket
                got["bytes"] += len(data)
                if not data:
                    got["closed"] += 1
                    chosen.unregister(key.fileobj)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield got
    finally:
        ended.set()
        thread.join()
        for key in list(chosen.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # a socket


def churn(rota: Client, ended: threading.Event) -> None:
    """Keep the cluster busy: jobs of a few seconds."""
    number = 0
    while not ended.is_set():
        rota.submit_many([job(number + each) for each in range(40)])
        number += 40
        ended.wait(0.5)


def measure_list(browser: Browser, rota: Client, jobs: int) -> None:
    """How long the list of jobs takes: from another view, and with the whole page (a deep link)."""
    for _ in range(3):
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        log_in(page, rota, "help")
        page.get_by_role("heading", name="Help").wait_for()
        began_ms = page.evaluate("(location.hash = '#/jobs?user=', performance.now())")
        opened = page.evaluate(PAINTED) - began_ms
        with page.expect_response(lambda answer: "/find/jobs" in answer.url) as first:
            page.reload(wait_until="commit")
        loaded = page.evaluate(PAINTED)  # the clock of a page begins with its request
        rows = page.locator(".rows .row").count()
        print(
            f"list of {jobs:,} jobs: first rows painted after {opened:.0f} ms, with the whole page "
            f"after {loaded:.0f} ms; {rows} rows exist, {len(first.value.body()):,} bytes came"
        )
        page.close()


def measure(nodes: int, jobs: int, pages: int, seconds: float, state: Path) -> None:
    daemon = Loaded(state, nodes, "fifo-skip")
    try:
        with Client(patience_s=PATIENCE_S) as rota, sync_playwright() as play:
            chromium = shutil.which("chromium")
            browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
            rota.submit_many([job(number) for number in range(6 * nodes // 4)])
            ended = threading.Event()
            busy = Client(patience_s=PATIENCE_S)
            thread = threading.Thread(target=churn, args=(busy, ended))
            thread.start()
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            log_in(page, rota, "cluster")
            found = watch_map(page, seconds)
            told = ", ".join(f"{value:,.1f} {name}" for name, value in found.items())
            print(f"map of {8 * nodes:,} GPUs: {told}")
            page.close()
            token = rota.create_token("readers", "viewer")
            shares = []
            for count in (0, pages):
                with readers(rota, token, count) as got:
                    time.sleep(2.0)
                    before, began = cpu_s(daemon.process.pid), time.perf_counter()
                    time.sleep(seconds)
                    shares.append(
                        (cpu_s(daemon.process.pid) - before) / (time.perf_counter() - began)
                    )
                p99 = rota.status()["decision_s"]["p99"]
                print(
                    f"{count} open pages: daemon {100 * shares[-1]:.1f} % of a core, "
                    f"decisions p99 {1_000 * p99:.1f} ms, {got['bytes'] / 1e6:.2f} MB read, "
                    f"{got['closed']} closed"
                )
            print(f"{pages} open pages cost {100 * (shares[1] - shares[0]):.1f} % of a core")
            ended.set()
            thread.join()
            busy.close()
            for first in range(0, jobs, 5_000):
                rota.submit_many(
                    [JobFile(run="true", name=f"held-{first + n}", hold=True) for n in range(5_000)]
                )
            measure_list(browser, rota, jobs)
            browser.close()
    finally:
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        measure(options.nodes, options.jobs, options.pages, options.seconds, Path(folder) / "state")


if __name__ == "__main__":
    main()
