"""Pages do what they say: their commands are run, and what the pages show is what comes out.

Comments in a page (lines that begin with %, which are not rendered) say what a block of code is:

    % run            the next block is run by a shell in the page's own folder
    % run fails      the same, and it must fail
    % output         the next block is what the block before it printed (see `matches`)
    % file NAME      the next block is the content of a file, written to the folder
    % setup COMMAND  run it without showing it
    % start COMMAND  the next block goes on in the background (till the end of the page at the
                     latest); COMMAND succeeds as soon as it is ready
    % stop           press Ctrl-C where the last one goes on, and wait for its end
    % freeze N       press Ctrl-Z where the N-th one goes on, from 0
    % thaw N         let it go on
    % until COMMAND  wait until it succeeds
    % example NAME   copy a file of `examples/` to the folder
    % shared PATH    copy a file of the shared reference folder, or skip the page
    % slurm          start a Slurm with emulated nodes, or skip the page

The page's folder is the home of whoever follows it. Daemons listen on a free port, for which the
usual address stands on the page. Jobs die with the page. What goes on in the background is a
process of its own; other commands run in the process of the test (see `page_shell`).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from page_shell import PageShell
from rota.sdk.place import DEFAULT_SERVER
from shared_data import CHECKOUT, shared
from slurm_cluster import SlurmCluster, require_slurm

DOCS = CHECKOUT / "docs"
STEP = re.compile(
    r"^(?P<indent> *)% "
    r"(?P<what>run fails|run|output|file|setup|start|stop|freeze|thaw|until|example|shared|slurm)"
    r"(?: +(?P<arg>[^\n]+))?\n"
    r"(?:(?P=indent)(?P<fence>```+)\w*\n(?P<body>.*?)^(?P=indent)(?P=fence)$)?",
    re.MULTILINE | re.DOTALL,
)
BLOCKS = ("run", "run fails", "start", "output", "file")
FREE = "..."
SIGNALS = {"freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
PATIENCE_S = 300.0
KEPT = ("ROTA_SHARED", "ROTA_ISOLATION", "ROTA_VISIBLE")  # of the variables of Rota


def steps(page):
    """Return (what, argument, block) for every comment of a page."""
    found = []
    for match in STEP.finditer(page.read_text()):
        body = match["body"]
        assert (body is not None) == (match["what"] in BLOCKS), match[0]
        lines = (body or "").splitlines(keepends=True)
        block = "".join(line.removeprefix(match["indent"]) for line in lines)
        found.append((match["what"], match["arg"], block))
    return found


def tidy(text):
    """Return the lines of a text without blanks at their ends and without empty lines around it."""
    return [line.rstrip() for line in text.strip("\n").split("\n") if line.strip()]


def matches(shown, printed):
    """Compare lines; `...` stands for anything within a line, or alone for any number of lines."""
    if not shown:
        return not printed
    first, *others = shown
    if first.strip() == FREE:
        return any(matches(others, printed[i:]) for i in range(len(printed) + 1))
    pattern = ".*".join(re.escape(part) for part in first.split(FREE))
    return bool(printed and re.fullmatch(pattern, printed[0])) and matches(others, printed[1:])


PAGES = sorted(page for page in DOCS.rglob("*.md") if steps(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_commands_of_a_page_do_what_it_says(page, tmp_path, monkeypatch, request):
    for key in [key for key in os.environ if key.startswith("ROTA_") and key not in KEPT]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("ROTA_OWNER", "helen")  # whoever follows the page
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # as if packages there were installed
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("ROTA_SERVE_LISTEN", "127.0.0.1:0")
    for command in ("COMPARE", "ROBUST", "REPLAY", "SWEEP"):
        monkeypatch.setenv(f"ROTA_{command}_JOBS", "1")  # the same numbers without more processes
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack, corrects=request.config.getoption("--correct-pages"))
        for what, argument, block in steps(page):
            if what == "slurm":
                require_slurm()
                slurm = stack.enter_context(SlurmCluster(tmp_path / ".slurm"))
                monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
            else:
                reader.follow(what, argument, block)
    if reader.corrected:
        text = page.read_text()
        for old, new in reader.corrected:
            text = text.replace(f"% output\n```text\n{old}", f"% output\n```text\n{new}", 1)
        page.write_text(text)


def corrected(shown, printed):
    """What a block should show: lines before the first `...` from the start, others from the end.

    A line that still holds stays as it is.
    """
    free = [i for i, line in enumerate(shown) if line.strip() == FREE]
    lines = []
    for i, line in enumerate(shown):
        at = i if not free or i < free[0] else len(printed) - len(shown) + i
        known = 0 <= at < len(printed) and line.strip() != FREE
        lines.append(printed[at] if known and not matches([line], [printed[at]]) else line)
    if not free:
        lines += printed[len(shown) :]
    return "".join(f"{line}\n" for line in lines)


class Reader:
    """Does in a folder what a page says."""

    def __init__(self, folder, stack, *, corrects=False):
        self.folder = folder
        self.corrected = [] if corrects else None  # (block, what it should show)
        self.announced = folder / ".local" / "state" / "rota" / "server.json"
        self.true_address = DEFAULT_SERVER
        self.printed = ""
        self.background = []
        self.shell = PageShell(folder)
        stack.callback(self.shell.close)
        stack.callback(self.leave)

    def follow(self, what, argument, block):
        """Take one step."""
        if what == "shared":
            shutil.copy(shared(argument), self.folder)
        elif what == "example":
            shutil.copy(CHECKOUT / "examples" / argument, self.folder)
        elif what == "file":
            (self.folder / argument).write_text(block)
        elif what == "output":
            if not matches(tidy(block), tidy(self.printed)):
                assert self.corrected is not None, self.printed
                self.corrected.append((block, corrected(tidy(block), tidy(self.printed))))
        elif what == "start":
            self.start(block, argument)
        elif what == "stop":
            self.stop(self.background.pop())
        elif what in SIGNALS:
            self.background[int(argument)].send_signal(SIGNALS[what])
        elif what == "until":
            self.wait_for(argument)
        else:
            script = self.addressed(argument if what == "setup" else block)
            fails = "fails" in what
            code, out, err = self.shell.run(script)
            assert (code != 0) == fails, f"{script}\n{out}\n{err}"
            self.printed = self.addressed(out + err if fails else out, back=True)

    def addressed(self, text, *, back=False):
        """Put the daemon's true address in place of the usual one, or the other way round."""
        if self.announced.exists():
            self.true_address = json.loads(self.announced.read_text())["url"]
        secure = self.true_address.startswith("https:")
        usual = DEFAULT_SERVER.replace("http:", "https:") if secure else DEFAULT_SERVER
        pair = (usual, self.true_address)
        return text.replace(*(pair[::-1] if back else pair))

    def start(self, script, ready):
        """Let it go on, as in another terminal."""
        command = ["bash", "-euo", "pipefail", "-c", f"exec {self.addressed(script.strip())}"]
        with (self.folder / f".background-{len(self.background)}").open("ab") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=output, start_new_session=True
            )
        self.background.append(process)
        self.wait_for(ready)

    def wait_for(self, condition):
        """Ask again and again."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            code, *_ = self.shell.run(condition)
            if not code:
                return
            assert time.monotonic() < end_s, f"{condition}\n{self.told()}"
            time.sleep(0.1)

    def told(self):
        """Return what was written in the background."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob(".background-*")))

    def stop(self, process):
        """Press Ctrl-C."""
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, self.told()

    def leave(self):
        """End everything that knows this folder; jobs outlive their daemon.

        What this process has started for itself goes on: `multiprocessing` keeps a helper.
        """
        for process in self.background:
            process.kill()
            process.wait()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                known = [process.cwd(), *process.cmdline(), *process.environ().values()]
                ours = os.getpid() in (process.pid, process.ppid())
                if not ours and any(str(self.folder) in text for text in known):
                    process.kill()


def test_what_pages_show_is_compared_line_by_line():
    assert matches(["a", "b ..."], ["a", "b 17"])
    assert matches(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not matches(["a"], ["a", "b"])
    assert not matches(["a", "c"], ["a", "b"])
