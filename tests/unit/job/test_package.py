import ast
import subprocess
import sys

import pytest

from rota import job
from shared_data import CHECKOUT

FILES = sorted((CHECKOUT / "src" / "rota" / "job").glob("*.py"))
NAMES = [
    "Info",
    "RESTART_CODE",
    "Saved",
    "checkpoint_dir",
    "exit_for_restart",
    "ignore_stop",
    "info",
    "install",
    "latest",
    "load",
    "load_torch",
    "report",
    "save",
    "save_torch",
    "seconds_left",
    "should_stop",
    "stop_signal",
]


def test_the_public_names_are_these():
    assert sorted(job.__all__) == NAMES
    assert [name for name in NAMES if not hasattr(job, name)] == []


def test_importing_it_imports_nothing_but_the_standard_library():
    script = "import sys; import rota.job; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.split(".")[0] == "rota"}
    assert {name for name in ours if not f"{name}.".startswith("rota.job.")} == {"rota"}
    assert not loaded & {"json", "msgspec", "numpy", "torch", "dataclasses", "inspect", "tempfile"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_older_interpreters_can_parse_it(path):
    ast.parse(path.read_text(), feature_version=(3, 9))
    assert "from __future__ import annotations" in path.read_text() or path.stem == "__init__"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_imports_nothing_else_of_rota(path):
    imported = [
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rota")
    ]
    assert all(module.startswith("rota.job.") for module in imported)
