"""Event logs written by hand, and folders of small runs."""

import msgspec
import polars as pl
import pytest

from rota.core.log import Record
from rota.metrics.vocabulary import Measure
from rota.study.compare_file import (
    Assumption,
    Measured,
    PolicyComparison,
    PolicyRow,
    RunOf,
    write_comparison,
)
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate

KINDS = pl.Enum([record.name.lower() for record in Record])
SCHEMA = {
    "time_s": pl.Float64, "event": KINDS, "job": pl.Int32, "ref": pl.Int32, "other": pl.Int32,
    "value": pl.Float64, "text": pl.String,
}  # fmt: skip
NODES = (1, 4)  # vertices; GPUs of the first are 2 and 3, of the second 5 and 6


class Script:
    """A cluster of two nodes (vertices 1 and 4) with two GPUs each; `at(t)` sets the clock."""

    def __init__(self):
        self.rows = []
        self.now_s = 0.0
        self.allocations = {}
        self.row("vertex", ref=0, value=4, text="cluster:cluster")
        for number, vertex in enumerate(NODES):
            self.row("vertex", ref=vertex, other=0, value=2, text=f"node:n{number}")
        self.row("tenant", ref=0, text="")
        self.row("tenant", ref=1, text="team")
        self.row("shape", ref=0, value=1, text="1 GPU")

    def at(self, now_s):
        self.now_s = float(now_s)
        return self

    def row(self, event, job=-1, ref=-1, other=-1, value=0.0, text=None):
        self.rows.append((self.now_s, event, job, ref, other, float(value), text))
        return self

    def submit(self, job, gpus=1, tenant=0):
        return self.row("submit", job, 0, tenant, gpus, f"j{job}")

    def _allocation(self, slices):
        if slices not in self.allocations:
            self.allocations[slices] = len(self.allocations)
            for vertex, amount in slices:
                self.row("allocation", ref=self.allocations[slices], other=vertex, value=amount)
        return self.allocations[slices]

    def start(self, job, *slices, since=None):
        since = self.now_s if since is None else since
        return self.row("start", job, self._allocation(slices), 0, since)

    def end(self):
        self.row("end", -1, 7, 3)
        return pl.DataFrame(self.rows, schema=SCHEMA, orient="row")


@pytest.fixture
def script():
    return Script()


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """Return a trace of 120 jobs of all sizes, of three tenants."""
    lines = ["job_id,submit_s,num_gpus,duration_s,vc"]
    lines += [
        f"{i},{i * 37},{(1, 2, 4, 8, 1, 3)[i % 6]},{60 + i * 97 % 900},t{i % 3}" for i in range(120)
    ]
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def run_of(trace):
    """Return `run_of(policy, **options)`: a result with preemptions, costs and failures."""
    made = {}

    def make(policy="las:limits=100/400", **options):
        key = (policy, *sorted(options.items()))
        if key not in made:
            given = {"cluster": "4x4", "costs": "pollux30", "mtbf": 1.0, "mttr": 0.1} | options
            made[key] = simulate(RunConfig(trace=str(trace), policy=policy, **given))
        return made[key]

    return make


MEASURES = [
    Measure("avg_jct_s", "mean JCT", "s", "less"),
    Measure("gpu_utilisation", "GPU utilisation", "share", "more"),
    Measure("preemptions", "preemptions", "count", None),
]


def compared(names, results, folder, **changes):
    """Write a comparison of results under any names; the second is clearly better."""
    rows, runs = [], []
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        place = folder / f"run{number}"
        place.mkdir()
        summary = write_run(result, place)
        ratio = [None, 0.5, 0.98, 1.4][number]
        verdict = [None, "better", "unclear", "worse"][number]
        rows.append(
            PolicyRow(
                policy=name,
                knowledge="nothing",
                measures={
                    m.key: Measured(summary[m.key])
                    if ratio is None or m.better is None
                    else Measured(summary[m.key], ratio, ratio * 0.95, ratio * 1.05, verdict)
                    for m in MEASURES
                },
                delay={key: part / summary["completed"] for key, part in summary["delay"].items()},
                jobs=summary["jobs"],
            )
        )
        runs.append(RunOf(name, place.name, 0, None, [f"a warning about {name}"], summary))
    comparison = PolicyComparison(
        trace="jobs.csv", cluster="4x4", baseline=names[0], seeds=[0], windows=[], level=0.95,
        method="by hand", measures=MEASURES, rows=rows, runs=runs, notes=["a note"],
        assumptions=[
            Assumption("costs", dict.fromkeys(names, "pollux30")),
            Assumption("policy", {name: f"is {name}" for name in names}),
        ],
    )  # fmt: skip
    write_comparison(msgspec.structs.replace(comparison, **changes), folder)
    return folder


@pytest.fixture
def folder(run_of, tmp_path):
    """Return a folder with a comparison of two policies."""
    return compared(["fifo", "las"], [run_of("fifo"), run_of()], tmp_path)


@pytest.fixture
def compare_as(run_of, tmp_path):
    """Return `compare_as(*names)`: a folder in which policies have these names."""

    def make(*names, **changes):
        results = [run_of("fifo"), run_of(), run_of("fifo"), run_of("srtf")][: len(names)]
        return compared(names, results, tmp_path, **changes)

    return make
