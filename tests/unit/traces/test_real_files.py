"""Every real file at hand that has a reader loads, with the numbers that are known of it."""

import csv
import gzip
import re

import pytest

from rota.core.errors import InputError, TraceError
from rota.traces.formats import openb
from rota.traces.formats.openb_inflation import GoRandom, Inflation, inflate, node_order
from rota.traces.read import read_trace, recognise
from rota.traces.table import Table
from rota.traces.tools.report import report
from shared_data import shared
from trace_readers import counted, reader


def test_philly():
    found = report(read_trace(shared("data/philly/philly.csv"), "philly"))
    assert (found.rows, found.kept) == (82_247, 82_247)
    assert found.jobs["virtual_clusters"] == 15
    assert found.jobs["median_duration_s"] == 1_144
    assert found.jobs["p99_duration_s"] == pytest.approx(254_758.42)
    assert round(found.jobs["single_gpu_pct"]) == 93


def test_openb():
    imported = reader("openb").load(shared("data/openb/openb_pod_list_default.csv"), {})
    found = report(imported)
    assert (found.cluster["nodes"], found.cluster["gpus"]) == (1_523, 6_212)
    assert (found.rows, found.kept) == (8_152, 8_152 - 897)
    assert found.notes[0] == "897 pods are pending: they were never scheduled"
    assert found.notes[1].startswith("99% of the jobs arrive after 10,0")
    assert counted(imported.quality)


def test_all_pod_lists_load():
    files = sorted(shared("data/openb").glob("openb_pod_list_*.csv"))
    assert len(files) == 23
    for file in files:
        imported = reader("openb").load(file, {})
        assert counted(imported.quality), file
        assert len(imported.workload) == imported.quality.kept, file


def test_inflated_pods_and_ranked_nodes_are_those_of_the_published_runs():
    with gzip.open(shared("reference/fgd/golden_default_seed42_FGD.csv.gz"), "rt") as file:
        pods = [row["pod"] for row in csv.DictReader(file)]
    path = shared("data/openb/openb_pod_list_default.csv")
    imported = reader("openb").load(path, {"mode": "inflate", "ratio": "1.3", "seed": "42"})
    assert imported.jobs["job_id"].to_list() == pods
    order = str(shared("reference/fgd/golden_default_seed42_FGD.csv.gz"))
    given = reader("openb").load(path, {"mode": "inflate", "order": order})
    assert given.jobs.equals(imported.jobs)
    ranks = shared("reference/fgd/node_order_default_seed42.csv").read_text().splitlines()[1:]
    nodes = [line.split(",")[1] for line in ranks]
    table = Table(path, openb.LAYOUT).whole().sort("name")
    sorted_pods = Inflation(
        table["name"].to_list(),
        [int(milli) for milli in table["gpu_milli"]],
        [int(count) for count in table["num_gpu"]],
    )
    random = inflate(sorted_pods, 1.3 * 6_212_000, 42)[1]
    assert isinstance(random, GoRandom)
    assert node_order(sorted(nodes), random) == nodes


@pytest.mark.parametrize(
    ("trace", "jobs"),
    [("gen120_single", 120), ("phys_max_min_fairness", 96), ("phys_minimize_makespan", 100)],
)
def test_gavel(trace, jobs):
    rates = str(shared("reference/gavel/simulation_throughputs.json"))
    path = shared(f"reference/gavel/traces/{trace}.trace")
    imported = reader("gavel").load(path, {"throughputs": rates})
    assert (len(imported), imported.quality.rows) == (jobs, jobs)
    assert {*imported.workload.behaviours[0].speeds} == {"v100", "p100", "k80"}


