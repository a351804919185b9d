"""Jobs on one GPU in turns: what the simulator decides is what a living cluster decides.

The living one has the real port, the real dealer of turns and a clock that the test moves.
"""

from collections import Counter

import pytest

from gpu_sharing import engine, job
from rota.core.events import INF
from rota.core.launch import Launch
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.engine.source import WorkloadSource
from rota.live.agent.messages import PartKey, PartTerms
from rota.live.agent.turns import QUANTUM_S, GpuTurns
from rota.live.cluster import LiveCluster
from rota.live.driver import Capabilities, Driver, RunStatus
from rota.live.drivers.local.embedded import nodes_here
from rota.live.inputs import BatchDraft
from rota.live.mailbox import Mailbox
from rota.models.slicing import SliceTurns
from rota.placement.consolidate import consolidate
from rota.policies.admission.accept_all import AcceptAll
from rota.testing.rehearsal import decisions

NODES = [NodeSpec("n0", 1, sharing="timeslice", gpu_mem_gib=16)]
POLICY = "olympian:sharers=3"
WEIGHTED, PRIORITY = f"{POLICY},slices=weighted", f"{POLICY},slices=priority"
PRIORITIES = {"a": 1, "b": 2, "c": 1, "d": 3}
JOBS = {  # (when it comes, in slices; how many it needs), no two ends closer than a round of turns
    "three": {"a": (0, 6), "b": (0, 9), "c": (0, 15)},
    "one waits for a place": {"a": (0, 4), "b": (0, 20), "c": (0, 9), "d": (0, 7)},
    "some come later": {"a": (0, 8), "b": (0, 30), "c": (10.5, 12), "d": (11.5, 3)},
}


def workload(jobs):
    return [
        job(
            name,
            1,
            slices * QUANTUM_S,
            at=at * QUANTUM_S,
            gpu_mem_gib=2.0,
            spec={"priority": PRIORITIES[name]},
        )
        for name, (at, slices) in jobs.items()
    ]


class Part:
    """What the dealer of turns needs to know of a part, and the slices that it still needs."""

    leaves, state, node = False, "running", "n0"

    def __init__(self, order, left):
        self.key, self.left = PartKey(order.run, 0), left
        self.terms = PartTerms.of(self.key, order.parts[0])
        self.job, self.shares = order.job, order.parts[0].slices
        self.paused = False

    def pause(self):
        self.paused = True

    def go_on(self):
        self.paused = False


class Slices(Driver):
    """Runs jobs slice by slice; `dealt` has who ran in each."""

    name, capabilities = "slices", Capabilities(terms=True)

    def __init__(self, needs):
        self.needs, self.parts, self.dealt, self.now_s = needs, {}, [], 0.0
        nodes = {node.spec.name: node for node in nodes_here(NODES)}
        self.turns = GpuTurns(nodes, QUANTUM_S, lambda: self.now_s)

    def open(self, listener):
        self.tell = listener

    def adopt(self, runs, halting):
        assert not runs

    def launch(self, order):
        self.parts[order.run] = Part(order, self.needs[order.job])
        self.tell(RunStatus(order.run, "running"))

    def new_terms(self, order):
        part = self.parts[order.run]
        part.terms = PartTerms.of(part.key, order.parts[0])

    def forget(self, run):
        self.parts.pop(run, None)

    def retire(self, job):
        pass

    def slice(self):
        """Let a slice pass."""
        self.turns.step(self.parts.values())
        runs = [part for part in self.parts.values() if not part.paused]
        assert len(runs) <= 1
        assert len(runs) == 1 or not self.parts or any(p.terms.limit for p in self.parts.values())
        self.dealt += [part.job for part in runs]
        self.now_s += QUANTUM_S
        for part in runs:
            part.left -= 1
            if not part.left:
                self.tell(RunStatus(part.key.run, "ended"))
                del self.parts[part.key.run]


