"""Quotas of Kueue and KAI as tenants, and amounts that cannot be read."""

import json

import pytest

from kueue_site import cluster_queue, cohort, flavor, node, quota, workload
from rota.core.errors import ClusterSpecError, TraceError
from rota.core.events import INF
from rota.core.tenants import Tenant, TenantTree
from rota.traces.formats.kubernetes.pods import FORMAT
from rota.traces.formats.store import restore, save
from rota.traces.tools.redact import redact
from trace_readers import counted


@pytest.fixture
def read(tmp_path):
    """Return `read(*items, **options)`: what is imported."""

    def run(*items, **options):
        path = tmp_path / "site.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        imported = FORMAT.load(path, options)
        assert counted(imported.quality)
        return imported

    return run


def tenants(imported):
    return {one.name: one for one in imported.queues.tenants}


def test_cohorts_stand_above_their_queues_and_above_each_other(read):
    imported = read(
        cluster_queue("a", "lab", default=quota(4, borrow=2, lend=1)),
        cluster_queue("b", "lab", default=quota("3")),
        cluster_queue("alone", default=quota(2, borrow=5)),
        cohort("lab", "all", default=quota(1, borrow=3)),
        workload("w", "a", 1, start=0, end=10),
    )
    assert tenants(imported) == {
        "cohort:lab": Tenant("cohort:lab", "cohort:all", 8, 11),
        "cohort:all": Tenant("cohort:all", "", 8, 8),
        "a": Tenant("a", "cohort:lab", 4, 6, lend=1),
        "b": Tenant("b", "cohort:lab", 3, INF),
        "alone": Tenant("alone", "", 2, 2),
    }
    assert imported.jobs["vc"].to_list() == ["a"]
    assert imported.queues.policy == "capacity:preset=kueue,reclaim=no,within=no"
    TenantTree(imported.queues.tenants)


def test_cohorts_in_a_circle_are_cut(read):
    imported = read(
        cluster_queue("a", "x", default=quota(4)),
        cohort("x", "y"),
        cohort("y", "x"),
        workload("w", "a", 1, start=0, end=10),
    )
    TenantTree(imported.queues.tenants)
    assert tenants(imported)["a"].parent == "cohort:x"


def test_a_quota_is_of_its_flavour_and_flavours_are_labels_of_nodes(read):
    items = [
        cluster_queue("team", "lab", a100=quota(8), v100=quota(4), spot=quota(1)),
        cluster_queue("other", "lab", a100=quota(2)),
        flavor("a100", **{"nvidia.com/gpu.product": "A100"}),
        flavor("v100", **{"nvidia.com/gpu.product": "V100"}),
        node("big", 8, **{"nvidia.com/gpu.product": "A100"}),
        node("old", 4, **{"nvidia.com/gpu.product": "V100"}),
        workload("x", "team", 1, start=0, end=10, given="v100"),
        workload("y", "other", 1, start=0, end=10, given="a100"),
        workload("z", "team", 1, start=0, end=10, given="spot"),
        workload("lost", "team", 1, start=0, end=10, given=""),
    ]
    imported = read(*items)
    rows = sorted(imported.jobs.select("job_id", "vc", "labels").rows())
    assert rows == [
        ("lab/lost", "of-team", []), ("lab/x", "team/v100", ["v100"]),
        ("lab/y", "other/a100", ["a100"]), ("lab/z", "team/spot", []),
    ]  # fmt: skip
    assert [(one.name, one.labels) for one in imported.cluster] == [
        ("big", ("a100",)), ("old", ("v100",)),
    ]  # fmt: skip
    found = tenants(imported)
    assert found["cohort:lab/a100"].limit == 10
    assert found["team/a100"] == Tenant("team/a100", "cohort:lab/a100", 8, INF)
    assert found["team/v100"].parent == "cohort:lab/v100"
    notes = " ".join(imported.notes)
    assert "no node is known by the labels of spot" in notes
    assert "1 jobs of Kueue have no quota" in notes
    assert not read(*items, tenant="namespace").queues.tenants


def test_queues_say_what_is_preempted_and_what_is_lost_is_named(read):
    imported = read(
        cluster_queue("a", "lab", {"reclaimWithinCohort": "Any"}, default=quota(4)),
        cluster_queue("b", "lab", {"withinClusterQueue": "LowerPriority"}, default=quota(4)),
        workload("w", "a", 1, start=0, end=10),
    )
    assert imported.queues.policy == "capacity:preset=kueue"
    notes = " ".join(imported.notes)
    assert "that queues differ in reclaimWithinCohort (Any, Never)" in notes
    assert "that queues differ in withinClusterQueue (LowerPriority, Never)" in notes


