"""Themis: rho, leases, payments and bids by hand; nobody starves."""

import pytest

from mixed_runs import engine, job, kinds, named, run
from policy_runs import bare, runs
from policy_runs import job as plain
from rota.core.events import INF
from rota.core.topology import Topology
from rota.policies.rounds.leases import Seat
from rota.policies.themis.fairness import Contention, fewest_nodes, free_nodes, ideal_rate
from rota.policies.themis.policy import Themis, ThemisParams


def themis(**params):
    return Themis(ThemisParams(**params))


class Watched(Themis):
    """Writes down every rho by time and name, and what is bid."""

    def __init__(self, **params):
        super().__init__(ThemisParams(**params))
        self.seen = {}
        self.bids = {}

    def rho(self, job, view, *args, **options):
        found = super().rho(job, view, *args, **options)
        if not args and not options:
            self.seen[view.now_s, job.id] = found
        return found

    def _bid(self, job, view):
        made = self.bids[view.now_s, job.id] = super()._bid(job, view)
        return made


def terms(made):
    """Seconds of progress at which leases end, by job."""
    state = made.scheduler.policy.snapshot()["fields"]
    return {index: lease["until_s"] for index, lease in state["leases"].items()}


def test_rho_is_the_time_here_over_the_time_alone_on_a_part():
    policy = Watched(lease_s=1000.0, least=1.0)
    jobs = [job("a", 1, 1000), job("b", 1, 1000), job("c", 1, 300, at=400)]
    run(policy, jobs, "1x1", until_s=400)
    # b waited 400 s and needs 1,000 s. It shared the GPU with one other: alone on a half, 2,000 s.
    assert policy.seen[400, "b"] == pytest.approx(1400 / 2000)
    # c has just come, as the third: 300 s here, 900 s on a third
    assert policy.seen[400, "c"] == pytest.approx(300 / 900)


def test_a_part_of_every_type_is_the_ideal():
    # 4 jobs: one fast GPU and half a slow one for a gang of one: all time, two thirds of it fast
    assert ideal_rate({"f": 1.0, "s": 0.4}, {"f": 4, "s": 2}, 1, 4) == pytest.approx(
        2 / 3 * 1 + 1 / 3 * 0.4
    )
    # a gang of four has a quarter of its time on fast and an eighth on slow ones
    assert ideal_rate({"f": 1.0, "s": 0.4}, {"f": 4, "s": 2}, 4, 4) == pytest.approx(0.25 + 0.05)
    assert ideal_rate({"f": 1.0}, {"f": 8}, 2, 1) == 1.0


def test_contention_is_the_mean_number_of_jobs():
    crowd = Contention()
    crowd.advance(0.0, [1])
    assert crowd.mean(1, 0.0, 0.0) == 1
    crowd.advance(100.0, [1, 2, 3])
    crowd.advance(200.0, [1, 2])
    assert crowd.mean(1, 0.0, 200.0) == pytest.approx((100 * 1 + 100 * 3) / 200)
    assert crowd.mean(2, 100.0, 200.0) == pytest.approx(3)


def test_leases_end_and_the_worst_off_is_next():
    jobs = [plain("a", 0, 1, 3000), plain("b", 0, 1, 3000)]
    found = runs(themis(lease_s=1000.0, least=1.0), jobs)
    assert found == {
        "a": [(0, 1000), (2000, 3000), (4000, 5000)],
        "b": [(1000, 2000), (3000, 4000), (5000, 6000)],
    }


def test_nobody_who_has_a_lease_is_stopped_and_nobody_without_rivals_either():
    jobs = [plain("a", 0, 1, 5000), plain("b", 300, 1, 100)]
    found = runs(themis(lease_s=1000.0), jobs)
    assert found == {"a": [(0, 1000), (1100, 5100)], "b": [(1000, 1100)]}
    assert runs(themis(lease_s=1000.0), jobs[:1]) == {"a": [(0, 5000)]}


def test_winners_pay_with_a_part_of_their_lease():
    # Both bid. With the GPU now each ends after 1,000 s, a lease later after 2,000 s.
    # The winner costs the other a half of its value: it keeps half of its lease.
    made = run(
        themis(fairness=0.0, lease_s=1000.0),
        [job("a", 1, 1000), job("b", 1, 1000)],
        "1x1",
        until_s=0,
    )
    assert terms(made) == {0: 500.0}
    # without competition the lease is whole
    made = run(themis(fairness=0.0, lease_s=1000.0), [job("a", 1, 1000)], "1x1", until_s=0)
    assert terms(made) == {0: 1000.0}


