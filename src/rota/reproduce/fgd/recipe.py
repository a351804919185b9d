"""FGD and what it was compared with (Weng et al., ATC 2023): allocation against arrived load."""

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.core.eventlog import EventLog
from rota.core.log import Record
from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    holds,
    same_rows,
    within,
)
from rota.study.config import RunConfig
from rota.study.run import RunResult

POLICIES = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
"""Placements, and what the published tables call them."""

WORKLOADS = ("default", "cpu100", "gpushare40", "gpuspec10", "multigpu20", "multigpu50")
SEEDS = tuple(range(42, 52))
SCALES = {
    Scale.SMALL: (("default",), (42, 43)),
    Scale.PAPER: (WORKLOADS, SEEDS),
}
AT = 100  # percent of the cluster's GPUs that have been asked for: where the paper's bars are
LEAST, SPREAD = 0.3, 1.6  # percentage points; times the standard deviation between seeds
ORDERED = "order"  # label of the runs from recorded orders
RECORDED = "default_seed42"
OPENB = ("openb", "../data/openb")
PODS = "openb_pod_list_"
NOT_AGAIN = "their draw among nodes depends on how threads were scheduled"


class Study(msgspec.Struct, frozen=True):
    """One run of the study."""

    workload: str
    placement: str
    seed: int

    @property
    def label(self) -> str:
        """Of the run and its folder."""
        return f"{self.workload}-{self.placement}-seed{self.seed}"


