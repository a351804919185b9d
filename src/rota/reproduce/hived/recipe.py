"""Promised cells against promised numbers of GPUs: who waits longer than at home (HiveD).

Every tenant has some nodes. In its *private* cluster it is alone on them. With *cells* (`hived`) it
shares the cluster and is promised as many nodes; with *quotas* (`yarn-cs` without borrowing) as
many GPUs, wherever they are. Jobs insist on few nodes everywhere. The excess of a tenant is the
mean wait of its jobs minus that in its private cluster under the same scheduler.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean

import msgspec
import polars as pl

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.sums import ordered_sum
from rota.core.workload import Workload
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, same_rows
from rota.study.config import RunConfig
from rota.study.output import dump
from rota.traces.read import read_workload
from rota.traces.synth.generate import generate

GPUS = 8  # of a node
TENANTS: Mapping[str, tuple[int, str]] = {
    "6214e9": (3, "1:40841/2:50/4:144/8:191"),
    "0e4a51": (3, "1:1090/2:164/4:181"),
    "ee9e8c": (5, "1:597/2:109/4:266/8:420/16:96"),
    "7f04ca": (3, "1:204/4:329/8:179/16:11"),
    "2869ce": (4, "1:64/2:4/4:10/8:293"),
}
"""Virtual clusters of Philly: nodes (ours) and sizes (as counted in the trace, up to 16 GPUs)."""

LOAD = 1.1  # the interesting time: tenants use what they were promised
DAYS = {Scale.SMALL: 2.0, Scale.PAPER: 4.0}
SEEDS = {Scale.SMALL: (1, 2), Scale.PAPER: (1, 2, 3)}
LONGEST_S = 86_400
PROBE = 1_000  # jobs to learn the mean work from
GUESTS = 200  # opportunistic jobs
DAY_S = 86_400

RECORDED = ("philly/philly.csv", "../data/philly/philly.csv")
RECORDED_FORMAT = "philly:after=2017-11-20"
RECORDED_DAYS, RECORDED_LOAD, RECORDED_LARGEST, RECORDED_LEAST = 7, 0.9, 16, 50

QUOTA = "yarn-cs:borrow=no,preempt=no,relax_s=inf,skip=yes"
TINY_S, CLEAR_S = 1.0, 60.0
ROOM = {
    "philly": "in this week nobody waits for GPUs that lie together, only for the share of its "
    "tenant, and how large that was in Philly is not public: ours is a guess"
}
"""Why quotas may do no harm."""

GUEST = "guest"


class TenantPart(msgspec.Struct, frozen=True):
    """A tenant: its nodes and its jobs."""

    nodes: int
    specs: list[JobSpec]
    behaviours: list[Behaviour]


class HivedQueueing(Recipe):
    """Private clusters, cells and quotas, with the same jobs."""

    name = "hived-queueing"
    summary = "excess wait of tenants that share by HiveD's cells or by quotas, against own nodes"
    paper = "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020"
    source = (
        "the finding only: with quotas tenants wait longer than in private clusters, with cells "
        "they do not. A course's notes on the paper's slides tell of 7 times the delay on average "
        "(two months, 2,232 GPUs, 11 tenants), on a trace that is not public"
    )
    takes: Mapping[Scale, str] = {Scale.SMALL: "40 s", Scale.PAPER: "3 min"}
    leaves_out = "two of four days, a seed, and a week of recorded jobs of Philly"
    known = (
        (
            "tenants differ in the sizes of their jobs as Philly's virtual clusters do; how many "
            "nodes they have is ours"
        ),
        (
            "quotas hurt tenants whose jobs need whole nodes; tenants with jobs of many sizes "
            "break their private nodes up themselves and gain by sharing. The best placement is "
            "given to both, so the excess is smaller than the published one"
        ),
        (
            "the load was chosen so that the effect of quotas can be seen: when it was tried with "
            "0.8, the largest excess was a few minutes, and with the same sizes for all tenants "
            "next to nothing. That of cells is 0 at any load"
        ),
        "preemption of opportunistic jobs costs nothing here",
        "at the scale of the paper recorded jobs of Philly are run too if philly.csv is there",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Everything for each workload; with guests for the first one."""
        runs: dict[str, RunConfig] = {}
        for number, (place, parts) in enumerate(_workloads(setting).items()):
            runs |= _runs(setting, place, parts)
            if not number:
                runs |= _lending(setting, place, parts)
        return runs

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Cells are as good as nodes of one's own; quotas are not."""
        del setting  # all scales are checked alike
        found = []
        for place in dict.fromkeys(label.split("+")[1] for label in runs):
            home = _joined(runs, f"home-hived+{place}+")
            cells = runs[f"hived+{place}"].jobs
            found.append(_same(f"{place}: first starts with cells", cells, home))
            found += _excesses(place, runs)
        guests = next(run for label, run in runs.items() if label.startswith("lent+"))
        place = next(label.split("+")[1] for label in runs if label.startswith("lent+"))
        lent = guests.jobs.filter(pl.col("job_id").str.starts_with(GUEST))
        owners = guests.jobs.filter(~pl.col("job_id").str.starts_with(GUEST))
        home = _joined(runs, f"home-hived+{place}+")
        done = lent.filter(pl.col("state") == "done").height
        return [
            *found,
            _same(f"{place}: first starts of owners while idle GPUs are lent", owners, home),
            holds(
                f"{place}: opportunistic jobs done", "all of them", f"{done} of {lent.height}",
                ok=done == lent.height > 0,
            ),
        ]  # fmt: skip

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """Mean waits by workload, tenant and way to share."""
        rows = []
        for place in dict.fromkeys(label.split("+")[1] for label in runs):
            for way in ("hived", "quota"):
                home = _means(_joined(runs, f"home-{way}+{place}+"))
                shared = _means(runs[f"{way}+{place}"].jobs)
                rows += [
                    {
                        "workload": place,
                        "tenant": tenant,
                        "sharing": "cells" if way == "hived" else "quotas",
                        "private_wait_s": home[tenant],
                        "shared_wait_s": shared[tenant],
                    }
                    for tenant in home
                ]
        return pl.DataFrame(rows)


