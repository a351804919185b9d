"""Follow a command through the code: the functions it calls, in the order of their first calls.

    python scripts/walk.py simulate    # one simulated run of a small workload
    python scripts/walk.py submit      # one job, from `rota submit` until it has finished
    python scripts/walk.py compare     # a comparison of two policies, with its report

A walk runs in processes of its own, on the source tree given with --tree. What happens while a
module is imported does not count, nor does the start of the daemon before the job is submitted.
"""

import argparse
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve()
TREE = HERE.parent.parent
PATIENCE_S = 300.0
WORKLOAD = """\
job_id,submit_s,num_gpus,duration_s
a,0,2,600
b,10,4,60
c,20,1,30
d,30,4,300
"""
CLUSTER = ("--cluster", "1x4")

Call = tuple[str, str]  # module, qualified name of the function
Walk = dict[str, list[Call]]  # calls of each process


class CallRecorder:
    """A profile function that remembers the first call of every function below a folder."""

    def __init__(self, source: Path) -> None:
        self._source = str(source) + os.sep
        self._codes: dict[int, CodeType] = {}  # kept alive, so that their ids stay theirs
        self.calls: list[Call] = []

    def start(self) -> None:
        """Record the calls of this thread, and of those that start from now on."""
        threading.setprofile(self)
        sys.setprofile(self)

    def restart(self) -> None:
        """Forget what has been recorded."""
        self._codes, self.calls = {}, []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002
        """Look at one event of the interpreter."""
        code = frame.f_code
        if event != "call" or id(code) in self._codes:
            return
        if not code.co_filename.startswith(self._source):
            self._codes[id(code)] = code
        elif code.co_flags & inspect.CO_OPTIMIZED and not self._is_importing(frame):
            self._codes[id(code)] = code
            if not code.co_name.startswith("<"):
                self.calls.append((self._module(code.co_filename), code.co_qualname))

    def _is_importing(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self._source):
                return True
            frame = frame.f_back
        return False

    def _module(self, file: str) -> str:
        path = Path(file).relative_to(self._source).with_suffix("")
        return ".".join(path.parts).removesuffix(".__init__")


def walk(name: str, tree: Path = TREE) -> Walk:
    """The calls of a walk through the code of a source tree, by process."""
    with tempfile.TemporaryDirectory(prefix="rota-walk-") as folder:
        found = Path(folder) / "calls.json"
        installed = _metadata(tree, Path(folder) / "installed")
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ROTA_")},
            "PYTHONPATH": os.pathsep.join([str(installed), str(tree / "src")]),
            "ROTA_STATE": str(Path(folder) / "state"),
        }
        command = [sys.executable, str(HERE), name, "--tree", str(tree), "--record", str(found)]
        done = subprocess.run(  # noqa: S603 - this script
            command, check=False, cwd=folder, env=environment, timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        if not found.exists():
            raise SystemExit(f"walk {name} failed:\n{done.stdout}{done.stderr}")
        recorded = json.loads(found.read_text())
    return {process: [(at, what) for at, what in calls] for process, calls in recorded.items()}


def modules(calls: list[Call]) -> list[str]:
    """The modules of some calls, in order."""
    return list(dict.fromkeys(module for module, _ in calls))


def _metadata(tree: Path, folder: Path) -> Path:
    """Write the entry points of a tree as those of an installed distribution, found first."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    info = folder / f"rota-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rota\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


# --- Inside the recorded process -----------------------------------------------------------------


def record(name: str, tree: Path, found: Path) -> None:
    """Run a walk in this process and write what it called."""
    recorder = CallRecorder(tree / "src")
    WALKS[name](recorder, found)


def _simulate(recorder: CallRecorder, found: Path) -> None:
    Path("jobs.csv").write_text(WORKLOAD)
    _command(recorder, "simulate", "jobs.csv", *CLUSTER, "--policy", "srtf", "-o", "out")
    _write(found, command=recorder.calls)


def _compare(recorder: CallRecorder, found: Path) -> None:
    Path("jobs.csv").write_text(WORKLOAD)
    policies = ("--policy", "fifo", "--policy", "srtf")
    _command(recorder, "compare", "jobs.csv", *CLUSTER, *policies, "--jobs", "1", "-o", "out")
    _write(found, command=recorder.calls)


def _submit(recorder: CallRecorder, found: Path) -> None:
    """Run the daemon in the main thread, for its signals, and its client in another process."""
    threading.Thread(target=_use_daemon, args=(recorder, found), daemon=True).start()
    state = os.environ["ROTA_STATE"]
    _command(recorder, "serve", "--nodes", "1x1", "--listen", "127.0.0.1:0", "--state", state)


def _use_daemon(recorder: CallRecorder, found: Path) -> None:
    announced = Path(os.environ["ROTA_STATE"]) / "server.json"
    try:
        while not announced.exists():
            time.sleep(0.05)
        _client("ls")  # the daemon has started when it answers
        recorder.restart()
        client = json.loads(_client("client"))
        _write(found, client=client, daemon=recorder.calls)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _client(name: str) -> str:
    command = [sys.executable, str(HERE), name, "--tree", str(Path(sys.argv[3]))]
    return subprocess.run(  # noqa: S603 - this script
        [*command, "--record", "-"], check=True, timeout=PATIENCE_S, capture_output=True, text=True
    ).stdout.splitlines()[-1]


def _be_client(recorder: CallRecorder, found: Path) -> None:  # noqa: ARG001 - prints instead
    _command(recorder, "submit", "--gpus", "1", "--wait", "--", "true")
    print(json.dumps(recorder.calls))


def _be_listing(recorder: CallRecorder, found: Path) -> None:  # noqa: ARG001 - records nothing
    _command(recorder, "ls", "-o", "json")


def _command(recorder: CallRecorder, *arguments: str) -> None:
    from rota.cli import main

    recorder.start()
    try:
        main(list(arguments))
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _write(found: Path, **calls: list[Call]) -> None:
    part = found.with_suffix(".part")
    part.write_text(json.dumps(calls))
    part.rename(found)


WALKS: dict[str, Callable[[CallRecorder, Path], None]] = {
    "simulate": _simulate, "submit": _submit, "compare": _compare,
    "client": _be_client, "ls": _be_listing,
}  # fmt: skip


def main() -> None:
    """Print a walk, or be the process that is recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WALKS)
    parser.add_argument("--tree", type=Path, default=TREE, help="Source tree to walk through.")
    parser.add_argument("--modules", action="store_true", help="Print modules only.")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record:
        record(chosen.name, chosen.tree, chosen.record)
        return
    for process, calls in walk(chosen.name, chosen.tree.resolve()).items():
        print(f"# {process}: {len(modules(calls))} modules, {len(calls)} functions")
        lines = modules(calls) if chosen.modules else [f"{at}: {what}" for at, what in calls]
        print("\n".join(lines))


if __name__ == "__main__":
    main()
