import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions import delays, engine, everybody, job, rows, run, starts, told
from rota.core.jobs import Request, Shape
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec, Topology
from rota.daemon.pictures import reason_of
from rota.daemon.projection import Projection
from rota.engine.compose import compose
from rota.engine.replica import rows_from
from rota.engine.snapshot import freeze, restore
from rota.placement.best_fit import BestFit
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.comparing import ByComparison
from rota.policies.fifo import Fifo
from rota.policies.yarn_cs import YarnCs, YarnCsParams, fewest_nodes

HALVES = [Tenant("A", quota=4), Tenant("B", quota=4)]


class Forgetful(YarnCs):
    """Knows nothing but its snapshot from one decision to the next."""

    def decide(self, view):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.snapshot()))
        fresh = ByComparison(YarnCs(self.params))
        fresh.restore(state)
        plan = fresh.decide(view)
        self.restore(fresh.snapshot())
        return plan


def running(made):
    return sorted(j.id for j in made.view.running)


# --- shares -------------------------------------------------------------------------------------


def test_an_empty_cluster_may_be_borrowed():
    jobs = [job(f"a{i}", 1, 10, tenant="A") for i in range(8)]
    assert set(starts(run(YarnCs(), jobs, (1, 8), tenants=HALVES)).values()) == {0}


def test_without_borrowing_a_tenant_keeps_to_its_share():
    jobs = [job(f"a{i}", 1, 10, tenant="A") for i in range(8)]
    made = run(YarnCs(YarnCsParams(borrow=False)), jobs, (1, 8), tenants=HALVES)
    assert [starts(made)[f"a{i}"] for i in range(8)] == [0] * 4 + [10] * 4
    assert delays(made, "a7") == {Reason.QUOTA: 10}


def test_a_limit_holds_even_where_borrowing_is_allowed():
    jobs = [job(f"a{i}", 1, 10, tenant="A") for i in range(8)]
    made = run(YarnCs(), jobs, (1, 8), tenants=[Tenant("A", quota=4, limit=6)])
    assert [starts(made)[f"a{i}"] for i in range(8)] == [0] * 6 + [10] * 2
    assert delays(made, "a7") == {Reason.QUOTA: 10}


def test_borrowed_gpus_are_taken_back_when_the_cluster_is_nearly_full():
    jobs = [
        *(job(f"a{i}", 1, 10, tenant="A") for i in range(8)),
        *(job(f"b{i}", 1, 10, at=5, tenant="B") for i in range(2)),
    ]
    made = engine(YarnCs(), jobs, (1, 8), tenants=HALVES)
    made.run(until_s=5)
    assert running(made) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]
    made.run()
    assert {j.id: j.preemptions for j in everybody(made) if j.preemptions} == {"a6": 1, "a7": 1}
    assert told(made, "a7") == [(5, Reason.QUOTA)]
    assert {j.id: j.end_s for j in everybody(made)}["a7"] == 15


def test_only_as_much_as_its_share_is_taken_back():
    jobs = [
        *(job(f"a{i}", 1, 10, tenant="A") for i in range(8)),
        *(job(f"b{i}", 1, 10, at=5, tenant="B") for i in range(6)),
    ]
    made = engine(YarnCs(), jobs, (1, 8), tenants=HALVES)
    made.run(until_s=5)
    assert running(made) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]
    made.run()
    assert told(made, "b5") == [(5, Reason.QUOTA)]


@pytest.mark.parametrize(
    "params",
    [YarnCsParams(preempt=False), YarnCsParams(preempt_above=0.95)],
    ids=["never", "not full enough"],
)
def test_otherwise_a_tenant_waits_for_its_share(params):
    jobs = [
        *(job(f"a{i}", 1, 10, tenant="A") for i in range(9)),
        job("b", 2, 10, at=5, tenant="B"),
    ]
    tenants = [Tenant("A", quota=5), Tenant("B", quota=5)]
    made = run(YarnCs(params), jobs, (1, 10), tenants=tenants)
    assert starts(made)["b"] == 10
    assert told(made, "b") == [(5, Reason.CAPACITY)]


def test_the_tenant_that_has_used_the_least_of_its_share_comes_first():
    jobs = [
        job("a", 3, 10, tenant="A"),
        job("b", 5, 20, tenant="B"),
        job("b-next", 2, 10, at=1, tenant="B"),
        job("a-next", 2, 10, at=2, tenant="A"),
    ]
    tenants = [Tenant("A", quota=3), Tenant("B", quota=5)]
    made = run(YarnCs(), jobs, (1, 8), tenants=tenants)
    assert starts(made) == {"a": 0, "b": 0, "b-next": 20, "a-next": 10}
    assert delays(made, "b-next") == {Reason.QUOTA: 19}


def test_without_declared_quotas_everybody_has_the_same_share():
    jobs = [
        *(job(f"{name}{i}", 1, 10, tenant=name) for name in "ABC" for i in range(4)),
        job("D", 2, 1, at=1, tenant="D"),
    ]
    made = engine(YarnCs(), jobs, (1, 8))
    made.run(until_s=0)
    assert running(made) == ["A0", "A1", "A2", "B0", "B1", "B2", "C0", "C1"]  # 8/3 each, 2 borrowed
    made.run(until_s=1)
    assert running(made) == ["A0", "A1", "B0", "B1", "C0", "C1", "D"]  # a quarter each