# --- runs ----------------------------------------------------------------------------------------


def _runs(
    setting: RecipeSetting, place: str, parts: Mapping[str, TenantPart]
) -> dict[str, RunConfig]:
    """All tenants together, and each of them at home, under both schedulers."""
    together = _inputs(setting, place, parts)
    runs = {
        f"hived+{place}": _config(together, _hived(together[1])),
        f"quota+{place}": _config(together, QUOTA),
    }
    for tenant, part in parts.items():
        alone = _inputs(setting, f"{place}-{tenant}", {tenant: part})
        runs[f"home-hived+{place}+{tenant}"] = _config(alone, _hived(alone[1]))
        runs[f"home-quota+{place}+{tenant}"] = _config(alone, QUOTA)
    return runs


def _lending(
    setting: RecipeSetting, place: str, parts: Mapping[str, TenantPart]
) -> dict[str, RunConfig]:
    """The same with opportunistic jobs of the first tenant."""
    tenant, first = next(iter(parts.items()))
    until_s = max(spec.submit_s for spec in first.specs)
    guests = [
        JobSpec(
            f"{GUEST}-{number}", round(until_s * number / GUESTS), Request.of(1), tenant,
            priority=-1,
        )
        for number in range(GUESTS)
    ]  # fmt: skip
    merged = TenantPart(
        first.nodes,
        [*first.specs, *guests],
        [*first.behaviours, *(Behaviour(3_600.0) for _ in guests)],
    )
    inputs = _inputs(setting, f"{place}-lent", {**parts, tenant: merged})
    return {f"lent+{place}": _config(inputs, _hived(inputs[1]))}


def _config(inputs: tuple[str, str], policy: str) -> RunConfig:
    trace, cluster = inputs
    return RunConfig(trace=trace, format="csv", cluster=cluster, policy=policy)


def _hived(cluster: str) -> str:
    return f"hived:config={cluster}"


def _inputs(setting: RecipeSetting, name: str, parts: Mapping[str, TenantPart]) -> tuple[str, str]:
    """Files with the jobs of some tenants and with the cells that they are promised."""
    rows = [row for part in parts.values() for row in zip(part.specs, part.behaviours, strict=True)]
    rows.sort(key=lambda row: row[0].submit_s)
    workload = Workload([spec for spec, _ in rows], [what for _, what in rows], name=name)
    nodes = {tenant: part.nodes for tenant, part in parts.items()}
    return setting.keep(workload, name), setting.write(f"{name}.yaml", dump(_cells(nodes)))