class ScriptedCluster(LiveCluster):
    """A living cluster whose owner lets slices pass until something happens."""

    def __init__(self, driver):
        clock = self
        super().__init__(
            Topology(NODES), driver, lambda job: Launch(run="true"), clock, Mailbox()
        )  # fmt: skip
        self.go_live()

    def at_s(self, moment_s):
        return moment_s

    def poll(self, until_s):
        while until_s > self.now_s:
            self.now_s = max(self.now_s, min(self.driver.now_s, until_s))
            draft = BatchDraft()
            self.select(self.mailbox.take()[0], draft)
            if draft.inputs or self.now_s >= until_s or not (until_s < INF or self.runs.by_id):
                self.deliver(draft.inputs, {})
                break
            self.driver.slice()
        return super().poll(until_s)


def live(jobs, policy=POLICY):
    """Return the engine of a living cluster that has run these jobs."""
    driver = Slices({name: slices for name, (_, slices) in jobs.items()})
    made = workload(jobs)
    cluster = ScriptedCluster(driver)
    ran = Engine(
        cluster,
        compose(make_policy(policy), consolidate(cluster.topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in made], [how for _, how in made])),
        checker=Invariants(),
    )
    ran.run()
    return ran


@pytest.mark.parametrize("policy", [POLICY, WEIGHTED])
@pytest.mark.parametrize("jobs", JOBS.values(), ids=JOBS)
def test_simulated_and_live_decisions_are_the_same(jobs, policy):
    simulated, real = engine(policy, workload(jobs), NODES), live(jobs, policy)
    simulated.run()
    found, seen = decisions(simulated.log), decisions(real.log)
    assert [each.without_time() for each in seen] == [each.without_time() for each in found]
    assert len(found) == 2 * len(jobs)
    for one, other in zip(found, seen, strict=True):  # each is at most a slice of each other behind
        assert abs(one.time_s - other.time_s) <= len(jobs) * QUANTUM_S + 1e-9


def test_slices_are_those_of_the_model():
    jobs = JOBS["three"]
    dealt = live(jobs).cluster.driver.dealt
    assert len(dealt) == 30
    first = dealt.index("a") + 16  # when it has had its six
    turns = SliceTurns(dict.fromkeys("abc", 1.0))
    assert dealt[:first] == [turns.next() for _ in range(first)]
    second = first + dealt[first:].count("b") * 2
    turns = SliceTurns(dict.fromkeys("bc", 1.0))
    assert dealt[first:second] == [turns.next() for _ in range(first, second)]
    assert set(dealt[second:]) == {"c"}


def test_weights_of_jobs_are_their_parts_of_the_slices():
    """1, 2 and 1: a quarter, a half and a quarter, and never a slice more or less."""
    dealt = live({"a": (0, 40), "b": (0, 40), "c": (0, 40)}, WEIGHTED).cluster.driver.dealt
    until = len(dealt) - dealt[::-1].index("b")  # when b has had its forty, half of all
    assert until in (79, 80, 81)
    for number in range(1, until + 1):
        had = Counter(dealt[:number])
        for name, share in {"a": 0.25, "b": 0.5, "c": 0.25}.items():
            assert abs(had[name] - share * number) <= 1
    turns = SliceTurns({"a": 1.0, "b": 2.0, "c": 1.0})
    assert dealt[:until] == [turns.next() for _ in range(until)]


def test_who_comes_with_a_higher_priority_has_all_slices_and_nobody_is_started_anew():
    jobs = {"a": (0, 10), "b": (5, 6), "c": (0, 4)}
    simulated, real = engine(PRIORITY, workload(jobs), NODES), live(jobs, PRIORITY)
    simulated.run()
    found, seen = decisions(simulated.log), decisions(real.log)
    assert [each.without_time() for each in seen] == [each.without_time() for each in found]
    assert "".join(real.cluster.driver.dealt) == "acaca" + "b" * 6 + "acacaaaaa"
    assert all(job.preemptions == job.migrations == 0 for job in real.jobs.values())
