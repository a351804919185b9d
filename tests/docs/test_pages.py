"""Pages do what they say: their commands are run, and what the pages show is what comes out.

Comments in a page (lines that begin with %, which are not rendered) say what a block of code is:

    % run            the next block is run by a shell in the page's own folder
    % run fails      the same, and it must fail
    % output         the next block is what the block before it printed (see `matches`)
    % file NAME      the next block is the content of a file, written to the folder
    % setup COMMAND  run it without showing it
    % example NAME   copy a file of `examples/` to the folder
    % shared PATH    copy a file of the shared reference folder, or skip the page
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared_data import CHECKOUT, shared

DOCS = CHECKOUT / "docs"
STEP = re.compile(
    r"^(?P<indent> *)% (?P<what>run fails|run|output|file|setup|example|shared)"
    r"(?: +(?P<arg>[^\n]+))?\n"
    r"(?:(?P=indent)(?P<fence>```+)\w*\n(?P<body>.*?)^(?P=indent)(?P=fence)$)?",
    re.MULTILINE | re.DOTALL,
)
BLOCKS = ("run", "run fails", "output", "file")
FREE = "..."


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


@pytest.mark.timeout(300)  # a page is many commands
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_commands_of_a_page_do_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # as if packages there were installed
    for key in [key for key in os.environ if key.startswith("ROTA_")]:
        monkeypatch.delenv(key)
    printed = ""
    for what, argument, block in steps(page):
        if what == "shared":
            shutil.copy(shared(argument), tmp_path)
        elif what == "example":
            shutil.copy(CHECKOUT / "examples" / argument, tmp_path)
        elif what == "file":
            (tmp_path / argument).write_text(block)
        elif what == "output":
            assert matches(tidy(block), tidy(printed)), printed
        else:
            printed = run(argument if what == "setup" else block, tmp_path, fails="fails" in what)


def run(script, folder, *, fails):
    """Run a script; what it printed, and what it complained of if it had to fail."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr if fails else done.stdout


def test_what_pages_show_is_compared_line_by_line():
    assert matches(["a", "b ..."], ["a", "b 17"])
    assert matches(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not matches(["a"], ["a", "b"])
    assert not matches(["a", "c"], ["a", "b"])