def test_without_declared_quotas_weights_and_absent_tenants_count():
    jobs = [job(f"a{i}", 1, 10, tenant="A") for i in range(8)]
    tenants = [Tenant("all"), Tenant("A", parent="all"), Tenant("B", parent="all", weight=3)]
    made = engine(YarnCs(YarnCsParams(borrow=False)), jobs, (1, 8), tenants=tenants)
    made.run(until_s=0)
    assert running(made) == ["a0", "a1"]


def test_who_has_no_quota_where_others_have_one_only_borrows():
    jobs = [job("x", 4, 10, tenant="X"), job("a", 4, 10, at=1, tenant="A")]
    made = run(YarnCs(), jobs, (1, 4), tenants=[Tenant("A", quota=4)])
    assert starts(made) == {"x": 0, "a": 1}
    assert {j.id: j.end_s for j in everybody(made)} == {"x": 20, "a": 11}


# --- locality and the two delays ----------------------------------------------------------------

SCATTERED = [
    # the first two fill the first node, the others the second; at 10 s two GPUs of each are free
    job("a1", 2, 10, tenant="A"),
    job("b1", 2, 30, tenant="B"),
    job("a2", 2, 30, tenant="A"),
    job("b2", 2, 10, tenant="B"),
    job("gang", 4, 5, at=1, tenant="A"),
]


def test_the_wait_is_divided_exactly_into_fair_share_delay_and_fragmentation_delay():
    jobs = [*SCATTERED, job("behind", 1, 5, at=2, tenant="A")]
    policy = YarnCs(YarnCsParams(relax_s=5))
    made = run(policy, jobs, (2, 4), placement=BestFit, tenants=HALVES)
    assert starts(made)["gang"] == 15
    assert told(made, "gang") == [(1, Reason.QUOTA), (10, Reason.FRAGMENTATION)]
    assert delays(made, "gang") == {Reason.QUOTA: 9, Reason.FRAGMENTATION: 5}
    # whoever is behind may not borrow either, then waits for its turn (it needs one GPU, and four
    # are free), then for the GPUs that the gang took
    assert starts(made)["behind"] == 20
    assert delays(made, "behind") == {Reason.QUOTA: 8 + 5, Reason.ORDER: 5}
    gang = next(j for j in made.view.finished if j.id == "gang")
    assert [amount for _, amount in gang.allocation.slices] == [2, 2]


def test_locality_is_not_insisted_on_without_patience_and_always_with_endless_patience():
    for relax_s, expected in ((0, 10), (float("inf"), 30)):
        policy = YarnCs(YarnCsParams(relax_s=relax_s))
        made = run(policy, SCATTERED, (2, 4), placement=BestFit, tenants=HALVES)
        assert starts(made)["gang"] == expected


def test_the_clock_of_locality_does_not_run_while_gpus_are_missing():
    policy = YarnCs(YarnCsParams(relax_s=8))  # shorter than the time until any GPU is free
    made = run(policy, SCATTERED, (2, 4), placement=BestFit, tenants=HALVES)
    assert starts(made)["gang"] == 18


def test_a_placement_that_insists_on_locality_relaxes_nothing():
    policy = YarnCs(YarnCsParams(relax_s=5))
    made = run(policy, SCATTERED, (2, 4), placement="consolidate", tenants=HALVES)
    assert delays(made, "gang") == {Reason.QUOTA: 9, Reason.FRAGMENTATION: 20}


def test_a_pool_has_no_locality():
    made = run(YarnCs(), SCATTERED, (2, 4), placement="count", tenants=HALVES)
    assert delays(made, "gang") == {Reason.QUOTA: 9}


@pytest.mark.parametrize(("skip", "expected"), [(False, 30), (True, 10)])
def test_later_jobs_may_pass_if_asked_for(skip, expected):
    jobs = [*SCATTERED, job("behind", 1, 100, at=2, tenant="A")]
    policy = YarnCs(YarnCsParams(skip=skip, relax_s=float("inf")))
    made = run(policy, jobs, (2, 4), placement=BestFit, tenants=HALVES)
    assert starts(made)["behind"] == expected


def test_borrowed_gpus_are_taken_back_close_together():
    jobs = [
        job("a1", 2, 50, tenant="A"),
        job("a2", 2, 50, tenant="A"),
        job("a3", 2, 50, at=1, tenant="A"),
        job("a4", 2, 50, at=1, tenant="A"),
        job("b", 4, 5, at=2, tenant="B"),
    ]
    made = run(YarnCs(), jobs, (2, 4), placement=BestFit, tenants=HALVES)
    assert starts(made)["b"] == 2
    b = next(j for j in made.view.finished if j.id == "b")
    assert len(b.allocation.slices) == 1