def test_a_lease_is_never_shorter_than_the_least_part():
    jobs = [job("a", 1, 10), job("b", 1, 10)]
    made = run(themis(fairness=0.0, lease_s=1000.0, least=0.25), jobs, "1x1", until_s=0)
    assert terms(made) == {0: 250.0}


def test_only_the_worst_off_part_bids():
    policy = Watched(fairness=0.75)
    jobs = [job(f"j{i}", 1, 1000 - 100 * i, at=0.0) for i in range(8)]
    run(policy, jobs, "1x1", until_s=0)
    worst = sorted(policy.seen, key=lambda key: -policy.seen[key])[:2]
    assert sorted(policy.bids) == sorted(worst)


def test_bids_tell_types_and_placements_apart():
    policy = Watched(lease_s=1000.0, scattered=0.5)
    speeds = {"fast": 1.0, "slow": 0.5}
    run(policy, [job("gang", 3, 1000, speeds=speeds)], "2x4:fast+4x2:slow", until_s=0)
    bid = policy.bids[0, "gang"]
    options = {(option.kind, option.nodes): option.value for option in bid.options}
    # after 1,000 s on fast GPUs close together, 2,000 s scattered or on slow ones, 4,000 s on both
    best = options["fast", 1]
    assert options == pytest.approx(
        {("fast", 1): best, ("fast", 0): best / 2, ("slow", 2): best / 2, ("slow", 0): best / 4}
    )
    assert bid.nothing == pytest.approx(best / 2)  # a lease later


def test_types_go_to_those_to_whom_they_matter():
    jobs = [
        job("indifferent", 1, 5000, speeds={"fast": 1.0, "slow": 0.9}),
        job("picky", 1, 5000, speeds={"fast": 1.0, "slow": 0.2}),
    ]
    made = run(themis(fairness=0.0), jobs, "1x1:slow+1x1:fast", until_s=1)
    assert kinds(made) == {"indifferent": {"slow"}, "picky": {"fast"}}


def test_a_job_moves_to_faster_gpus_when_its_lease_ends():
    speeds = {"fast": 1.0, "slow": 0.25}
    jobs = [job("first", 1, 800, speeds=speeds), job("second", 1, 1500, speeds=speeds)]
    made = run(themis(lease_s=1000.0, least=1.0), jobs, "1x1:fast+1x1:slow")
    # 250 of 1,500 s are done when its lease on the slow GPU ends; the fast one is free by then
    assert {one.id: one.end_s for one in made.jobs.values()} == {"first": 800, "second": 2250}


def test_equal_jobs_are_treated_alike():
    jobs = [plain(f"j{i}", 0, 1, 1000) for i in range(5)]
    found = runs(themis(lease_s=100.0), jobs)
    ends = [found[f"j{i}"][-1][1] for i in range(5)]
    # rho of n equal jobs: at most 1, on a part of a fifth each needs 5,000 s
    assert max(ends) == 5000
    assert min(ends) >= 4000  # leases of 100 s let nobody run ahead


@pytest.mark.parametrize("fairness", [0.0, 0.8])
def test_a_gang_that_short_jobs_always_beat_has_its_turn(fairness):
    """A stream of short jobs fills both GPUs for ever; their gain is the larger one each time."""
    stream = [job(f"s{i}", 1, 150, at=70.0 * i) for i in range(400)]
    jobs = [job("gang", 2, 300, at=5.0), *stream]
    made = engine(themis(fairness=fairness, lease_s=200.0, patience=5.0), jobs, "1x2")
    made.run(5000)
    end_s = named(made)["gang"].end_s
    assert end_s <= 5 + 3 * (5 * 200 + 300)
    patient = engine(themis(fairness=fairness, lease_s=200.0, patience=1e6), jobs, "1x2")
    patient.run(end_s)
    assert not named(patient)["gang"].terminal or fairness > 0


def test_jobs_of_unknown_length_are_expected_to_run_as_long_again():
    policy = themis(lease_s=1000.0)
    unknown = bare(work=INF, known=~0)
    assert policy._left_s(unknown, 0.0) == 1000.0
    unknown.run_s = 5000.0
    assert policy._left_s(unknown, 0.0) == 5000.0
    assert policy._total_s(unknown, 0.0) == 10_000.0


def test_free_gpus_are_counted_by_node_or_by_pool():
    topology = Topology.uniform(2, 4)
    for placement, expected in (("consolidate", [1, 4]), ("count", [5])):
        made = run(themis(), [job("a", 3, 100)], "2x4", until_s=0, placement=placement)
        held = {0: Seat("", 3, "")}
        assert [sorted(free) for free in free_nodes(made.view, held).values()] == [expected]
    assert fewest_nodes(topology, "", 5) == 2
    assert fewest_nodes(topology, "", 0.5) == 1
