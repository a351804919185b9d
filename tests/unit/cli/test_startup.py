"""What commands import before they do anything: counted, never timed."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires

import pytest

from rota.core.errors import EXTRAS
from rota.sdk.place import is_starting

SCRIPT = """
import json, sys

scans = []

def watch(event, args):
    if event == "open" and str(args[0]).endswith("entry_points.txt"):
        scans.append(str(args[0]))

sys.addaudithook(watch)
from rota.cli.app import main

try:
    main({args!r})
except SystemExit as left:
    code = left.code
with open({result!r}, "w") as file:
    json.dump([code, sorted(sys.modules), scans], file)
"""
JOBS = "job_id,submit_s,num_gpus,duration_s\na,0,1,10\nb,1,2,20\n"
FRAMES = ("numpy", "polars")
PLOTS = ("matplotlib", "rich", "yaml", "tarfile", "rota.traces.synth", "numpy.random")
SERVER = ("sqlalchemy", "alembic", "starlette", "uvicorn", "httpx2", "prometheus_client", "ray")


class Started:
    """A command that has run in a process of its own."""

    def __init__(self, code, modules, scans):
        self.code = code
        self.modules = modules
        self.own = [name for name in modules if name.split(".")[0] == "rota"]
        self.scans = scans

    def has(self, *names):
        """Which of these modules were imported."""
        return {name for name in names if name in self.modules}


@pytest.fixture
def start(tmp_path):
    """Return `start(*args)`: the command, run in an empty folder with `jobs.csv`."""
    (tmp_path / "jobs.csv").write_text(JOBS)

    def started(*args):
        result = tmp_path / "result.json"
        script = SCRIPT.format(args=args, result=str(result))
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=False
        )
        assert result.exists(), done.stderr
        return Started(*json.loads(result.read_text()))

    return started


def test_help_imports_little(start):
    done = start("--help")

    assert done.code == 0
    assert not done.has(*FRAMES, *PLOTS, *SERVER, "msgspec", "difflib", "pathlib")
    assert len(done.own) <= 7, done.own
    assert len(done.modules) <= 140, len(done.modules)
    assert not done.scans


def test_simulate_imports_what_a_run_needs(start):
    args = ("jobs.csv", "--cluster", "1x4", "-o", "out", "--placement", "count")
    done = start("simulate", *args, "--policy", "fifo")

    assert done.code == 0
    assert not done.has(*PLOTS, *SERVER)
    assert not done.has("rota.engine.general", "rota.engine.invariants", "rota.report")
    readers = [name for name in done.own if name.startswith("rota.traces.formats.")]
    assert readers == ["rota.traces.formats.plain"]
    assert len(done.own) <= 119, len(done.own)  # 118, and since then floats are summed in one order


def test_entry_points_are_read_once(start):
    done = start("simulate", "jobs.csv", "--cluster", "1x4", "--policy", "fifo", "-o", "out")

    assert done.scans
    assert len(done.scans) == len(set(done.scans))


def test_compare_draws_no_figures_unasked(start):
    policies = ("--policy", "fifo", "--policy", "las")
    done = start("compare", "jobs.csv", "--cluster", "1x4", *policies, "-o", "out")

    assert done.code == 0
    assert not done.has("matplotlib", "rich", *SERVER)


@pytest.mark.parametrize("command", [["ls"], ["show", "1"], ["cancel", "1"], ["nodes"]])
def test_a_client_needs_neither_tables_nor_the_engine(start, command):
    done = start(*command, "--server", "http://127.0.0.1:9")

    assert done.code == 1  # nobody answered
    assert not done.has(*FRAMES, *PLOTS, "sqlalchemy", "starlette", "uvicorn", "rota.daemon")
    assert not [name for name in done.own if name.startswith(("rota.engine", "rota.sim"))]


def test_a_daemon_starts_without_tables_and_migrations(tmp_path):
    script = (
        "import sys, rota.api, rota.api.app, rota.server\n"
        "from pathlib import Path\n"
        "from rota.daemon.store import Store\n"
        "for _ in range(2):\n"
        "    Store(Path('rota.db')).close()\n"
        "print(*{'numpy', 'polars', 'alembic', 'matplotlib', 'ray'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "\n"


class Absent:
    """A finder of modules: one of them is not there, and somebody looks when it is asked for."""

    def __init__(self, module, look):
        self.module = module
        self.look = look

    def find_spec(self, name, *_):
        if name == self.module:
            self.look()
            raise ModuleNotFoundError(name, name="starlette")


def test_a_daemon_takes_its_folder_before_it_imports_much(rota, here, monkeypatch):
    state = here / "state"
    seen = []
    monkeypatch.delitem(sys.modules, "rota.server", raising=False)
    finder = Absent("rota.server", lambda: seen.append(is_starting(state)))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])

    code, _, err = rota("serve", "--nodes", "1x1", "--state", state)

    assert (code, seen) == (1, [True])
    assert "starlette is missing, which this command needs" in err
    assert not is_starting(state)


WITHOUT_EXTRAS = """
import sys

from rota.core.errors import EXTRAS

sys.modules.update(dict.fromkeys(name for names in EXTRAS.values() for name in names))
from rota.cli.app import run

for command in sys.argv[1:]:
    print(run(command.split()), flush=True)
    print(file=sys.stderr, flush=True)
"""
NEED_A_SERVER = (
    "serve --nodes 1x1", "agent --server http://127.0.0.1:9 --gpus 1", "ls", "logs 1", "web",
    "submit --gpus 1 -- true", "port-forward 1 80", "pull 1", "tls init", "login", "store check",
)  # fmt: skip


def test_without_an_extra_commands_say_what_to_install(tmp_path):
    commands = (*NEED_A_SERVER, "doctor --state state")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *commands],
        cwd=tmp_path, env={**os.environ, "ROTA_STATE": str(tmp_path / "state")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    *told, ill, rest = done.stderr.split("\n\n")
    assert rest == "", done.stderr
    for command, error in zip(NEED_A_SERVER, told, strict=True):
        package, sentence, _ = error.partition(
            " is missing, which this command needs: in a checkout of "
        )
        assert package.removeprefix("error: ") in EXTRAS["server"], (command, error)
        assert sentence
        assert "'.[server]'" in error
    assert ill.startswith("error: needed and not there: package sqlalchemy")
    assert "MISS package sqlalchemy: not installed" in done.stdout
    assert set(re.findall("^[0-9]+$", done.stdout, re.MULTILINE)) == {"1"}


def test_the_packages_of_extras_are_those_of_the_project():
    declared = {
        re.match("[a-z0-9-]+", requirement)[0].replace("-", "_")
        for requirement in requires("rota")
        if "extra ==" in requirement and not requirement.startswith("rota[")
    }
    known = {name for names in EXTRAS.values() for name in names}
    imported = {
        "pyjwt": "jwt",
        "pillow": "PIL",
        "protobuf": "perfetto",
    } | {  # perfetto is who imports protobuf
        name: "opentelemetry" for name in declared if name.startswith("opentelemetry_")
    }
    assert {imported.get(name, name) for name in declared} == known


def test_an_agent_knows_no_daemon():
    script = (
        "import sys, rota.cli.agent, rota.live.agent.agent\n"
        "print(*{'numpy', 'polars', 'sqlalchemy', 'starlette', 'rota.daemon'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "\n"