class FgdAlloc(Recipe):
    """Six placements, and the recorded placements of five of them."""

    name = "fgd-alloc"
    summary = "FGD: GPUs in use and fragments against arrived load, six placements; every placement"
    paper = (
        "Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation "
        "Gradient Descent, USENIX ATC 2023"
    )
    source = (
        "allocation and fragments at 100 % arrived load: the tables published with the simulator "
        "(Figures 7, 9 and 11 to 14); placements one by one: 3,414 printed by the simulator and "
        "10,866 of a prototype that agrees with it"
    )
    needs = ("fgd/expected.csv", "fgd/expected_per_seed.csv", "fgd/node_order_default_seed42.csv")
    takes: Mapping[Scale, str] = {Scale.SMALL: "1 min", Scale.PAPER: "20 min"}
    leaves_out = (
        "five of six workloads and eight of ten seeds; means then are of the same two seeds; and "
        "the other pod lists of openb, of which only the order of the placements is checked"
    )
    known = (
        (
            "the pods and machines of openb (alibaba/clusterdata, cluster-trace-gpu-v2023) have to "
            "be in the folder `openb` of the reference data"
        ),
        f"random: {NOT_AGAIN}, so that only means over seeds are comparable",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """The paper's runs by seed, then those in recorded orders."""
        openb = _openb(setting)
        found = {
            study.label: RunConfig(
                trace=str(openb / f"{PODS}{study.workload}.csv"),
                format=f"openb:mode=inflate,ratio=1.3,seed={study.seed}",
                cluster=str(openb / "openb_node_list_gpu_node.csv"),
                policy="fifo-skip", placement=study.placement, like="fgd", seed=study.seed,
            )
            for study in [*_studies(setting.scale), *_others(setting)]
        }  # fmt: skip
        for placement, path in _recorded(setting):
            found[f"{ORDERED}-{placement}"] = _in_order(setting, openb, placement, path)
        return found

    def digest(self, result: RunResult) -> Any:
        """The curve of a run, or where every pod went."""
        if "order=" in (result.config.format or ""):
            return placements(result)
        return None if result.allocation is None else result.allocation.rows()

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Means over seeds, then every placement."""
        found: list[Check] = []
        theirs = _table(setting.need("fgd/expected.csv"))
        seeds = _table(setting.need("fgd/expected_per_seed.csv"))
        for workload in SCALES[setting.scale][0]:
            for placement, policy in POLICIES.items():
                about = (f"{PODS}{workload}", policy)
                row = next(row for row in theirs if _about(row) == about)
                ours = [_at(runs[s.label]) for s in _studies(setting.scale) if _is(s, about)]
                published = [r for r in seeds if _about(r) == about and _seed_of(r, setting.scale)]
                found += _compare(f"{workload} {placement}", ours, row, published)
        return [*found, *_shapes(setting, runs), *self._one_by_one(setting, runs)]

    def _one_by_one(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> Iterator[Check]:
        for placement, path in _recorded(setting):
            ours = dict(runs[f"{ORDERED}-{placement}"].extra)
            theirs = {row["pod"]: _where(row) for row in _table(path)}
            yield same_rows(f"{RECORDED} {placement}: node and GPUs of every pod", ours, theirs)
        printed = setting.find("fgd/go_reference_prefix_default_FGD_seed42.csv")
        if printed is not None and f"{ORDERED}-fgd" in runs:
            theirs = {r["pod"]: r["prefixed_node"].partition("-")[2] for r in _table(printed)}
            placed = dict(runs[f"{ORDERED}-fgd"].extra)
            ours = {pod: placed[pod].partition("/")[0] for pod in theirs if pod in placed}
            yield same_rows(f"{RECORDED} fgd: nodes printed by the simulator", ours, theirs)

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame | None:
        """The curves: by workload, placement and seed."""
        rows = [
            (*label.rsplit("-seed", 1), *point)
            for label, outcome in runs.items()
            if not label.startswith(ORDERED)
            for point in outcome.extra or ()
        ]
        names = ("run", "seed", "arrived_pct", "alloc_pct", "frag_amount_pct", "frag_ratio_pct")
        return pl.DataFrame(rows, schema=list(names), orient="row") if rows else None


RECIPE = FgdAlloc()


# --- what is run ----------------------------------------------------------------------------------


def _studies(scale: Scale) -> list[Study]:
    workloads, seeds = SCALES[scale]
    return [
        Study(workload, placement, seed)
        for workload in workloads
        for placement in POLICIES
        for seed in seeds
    ]


def _others(setting: RecipeSetting) -> list[Study]:
    """The pod lists without published numbers, once each."""
    if setting.small:
        return []
    files = sorted(path.stem for path in _openb(setting).glob(f"{PODS}*.csv"))
    names = [name.removeprefix(PODS) for name in files]
    return [
        Study(name, placement, SEEDS[0])
        for name in names
        if name not in WORKLOADS
        for placement in POLICIES
    ]


def _shapes(setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> Iterator[Check]:
    """What the paper finds on all workloads: FGD uses most GPUs."""
    found: dict[str, dict[str, float]] = {}
    for study in _others(setting):
        found.setdefault(study.workload, {})[study.placement] = _at(runs[study.label])[0]
    for workload, used in found.items():
        ranked = sorted(used, key=lambda placement: used[placement])
        yield holds(
            f"{workload}: GPUs in use at {AT} % arrived (%)",
            "fgd most",
            ", ".join(f"{placement} {used[placement]:.2f}" for placement in ranked),
            ok=ranked[-1] == "fgd",
        )


def _is(study: Study, about: tuple[str, str]) -> bool:
    return (f"{PODS}{study.workload}", POLICIES[study.placement]) == about


def _openb(setting: RecipeSetting) -> Path:
    for place in OPENB:
        found = setting.find(place)
        if found is not None:
            return found
    raise InputError(
        "openb: this recipe runs the pods of cluster-trace-gpu-v2023, which do not come with Rota: "
        "put its csv folder into the folder of --data, as `openb`"
    )


def _recorded(setting: RecipeSetting) -> list[tuple[str, Path]]:
    """Placements whose every decision was recorded, and the file."""
    found = []
    for placement, policy in POLICIES.items():
        path = setting.find(f"fgd/golden_{RECORDED}_{policy.partition('-')[2]}.csv.gz")
        if path is not None:
            found.append((placement, path))
    return found


def _in_order(setting: RecipeSetting, openb: Path, placement: str, path: Path) -> RunConfig:
    pods = "\n".join(row["pod"] for row in _table(path))
    order = setting.write(f"order-{placement}.csv", f"pod\n{pods}\n")
    ranks = setting.need(f"fgd/node_order_{RECORDED}.csv")
    return RunConfig(
        trace=str(openb / f"{PODS}default.csv"),
        format=f"openb:mode=inflate,order={order}",
        cluster=str(openb / "openb_node_list_gpu_node.csv"),
        policy="fifo-skip", placement=placement, like=f"fgd:node_order={ranks}",
    )  # fmt: skip


# --- what came out --------------------------------------------------------------------------------


def placements(result: RunResult) -> list[tuple[str, str]]:
    """Where every job went: `node/0-1` with its GPUs; empty: nowhere."""
    log = EventLog(result.log)
    rows = log.rows_of(Record.ALLOCATION, Record.EXTRA)
    vertices, nodes = log.other[rows], log.nodes
    held: dict[int, list[str]] = {}
    places = zip(log.ref[rows].tolist(), vertices.tolist(), nodes.slots_of(vertices), strict=True)
    for allocation, vertex, slot in places:
        name, device = nodes.names[slot], vertex - int(nodes.number[slot]) - 1
        held.setdefault(allocation, []).append(name if device < 0 else f"{name}/{device}")
    starts = log.rows_of(Record.START)
    started = zip(log.job[starts].tolist(), log.ref[starts].tolist(), strict=True)
    found = {job: _joined(held.get(allocation, [])) for job, allocation in started}
    return [(name, found.get(i, "")) for i, name in enumerate(result.jobs["job_id"].to_list())]


def _joined(places: Sequence[str]) -> str:
    """`n/0`, `n/1` and `n` become `n/0-1`."""
    node = places[0].partition("/")[0] if places else ""
    gpus = [place.partition("/")[2] for place in places if "/" in place]
    return f"{node}/{'-'.join(gpus)}" if node else ""


def _where(row: Mapping[str, str]) -> str:
    gpus = row["gpu_ids"].replace("|", "-").replace(" ", "-")
    return f"{row['node']}/{gpus}" if row["node"] else ""


def _at(outcome: RecipeRun) -> tuple[float, float]:
    """Allocation and fragments where the paper looks."""
    point = next(point for point in outcome.extra if point[0] == AT)
    return point[1], point[2]


def _compare(
    what: str,
    ours: Sequence[tuple[float, float]],
    theirs: Mapping[str, str],
    seeds: Sequence[Mapping[str, str]],
) -> Iterator[Check]:
    """Means over the seeds that were run, by the spread between theirs."""
    for position, key, title in ((0, "alloc", "GPUs in use"), (1, "frag_amount", "fragments")):
        slack = max(LEAST, SPREAD * float(theirs[f"{key}_{AT}_std"]))
        yield within(
            f"{what}: {title} at {AT} % arrived (%)",
            round(fmean(values[position] for values in ours), 3),
            round(fmean(float(row[f"{key}_{AT}"]) for row in seeds), 3),
            absolute=round(slack, 3),
        )


def _table(path: Path) -> list[dict[str, str]]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.DictReader(text.splitlines()))


def _about(row: Mapping[str, str]) -> tuple[str, str]:
    return row["workload"], row["sc_policy"]


def _seed_of(row: Mapping[str, str], scale: Scale) -> bool:
    return int(row["seed"]) in SCALES[scale][1]