def kai_queue(name, above="", **gpu):
    spec = {"parentQueue": above, "resources": {"gpu": gpu}}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


def kai_pod(name, queue):
    item = workload(name, "", 1, start=0, end=10)
    spec = item["spec"]["podSets"][0]["template"]["spec"]
    ended = {"terminated": {"finishedAt": "2026-03-02T08:00:10Z"}}
    started = {"type": "PodScheduled", "status": "True"}
    started["lastTransitionTime"] = "2026-03-02T08:00:00Z"
    return {
        "kind": "Pod",
        "metadata": item["metadata"] | {"labels": {"kai.scheduler/queue": queue}},
        "spec": spec,
        "status": {
            "phase": "Succeeded",
            "conditions": [started],
            "containerStatuses": [{"state": ended}],
        },
    }


def test_queues_of_kai_are_tenants_below_their_parents(read):
    imported = read(
        kai_queue("dept", quota=8, limit=12, overQuotaWeight=1),
        kai_queue("team", "dept", quota=3, limit=-1, overQuotaWeight=2),
        kai_queue("last", "dept", quota=0, limit=-1, overQuotaWeight=0),
        kai_queue("free", quota=-1, limit=-1, overQuotaWeight=1),
        kai_pod("p", "team"),
    )
    assert tenants(imported) == {
        "dept": Tenant("dept", "", 8, 12),
        "team": Tenant("team", "dept", 3, INF, 2),
        "last": Tenant("last", "dept", 0, INF, borrow=0),
        "free": Tenant("free"),
    }
    assert imported.jobs["vc"].to_list() == ["team"]
    assert imported.queues.policy.startswith("hierarchical-fair:")
    notes = " ".join(imported.notes)
    assert "without an end to their quota (-1): taken as no promise and no limit (free)" in notes
    assert "not kept of KAI: quotas of CPUs and memory" in notes


@pytest.mark.parametrize("item", [
    cluster_queue("a", default=quota("x")), cluster_queue("a", default=quota(1, borrow="1Zi")),
    kai_queue("a", quota="8 GPUs"),
])  # fmt: skip
def test_a_quota_that_cannot_be_read_is_an_error(read, item):
    items = [item, workload("w", "a", 1, start=0, end=10)]
    with pytest.raises(TraceError, match=r"Queue a: .* is '.*', which is no amount of GPUs"):
        read(*items)
    assert len(read(*items, tenant="namespace")) == 1


@pytest.mark.parametrize("asks", [{"cpu": "abc"}, {"memory": "1Zi"}, {"nvidia.com/gpu": "-1"}])
def test_an_amount_that_cannot_be_read_is_never_nothing(read, asks):
    (name, value), *_ = asks.items()
    good = workload("good", "a", 1, start=0, end=10)
    bad = workload("bad", "a", 1, start=0, end=10, asks=asks)
    with pytest.raises(TraceError, match=f"Workload lab/bad asks for {name}: '{value}'.*bad=drop"):
        read(good, bad)
    imported = read(good, bad, bad="drop")
    assert imported.quality.dropped == {"asks for an amount that cannot be read": 1}
    pod = kai_pod("pod", "q")
    pod["spec"]["containers"][0]["resources"]["requests"] |= asks
    with pytest.raises(TraceError, match=f"pod lab/pod asks for {name}: '{value}'"):
        read(pod)
    assert len(read(pod, kai_pod("fine", "q"), bad="drop")) == 1


def test_a_node_whose_amounts_cannot_be_read_is_an_error(read):
    wrong = node("n1", "eight")
    with pytest.raises(ClusterSpecError, match=r"node n1: nvidia\.com/gpu: 'eight' is no amount"):
        read(wrong, workload("w", "a", 1, start=0, end=10))


def test_quotas_are_kept_by_a_stored_trace_and_lose_their_names_when_redacted(read, tmp_path):
    imported = read(
        cluster_queue("team", "lab", default=quota(4, borrow=1)),
        workload("w", "team", 1, start=0, end=10),
    )
    assert restore(save(imported, tmp_path / "kept")).queues == imported.queues
    hidden, _ = redact(imported)
    text = (save(hidden, tmp_path / "hidden") / "trace.json").read_text()
    assert "team" not in text
    assert "lab" not in text
    (vc,) = hidden.jobs["vc"].to_list()
    assert {one.name: one.quota for one in hidden.queues.tenants}[vc] == 4
    file = tmp_path / "kept" / "trace.json"
    file.write_text(file.read_text().replace('"parent": "cohort:lab"', '"parent": "nobody"'))
    with pytest.raises(TraceError, match=r"has tenants that cannot be used .*nobody"):
        restore(tmp_path / "kept")
