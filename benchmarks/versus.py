"""Is this tree slower than another commit? Every line of `make bench`, both in turns.

    python benchmarks/versus.py fea9ca4               # all lines (an hour)
    python benchmarks/versus.py fea9ca4 --best 7 --only philly5k

The other commit is installed into a temporary folder. Each line is run in fresh processes, first by
the one and then by the other, and so on; what counts is the best processor time of the engine of
each. A ratio above 1 means that this tree is faster. Counts that differ are an error: then the two
do not do the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gavel
import run

ROOT = Path(__file__).resolve().parent.parent
LONG_S = 5.0  # of a process: such lines are run less often
MOST_JOBS = 512  # of a decision of the optimisers
NAME = 26  # columns of a name in their table
COUNTED = ("jobs", "completed", "events", "decisions", "preemptions")


class Versus(run.Bench):
    """Runs every case with both, in turns."""

    def __init__(self, folder: Path, other: Path, best: int, only: str) -> None:
        super().__init__(folder, {})
        self._paths = {"other": other, "this": ROOT / "src"}
        self._best, self._only = best, only
        self.ratios: dict[str, float] = {}

    def case(
        self, name: str, trace: Path, cluster: str, policy: str, placement: str,
        more: tuple[str, ...] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """One line; the summary of this tree."""
        if self._only not in name:
            return {"engine_cpu_s": 1.0, "jobs": 1}
        command = [
            sys.executable, "-m", "rota.cli", "simulate", str(trace), "--cluster", cluster,
            "--policy", policy, "-o", str(self.folder / "out"), "--force", *more,
        ]  # fmt: skip
        if placement:  # else the dialect has its own
            command += ["--placement", placement]
        best: dict[str, dict[str, Any]] = {}
        turns = self._best
        while turns:
            turns -= 1
            for side in self._paths:
                summary, process_s = self._run(command, side)
                if side not in best or summary["engine_cpu_s"] < best[side]["engine_cpu_s"]:
                    best[side] = summary
                if process_s > LONG_S:
                    turns = min(turns, 1)
        this, other = best["this"], best["other"]
        if any(this[what] != other[what] for what in COUNTED):
            raise SystemExit(f"{name} {policy} {placement}: the counts differ")
        ratio = other["engine_cpu_s"] / this["engine_cpu_s"]
        self.ratios[f"{name}/{policy}/{placement}"] = ratio
        cluster = "file" if Path(cluster).is_file() else cluster
        rates = (other["jobs_per_cpu_s"], this["jobs_per_cpu_s"])
        print(
            f"{name:<12} {cluster:>6} {policy:<13} {placement:<14} {rates[0]:>9,.0f} "
            f"{rates[1]:>9,.0f} {ratio:>6.2f}",
            flush=True,
        )
        return this

    def gavel(self, folder: Path) -> None:
        """Whole runs of the Gavel family, in the dialect of its simulator."""
        speeds = f"gavel:throughputs={folder / 'simulation_throughputs.json'}"
        more = ("--like", "gavel", "--format", speeds)
        trace = folder / "traces" / "gen120_single.trace"
        for policy in gavel.RUNS.values():
            self.case("gavel", trace, gavel.CLUSTER, policy, "", more)

    def solvers(self, other: Path) -> None:
        """One decision of each optimiser; `other`: the checkout of the other commit."""
        if self._only not in "solvers":
            return
        best: dict[str, dict[tuple[str, int], float]] = {"other": {}, "this": {}}
        scripts = {"other": other, "this": ROOT}
        for _ in range(min(self._best, 3)):
            for side, checkout in scripts.items():
                for line, spent_ms in self._solved(checkout, side).items():
                    known = best[side].get(line, spent_ms)
                    best[side][line] = min(known, spent_ms)
        for (name, jobs), spent_ms in best["this"].items():
            before_ms = best["other"].get((name, jobs))
            if before_ms is not None:
                ratio = self.ratios[f"solvers/{name}/{jobs}"] = before_ms / max(spent_ms, 0.1)
                print(
                    f"{'solvers':<12} {jobs:>6} {name:<28} {before_ms:>9,.1f} {spent_ms:>9,.1f} "
                    f"{ratio:>6.2f}  (ms)",
                    flush=True,
                )

    def _solved(self, checkout: Path, side: str) -> dict[tuple[str, int], float]:
        """Milliseconds by policy and number of jobs, as a checkout's own benchmark prints them."""
        done = subprocess.run(
            [sys.executable, str(checkout / "benchmarks" / "solvers.py"), "--most", str(MOST_JOBS)],
            env={**os.environ, "PYTHONPATH": str(self._paths[side])},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        found: dict[tuple[str, int], float] = {}
        sizes: list[int] = []
        for line in done.stdout.splitlines():
            name, cells = line[:NAME].strip(), line[NAME:].replace("*", " ").split()
            if name == "jobs":
                sizes = [int(cell) for cell in cells if cell.isdecimal()]
            elif sizes and len(cells) == len(sizes) + 1:  # with the growth
                spent = zip(sizes, cells, strict=False)
                found |= {(name, size): float(cell) for size, cell in spent if cell != "-"}
        return found

    def _run(self, command: list[str], side: str) -> tuple[dict[str, Any], float]:
        environment = {**os.environ, "PYTHONPATH": str(self._paths[side])}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command)}: the run failed ({side})")
        summary: dict[str, Any] = json.loads((self.folder / "out" / "summary.json").read_text())
        return summary, usage.ru_utime + usage.ru_stime


def install(revision: str, folder: Path) -> Path:
    """The package of another commit, with its own entry points."""
    source, target = folder / "source", folder / "other"
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", revision],  # noqa: S607 - git is on the path
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["tar", "-x", "-C", str(source)],  # noqa: S607 - tar, too
        input=archive.stdout, check=True,
    )  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--no-build-isolation", "--target", str(target), str(source)],
        check=True,
    )  # fmt: skip
    return target


def main() -> None:
    """Compare what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("revision", help="the other commit")
    parser.add_argument("--best", type=int, default=5, help="runs of each (two of long ones)")
    parser.add_argument("--only", default="", help="workloads with this in their name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other = install(options.revision, folder)
        bench = Versus(folder, other, options.best, options.only)
        print(f"jobs per CPU-second: {options.revision}, this tree, and the ratio")
        run.philly(bench, full=False)
        run.fragments(bench)
        run.growth(bench)
        bench.gavel(run.SHARED / "reference" / "gavel")
        bench.solvers(folder / "source")
        slower = {line: ratio for line, ratio in bench.ratios.items() if ratio < 1.0}
    print(f"\n{len(bench.ratios)} lines, {len(slower)} below 1:")
    for line, ratio in sorted(slower.items(), key=lambda found: found[1]):
        print(f"  {ratio:.2f} {line}")


if __name__ == "__main__":
    main()