def _cells(nodes: Mapping[str, int]) -> dict[str, object]:
    """A HiveD configuration: one pool of nodes, of which tenants have so many."""
    count = sum(nodes.values())
    return {
        "physicalCluster": {
            "cellTypes": {
                "NODE": {"childCellType": "GPU", "childCellNumber": GPUS, "isNodeLevel": True},
                "POOL": {"childCellType": "NODE", "childCellNumber": count},
            },
            "physicalCells": [
                {
                    "cellType": "POOL",
                    "cellChildren": [{"cellAddress": f"n{number}"} for number in range(count)],
                }
            ],
        },
        "virtualClusters": {
            tenant: {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": number}]}
            for tenant, number in nodes.items()
        },
    }


# --- workloads -----------------------------------------------------------------------------------


def _workloads(setting: RecipeSetting) -> dict[str, dict[str, TenantPart]]:
    found = {f"seed{seed}": _drawn(setting, seed) for seed in SEEDS[setting.scale]}
    if not setting.small:
        path = next(filter(None, map(setting.find, RECORDED)), None)
        if path is not None:
            found["philly"] = _recorded(str(path))
    return found


def _drawn(setting: RecipeSetting, seed: int) -> dict[str, TenantPart]:
    """Jobs of Philly's durations and of each tenant's sizes, over the same days."""
    span_s = DAYS[setting.scale] * DAY_S
    parts = {}
    for number, (tenant, (nodes, sizes)) in enumerate(TENANTS.items()):
        options = {"max_s": str(LONGEST_S), "sizes": sizes, "even": "no"}
        draw = {"gpus": nodes * GPUS, "load": 1.0, "seed": 100 * seed + number, "options": options}
        probe = generate("philly-like", jobs=PROBE, **draw)  # type: ignore[arg-type]
        jobs = max(2, round(PROBE * LOAD * span_s / probe.specs[-1].submit_s))
        drawn = generate("philly-like", jobs=jobs, **draw)  # type: ignore[arg-type]
        factor = span_s / drawn.specs[-1].submit_s
        specs = [
            msgspec.structs.replace(
                spec, id=f"{tenant}-{spec.id}", submit_s=round(spec.submit_s * factor),
                tenant=tenant,
            )
            for spec in drawn.specs
        ]  # fmt: skip
        parts[tenant] = TenantPart(nodes, specs, list(drawn.behaviours))
    return parts


def _recorded(path: str) -> dict[str, TenantPart]:
    """A week of Philly; every tenant with some jobs has nodes for its work at a high load."""
    whole = read_workload(path, RECORDED_FORMAT)
    span_s = float(RECORDED_DAYS * DAY_S)
    rows: dict[str, list[tuple[JobSpec, Behaviour]]] = {}
    for spec, behaviour in whole:
        if spec.submit_s < span_s and _gpus(spec) <= RECORDED_LARGEST:
            rows.setdefault(spec.tenant, []).append((spec, behaviour))
    parts = {}
    for tenant, jobs in rows.items():
        if tenant and len(jobs) >= RECORDED_LEAST:
            work = ordered_sum(_gpus(spec) * behaviour.work for spec, behaviour in jobs)
            nodes = ceil(work / (GPUS * span_s * RECORDED_LOAD))
            least = ceil(max(_gpus(spec) for spec, _ in jobs) / GPUS)
            parts[tenant] = TenantPart(
                max(nodes, least), [spec for spec, _ in jobs], [what for _, what in jobs]
            )
    return parts


def _gpus(spec: JobSpec) -> float:
    return ordered_sum(group.count * group.gpus for group in spec.request.groups)


# --- comparisons ---------------------------------------------------------------------------------


def _joined(runs: Mapping[str, RecipeRun], prefix: str) -> pl.DataFrame:
    return pl.concat([run.jobs for label, run in runs.items() if label.startswith(prefix)])


def _same(quantity: str, ours: pl.DataFrame, home: pl.DataFrame) -> Check:
    """Job by job as at home."""
    starts = [
        dict(zip(jobs["job_id"].to_list(), jobs["first_start_s"].to_list(), strict=True))
        for jobs in (ours, home)
    ]
    return same_rows(quantity, *starts)


def _means(jobs: pl.DataFrame) -> dict[str, float]:
    table = jobs.group_by("tenant", maintain_order=True).agg(pl.col("wait_s").mean())
    return dict(table.iter_rows())


def _excesses(place: str, runs: Mapping[str, RecipeRun]) -> list[Check]:
    excess_s: dict[str, dict[str, float]] = {}
    for way in ("hived", "quota"):
        home = _means(_joined(runs, f"home-{way}+{place}+"))
        shared = _means(runs[f"{way}+{place}"].jobs)
        excess_s[way] = {tenant: shared[tenant] - home[tenant] for tenant in home}
    worst = {way: max(by, key=lambda tenant: by[tenant]) for way, by in excess_s.items()}
    cells_s, quota_s = (excess_s[way][worst[way]] for way in ("hived", "quota"))
    gains = _gains(list(excess_s["quota"].values()))
    return [
        holds(
            f"{place}: largest excess (s) of a tenant's mean wait, cells",
            f"at most {TINY_S:g}",
            f"{cells_s:.1f}",
            ok=cells_s <= TINY_S,
        ),
        holds(
            f"{place}: largest excess (s) of a tenant's mean wait, quotas",
            f"above {CLEAR_S:g}",
            f"{quota_s:,.0f} ({worst['quota']}){gains}",
            ok=quota_s > CLEAR_S,
            known=ROOM.get(place, ""),
        ),
    ]


def _gains(excess_s: Sequence[float]) -> str:
    gains = [-seconds for seconds in excess_s if seconds < 0]
    return f"; {len(gains)} others gain {fmean(gains):,.0f} on average" if gains else ""


RECIPE = HivedQueueing()
