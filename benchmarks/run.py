"""How fast Rota is, and how its cost grows: run with `make bench`.

Every run is a fresh process, as a user would start it. Times are reported; counts (events,
decisions, preemptions) are compared with `counts.json` and a difference fails the benchmark: a
change that moves them changes results. `--update` writes new counts. Machines are noisy: compare
numbers of one run of this script with each other, not with those of another day.
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
import solvers

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("ROTA_SHARED", HERE.parent.parent / "shared"))
COUNTS = HERE / "counts.json"
COUNTED = ("jobs", "completed", "events", "decisions", "preemptions")

QUEUE_POLICIES = (
    "fifo", "fifo-skip", "smallest", "sjf", "srtf", "srsf", "las", "tiresias", "qssf", "elas",
    "gittins",
)  # fmt: skip
DECIDING_POLICIES = ("easy", "conservative", "drf", "tetris", "yarn-cs")
MAIN = ("fifo", "srtf", "tiresias")


class Bench:
    """Runs cases, prints a line each, and remembers their counts."""

    def __init__(self, folder: Path, expected: dict[str, Any]) -> None:
        self.folder = folder
        self.expected = expected
        self.seen: dict[str, Any] = {}
        self.wrong: list[str] = []

    def case(
        self, name: str, trace: Path, cluster: str, policy: str, placement: str,
        more: tuple[str, ...] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """One simulation in a process of its own."""
        out = self.folder / "out"
        command = [
            sys.executable, "-m", "rota.cli", "simulate", str(trace), "--cluster", cluster,
            "--policy", policy, "--placement", placement, "-o", str(out), "--force", *more,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{name} {policy} {placement}: the run failed")
        summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
        summary["peak_mb"] = usage.ru_maxrss / 1024
        cluster = "file" if Path(cluster).is_file() else cluster
        self._count(f"{name}/{cluster}/{policy}/{placement}", summary)
        print(
            f"{name:<12} {cluster:>6} {policy:<13} {placement:<12} {summary['jobs']:>7} "
            f"{summary['events']:>9} {summary['jobs_per_cpu_s']:>10,.0f} "
            f"{summary['events'] / summary['engine_cpu_s']:>11,.0f} "
            f"{summary['engine_cpu_s']:>8.2f} {summary['cpu_s']:>7.2f} {summary['peak_mb']:>7.0f}",
            flush=True,
        )
        return summary

    def _count(self, key: str, summary: dict[str, Any]) -> None:
        self.seen[key] = {what: summary[what] for what in COUNTED}
        expected = self.expected.get(key)
        if expected is not None and expected != self.seen[key]:
            self.wrong.append(f"{key}: expected {expected}, counted {self.seen[key]}")


def header(title: str) -> None:
    """A title and the names of the columns."""
    print(f"\n{title}")
    print(
        f"{'workload':<12} {'nodes':>6} {'policy':<13} {'placement':<12} {'jobs':>7} {'events':>9} "
        f"{'jobs/CPU-s':>10} {'events/CPU-s':>11} {'engine s':>8} {'all s':>7} {'peak MB':>7}"
    )


def philly(bench: Bench, *, full: bool) -> None:
    """The shared real workloads."""
    common = SHARED / "reference" / "common"
    if not common.is_dir():
        print(f"the real workloads are not at {common}: skipped (set ROTA_SHARED)")
        return
    header("Philly windows, GPUs as one pool")
    windows = [("philly300", "32x8"), ("philly1000", "48x8"), ("philly5k", "32x8")]
    for name, cluster in windows:
        for policy in QUEUE_POLICIES if name == "philly5k" or full else MAIN:
            bench.case(name, common / f"{name}.csv", cluster, policy, "count")
    header("consolidated on nodes")
    for policy in MAIN:
        bench.case("philly5k", common / "philly5k.csv", "32x8", policy, "consolidate")
    header("policies through the general door")
    for policy in DECIDING_POLICIES:
        bench.case("philly1000", common / "philly1000.csv", "48x8", policy, "count")
        if full:
            bench.case("philly5k", common / "philly5k.csv", "32x8", policy, "count")
    header("the whole trace; and with a queue of tens of thousands")
    whole = SHARED / "data" / "philly" / "philly.csv"
    for cluster in ("64x8", "16x8"):
        for policy in MAIN:
            bench.case("philly82k", whole, cluster, policy, "count")


def fragments(bench: Bench) -> None:
    """A placement study: 10,866 pods on 1,213 nodes, with the report on fragments per arrival."""
    openb = SHARED / "data" / "openb"
    if not openb.is_dir():
        print(f"the pods of openb are not at {openb}: skipped (set ROTA_SHARED)")
        return
    header("placement study of FGD (openb, inflated to 130 %)")
    for placement in ("fgd", "best-fit", "dot-product", "gpu-packing", "gpu-clustering", "random"):
        bench.case(
            "openb", openb / "openb_pod_list_default.csv",
            str(openb / "openb_node_list_gpu_node.csv"), "fifo-skip", placement,
            ("--format", "openb:mode=inflate,ratio=1.3,seed=42", "--like", "fgd"),
        )  # fmt: skip


def optimisation(*, full: bool) -> None:
    """The Gavel family: processor time of a decision against the number of jobs, and of a trace."""
    print("\ndecisions by optimisation")
    solvers.table(4096 if full else 1024, 5 if full else 3)
    folder = SHARED / "reference" / "gavel"
    if not folder.is_dir():
        print(f"the runs of Gavel are not at {folder}: skipped (set ROTA_SHARED)")
        return
    gavel.table(folder)


def growth(bench: Bench) -> None:
    """Cost per job from 5,000 to 80,000 generated jobs at load 0.95."""
    header("growth with the number of jobs (generated, load 0.95)")
    for policy in MAIN:
        cost_us = []
        for jobs in (5_000, 20_000, 80_000):
            trace = bench.folder / f"generated{jobs}.csv"
            if not trace.exists():
                subprocess.run(
                    [sys.executable, "-m", "rota.cli", "trace", "generate", "philly-like",
                     "--jobs", str(jobs), "--cluster", "32x8", "--load", "0.95", "--seed", "1",
                     "-o", str(trace)],
                    check=True, stdout=subprocess.DEVNULL,
                )  # fmt: skip
            summary = bench.case(f"generated{jobs // 1000}k", trace, "32x8", policy, "count")
            cost_us.append(1e6 * summary["engine_cpu_s"] / summary["jobs"])
        steps = ", ".join(f"{cost:.0f}" for cost in cost_us)
        ratio = cost_us[-1] / cost_us[0]
        print(f"  {policy}: {steps} us per job; 80k costs {ratio:.2f} times 5k per job")


def main() -> None:
    """Run everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="more workloads (minutes)")
    parser.add_argument("--update", action="store_true", help="write the counts, check nothing")
    options = parser.parse_args()
    expected = json.loads(COUNTS.read_text()) if COUNTS.exists() and not options.update else {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), expected)
        philly(bench, full=options.full)
        fragments(bench)
        growth(bench)
    optimisation(full=options.full)
    if options.update:
        COUNTS.write_text(json.dumps(dict(sorted(bench.seen.items())), indent=1) + "\n")
        print(f"\nwrote {len(bench.seen)} counts to {COUNTS.name}")
    elif bench.wrong:
        print("\ncounts that changed:\n  " + "\n  ".join(bench.wrong), file=sys.stderr)
        raise SystemExit(1)
    else:
        unknown = len(bench.seen.keys() - expected.keys())
        print(f"\n{len(bench.seen) - unknown} counts as expected, {unknown} new")


if __name__ == "__main__":
    main()