def test_fewest_nodes_takes_the_largest_of_one_type():
    sizes = [(2, "k80"), (4, "k80"), (8, "v100"), (0, "")]
    topology = Topology([NodeSpec(f"n{i}", gpus, kind) for i, (gpus, kind) in enumerate(sizes)])

    def fewest(gpus, *types):
        return fewest_nodes(topology, Shape(0, Request.of(gpus, gpu_types=types)))

    assert [fewest(gpus) for gpus in (0, 0.5, 1, 5, 8)] == [1, 1, 1, 1, 1]
    assert (fewest(5, "k80"), fewest(6, "k80", "v100")) == (2, 1)


@given(
    drawn=st.lists(
        st.tuples(
            st.integers(1, 8), st.integers(0, 60), st.integers(1, 50), st.sampled_from("ABC")
        ),
        min_size=1,
        max_size=25,
    ),
    skip=st.booleans(),
)
def test_everybody_finishes_and_a_snapshot_is_all_it_needs(drawn, skip):
    jobs = [
        job(f"j{i}", gpus, work, at=at, tenant=tenant)
        for i, (gpus, at, work, tenant) in enumerate(sorted(drawn, key=lambda d: d[1]))
    ]
    params = YarnCsParams(relax_s=7, skip=skip)
    made = run(YarnCs(params), jobs, (2, 4), placement=BestFit, tenants=HALVES)
    assert len(made.view.finished) == len(jobs)
    again = run(Forgetful(params), jobs, (2, 4), placement=BestFit, tenants=HALVES)
    assert again.log.rows == made.log.rows


def test_a_borrower_that_was_displaced_and_goes_on_can_be_displaced_again():
    tenants = [Tenant("A", quota=8), Tenant("B")]
    jobs = [
        job("a0", 2, 100, tenant="A"),
        job("b4", 4, 100, tenant="B"),
        job("b2", 2, 100, at=1, tenant="B"),
        job("a1", 1, 100, at=5, tenant="A"),
        job("a2", 2, 100, at=5, tenant="A"),
        job("a3", 2, 100, at=6, tenant="A"),
    ]
    made = engine(YarnCs(YarnCsParams(preempt_above=0.5)), jobs, (1, 8), tenants=tenants)
    made.run(until_s=5)  # b2 makes room for a1, then b4 for a2, and b2 fits again
    assert running(made) == ["a0", "a1", "a2", "b2"]
    made.run(until_s=6)
    assert running(made) == ["a0", "a1", "a2", "a3"]


# --- why jobs wait, told once for all that wait alike ---------------------------------------------


def five_behind_one():
    """A tenant uses its share; a large job of it waits, and five small ones behind that."""
    jobs = [job("a", 4, 100, tenant="A"), job("b", 4, 20, tenant="B")]
    jobs += [job("large", 8, 10, tenant="A", at=1)]
    jobs += [job(f"s{i}", 1, 10, tenant="A", at=2) for i in range(5)]
    return engine(YarnCs(), jobs, (1, 8), tenants=HALVES)


def test_those_behind_the_first_are_told_by_one_row():
    made = five_behind_one()
    made.run(10.0)
    rows_before = rows(made, Record.REASON)
    made.run(50.0)
    new = rows(made, Record.REASON)[len(rows_before) :]
    assert told(made, "s4") == [(2.0, Reason.QUOTA), (20.0, Reason.ORDER)]
    of_tenant = [row for row in new if row[3] >= 0]
    assert [(row[0], row[1], row[4]) for row in of_tenant] == [(20.0, -1, Reason.ORDER)]


def test_a_resumed_run_remembers_what_all_of_a_tenant_were_told():
    whole, first, second = (five_behind_one() for _ in range(3))
    first.run(10.0)
    restore(second, freeze(first))
    (small,) = {j.shape.number for j in second.view.active.values() if j.gpus == 1}
    assert second.view.shared_reasons["A", small] == Reason.QUOTA
    for made in (whole, second):
        made.run()
        made.finish()
    assert rows_from(whole.log, 0) == rows_from(second.log, 0)


def test_whoever_takes_over_takes_back_what_all_of_a_tenant_were_told():
    made = five_behind_one()
    made.run(10.0)
    kinds = {of: reason for of, reason in made.view.shared_reasons.items() if reason}
    made.hand_over(compose(Fifo(), count(made.view.topology), AcceptAll()))
    assert kinds
    assert not made.view.shared_reasons
    back = [row for row in rows(made, Record.REASON) if row[3] >= 0 and not row[4]]
    assert [row[1:] for row in back] == [
        (-1, number, made.log.tenants[tenant], 0.0) for tenant, number in kinds
    ]


def test_a_daemon_tells_each_job_what_its_tenant_was_told():
    made = five_behind_one()
    made.run(10.0)
    projection = Projection()
    projection.fold(made.log.take())
    found = {j.id: reason_of(j, projection, made.view) for j in made.view.active.values()}
    assert found == {"a": "", "b": "", "large": "quota", **{f"s{i}": "quota" for i in range(5)}}
    made.run(30.0)
    projection.fold(made.log.take())
    assert {reason_of(made.jobs[i], projection, made.view) for i in range(3, 8)} == {"order"}