def test_pollux_and_sia():
    files = sorted(shared("reference/pollux").glob("workloads*/workload-*.csv"))
    assert len(files) == 40
    for file in [*files, shared("reference/pollux/w6-small30.csv")]:
        imported = reader("pollux").load(file, {})
        assert imported.quality.kept == imported.quality.rows > 0, file
    for name in ("philly-workload-1.csv", "philly1-first12.csv"):
        imported = reader("sia").load(shared(f"reference/sia/{name}"), {})
        assert imported.quality.kept == imported.quality.rows, name
    deepboot = reader("pollux").load(shared("reference/deepboot/small.csv"), {})
    assert deepboot.quality.kept == 3_360


def test_chronus():
    small = reader("chronus").load(shared("reference/chronus/p200.csv"), {})
    large = reader("chronus").load(shared("reference/chronus/p1000.csv"), {})
    assert (len(small), len(large)) == (200, 995)  # five jobs ask for no GPU
    assert large.quality.dropped == {"asks for nothing": 5}


def test_tiresias_and_plain_files():
    assert len(read_trace(shared("reference/tiresias/60_job.csv"), "tiresias")) == 60
    assert len(read_trace(shared("reference/common/philly5k.csv"), "csv")) == 5_000
    assert len(read_trace(shared("reference/blox/jobs_multi300.csv"), "csv")) == 300


# --- everything that is there --------------------------------------------------------------------

NO_TRACES = {".md", ".py", ".npy", ".ini", ".yaml"}
LOADS = (
    "blox/jobs_*.csv", "blox/synergy_trace_multi300.csv", "chronus/p*.csv", "common/*.csv",
    "deepboot/pure_train.csv", "deepboot/small.csv", "deepboot/small-2h.csv",
    "pollux/w6-small30.csv", "pollux/workloads*/*.csv", "sia/philly-workload-1.csv",
    "sia/philly1-first12.csv", "sia/philly1-first40-noimagenet.csv", "tiresias/60_job.csv",
)  # fmt: skip
"""Traces that are recognised and load."""
NEED_A_WORD = {
    "astraea/fake_fairness.csv": "tiresias:ignore=yes",
    "elasticflow/elasticVpollux_e.csv": "elasticflow:throughputs=DIR,gpu=T4",
    "elasticflow/philly_103959.csv": "elasticflow:throughputs=DIR,gpu=T4",
    "elasticflow/resnet_cifar_trace.csv": "elasticflow:throughputs=DIR,gpu=T4",
    "gavel/traces/gen120_single.trace": "gavel:throughputs=FILE",
    "gavel/traces/phys_max_min_fairness.trace": "gavel:throughputs=FILE",
    "gavel/traces/phys_minimize_makespan.trace": "gavel:throughputs=FILE",
}
"""Traces whose error names the option with which they load."""
A100 = {"elasticflow/philly_103959.csv", "elasticflow/resnet_cifar_trace.csv"}
"""They are for other GPUs than those of the message."""
RESULTS = r"there is no column '(submit_s|duration)': add it"
"""What a table of results that looks like a trace lacks."""


def test_every_file_with_a_reader_loads():
    root = shared("reference")
    throughputs = shared("reference/gavel/simulation_throughputs.json")
    tables = shared("reference/profiles/elasticflow")
    expected = {path.relative_to(root) for pattern in LOADS for path in root.glob(pattern)}
    assert len(expected) == 58
    loaded, told = set(), {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if not path.is_file() or path.suffix in NO_TRACES or name.parts[0] == "profiles":
            continue
        try:
            recognise(path)
        except TraceError:
            continue
        try:
            assert len(read_trace(path)), name
            loaded.add(name)
        except InputError as error:
            told[str(name)] = str(error)
    assert expected <= loaded
    for file, word in NEED_A_WORD.items():
        assert told.pop(file).endswith(word), file
        options = word.replace("FILE", str(throughputs)).replace("DIR", str(tables))
        if file in A100:
            options = options.replace("T4", "A100")
        imported = read_trace(root / file, options)
        assert counted(imported.quality), file
    for file, error in told.items():
        if error.endswith("csv:ignore=yes"):  # jobs with what became of them
            assert len(read_trace(root / file, "csv:ignore=yes")), file
        else:
            assert re.search(RESULTS, error), error
