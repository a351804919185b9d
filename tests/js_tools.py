"""Tools for JavaScript: those that check the pages are installed by `make js-tools`."""

import shutil
import subprocess

from needs import SYSTEM, need
from shared_data import CHECKOUT

TOOLS = "make js-tools"
FOLDER = CHECKOUT / ".venv" / "js" / "node_modules"


def node(*args):
    """Run Node.js; the finished process."""
    found = shutil.which("node")
    need(found is not None, "Node.js", SYSTEM)
    return subprocess.run(
        [found, *map(str, args)], check=False, capture_output=True, text=True, cwd=CHECKOUT
    )


def tool(path):
    """A file of an installed package; without it the test is skipped."""
    file = FOLDER / path
    need(file.exists(), f"the npm package {path.split('/')[0]}", TOOLS)
    return file
