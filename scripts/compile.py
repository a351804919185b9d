"""Compile the modules that run at every event, with mypyc: run with `make compiled`.

The result is a copy of the package with compiled modules beside the plain ones, which Python
prefers. Nothing in the source tree changes: Python would use a compiled module there even if it
were older than its source.

    python scripts/compile.py build/compiled      # build it there
    python scripts/compile.py --check build/compiled
                                                  # are the logs the same, and how fast is it?
    PYTHONPATH=build/compiled rota simulate ...   # use it
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rota"

HOT = (
    "core/allocation", "core/changes", "core/events", "core/jobs", "core/machine",
    "core/reconcile", "engine/admission", "engine/arrivals", "engine/blame", "engine/executor",
    "engine/lifecycle", "engine/log", "engine/loop", "engine/packer", "engine/priority",
    "engine/source", "engine/timers", "sim/cluster",
)  # fmt: skip
"""No msgspec struct may be in these, and nothing may ask whether two tuples are the same object."""

OPEN = {"sim/cluster": "SimCluster"}
"""Classes of which plain ones are derived."""

OPENED = """\
from typing import TYPE_CHECKING as _TYPE_CHECKING
if _TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
"""

CONFIG = """\
[mypy]
follow_imports = silent
ignore_missing_imports = True
"""
SKIPPED = ("polars", "numpy", "scipy")  # their types cost a minute and decide nothing here

POLICIES = ("fifo", "srtf", "las", "gittins", "easy", "drf", "conservative")
PLACEMENTS = ("count", "consolidate")
ROUNDS = 3
JOBS = 2_000


# --- build ---------------------------------------------------------------------------------------


def build(target: Path) -> None:
    """Copy the package to `target` and compile its hot modules there."""
    from mypyc.build import mypycify

    setup: Any = import_module("setuptools").setup  # whether it has types depends on its version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(SOURCE, target / "rota", ignore=shutil.ignore_patterns("__pycache__"))
    for module, name in OPEN.items():
        path = target / "rota" / f"{module}.py"
        path.write_text(opened(path.read_text(), name))
    os.chdir(target)
    config = Path("build") / "mypy.ini"
    config.parent.mkdir()
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in SKIPPED)
    config.write_text(CONFIG + skipped)
    paths = [f"rota/{module}.py" for module in HOT]
    setup(
        name="rota",
        packages=[],
        ext_modules=mypycify(
            ["--config-file", str(config), *paths], opt_level="1", debug_level="0",
            group_name="rota",
        ),
        script_args=["-q", "build_ext", "--inplace"],
    )  # fmt: skip
    shutil.rmtree("build")


def opened(source: str, name: str) -> str:
    """The source of a module with this class open for plain subclasses."""
    before, found, after = source.partition(f"\nclass {name}")
    if not found:
        raise SystemExit(f"there is no class {name} any more: correct OPEN in {__file__}")
    body = f"{before}\n@mypyc_attr(allow_interpreted_subclasses=True){found}{after}"
    end = body.index('"""', 3) + len('"""\n')  # of the docstring
    return body[:end] + OPENED + body[end:]


# --- check ---------------------------------------------------------------------------------------


def check(target: Path) -> bool:
    """Print how fast each is, plain and compiled; are all logs the same?"""
    rounds: dict[Path, list[dict[str, Any]]] = {SOURCE.parent: [], target: []}
    for _ in range(ROUNDS):  # in turns: machines are busy with other things, too
        for where, results in rounds.items():
            results.append(_measured(where))
    plain, compiled = rounds.values()
    print(f"{'policy':<14}{'placement':<13}{'plain':>10}{'compiled':>10}{'ratio':>7}  log")
    same = True
    for key, first in plain[0].items():
        equal = all(one[key]["log"] == first["log"] for one in (*plain, *compiled))
        same = same and equal
        slow, fast = (min(one[key]["s"] for one in results) for results in (plain, compiled))
        policy, placement = key.split("/")
        print(
            f"{policy:<14}{placement:<13}{JOBS / slow:>10,.0f}{JOBS / fast:>10,.0f}"
            f"{slow / fast:>7.2f}  {'same' if equal else 'DIFFERENT'}"
        )
    return same


def _measured(where: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", str(where)]
    paths = {**os.environ, "PYTHONPATH": str(where)}
    found = subprocess.run(command, env=paths, check=True, stdout=subprocess.PIPE)  # noqa: S603
    results: dict[str, Any] = json.loads(found.stdout)
    return results


def measure(where: Path) -> dict[str, Any]:
    """Seconds of the engine and a digest of the log, by policy and placement."""
    import rota
    from rota.core.events import INF
    from rota.study.build import build as assemble
    from rota.study.config import RunConfig
    from rota.traces.synth.generate import generate

    if not Path(rota.__file__).is_relative_to(where.resolve()):
        raise SystemExit(f"{rota.__file__} was imported, and {where} was meant")
    options = {"max_s": "14400", "vcs": "4", "estimate_factor": "2"}
    workload = generate("philly-like", jobs=JOBS, gpus=64, load=1.2, seed=1, options=options)
    results = {}
    for policy in POLICIES:
        for placement in PLACEMENTS:
            config = RunConfig(trace="here", cluster="8x8", policy=policy, placement=placement)
            engine = assemble(config, workload).engine
            begun_s = process_time()
            engine.run(INF, busy=engine.view.active)
            engine.finish()
            taken_s = process_time() - begun_s
            rows = engine.log.frame().write_csv().encode()
            digest = hashlib.sha256(rows).hexdigest()
            results[f"{policy}/{placement}"] = {"s": taken_s, "log": digest}
    return results


def main() -> None:
    """Build, check or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the compiled copy is, or will be")
    parser.add_argument("--check", action="store_true", help="compare it with the plain package")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.folder)))
    elif options.check:
        if not check(options.folder.resolve()):
            raise SystemExit("the compiled modules decide otherwise than the plain ones")
    else:
        build(options.folder.resolve())


if __name__ == "__main__":
    main()
