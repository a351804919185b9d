"""The dialect `pai`: whatever fits is started in order, and nothing is stopped."""

import pytest

from rota.core.errors import OptionError
from rota.core.topology import NodeSpec, Topology
from rota.reproduce.pai.dialect import PaiDialect
from rota.study import dialect as base

ROWS = [(0, 6, 100), (1, 4, 50), (2, 2, 30), (3, 2, 20), (4, 2, 10)]


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("fifo", [100, 150, 32, 52, 62]),  # three small jobs pass the second
        ("sjf", [100, 150, 32, 62, 42]),  # as one node of 8, and the shortest of them first
    ],
)
def test_jobs_pass_the_one_that_does_not_fit(lab, policy, ends):
    assert [end for end, *_ in lab.simulate(PaiDialect(), policy, (2, 4), ROWS)] == ends


def test_equal_durations_are_served_in_order_of_submission(lab):
    rows = [(0, 1, 10), (1, 1, 5), (2, 1, 5)]
    assert [end for end, *_ in lab.simulate(PaiDialect(), "sjf", (1, 1), rows)] == [10, 15, 20]


def test_a_job_larger_than_the_cluster_is_rejected(lab):
    outcome = lab.simulate(PaiDialect(), "fifo", (2, 4), [(0, 9, 10), (0, 8, 10)])
    assert outcome == [(None, 0, "rejected"), (10, 0, "done")]


def test_it_says_what_it_is(monkeypatch):
    monkeypatch.setattr(base, "load", lambda group, name: {"pai": PaiDialect}[name])
    dialect = base.create("pai")
    assert dialect.description
    assert "NSDI 2022" in dialect.source
    assert (dialect.costs, dialect.placement, dialect.wake) == ("zero", "count", None)
    assert any(name.startswith("departure") for name in dialect.notes)


@pytest.mark.parametrize(
    ("policy", "placement", "message"),
    [
        ("srtf", None, r"fifo \(their FIFO\), sjf \(their SJF\)"),
        ("fifo", "consolidate", "one big node"),
        ("sjf:strict=yes", None, "no parameters"),
    ],
)
def test_what_cannot_be_honoured_is_refused(policy, placement, message):
    with pytest.raises(OptionError, match=message):
        PaiDialect().build(policy, placement, Topology.uniform(2, 4), seed=0)


def test_several_types_of_gpus_are_refused():
    mixed = Topology([NodeSpec("a", 4, "v100"), NodeSpec("b", 4, "k80")])
    with pytest.raises(OptionError, match="one type of GPU"):
        PaiDialect().build("fifo", None, mixed, seed=0)
